//! The catalogue: what all upstreams offer, as one.
//!
//! A [`Catalog`] is a snapshot, built anew when an upstream's lists change and read without
//! locks. It answers lists from memory and routes names through exact tables.

pub mod build;
pub mod entry;
pub mod list;

use std::collections::HashMap;
use std::sync::Arc;

use waypost_wire::raw::Raw;

use crate::call::View;
use crate::member::Member;
use build::Warning;
use entry::{Entry, Kind};

/// A snapshot of everything that clients can see.
#[derive(Debug, Default)]
pub struct Catalog {
    /// In the file's order, disabled ones too.
    pub members: Vec<Arc<Member>>,
    /// Found by exposed name.
    pub tools: Table,
    /// Found by exposed name.
    pub prompts: Table,
    /// Found by URI.
    pub resources: Table,
    /// Found by URI template, as text.
    pub templates: Table,
    /// What the operator should know of it.
    pub warnings: Vec<Warning>,
}

/// One kind of things, in listing order, found by the name that clients use.
#[derive(Debug, Default)]
pub struct Table {
    pub(crate) entries: Vec<Arc<Entry>>,
    by_name: HashMap<Arc<str>, usize>,
    /// By upstream and original name.
    by_original: HashMap<Arc<str>, HashMap<Arc<str>, usize>>,
    /// The list as JSON: of all, and of each upstream that has some.
    rendered: HashMap<View, Raw>,
}

/// Names and URIs that nobody can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nothing has it.
    Unknown,
    /// Several could have it.
    Ambiguous(Vec<Arc<str>>),
}

impl Catalog {
    /// The table of a kind.
    pub fn table(&self, kind: Kind) -> &Table {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Resource => &self.resources,
            Kind::Template => &self.templates,
        }
    }

    /// The members that a view shows, disabled ones left out.
    pub fn shown<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Arc<Member>> {
        self.members
            .iter()
            .filter(|m| !m.settings.disabled && view.shows(&m.name))
    }

    /// A member by its name or one of its former names.
    pub fn member(&self, name: &str) -> Option<&Arc<Member>> {
        named(&self.members, name)
    }

    /// Who has this resource, and under which URI it knows it.
    ///
    /// In this order: the qualified form, the lists, a template that begins like it, the only
    /// upstream with resources.
    ///
    /// # Errors
    /// [`Missing`] when nobody or several could have it.
    pub fn resource_owner(&self, view: &View, uri: &str) -> Result<(Arc<Member>, String), Missing> {
        if let Some((name, plain)) = crate::naming::split_uri(uri)
            && let Some(member) = self.member(name)
            && view.shows(&member.name)
        {
            if member.settings.disabled {
                return Err(Missing::Unknown);
            }
            return Ok((Arc::clone(member), plain));
        }
        if let Some(entry) = self.resources.find(view, uri) {
            return Ok((Arc::clone(&entry.member), entry.original.to_string()));
        }
        let mut able = self.template_owners(view, uri);
        if able.is_empty() {
            let has = |m: &&Arc<Member>| m.learned().is_some_and(|l| l.has("resources"));
            able = self.shown(view).filter(has).cloned().collect();
        }
        match able.as_slice() {
            [] => Err(Missing::Unknown),
            [member] => Ok((Arc::clone(member), uri.to_owned())),
            // Nothing says which; asking any of them could read another server's secret.
            several => Err(Missing::Ambiguous(
                several.iter().map(|m| Arc::clone(&m.name)).collect(),
            )),
        }
    }

    fn template_owners(&self, view: &View, uri: &str) -> Vec<Arc<Member>> {
        let mut owners: Vec<Arc<Member>> = Vec::new();
        for entry in self
            .templates
            .entries
            .iter()
            .filter(|e| view.shows(&e.member.name))
        {
            let literal = entry.original.split('{').next().unwrap_or_default();
            let matches = !literal.is_empty() && uri.starts_with(literal);
            if matches && !owners.iter().any(|m| Arc::ptr_eq(m, &entry.member)) {
                owners.push(Arc::clone(&entry.member));
            }
        }
        owners
    }
}

impl Table {
    /// Puts entries, already in order, into a table.
    pub fn new(entries: Vec<Arc<Entry>>) -> Self {
        let names = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (Arc::clone(&entry.exposed), at));
        let by_name = names.collect();
        let mut by_original: HashMap<Arc<str>, HashMap<Arc<str>, usize>> = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let own = by_original
                .entry(Arc::clone(&entry.member.name))
                .or_default();
            own.insert(Arc::clone(&entry.original), at);
        }
        let mut rendered = HashMap::new();
        rendered.insert(View::All, render(entries.iter()));
        for entry in &entries {
            let view = View::Upstream(Arc::clone(&entry.member.name));
            rendered.entry(view).or_insert_with(|| {
                render(
                    entries
                        .iter()
                        .filter(|e| Arc::ptr_eq(&e.member, &entry.member)),
                )
            });
        }
        Self {
            entries,
            by_name,
            by_original,
            rendered,
        }
    }

    /// What a view shows under `name`.
    pub fn find(&self, view: &View, name: &str) -> Option<&Arc<Entry>> {
        let entry = self.entries.get(*self.by_name.get(name)?)?;
        view.shows(&entry.member.name).then_some(entry)
    }

    /// What an upstream itself calls `original`.
    pub fn of(&self, member: &Member, original: &str) -> Option<&Arc<Entry>> {
        self.entries
            .get(*self.by_original.get(&member.name)?.get(original)?)
    }

    /// Everything, in listing order.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// The JSON array that a view lists.
    pub fn rendered(&self, view: &View) -> Raw {
        self.rendered
            .get(view)
            .cloned()
            .unwrap_or_else(|| render(std::iter::empty()))
    }
}

/// The member of this name, or with it among its former names.
pub(crate) fn named<'a>(members: &'a [Arc<Member>], name: &str) -> Option<&'a Arc<Member>> {
    let named = members.iter().find(|m| *m.name == *name);
    named.or_else(|| members.iter().find(|m| m.is_called(name)))
}

fn render<'a>(entries: impl Iterator<Item = &'a Arc<Entry>>) -> Raw {
    Raw::array(entries.map(|entry| &entry.definition))
}
