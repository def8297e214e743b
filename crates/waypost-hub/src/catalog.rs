//! The catalogue: what all upstreams offer, as one.
//!
//! A [`Catalog`] is a snapshot, built anew when an upstream's lists change and read without
//! locks. It answers lists from memory and routes names through exact tables.

pub mod arguments;
pub mod build;
pub mod cursor;
pub mod endpoint;
pub mod entry;
pub mod family;
mod few;
mod globs;
mod hiding;
pub(crate) mod links;
pub mod list;
mod patterns;
pub(crate) mod read;
pub mod rules;
pub(crate) mod shaping;
mod sieve;
pub mod sound;
pub mod table;
pub(crate) mod template;

use std::collections::HashMap;
use std::sync::Arc;

use waypost_config::config::{Discovery, Family};
use waypost_wire::raw::Raw;

use crate::call::View;
use crate::member::Member;
use crate::pins::Pending;
use crate::search::meta::MetaTool;
use build::Warning;
use endpoint::Endpoint;
use entry::{Entry, Kind};
use links::Links;
use read::Reading;
use rules::Rules;
use sieve::Held;
pub use table::Table;
use table::{Listed, same};
use template::{Sides, Stance};

/// How deep a definition may be nested, and capabilities. Readers that call themselves give up
/// somewhere, usual ones at 128 levels, and then at the whole list.
pub(crate) const DEPTH: usize = 100;

/// A snapshot of everything that clients can see.
#[derive(Debug, Default)]
pub struct Catalog {
    /// In the file's order, disabled ones too.
    pub members: Vec<Arc<Member>>,
    /// Found by exposed name.
    pub tools: Arc<Table>,
    /// Found by exposed name.
    pub prompts: Arc<Table>,
    /// Found by URI.
    pub resources: Arc<Table>,
    /// Found by URI template, as text.
    pub templates: Arc<Table>,
    /// What the operator should know of it, endpoints apart.
    pub warnings: Vec<Warning>,
    /// Items on one page of a list; zero is all on one. Endpoints have their own.
    pub page_size: usize,
    /// How clients of `/mcp` come to know tools. Endpoints have their own.
    pub discovery: Discovery,
    /// In the file's order.
    endpoints: Vec<Arc<Endpoint>>,
    by_endpoint: HashMap<Arc<str>, Arc<Endpoint>>,
    readings: Readings,
    links: Links,
}

/// What the upstreams' lists hold, for the next catalogue.
type Readings = HashMap<(Kind, Arc<str>), Arc<Reading>>;

/// Names and URIs that nobody can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nothing has it.
    Unknown,
    /// Several could have it.
    Ambiguous(Vec<Arc<str>>),
    /// Some could have it of which nothing is known yet.
    Unheard {
        /// These.
        unheard: Vec<Arc<str>>,
        /// All that could have it, in the file's order.
        candidates: Vec<Arc<str>>,
    },
}

/// A view, looked up.
#[derive(Clone, Copy)]
enum Scope<'c, 'v> {
    All,
    Upstream(&'v str),
    Endpoint(&'c Endpoint),
    /// An endpoint that is not there any more.
    Nothing,
}

impl Scope<'_, '_> {
    fn shows(self, upstream: &str) -> bool {
        match self {
            Self::All => true,
            Self::Upstream(name) => *name == *upstream,
            Self::Endpoint(endpoint) => endpoint.rules.shows(upstream),
            Self::Nothing => false,
        }
    }
}

impl Catalog {
    /// One in which nothing is known of these members yet.
    pub fn of(members: Vec<Arc<Member>>, page_size: usize) -> Self {
        Self {
            members,
            page_size,
            ..Self::default()
        }
    }

    /// The same with endpoints that show nothing yet.
    #[must_use]
    pub fn with_endpoints(mut self, rules: &[Arc<Rules>]) -> Self {
        for rules in rules {
            self.add(Endpoint::empty(rules));
        }
        self
    }

    /// The same with these tools, those of one upstream one after the other.
    #[must_use]
    pub fn with_tools(mut self, tools: &[Arc<Entry>]) -> Self {
        self.tools = Arc::new(Table::new(tools));
        self
    }

    /// The same where clients of `/mcp` come to know tools in this way.
    #[must_use]
    pub fn with_discovery(mut self, discovery: Discovery) -> Self {
        self.discovery = discovery;
        self
    }

    fn add(&mut self, endpoint: Endpoint) {
        let endpoint = Arc::new(endpoint);
        self.endpoints.push(Arc::clone(&endpoint));
        let name = Arc::clone(&endpoint.rules.name);
        self.by_endpoint.insert(name, endpoint);
    }

    /// The table of a kind at `/mcp`.
    pub fn table(&self, kind: Kind) -> &Arc<Table> {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Resource => &self.resources,
            Kind::Template => &self.templates,
        }
    }

    /// The named endpoints, in the file's order.
    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// The endpoint of this name.
    pub fn endpoint(&self, name: &str) -> Option<&Arc<Endpoint>> {
        self.by_endpoint.get(name)
    }

    fn scope<'c, 'v>(&'c self, view: &'v View) -> Scope<'c, 'v> {
        match view {
            View::All => Scope::All,
            View::Upstream(name) => Scope::Upstream(name),
            View::Endpoint(name) => match self.endpoint(name) {
                Some(endpoint) => Scope::Endpoint(endpoint),
                None => Scope::Nothing,
            },
        }
    }

    /// Whether a view shows anything of this upstream.
    pub fn shows(&self, view: &View, upstream: &str) -> bool {
        self.scope(view).shows(upstream)
    }

    /// The members that a view shows, disabled ones left out.
    pub fn shown<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Arc<Member>> {
        let scope = self.scope(view);
        self.members
            .iter()
            .filter(move |m| !m.settings.disabled && scope.shows(&m.name))
    }

    /// What a view shows under this name or URI.
    pub fn find(&self, kind: Kind, view: &View, name: &str) -> Option<&Arc<Entry>> {
        match self.scope(view) {
            Scope::All => self.table(kind).get(name),
            Scope::Upstream(upstream) => self.table(kind).get_at(upstream, name),
            Scope::Endpoint(endpoint) => endpoint.table(kind)?.get(name),
            Scope::Nothing => None,
        }
    }

    /// What a view shows of what an upstream itself calls `original`.
    pub fn of_member(
        &self,
        kind: Kind,
        view: &View,
        at: &Member,
        original: &str,
    ) -> Option<&Arc<Entry>> {
        let table = match self.scope(view) {
            Scope::All => self.table(kind),
            Scope::Upstream(upstream) if *at.name == *upstream => self.table(kind),
            Scope::Endpoint(endpoint) => endpoint.table(kind)?,
            Scope::Upstream(_) | Scope::Nothing => return None,
        };
        table.of_member(at, original)
    }

    /// Whether a view shows what an upstream itself calls `original`.
    pub fn shows_original(&self, kind: Kind, view: &View, at: &Member, original: &str) -> bool {
        self.of_member(kind, view, at, original).is_some()
    }

    /// The tables in which all tools are that any view shows: an endpoint with names of its own may
    /// show what `/mcp` has no name for.
    pub(crate) fn tool_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        let own = self.endpoints.iter().filter(|e| e.rules.prefix.is_some());
        let own = own.filter_map(|endpoint| endpoint.table(Kind::Tool));
        std::iter::once(&self.tools).chain(own)
    }

    /// What a view lists of a kind.
    pub fn list(&self, kind: Kind, view: &View) -> Listed<'_> {
        match view {
            View::All => self.table(kind).listed(),
            View::Upstream(name) => self.table(kind).listed_of(name),
            View::Endpoint(name) => {
                let table = self.endpoint(name).and_then(|own| own.table(kind));
                table.map_or_else(Listed::nothing, |table| table.listed())
            }
        }
    }

    /// The table of a kind in a view that has one of its own.
    pub(crate) fn table_of(&self, kind: Kind, view: &View) -> Option<&Arc<Table>> {
        match self.scope(view) {
            Scope::All => Some(self.table(kind)),
            Scope::Endpoint(endpoint) => endpoint.table(kind),
            Scope::Upstream(_) | Scope::Nothing => None,
        }
    }

    /// Whether a view's tools are to be searched for instead of listed.
    pub fn searches(&self, view: &View) -> bool {
        let discovery = match self.scope(view) {
            Scope::All => self.discovery,
            Scope::Endpoint(endpoint) => endpoint.rules.discovery,
            Scope::Upstream(_) | Scope::Nothing => Discovery::Direct,
        };
        discovery == Discovery::Search
    }

    /// The tools that `tools/list` has in a view that is searched.
    pub(crate) fn meta_tools(&self, view: &View) -> Raw {
        let is_there = |kind| {
            let any = |kind| !self.list(kind, view).is_empty();
            match kind {
                Kind::Tool => true,
                Kind::Prompt => any(Kind::Prompt),
                Kind::Resource | Kind::Template => any(Kind::Resource) || any(Kind::Template),
            }
        };
        let shown = MetaTool::ALL.into_iter().filter(|tool| is_there(tool.kind));
        let definitions: Vec<Raw> = shown.map(MetaTool::definition).collect();
        Raw::array(&definitions)
    }

    /// How many of a kind a view shows, and how many its upstreams have besides.
    pub fn counts(&self, kind: Kind, view: &View) -> (usize, usize) {
        let shown = self.list(kind, view).len();
        let scope = self.scope(view);
        let is_there = |entry: &&Arc<Entry>| match &entry.choice {
            None => scope.shows(&entry.member.name),
            Some(choice) => {
                let mut all = choice.instances.iter();
                all.any(|(_, entry)| scope.shows(&entry.member.name))
            }
        };
        let whole = match scope {
            Scope::Endpoint(_) => self.table(kind).entries().filter(is_there).count(),
            Scope::All | Scope::Upstream(_) | Scope::Nothing => shown,
        };
        (shown, whole.saturating_sub(shown))
    }

    /// What stands before the names of this member's tools and prompts in a view.
    pub fn prefix<'a>(&'a self, view: &View, member: &'a Member) -> &'a str {
        let endpoint = match view {
            View::Endpoint(name) => self.endpoint(name),
            View::All | View::Upstream(_) => None,
        };
        let own = endpoint.and_then(|endpoint| endpoint.rules.prefix.as_deref());
        own.unwrap_or(&member.settings.prefix)
    }

    /// Whether tools or prompts of this member may have this name in a view.
    pub fn may_name(&self, view: &View, member: &Member, name: &str) -> bool {
        let family = member.settings.family.as_ref();
        let of_family = |family: &Family| {
            let rest = name.strip_prefix(&*family.name);
            rest.is_some_and(|rest| rest.starts_with('_'))
        };
        name.starts_with(self.prefix(view, member)) || family.is_some_and(of_family)
    }

    /// Items on one page of a view's lists; zero is all on one.
    pub fn page_size(&self, view: &View) -> usize {
        match self.scope(view) {
            Scope::Endpoint(endpoint) => endpoint.rules.page_size,
            Scope::All | Scope::Upstream(_) | Scope::Nothing => self.page_size,
        }
    }

    /// A member by its name or one of its former names.
    pub fn member(&self, name: &str) -> Option<&Arc<Member>> {
        named(&self.members, name)
    }

    /// The views whose list of this kind is another one than `before`.
    pub(crate) fn changed(&self, before: &Self, kind: Kind) -> Vec<View> {
        let upstreams = self
            .members
            .iter()
            .map(|m| View::Upstream(Arc::clone(&m.name)));
        let endpoints = self.endpoints.iter();
        let endpoints = endpoints.map(|own| View::Endpoint(Arc::clone(&own.rules.name)));
        let views = std::iter::once(View::All).chain(upstreams).chain(endpoints);
        let differs = |view: &View| {
            let rendered = |catalog: &Self| match kind {
                Kind::Tool if catalog.searches(view) => catalog.meta_tools(view),
                _ => catalog.list(kind, view).rendered,
            };
            !same(&rendered(self), &rendered(before))
        };
        views.filter(differs).collect()
    }

    /// Whether its members are those of `other`, and the rules of its endpoints too; and those who
    /// have resources, or may have some, are the same, of which the first has those that others have
    /// too.
    pub(crate) fn is_arranged_as(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.members, &other.members);
        let members = mine.iter().zip(theirs).all(|(a, b)| Arc::ptr_eq(a, b));
        let both = self.endpoints.iter().zip(&other.endpoints);
        let rules = both
            .into_iter()
            .all(|(a, b)| Arc::ptr_eq(&a.rules, &b.rules));
        let counts = (mine.len(), self.endpoints.len());
        let resources = [Kind::Resource, Kind::Template].into_iter().all(|kind| {
            let (mine, theirs) = (self.table(kind), other.table(kind));
            mine.upstreams().eq(theirs.upstreams())
        });
        let counted = counts == (theirs.len(), other.endpoints.len());
        members && rules && resources && counted && self.links == other.links
    }

    /// Who has this resource, and under which URI it knows it.
    ///
    /// In this order: the qualified form, the lists, a template that begins like it, the only
    /// upstream with resources, once it is known of all whether they have any.
    ///
    /// # Errors
    /// [`Missing`] when nobody or several could have it.
    pub fn resource_owner(&self, view: &View, uri: &str) -> Result<(Arc<Member>, String), Missing> {
        if let Some((name, plain)) = crate::naming::split_uri(uri)
            && let Some(member) = self.member(name)
            && self.shows(view, &member.name)
        {
            if member.settings.disabled || !self.lets_read(view, member, &plain) {
                return Err(Missing::Unknown);
            }
            return Ok((Arc::clone(member), plain));
        }
        if let Some(entry) = self.find(Kind::Resource, view, uri) {
            return Ok((Arc::clone(&entry.member), entry.original.to_string()));
        }
        let mut able = self.template_owners(view, uri);
        if able.is_empty() {
            let may = |m: &&Arc<Member>| self.may_have_resources(&m.name);
            able = self.shown(view).filter(may).cloned().collect();
            // A template stands for it that nobody may see: it is no other upstream's.
            if able.iter().any(|member| self.denies(view, member, uri)) {
                return Err(Missing::Unknown);
            }
        }
        able.retain(|member| self.opens(view, member, uri));
        let names = || able.iter().map(|member| Arc::clone(&member.name));
        let unheard: Vec<_> = names().filter(|name| self.is_unheard(name)).collect();
        match able.as_slice() {
            [] => Err(Missing::Unknown),
            // What it has may be anything, and asking another one would be a guess.
            _ if !unheard.is_empty() => Err(Missing::Unheard {
                unheard,
                candidates: names().collect(),
            }),
            [member] => Ok((Arc::clone(member), uri.to_owned())),
            // Nothing says which; asking any of them could read another server's secret.
            _ => Err(Missing::Ambiguous(names().collect())),
        }
    }

    /// Whether a resource of this member may be read, as its server calls it.
    pub(crate) fn lets_read(&self, view: &View, member: &Member, original: &str) -> bool {
        self.shows_original(Kind::Resource, view, member, original)
            || self.opens(view, member, original)
    }

    /// Whether a view and the file let a URI of this member be read that is in no list: none that
    /// only a template stands for which is denied.
    fn opens(&self, view: &View, member: &Member, original: &str) -> bool {
        let by_view = match self.scope(view) {
            Scope::All => true,
            Scope::Upstream(upstream) => *member.name == *upstream,
            Scope::Endpoint(endpoint) => endpoint.opens(&member.name, original),
            Scope::Nothing => false,
        };
        let by_file = || {
            let Some(shaping) = member.shaping() else {
                return true;
            };
            let sides = self.reading(Kind::Template, &member.name);
            let sides = sides.map(|reading| &reading.sides);
            let globs = shaping.globs(Kind::Resource);
            globs.allows_uri(original, |uri| {
                sides.map_or(Stance::Unsaid, |sides| sides.stance(uri))
            })
        };
        by_view && by_file()
    }

    /// Whether a template of this member stands for a URI that is denied, and none that is shown.
    fn denies(&self, view: &View, member: &Member, uri: &str) -> bool {
        let mut sides = self.sides(view, &member.name);
        sides.any(|sides| sides.stance(uri) == Stance::Denied)
    }

    /// The templates of an upstream where some of them may be hidden by the file or the view.
    fn sides<'c>(
        &'c self,
        view: &View,
        upstream: &str,
    ) -> impl Iterator<Item = &'c Sides> + use<'c> {
        let by_file = self.reading(Kind::Template, upstream);
        let by_view = match self.scope(view) {
            Scope::Endpoint(endpoint) => endpoint.sides(upstream),
            Scope::All | Scope::Upstream(_) | Scope::Nothing => None,
        };
        by_file
            .map(|reading| &reading.sides)
            .into_iter()
            .chain(by_view)
    }

    /// How much it is to find out whose a URI is that `upstream` named; in templates to look at.
    fn cost(&self, view: &View, upstream: &str, uri: &str) -> usize {
        let all = self
            .templates_of(view)
            .map_or(0, |all| all.templates().cost(uri));
        let own: usize = self
            .sides(view, upstream)
            .map(|sides| sides.cost(uri))
            .sum();
        1 + all + own
    }

    fn templates_of(&self, view: &View) -> Option<&Arc<Table>> {
        match self.scope(view) {
            Scope::All | Scope::Upstream(_) => Some(&self.templates),
            Scope::Endpoint(endpoint) => endpoint.table(Kind::Template),
            Scope::Nothing => None,
        }
    }

    fn reading(&self, kind: Kind, upstream: &str) -> Option<&Arc<Reading>> {
        self.readings.get(&(kind, Arc::from(upstream)))
    }

    /// Pinned tools of an upstream that are not as they were.
    pub fn pending(&self, upstream: &str) -> &[Pending] {
        let held = self.held(Kind::Tool, upstream);
        held.map(|held| held.pending.as_slice()).unwrap_or_default()
    }

    /// Original names that the file hides of an upstream, sorted.
    pub fn hidden(&self, kind: Kind, upstream: &str) -> &[Arc<str>] {
        let held = self.held(kind, upstream);
        held.map(|held| held.hidden.as_slice()).unwrap_or_default()
    }

    fn held(&self, kind: Kind, upstream: &str) -> Option<&Held> {
        self.reading(kind, upstream).map(|reading| &reading.held)
    }

    /// Whose templates stand for a URI; where none does, whose begin like it. Servers differ in
    /// what they let a variable be, so the second is a guess, but no other would know it better.
    fn template_owners(&self, view: &View, uri: &str) -> Vec<Arc<Member>> {
        let scope = self.scope(view);
        let Some(table) = self.templates_of(view) else {
            return Vec::new();
        };
        let begins = |entry: &&Arc<Entry>| {
            let literal = template::beginning(&entry.original);
            !literal.is_empty() && scope.shows(&entry.member.name)
        };
        let begin = table.templates().begin(uri).filter(begins);
        let stand = |entry: &&Arc<Entry>| template::stands_for(&entry.original, uri);
        let any = begin.clone().any(|entry| stand(&entry));
        let mut owners: Vec<Arc<Member>> = Vec::new();
        for entry in begin.filter(|entry| !any || stand(entry)) {
            if !owners.iter().rev().any(|m| Arc::ptr_eq(m, &entry.member)) {
                owners.push(Arc::clone(&entry.member));
            }
        }
        owners
    }
}

/// The member of this name, or with it among its former names.
pub(crate) fn named<'a>(members: &'a [Arc<Member>], name: &str) -> Option<&'a Arc<Member>> {
    let named = members.iter().find(|m| *m.name == *name);
    named.or_else(|| members.iter().find(|m| m.is_called(name)))
}
