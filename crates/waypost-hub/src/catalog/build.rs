//! Makes one catalogue of all upstreams' lists.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use waypost_config::config::{Naming, OnCollision};
use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, clip};

use super::endpoint;
use super::entry::{Definition, Entry, Kind};
use super::read::Reading;
use super::rules::Rules;
use super::table::{Shelf, Table};
use super::{Catalog, Readings};
use crate::member::Member;
use crate::naming;
use crate::status::State;

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
    let readings = read(members, before);
    let mut table = |kind| {
        let shelves = Builder {
            kind,
            naming,
            members,
            rules: None,
            before: before.table(kind),
            warnings: &mut warnings,
            claims: &mut claims,
        }
        .shelves(&readings);
        Table::of_known(shelves, [before.table(kind)])
    };
    let mut catalog = Catalog {
        tools: table(Kind::Tool),
        prompts: table(Kind::Prompt),
        resources: table(Kind::Resource),
        templates: table(Kind::Template),
        ..Catalog::of(members.to_vec(), before.page_size)
    };
    catalog.warnings = warnings;
    catalog.readings = readings;
    for rules in rules {
        let endpoint = endpoint::build(rules, naming, &catalog, before, &mut claims);
        catalog.add(endpoint);
    }
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
    pub(super) members: &'a [Arc<Member>],
    /// Of the endpoint whose own names these are; `None` makes those of `/mcp`.
    pub(super) rules: Option<&'a Rules>,
    pub(super) before: &'a Table,
    pub(super) warnings: &'a mut Vec<Warning>,
    pub(super) claims: &'a mut Claims,
}

/// A definition with the name it would like to have.
struct Wish<'a> {
    member: &'a Arc<Member>,
    reading: &'a Arc<Reading>,
    definition: &'a Definition,
    name: String,
}

impl Builder<'_> {
    /// What each upstream shows, in the order of the file.
    pub(super) fn shelves(&mut self, readings: &Readings) -> Vec<Arc<Shelf>> {
        let of = |member: &Arc<Member>| readings.get(&(self.kind, Arc::clone(&member.name)));
        let readings: Vec<_> = self.members.iter().filter_map(of).collect();
        if self.rules.is_none() {
            let dropped = readings.iter().flat_map(|reading| &reading.dropped);
            self.warnings.extend(dropped.cloned());
        }
        let wishes = readings.iter().flat_map(|reading| self.wishes(reading));
        let wishes: Vec<Wish<'_>> = wishes.collect();
        let owners = self.owners(&wishes);
        let mut taken = HashSet::new();
        let mut named: Vec<(&Wish<'_>, String)> = Vec::with_capacity(wishes.len());
        for wish in &wishes {
            let owner = owners.get(&wish.name).cloned().flatten();
            let Some(name) = self.settle(wish, owner.as_ref()) else {
                continue;
            };
            if taken.insert(name.clone()) {
                named.push((wish, name));
            } else {
                let text = format!(
                    "`{}` is shown already, the second is not",
                    clip(&name, NAME)
                );
                self.warn(wish.member, text);
            }
        }
        let same =
            |a: &(&Wish<'_>, String), b: &(&Wish<'_>, String)| Arc::ptr_eq(a.0.member, b.0.member);
        named
            .chunk_by(same)
            .filter_map(|own| self.shelf(own))
            .collect()
    }

    /// The shelf of one upstream; the one that clients see now if nothing on it changed.
    fn shelf(&self, named: &[(&Wish<'_>, String)]) -> Option<Arc<Shelf>> {
        let Wish {
            member, reading, ..
        } = named.first()?.0;
        let is_as_before = |shelf: &&Arc<Shelf>| {
            let same = |(entry, (wish, name)): (&Arc<Entry>, &(&Wish<'_>, String))| {
                *entry.exposed == **name && entry.original == wish.definition.original
            };
            shelf.is_made_of(reading)
                && shelf.entries().len() == named.len()
                && shelf.entries().iter().zip(named).all(same)
        };
        let known = self.before.shelf(&member.name).filter(is_as_before);
        if let Some(shelf) = known {
            return Some(Arc::clone(shelf));
        }
        let made = named
            .iter()
            .map(|(wish, name)| wish.definition.named(self.kind, name));
        let made: Vec<Raw> = made.collect();
        let text = Raw::array(&made);
        // Parts of the one text, so that there are no two.
        let parts = text.as_array().unwrap_or(made);
        let entries = named.iter().zip(parts).map(|((wish, name), definition)| {
            Arc::new(wish.definition.entry(member, name, definition))
        });
        let shelf = Shelf::sorted(member, entries.collect(), text);
        Some(Arc::new(shelf.made_of(reading)))
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
            name: self.wished_name(member, &definition.original),
        });
        wishes.collect()
    }

    fn wished_name(&self, member: &Member, original: &str) -> String {
        match self.kind {
            Kind::Tool | Kind::Prompt => {
                let own = self.rules.and_then(|rules| rules.prefix.as_deref());
                let prefix = own.unwrap_or(&member.settings.prefix);
                naming::exposed(&member.name, prefix, original, self.naming.max_length)
            }
            // It looks like the qualified form of an upstream's, to which it would be read.
            Kind::Resource | Kind::Template if self.is_qualified(original) => {
                naming::qualified_uri(&member.name, original)
            }
            Kind::Resource | Kind::Template => original.to_owned(),
        }
    }

    fn is_qualified(&self, uri: &str) -> bool {
        naming::split_uri(uri).is_some_and(|(name, _)| super::named(self.members, name).is_some())
    }

    /// Which upstream gets each wished name; nobody (`None`) where the policy is `error` and
    /// several want it.
    fn owners(&mut self, wishes: &[Wish<'_>]) -> HashMap<String, Option<Arc<str>>> {
        let mut wanted: HashMap<&str, Vec<&Arc<Member>>> = HashMap::new();
        for wish in wishes {
            let wanting = wanted.entry(&wish.name).or_default();
            if !wanting.iter().any(|m| Arc::ptr_eq(m, wish.member)) {
                wanting.push(wish.member);
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
    fn owner(&mut self, name: &str, wanting: &[&Arc<Member>]) -> Option<Arc<str>> {
        // Names of an endpoint's own are apart from those of all others.
        let scope = self.rules.map(|rules| format!("{}/", rules.name));
        let scope = scope.unwrap_or_default();
        let claim = format!("{scope}{} {name}", self.kind.list_member());
        let claims = |m: &Member| m.learned().is_some_and(|l| l.claims.contains(&claim));
        let claimed = wanting.iter().position(|m| claims(m));
        let at = claimed.or_else(|| self.holder(name, wanting)).unwrap_or(0);
        let owner = Arc::clone(&wanting.get(at)?.name);
        // Kept while the other is away too: what is known of it may be lost over a restart.
        if claimed.is_some() || at > 0 {
            let own = self.claims.entry(Arc::clone(&owner)).or_default();
            own.insert(claim);
        }
        Some(owner)
    }

    /// Who of them has the name now, unless one before it is not done with its first look.
    fn holder(&self, name: &str, wanting: &[&Arc<Member>]) -> Option<usize> {
        let live = self.before.get(name)?;
        let at = wanting.iter().position(|m| m.name == live.member.name)?;
        let starting = |m: &&Arc<Member>| m.status.state() == State::Starting;
        let contested = wanting.iter().take(at).any(starting);
        (!contested).then_some(at)
    }

    /// The name a wish ends up with, if any.
    fn settle(&mut self, wish: &Wish<'_>, owner: Option<&Arc<str>>) -> Option<String> {
        if owner == Some(&wish.member.name) {
            return Some(wish.name.clone());
        }
        let (upstream, original) = (&wish.member.name, &wish.definition.original);
        let (word, name) = (self.kind.word(), clip(&wish.name, NAME));
        if self.is_uri() {
            let shown = naming::qualified_uri(upstream, original);
            let text = format!(
                "{word} `{name}` belongs to another upstream, shown as `{}`",
                clip(&shown, NAME)
            );
            self.warn(wish.member, text);
            return Some(shown);
        }
        let shown = match self.naming.on_collision {
            OnCollision::Prefix => Some(naming::qualified(
                upstream,
                original,
                self.naming.max_length,
            )),
            OnCollision::Error | OnCollision::First => None,
        };
        let then = match &shown {
            Some(shown) => format!("shown as `{shown}`"),
            None => "not shown; hint: set `prefix` on one of the upstreams".to_owned(),
        };
        let whose = owner.map_or("several upstreams", |owner| owner);
        self.warn(
            wish.member,
            format!("{word} name `{name}` is used by {whose} too, {then}"),
        );
        shown
    }

    fn is_uri(&self) -> bool {
        matches!(self.kind, Kind::Resource | Kind::Template)
    }

    fn warn(&mut self, member: &Member, text: String) {
        self.warnings.push(Warning {
            upstream: Arc::clone(&member.name),
            text,
        });
    }
}
