//! Makes one catalogue of all upstreams' lists.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use waypost_config::config::{Naming, OnCollision};
use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, clip};

use super::endpoint;
use super::entry::{Definition, Entry, Kind};
use super::family::{self, Candidate, Group, Merge};
use super::few::Few;
use super::links::{Links, Qualifier};
use super::read::Reading;
use super::rules::Rules;
use super::table::{Shelf, Shelves, Table};
use super::{Catalog, Readings};
use crate::call::View;
use crate::member::Member;
use crate::naming;

/// Something that the operator should know about a catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Warning {
    /// Whose definition is renamed or left out.
    pub upstream: Arc<str>,
    /// What was done with it and why; for the log.
    pub text: String,
}

/// A catalogue and what comes with it.
#[derive(Debug)]
pub struct Built {
    /// The catalogue.
    pub catalog: Catalog,
    /// What each upstream has as its [`claims`](crate::registry::Learned::claims) from now on;
    /// none where it is left out.
    pub claims: Claims,
}

/// By upstream: names that it keeps against one before it in the file.
pub type Claims = HashMap<Arc<str>, BTreeSet<String>>;

/// Builds the catalogue of all members.
///
/// `before` is the one that clients see now: a name that is live there stays with its upstream,
/// whoever arrives later. Only an upstream before it in the file that is just connecting for
/// the first time still takes the name, so that it does not matter who of them answers first.
/// What did not change since is not made again.
pub fn build(
    members: &[Arc<Member>],
    naming: &Naming,
    rules: &[Arc<Rules>],
    before: &Catalog,
) -> Built {
    let mut warnings = Vec::new();
    let mut claims = Claims::new();
    let mut catalog = Catalog {
        discovery: before.discovery,
        readings: read(members, before),
        ..Catalog::of(members.to_vec(), before.page_size)
    };
    let mut table = |kind, whole: &Catalog| {
        let shelves = Builder {
            kind,
            naming,
            whole,
            rules: None,
            before: before.table(kind),
            warnings: &mut warnings,
            claims: &mut claims,
        }
        .shelves();
        Table::of_known(shelves, [before.table(kind)])
    };
    // Tools may be shown with resources, so it has to be known whose those are.
    catalog.resources = table(Kind::Resource, &catalog);
    catalog.templates = table(Kind::Template, &catalog);
    catalog.links = Links::new(members, &[]);
    catalog.tools = table(Kind::Tool, &catalog);
    catalog.prompts = table(Kind::Prompt, &catalog);
    catalog.warnings = warnings;
    for rules in rules {
        let endpoint = endpoint::build(rules, naming, &catalog, before, &mut claims);
        catalog.add(endpoint);
    }
    catalog.links = Links::new(members, &catalog.endpoints);
    Built { catalog, claims }
}

fn read(members: &[Arc<Member>], before: &Catalog) -> Readings {
    let mut readings = Readings::new();
    for member in members.iter().filter(|member| !member.settings.disabled) {
        for kind in Kind::ALL {
            let key = (kind, Arc::clone(&member.name));
            if let Some(reading) = Reading::of(member, kind, before.readings.get(&key)) {
                readings.insert(key, reading);
            }
        }
    }
    readings
}

/// Gives names to what the upstreams have of one kind.
pub(super) struct Builder<'a> {
    pub(super) kind: Kind,
    pub(super) naming: &'a Naming,
    /// What all upstreams have, as far as it is made.
    pub(super) whole: &'a Catalog,
    /// Of the endpoint whose own names these are; `None` makes those of `/mcp`.
    pub(super) rules: Option<&'a Rules>,
    pub(super) before: &'a Table,
    pub(super) warnings: &'a mut Vec<Warning>,
    pub(super) claims: &'a mut Claims,
}

/// By wished name the upstream that gets it.
type Owners = HashMap<String, Option<Arc<str>>>;

/// See [`Entry::ui`].
type Ui = Vec<(Raw, Raw)>;

/// By name since when somebody is there who wants it and is not done with its first look.
type Expected<'w> = HashMap<&'w str, Option<Instant>>;

/// A definition with the name it would like to have.
#[derive(Clone)]
struct Wish<'a> {
    member: &'a Arc<Member>,
    reading: &'a Arc<Reading>,
    definition: &'a Definition,
    name: String,
    /// Of a tool that stands for those of several upstreams.
    family: Option<&'a str>,
}

/// The names that those want who are not done with their first look, and since when.
fn expected<'w>(wishes: &'w [Wish<'_>]) -> Expected<'w> {
    let mut expected = Expected::new();
    for wish in wishes.iter().filter(|wish| wish.member.is_first_look()) {
        let since = wish.member.since();
        let first = expected.entry(&wish.name).or_insert(since);
        *first = since.min(*first);
    }
    expected
}

impl Builder<'_> {
    /// What each upstream shows, in the order of the file.
    pub(super) fn shelves(&mut self) -> Shelves {
        let whole = self.whole;
        let of = |member: &Arc<Member>| whole.readings.get(&(self.kind, Arc::clone(&member.name)));
        let readings: Vec<_> = whole.members.iter().filter_map(of).collect();
        if self.rules.is_none() {
            let dropped = readings.iter().flat_map(|reading| &reading.dropped);
            self.warnings.extend(dropped.cloned());
        }
        let wishes = readings.iter().flat_map(|reading| self.wishes(reading));
        let wishes: Vec<Wish<'_>> = wishes.collect();
        let groups = self.groups(&wishes);
        if groups.is_empty() {
            let owners = self.owners(&wishes);
            let names = self.names(&wishes, &owners);
            let named = wishes.iter().zip(names);
            let named = named.filter_map(|(wish, name)| Some((wish, name?)));
            return self.put(&named.collect::<Vec<_>>(), &[]);
        }
        self.with_groups(&wishes, groups)
    }

    /// The same where some of the tools are shown as one.
    fn with_groups<'w>(&mut self, wishes: &[Wish<'w>], groups: Vec<Group<'w>>) -> Shelves {
        let joined: HashSet<usize> = groups.iter().flat_map(|g| g.of.iter().copied()).collect();
        let alone = wishes.iter().enumerate();
        let alone = alone.filter(|(at, _)| !joined.contains(at));
        let alone = alone.map(|(at, wish)| (at, wish.clone()));
        let for_all = groups
            .iter()
            .filter_map(|group| self.for_all(group, wishes));
        let mut contenders: Vec<(usize, Wish<'w>)> = alone.chain(for_all).collect();
        // Who is first in the file is first here too.
        contenders.sort_by_key(|(at, _)| *at);
        let (places, contenders): (Vec<usize>, Vec<Wish<'w>>) = contenders.into_iter().unzip();
        let owners = self.owners(&contenders);
        let names = self.names(&contenders, &owners);
        let mut names: HashMap<usize, Option<String>> = places.into_iter().zip(names).collect();
        let groups = groups.into_iter().map(|group| {
            let name = group.of.first().and_then(|at| names.remove(at)).flatten();
            (group, name)
        });
        let groups: Vec<_> = groups.collect();
        let named = wishes.iter().enumerate().filter_map(|(at, wish)| {
            // What is shown for all has its own name at the endpoint of its upstream.
            let name = if joined.contains(&at) {
                Some(wish.name.clone())
            } else {
                names.remove(&at).flatten()
            };
            Some((wish, name?))
        });
        let named: Vec<(&Wish<'_>, String)> = named.collect();
        self.put(&named, &groups)
    }

    /// Tools that are shown as one.
    fn groups<'w>(&mut self, wishes: &[Wish<'w>]) -> Vec<Group<'w>> {
        let in_family = |wish: &Wish<'_>| wish.member.settings.family.is_some();
        if self.kind != Kind::Tool || !wishes.iter().any(in_family) {
            return Vec::new();
        }
        let candidates = wishes.iter().map(|wish| Candidate {
            member: wish.member,
            definition: wish.definition,
        });
        family::groups(&candidates.collect::<Vec<_>>(), self.warnings)
    }

    /// What stands for all of a group, in the place of the first.
    fn for_all<'w>(&self, group: &Group<'w>, wishes: &[Wish<'w>]) -> Option<(usize, Wish<'w>)> {
        let at = *group.of.first()?;
        let (first, family) = (wishes.get(at)?, &*group.family.name);
        let own = self.rules.and_then(|rules| rules.prefix.clone());
        let prefix = own.unwrap_or_else(|| format!("{family}_"));
        let wish = Wish {
            name: naming::exposed(family, &prefix, group.name, self.naming.max_length),
            family: Some(family),
            ..first.clone()
        };
        Some((at, wish))
    }

    /// Puts what has a name onto shelves.
    fn put(
        &self,
        named: &[(&Wish<'_>, String)],
        groups: &[(Group<'_>, Option<String>)],
    ) -> Shelves {
        let same =
            |a: &(&Wish<'_>, String), b: &(&Wish<'_>, String)| Arc::ptr_eq(a.0.member, b.0.member);
        let shelves = named.chunk_by(same).filter_map(|own| self.shelf(own));
        let in_family = |shelf: &Arc<Shelf>| {
            self.kind == Kind::Tool && shelf.member().settings.family.is_some()
        };
        let (own, others): (Vec<_>, Vec<_>) = shelves.partition(in_family);
        let merge = Merge {
            own,
            known: vec![self.before],
        };
        let listed = merge.named(groups);
        family::together(others, (listed, merge.own), &self.whole.members)
    }

    /// What each wish is shown as, if at all. What takes the place of a name that another has must
    /// not take a third one's.
    fn names(&mut self, wishes: &[Wish<'_>], owners: &Owners) -> Vec<Option<String>> {
        let owner = |wish: &Wish<'_>| owners.get(&wish.name).and_then(Option::as_ref);
        let owns = |wish: &Wish<'_>| owner(wish) == Some(&wish.member.name);
        let mut names = vec![None; wishes.len()];
        let mut taken = HashSet::new();
        let expected = expected(wishes);
        for (wish, name) in wishes.iter().zip(&mut names) {
            if !owns(wish) {
                *name = self.kept(wish, &expected);
                taken.extend(name.clone());
            }
        }
        // Of two at one upstream the one that has it now, then the one that is called so there.
        let has = |wish: &Wish<'_>| {
            let live = self.live(wish);
            live.is_some_and(|live| *live.exposed == *wish.name)
        };
        let is_called = |wish: &Wish<'_>| wish.definition.renamed.is_none();
        let turns: [&dyn Fn(&Wish<'_>) -> bool; 3] = [&has, &is_called, &|_| true];
        for is_its_turn in turns {
            for (wish, name) in wishes.iter().zip(&mut names) {
                if name.is_none()
                    && owns(wish)
                    && is_its_turn(wish)
                    && taken.insert(wish.name.clone())
                {
                    *name = Some(wish.name.clone());
                }
            }
        }
        let named = wishes.iter().zip(&mut names);
        let mut few: Option<Few> = None;
        for (wish, name) in named.filter(|(wish, name)| name.as_ref() != Some(&wish.name)) {
            if few.as_ref().is_none_or(|few| !few.is_about(wish.member)) {
                self.tell(few.replace(Few::new(wish.member)));
            }
            let (shown, text) = self.settle(wish, owner(wish), name.take(), &mut taken);
            *name = shown;
            if let Some(few) = &mut few {
                few.add(|| text);
            }
        }
        self.tell(few);
        names
    }

    /// The name that was given to a definition in place of another and is live: it stays too,
    /// unless an upstream wants it that has the older right.
    fn kept(&self, wish: &Wish<'_>, expected: &Expected<'_>) -> Option<String> {
        let live = self.live(wish)?;
        let fallbacks = self.fallbacks(wish);
        let is_one = fallbacks.iter().any(|name| **name == *live.exposed);
        let since = expected.get(&*live.exposed);
        let is_wanted = since.is_some_and(|since| *since <= wish.member.since());
        (is_one && !is_wanted).then(|| live.exposed.to_string())
    }

    /// What a definition is shown as now.
    fn live(&self, wish: &Wish<'_>) -> Option<&Arc<Entry>> {
        let Some(family) = wish.family else {
            return self
                .before
                .of_member(wish.member, &wish.definition.original);
        };
        self.before.entries().find(|entry| {
            let choice = entry.choice.as_ref();
            choice.is_some_and(|choice| *choice.family == *family)
                && entry.plain_name() == wish.definition.plain_name()
        })
    }

    /// What a definition whose name another has is shown as, in this order.
    fn fallbacks(&self, wish: &Wish<'_>) -> Vec<String> {
        let upstream = wish.family.unwrap_or(&wish.member.name);
        let original = wish.definition.plain_name();
        if self.is_uri() {
            return vec![naming::qualified_uri(upstream, original)];
        }
        match self.naming.on_collision {
            OnCollision::Prefix => {
                let most = self.naming.max_length;
                [naming::qualified, naming::distinct]
                    .map(|name| name(upstream, original, most))
                    .into()
            }
            OnCollision::Error | OnCollision::First => Vec::new(),
        }
    }

    /// The shelf of one upstream; the one that clients see now if nothing on it changed.
    fn shelf(&self, named: &[(&Wish<'_>, String)]) -> Option<Arc<Shelf>> {
        let Wish {
            member, reading, ..
        } = named.first()?.0;
        let ui = self.ui(named);
        let is_as_before = |shelf: &&Arc<Shelf>| {
            let same = |(entry, ((wish, name), ui)): (&Arc<Entry>, (&(&Wish<'_>, String), &Ui))| {
                *entry.exposed == **name
                    && entry.original == wish.definition.original
                    && entry.ui == *ui
            };
            shelf.is_made_of(reading)
                && shelf.entries().len() == named.len()
                && shelf.entries().iter().zip(named.iter().zip(&ui)).all(same)
        };
        let known = self.before.whole_shelf(&member.name).filter(is_as_before);
        if let Some(shelf) = known {
            return Some(Arc::clone(shelf));
        }
        let made = named.iter().zip(&ui);
        let made = made.map(|((wish, name), ui)| wish.definition.named(self.kind, name, ui));
        let made: Vec<Raw> = made.collect();
        let text = Raw::array(&made);
        // Parts of the one text, so that there are no two.
        let parts = text.as_array().unwrap_or(made);
        let parts = named.iter().zip(parts.into_iter().zip(ui));
        let entries = parts.map(|((wish, name), (definition, ui))| {
            let entry = wish.definition.entry(member, name, definition);
            Arc::new(entry.with_ui(ui))
        });
        let shelf = Shelf::sorted(member, entries.collect(), text);
        Some(Arc::new(shelf.made_of(reading)))
    }

    /// Of the resources that each tool of one upstream is shown with those that lead to another
    /// upstream, each with the form that leads back.
    fn ui(&self, named: &[(&Wish<'_>, String)]) -> Vec<Ui> {
        let Some((Wish { member, .. }, _)) = named.first() else {
            return Vec::new();
        };
        let is_mixed = self.whole.may_mislead(&View::All, &member.name);
        let mut qualifier = Qualifier::new(self.whole, &View::All, &member.name);
        let mut qualified = |uri: &Raw| {
            let qualified = qualifier.of(&uri.as_str()?)?;
            Some((uri.clone(), Raw::string(&qualified)))
        };
        let of = |(wish, _): &(&Wish<'_>, String)| {
            let uris = wish.definition.ui.iter().filter(|_| is_mixed);
            uris.filter_map(&mut qualified).collect()
        };
        named.iter().map(of).collect()
    }

    /// One upstream's definitions, in order.
    fn wishes<'r>(&self, reading: &'r Arc<Reading>) -> Vec<Wish<'r>> {
        let member = &reading.member;
        let shown = |original: &str| {
            let is_allowed =
                |rules: &Rules| rules.shows(&member.name) && rules.allows(self.kind, original);
            self.rules.is_none_or(is_allowed)
        };
        let definitions = reading.definitions.iter();
        let shown = definitions.filter(|definition| shown(&definition.original));
        let wishes = shown.map(|definition| Wish {
            member,
            reading,
            definition,
            name: self.wished_name(member, definition),
            family: None,
        });
        wishes.collect()
    }

    fn wished_name(&self, member: &Member, definition: &Definition) -> String {
        let original = &*definition.original;
        match self.kind {
            Kind::Tool | Kind::Prompt => {
                let own = self.rules.and_then(|rules| rules.prefix.as_deref());
                let prefix = own.unwrap_or(&member.settings.prefix);
                let name = definition.plain_name();
                naming::exposed(&member.name, prefix, name, self.naming.max_length)
            }
            // It looks like the qualified form of an upstream's, to which it would be read.
            Kind::Resource | Kind::Template if self.is_qualified(original) => {
                naming::qualified_uri(&member.name, original)
            }
            Kind::Resource | Kind::Template => original.to_owned(),
        }
    }

    fn is_qualified(&self, uri: &str) -> bool {
        naming::split_uri(uri).is_some_and(|(name, _)| self.whole.member(name).is_some())
    }

    /// Which upstream gets each wished name; nobody (`None`) where the policy is `error` and
    /// several want it.
    fn owners(&mut self, wishes: &[Wish<'_>]) -> Owners {
        let mut wanted: HashMap<&str, Vec<&Wish<'_>>> = HashMap::new();
        for wish in wishes {
            let wanting = wanted.entry(&wish.name).or_default();
            let is_it =
                |one: &&Wish<'_>| Arc::ptr_eq(one.member, wish.member) && one.family == wish.family;
            if !wanting.iter().any(is_it) {
                wanting.push(wish);
            }
        }
        let nobody = self.naming.on_collision == OnCollision::Error && !self.is_uri();
        let mut owners = HashMap::with_capacity(wanted.len());
        for (name, wanting) in wanted {
            let owner = match wanting.as_slice() {
                [] | [_, _, ..] if nobody => None,
                several => self.owner(name, several),
            };
            owners.insert(name.to_owned(), owner);
        }
        owners
    }

    /// Who of those that want a name, in the file's order, gets it.
    fn owner(&mut self, name: &str, wanting: &[&Wish<'_>]) -> Option<Arc<str>> {
        // Names of an endpoint's own are apart from those of all others.
        let scope = self.rules.map(|rules| format!("{}/", rules.name));
        let scope = scope.unwrap_or_default();
        let claim = format!("{scope}{} {name}", self.kind.list_member());
        let claims = |m: &Member| m.learned().is_some_and(|l| l.claims.contains(&claim));
        let claimed = wanting
            .iter()
            .position(|wish| self.behind(wish).any(|m| claims(m)));
        let at = claimed.or_else(|| self.holder(name, wanting)).unwrap_or(0);
        let wish = *wanting.get(at)?;
        let owner = Arc::clone(&wish.member.name);
        // Kept while the other is away too: what is known of it may be lost over a restart.
        if claimed.is_some() || at > 0 {
            // Which of a family speaks for it may be another tomorrow.
            let behind = self.behind(wish).map(|m| Arc::clone(&m.name));
            for name in behind.collect::<Vec<_>>() {
                let own = self.claims.entry(name).or_default();
                own.insert(claim.clone());
            }
        }
        Some(owner)
    }

    /// Who of them has the name now, unless one before it is not done with its first look and came
    /// no later.
    fn holder(&self, name: &str, wanting: &[&Wish<'_>]) -> Option<usize> {
        let live = self.before.get(name)?;
        let has = |wish: &&Wish<'_>| match (wish.family, &live.choice) {
            (Some(own), Some(choice)) => *choice.family == *own,
            _ => wish.member.name == live.member.name,
        };
        let at = wanting.iter().position(has)?;
        let since = self.behind(wanting.get(at)?).map(|m| m.since()).min()?;
        let contests = |m: &Arc<Member>| m.is_first_look() && m.since() <= since;
        let before = wanting.iter().take(at);
        let contested = before.map(|wish| wish.member).any(contests);
        (!contested).then_some(at)
    }

    /// Whose tool it is; of one that stands for those of several, all of the family.
    fn behind<'w>(&'w self, wish: &Wish<'w>) -> impl Iterator<Item = &'w Arc<Member>> + use<'w> {
        let alone = wish.family.is_none().then_some(wish.member);
        let members = self.whole.members.iter();
        let together = wish.family.into_iter().flat_map(move |family| {
            members.clone().filter(move |member| {
                let own = member.settings.family.as_ref();
                own.is_some_and(|own| own.name == family)
            })
        });
        alone.into_iter().chain(together)
    }

    fn tell(&mut self, few: Option<Few>) {
        let word = self.kind.word();
        let others = |more| format!("{more} more {word}s have another name than their own");
        let told = few.map(|few| few.told(others));
        self.warnings.extend(told.into_iter().flatten());
    }

    /// The name a wish ends up with that does not get its own, if any: `kept`, or the first that
    /// is not taken; and what is said of it.
    fn settle(
        &self,
        wish: &Wish<'_>,
        owner: Option<&Arc<str>>,
        kept: Option<String>,
        taken: &mut HashSet<String>,
    ) -> (Option<String>, String) {
        let free = || {
            let mut fallbacks = self.fallbacks(wish).into_iter();
            fallbacks.find(|name| taken.insert(name.clone()))
        };
        let shown = kept.or_else(free);
        let (word, name) = (self.kind.word(), clip(&wish.name, NAME));
        let then = match &shown {
            Some(shown) => format!("shown as `{}`", clip(shown, NAME)),
            None => "not shown; hint: set `prefix` on one of the upstreams".to_owned(),
        };
        let text = match owner {
            Some(_) if self.is_uri() => {
                format!("{word} `{name}` belongs to another upstream, {then}")
            }
            Some(owner) if *owner == wish.member.name => {
                format!("{word} name `{name}` is live for another, {then}")
            }
            Some(owner) => format!("{word} name `{name}` is used by {owner} too, {then}"),
            None => format!("{word} name `{name}` is used by several upstreams too, {then}"),
        };
        (shown, text)
    }

    fn is_uri(&self) -> bool {
        matches!(self.kind, Kind::Resource | Kind::Template)
    }
}
