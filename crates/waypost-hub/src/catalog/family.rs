//! Several upstreams of one kind as one: a tool that they have is shown once, with an argument that
//! says which of them is meant.
//!
//! Each upstream keeps a shelf of its own, with its tools as they are at `/mcp/<upstream>`. What is
//! shown for all stands on the shelf of the first that has it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use waypost_config::config::Family;
use waypost_wire::error::Malformed;
use waypost_wire::meta::{META, ORIGINAL_NAME};
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, clip};

use super::build::Warning;
use super::entry::{Definition, Entry, Rejected};
use super::hiding::Hiding;
use super::table::{Shelf, Shelves, Table};
use crate::member::Member;

/// So many names are told in words.
const TOLD: usize = 8;

/// The member of a tool that says what it does to the world.
const ANNOTATIONS: &str = "annotations";

/// What the argument says, and the tool as the upstream that it means has it.
pub type Instance = (Arc<str>, Arc<Entry>);

/// Which tool of which upstream a call is for.
#[derive(Debug)]
pub struct Choice {
    /// What the upstreams have in common.
    pub family: Arc<str>,
    /// The argument that says which of them is meant.
    pub argument: Arc<str>,
    /// In the order of the file.
    pub instances: Vec<Instance>,
}

/// A call that names none of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unchosen {
    /// Nobody could tell which of two values with one key is meant.
    #[error("`arguments`: {0}")]
    Unreadable(#[from] Malformed),
    /// It says nothing, or no text.
    #[error("`{argument}` is missing: hint: give one of {values}")]
    Missing {
        /// The argument.
        argument: Arc<str>,
        /// What it can say.
        values: String,
    },
    /// It says something else.
    #[error("`{argument}` is none of {values}: `{}`", clip(given, NAME))]
    Unknown {
        /// The argument.
        argument: Arc<str>,
        /// What it can say.
        values: String,
        /// What it says.
        given: String,
    },
}

// === impl Choice ===

impl Choice {
    /// The tool that is meant, and the arguments for it: all but the one that says so, each with its
    /// bytes and in its place.
    ///
    /// # Errors
    /// [`Unchosen`] when none is.
    pub fn select(&self, given: Option<&Raw>) -> Result<(&Arc<Entry>, Raw), Unchosen> {
        let mut arguments = match given.filter(|raw| !raw.is_null()) {
            Some(raw) => raw.as_object()?,
            None => Object::new(),
        };
        let chosen = arguments.remove(&self.argument);
        let Some(chosen) = chosen.and_then(|raw| raw.as_string()) else {
            return Err(Unchosen::Missing {
                argument: Arc::clone(&self.argument),
                values: self.values(),
            });
        };
        let found = self.instances.iter().find(|(value, _)| **value == *chosen);
        match found {
            Some((_, entry)) => Ok((entry, arguments.into())),
            None => Err(Unchosen::Unknown {
                argument: Arc::clone(&self.argument),
                values: self.values(),
                given: chosen,
            }),
        }
    }

    fn values(&self) -> String {
        let values = self.instances.iter().map(|(value, _)| format!("`{value}`"));
        values.collect::<Vec<_>>().join(", ")
    }

    /// Whether one of them is this upstream's.
    pub fn is_of(&self, upstream: &str) -> bool {
        let mut all = self.instances.iter();
        all.any(|(_, entry)| *entry.member.name == *upstream)
    }

    /// What the argument has to be, as JSON Schema.
    fn schema(&self) -> Raw {
        let values: Vec<Raw> = self.instances.iter().map(|(v, _)| Raw::string(v)).collect();
        let about = format!("Which {} this is for.", self.family);
        let schema: Object = [
            ("type", Raw::string("string")),
            ("enum", Raw::array(&values)),
            ("description", Raw::string(&about)),
        ]
        .into_iter()
        .collect();
        schema.into()
    }

    fn is_same(&self, other: &Self) -> bool {
        let same = |(a, b): (&Instance, &Instance)| a.0 == b.0 && Arc::ptr_eq(&a.1, &b.1);
        self.family == other.family
            && self.argument == other.argument
            && self.instances.len() == other.instances.len()
            && self.instances.iter().zip(&other.instances).all(same)
    }

    /// The one entry for all, under this name; the one that is known already if nothing changed.
    fn entry<'a>(
        self,
        name: &str,
        known: impl IntoIterator<Item = &'a Table>,
    ) -> Option<Arc<Entry>> {
        let is_known = |entry: &&Arc<Entry>| {
            let choice = entry.choice.as_ref();
            choice.is_some_and(|choice| choice.is_same(&self))
        };
        let mut known = known.into_iter().filter_map(|table| table.get(name));
        if let Some(known) = known.find(is_known) {
            return Some(Arc::clone(known));
        }
        let lead = Arc::clone(&self.instances.first()?.1);
        let definition = self.definition(&lead, name).ok()?;
        Some(Arc::new(Entry {
            exposed: name.into(),
            original: Arc::clone(&lead.original),
            member: Arc::clone(&lead.member),
            definition,
            params: Arc::clone(&lead.params),
            renamed: lead.renamed.clone(),
            arguments: lead.arguments.clone(),
            ui: lead.ui.clone(),
            choice: Some(Arc::new(self)),
        }))
    }

    /// What this definition of the first of them says that is true of all.
    fn shared(&self, lead: &Raw) -> Result<Raw, Malformed> {
        let others = self.instances.iter().skip(1);
        let others = others.filter_map(|(_, entry)| entry.definition.as_object().ok());
        let others: Vec<Object> = others.collect();
        let mut object = lead.as_object()?;
        let mut changed = false;
        for key in PROMISES {
            let own = object.get(key).cloned();
            if others
                .iter()
                .any(|other| !is_equal(own.as_ref(), other.get(key)))
            {
                changed |= object.remove(key).is_some();
            }
        }
        let hints = object.get(ANNOTATIONS).and_then(|raw| raw.as_object().ok());
        if let Some(mut hints) = hints {
            let before = hints.len();
            let others: Vec<Object> = others.iter().map(annotations).collect();
            for key in HINTS {
                let own = hints.get(key).cloned();
                if others
                    .iter()
                    .any(|other| !is_equal(own.as_ref(), other.get(key)))
                {
                    hints.remove(key);
                }
            }
            if hints.len() < before {
                changed = true;
                object.set(ANNOTATIONS, hints.into());
            }
        }
        Ok(if changed { object.into() } else { lead.clone() })
    }

    /// The definition of the first of them, with the argument.
    fn definition(&self, lead: &Entry, name: &str) -> Result<Raw, Malformed> {
        let raw = self.shared(&lead.definition)?;
        let object = raw.as_object()?;
        let schema = object.get("inputSchema").cloned();
        let schema = with_argument(
            &schema.unwrap_or_else(Raw::empty_object),
            &self.argument,
            &self.schema(),
        )?;
        let meta = object.get(META).filter(|meta| meta.is_object()).cloned();
        let meta = meta.unwrap_or_else(Raw::empty_object);
        let meta = meta.with_member(ORIGINAL_NAME, &Raw::string(&lead.original))?;
        raw.with_member("name", &Raw::string(name))?
            .with_member("inputSchema", &schema)?
            .with_member(META, &meta)
    }
}

/// Hints of `annotations`. What one is without being said is the careful value.
const HINTS: [&str; 4] = [
    "readOnlyHint",
    "destructiveHint",
    "idempotentHint",
    "openWorldHint",
];

/// Promises of a definition that a call relies on: each has to be true wherever it goes.
const PROMISES: [&str; 2] = ["outputSchema", "execution"];

fn with_argument(schema: &Raw, argument: &str, about: &Raw) -> Result<Raw, Malformed> {
    let object = schema.as_object()?;
    let properties = object.get("properties").cloned();
    let properties = properties.unwrap_or_else(Raw::empty_object);
    let properties = properties.with_member(argument, about)?;
    let required = object.get("required").and_then(Raw::as_array);
    let mut required = required.unwrap_or_default();
    required.push(Raw::string(argument));
    schema
        .with_member("properties", &properties)?
        .with_member("required", &Raw::array(&required))
}

// === which tools are one ===

/// A tool of one upstream, as far as it matters here.
pub(super) struct Candidate<'a> {
    pub(super) member: &'a Arc<Member>,
    pub(super) definition: &'a Definition,
}

/// Tools that are shown as one: positions among the candidates, in the order of the file.
pub(super) struct Group<'a> {
    pub(super) family: &'a Family,
    /// What all of them are called, without anything before it.
    pub(super) name: &'a str,
    pub(super) of: Vec<usize>,
}

/// Finds out which tools are one. What cannot be stays with its upstream, with a warning.
pub(super) fn groups<'a>(
    candidates: &[Candidate<'a>],
    warnings: &mut Vec<Warning>,
) -> Vec<Group<'a>> {
    let mut found: BTreeMap<(&str, &str), Group<'a>> = BTreeMap::new();
    for (at, one) in candidates.iter().enumerate() {
        let Some(family) = &one.member.settings.family else {
            continue;
        };
        let name = one.definition.plain_name();
        let group = found.entry((&family.name, name)).or_insert(Group {
            family,
            name,
            of: Vec::new(),
        });
        group.of.push(at);
    }
    let mut groups: Vec<Group<'a>> = found.into_values().collect();
    groups.retain(|group| match refusal(group, candidates) {
        None => true,
        Some(warning) => {
            warnings.push(warning);
            false
        }
    });
    groups.sort_by_key(|group| group.of.first().copied());
    warnings.extend(differing(&groups, candidates, has_same_arguments, |lead| {
        format!("takes other arguments than `{lead}`, whose definitions are shown, in")
    }));
    warnings.extend(differing(&groups, candidates, has_same_promises, |lead| {
        format!("has another `outputSchema`, `execution` or hints than `{lead}`, so they are left out, in")
    }));
    groups
}

/// Why a tool cannot be shown as one, if so.
fn refusal(group: &Group<'_>, candidates: &[Candidate<'_>]) -> Option<Warning> {
    let mut seen = HashSet::new();
    let of = group.of.iter().filter_map(|at| candidates.get(*at));
    for one in of {
        let argument = &group.family.argument;
        let why = match room(one.definition, argument) {
            Room::Free if seen.insert(&one.member.name) => continue,
            Room::Free => "it has two of that name".to_owned(),
            Room::Taken => format!("it has a parameter `{argument}` of its own"),
            Room::None => "its `inputSchema` cannot be added to".to_owned(),
        };
        let (name, family) = (clip(group.name, NAME), &group.family.name);
        return Some(Warning {
            upstream: Arc::clone(&one.member.name),
            text: format!(
                "tool `{name}` is shown for each upstream of `{family}` by itself: {why}"
            ),
        });
    }
    None
}

/// Whether a parameter can be added to a tool.
enum Room {
    Free,
    /// It says something of one of that name.
    Taken,
    /// That cannot be told, or a part of its schema would refuse it.
    None,
}

fn room(definition: &Definition, name: &str) -> Room {
    let Some(schema) = definition.schema() else {
        return Room::Free;
    };
    let object = schema.as_object().unwrap_or_default();
    let required = object.get("required").map(Raw::as_array);
    let properties = object.get("properties").map(Raw::is_object);
    if required.is_some_and(|own| own.is_none()) || properties == Some(false) {
        return Room::None;
    }
    let hiding = Hiding::new(&schema, [name].into_iter(), [name].into_iter());
    match hiding.is_silent() {
        Ok(true) if hiding.has_room() => Room::Free,
        Ok(false) | Err(Rejected::Seen | Rejected::Needed { .. }) => Room::Taken,
        Ok(true) | Err(_) => Room::None,
    }
}

/// Upstreams whose tools are not the same in some way as those that are shown.
fn differing(
    groups: &[Group<'_>],
    candidates: &[Candidate<'_>],
    is_same: impl Fn(&Definition, &Definition) -> bool,
    text: impl Fn(&str) -> String,
) -> Vec<Warning> {
    let mut by_upstream: BTreeMap<(usize, &str), Vec<&str>> = BTreeMap::new();
    let mut names: HashMap<usize, &Arc<str>> = HashMap::new();
    for group in groups {
        let mut of = group.of.iter().filter_map(|at| candidates.get(*at));
        let Some(lead) = of.next() else { continue };
        for (place, other) in of.enumerate() {
            if !is_same(lead.definition, other.definition) {
                let place = candidates
                    .iter()
                    .position(|one| Arc::ptr_eq(one.member, other.member))
                    .unwrap_or(place);
                names.insert(place, &other.member.name);
                let own = by_upstream.entry((place, &lead.member.name)).or_default();
                own.push(group.name);
            }
        }
    }
    let warning = |((place, lead), tools): ((usize, &str), Vec<&str>)| {
        let told = tools.iter().take(TOLD);
        let told: Vec<_> = told.map(|name| format!("`{}`", clip(name, NAME))).collect();
        let more = tools.len().saturating_sub(TOLD);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        Some(Warning {
            upstream: Arc::clone(names.get(&place)?),
            text: format!("{} {}{more}", text(lead), told.join(", ")),
        })
    };
    by_upstream.into_iter().filter_map(warning).collect()
}

fn has_same_arguments(one: &Definition, two: &Definition) -> bool {
    is_equal(one.schema().as_ref(), two.schema().as_ref())
}

fn has_same_promises(one: &Definition, two: &Definition) -> bool {
    let is_same = |key: &str| is_equal(one.part(key).as_ref(), two.part(key).as_ref());
    let [a, b] = [one, two].map(|one| {
        let own = one.part(ANNOTATIONS);
        own.and_then(|own| own.as_object().ok()).unwrap_or_default()
    });
    PROMISES.into_iter().all(is_same)
        && HINTS
            .into_iter()
            .all(|hint| is_equal(a.get(hint), b.get(hint)))
}

fn annotations(definition: &Object) -> Object {
    let own = definition.get(ANNOTATIONS);
    own.and_then(|own| own.as_object().ok()).unwrap_or_default()
}

fn is_equal(one: Option<&Raw>, two: Option<&Raw>) -> bool {
    let decoded = |raw: Option<&Raw>| raw.and_then(Raw::decode::<Value>);
    one == two || decoded(one) == decoded(two)
}

// === shelves ===

/// The shelf that is listed of each of these, which are in the order of the file: what it has by
/// itself, and what it is the first to have of what is shown for all. A shelf that is known stays.
fn listed(
    alone: &[(Arc<Member>, Vec<Arc<Entry>>)],
    merged: &[Arc<Entry>],
    known: &[&Table],
) -> Vec<Arc<Shelf>> {
    let shelf = |(member, alone): &(Arc<Member>, Vec<Arc<Entry>>)| {
        let own = merged.iter().filter(|one| Arc::ptr_eq(&one.member, member));
        let mut entries: Vec<Arc<Entry>> = alone.iter().chain(own).map(Arc::clone).collect();
        entries.sort_by(|a, b| a.original.cmp(&b.original));
        let is_this = |shelf: &&Arc<Shelf>| {
            let both = shelf.entries().iter().zip(&entries);
            Arc::ptr_eq(shelf.member(), member)
                && shelf.entries().len() == entries.len()
                && both.into_iter().all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let mut shelves = known.iter().filter_map(|table| table.shelf(&member.name));
        match shelves.find(is_this) {
            Some(shelf) => Arc::clone(shelf),
            None => Arc::new(Shelf::new(member, entries)),
        }
    };
    alone.iter().map(shelf).collect()
}

/// What upstreams in families are to be listed with, given all that they have.
pub(super) struct Merge<'a> {
    /// The shelf of each, with everything, in the order of the file.
    pub(super) own: Vec<Arc<Shelf>>,
    /// Tables that may have the same already.
    pub(super) known: Vec<&'a Table>,
}

impl Merge<'_> {
    /// What is listed where these are one, each with its name.
    pub(super) fn named(&self, groups: &[(Group<'_>, Option<String>)]) -> Vec<Arc<Shelf>> {
        let mut joined: HashSet<*const Entry> = HashSet::new();
        let mut merged = Vec::new();
        for (group, name) in groups {
            let mut instances = Vec::new();
            for shelf in &self.own {
                let family = shelf.member().settings.family.as_ref();
                let Some(family) = family.filter(|own| own.name == group.family.name) else {
                    continue;
                };
                let called = |entry: &&Arc<Entry>| entry.plain_name() == group.name;
                if let Some(entry) = shelf.entries().iter().find(called) {
                    joined.insert(Arc::as_ptr(entry));
                    instances.push((family.value.as_str().into(), Arc::clone(entry)));
                }
            }
            let choice = Choice {
                family: group.family.name.as_str().into(),
                argument: group.family.argument.as_str().into(),
                instances,
            };
            // Without a name it is not shown, and neither is it for each.
            let entry = name.as_ref().and_then(|name| {
                let known = self.known.iter().copied();
                choice.entry(name, known)
            });
            merged.extend(entry);
        }
        let alone = |entry: &Arc<Entry>| !joined.contains(&Arc::as_ptr(entry));
        self.listed(&merged, alone)
    }

    /// What is left of what `whole` lists, where upstreams have no more than this.
    pub(super) fn left_of(&self, whole: &Table) -> Vec<Arc<Shelf>> {
        if self.own.is_empty() {
            return Vec::new();
        }
        let own = self.own.iter().flat_map(|shelf| shelf.entries());
        let own: HashSet<*const Entry> = own.map(Arc::as_ptr).collect();
        let merged = whole.entries().filter_map(|entry| {
            let choice = entry.choice.as_ref()?;
            let left = choice.instances.iter();
            let left = left.filter(|(_, entry)| own.contains(&Arc::as_ptr(entry)));
            let left: Vec<_> = left.cloned().collect();
            if left.len() == choice.instances.len() {
                return Some(Arc::clone(entry));
            }
            let choice = Choice {
                family: Arc::clone(&choice.family),
                argument: Arc::clone(&choice.argument),
                instances: left,
            };
            choice.entry(&entry.exposed, self.known.iter().copied())
        });
        let merged: Vec<_> = merged.collect();
        let is_listed = |entry: &Arc<Entry>| {
            let listed = whole.get(&entry.exposed);
            listed.is_some_and(|listed| Arc::ptr_eq(listed, entry))
        };
        self.listed(&merged, is_listed)
    }

    fn listed(
        &self,
        merged: &[Arc<Entry>],
        is_alone: impl Fn(&Arc<Entry>) -> bool,
    ) -> Vec<Arc<Shelf>> {
        let alone = self.own.iter().map(|shelf| {
            let entries = shelf.entries().iter().filter(|entry| is_alone(entry));
            (
                Arc::clone(shelf.member()),
                entries.map(Arc::clone).collect(),
            )
        });
        let alone: Vec<_> = alone.collect();
        listed(&alone, merged, &self.known)
    }
}

/// Puts what is listed of upstreams in families among the others, in the order of the file.
pub(super) fn together(
    mut others: Vec<Arc<Shelf>>,
    families: (Vec<Arc<Shelf>>, Vec<Arc<Shelf>>),
    members: &[Arc<Member>],
) -> Shelves {
    let (listed, own) = families;
    others.extend(listed);
    let places = members.iter().enumerate();
    let places: HashMap<&str, usize> = places.map(|(at, m)| (&*m.name, at)).collect();
    others.sort_by_key(|shelf| places.get(&*shelf.member().name).copied());
    Shelves {
        listed: others,
        own,
    }
}
