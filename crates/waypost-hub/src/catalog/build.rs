//! Makes one catalogue of all upstreams' lists.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use waypost_config::config::{Naming, OnCollision};
use waypost_wire::text::{NAME, clip};

use super::entry::{Definition, Entry, Kind};
use super::{Catalog, Table};
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
pub fn build(members: &[Arc<Member>], naming: &Naming, before: &Catalog) -> Built {
    let mut warnings = Vec::new();
    let mut claims = Claims::new();
    let mut table = |kind| {
        let mut builder = Builder {
            kind,
            naming,
            members,
            before: before.table(kind),
            warnings: &mut warnings,
            claims: &mut claims,
        };
        Table::new(builder.entries())
    };
    let catalog = Catalog {
        tools: table(Kind::Tool),
        prompts: table(Kind::Prompt),
        resources: table(Kind::Resource),
        templates: table(Kind::Template),
        members: members.to_vec(),
        warnings: Vec::new(),
    };
    let catalog = Catalog {
        warnings,
        ..catalog
    };
    Built { catalog, claims }
}

struct Builder<'a> {
    kind: Kind,
    naming: &'a Naming,
    members: &'a [Arc<Member>],
    before: &'a Table,
    warnings: &'a mut Vec<Warning>,
    claims: &'a mut Claims,
}

/// A definition with the name it would like to have.
struct Wish {
    member: Arc<Member>,
    definition: Definition,
    name: String,
}

impl Builder<'_> {
    fn entries(&mut self) -> Vec<Arc<Entry>> {
        let wishes: Vec<Wish> = self
            .members
            .iter()
            .filter(|member| !member.settings.disabled)
            .flat_map(|member| self.wishes(member))
            .collect();
        let owners = self.owners(&wishes);
        let mut taken = HashSet::new();
        let mut entries = Vec::with_capacity(wishes.len());
        for wish in wishes {
            let owner = owners.get(&wish.name).cloned().flatten();
            let Some(name) = self.settle(&wish, owner.as_ref()) else {
                continue;
            };
            if taken.insert(name.clone()) {
                entries.push(Arc::new(wish.definition.expose(
                    self.kind,
                    &wish.member,
                    name,
                )));
            } else {
                self.warn(
                    &wish.member,
                    format!(
                        "`{}` is shown already, the second is not",
                        clip(&name, NAME)
                    ),
                );
            }
        }
        entries
    }

    /// One upstream's definitions in the order of their names.
    fn wishes(&mut self, member: &Arc<Member>) -> Vec<Wish> {
        let Some(learned) = member.learned() else {
            return Vec::new();
        };
        let Some(listing) = self.kind.listing(&learned.catalogue) else {
            return Vec::new();
        };
        let mut wishes = Vec::with_capacity(listing.items.len());
        for raw in &listing.items {
            match Definition::read(self.kind, raw) {
                Ok(d) if self.kind == Kind::Tool && !member.allows_tool(&d.original) => {}
                Ok(definition) => {
                    let name = self.wished_name(member, &definition.original);
                    wishes.push(Wish {
                        member: Arc::clone(member),
                        definition,
                        name,
                    });
                }
                Err(why) => {
                    let name = raw
                        .as_object()
                        .ok()
                        .and_then(|o| o.string(self.kind.name_member()));
                    let name = name.unwrap_or_else(|| "?".to_owned());
                    self.warn(
                        member,
                        format!("{} `{}` is dropped: {why}", self.word(), clip(&name, NAME)),
                    );
                }
            }
        }
        wishes.sort_by(|a, b| a.name.cmp(&b.name));
        wishes
    }

    fn wished_name(&self, member: &Member, original: &str) -> String {
        match self.kind {
            Kind::Tool | Kind::Prompt => {
                let prefix = &member.settings.prefix;
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
    fn owners(&mut self, wishes: &[Wish]) -> HashMap<String, Option<Arc<str>>> {
        let mut wanted: HashMap<&str, Vec<&Arc<Member>>> = HashMap::new();
        for wish in wishes {
            let wanting = wanted.entry(&wish.name).or_default();
            if !wanting.iter().any(|m| Arc::ptr_eq(m, &wish.member)) {
                wanting.push(&wish.member);
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
        let claim = format!("{} {name}", self.kind.list_member());
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
        let live = self.before.entries.get(*self.before.by_name.get(name)?)?;
        let at = wanting.iter().position(|m| m.name == live.member.name)?;
        let starting = |m: &&Arc<Member>| m.status.state() == State::Starting;
        let contested = wanting.iter().take(at).any(starting);
        (!contested).then_some(at)
    }

    /// The name a wish ends up with, if any.
    fn settle(&mut self, wish: &Wish, owner: Option<&Arc<str>>) -> Option<String> {
        if owner == Some(&wish.member.name) {
            return Some(wish.name.clone());
        }
        let (upstream, original) = (&wish.member.name, &wish.definition.original);
        let (word, name) = (self.word(), clip(&wish.name, NAME));
        if self.is_uri() {
            let shown = naming::qualified_uri(upstream, original);
            let text = format!(
                "{word} `{name}` belongs to another upstream, shown as `{}`",
                clip(&shown, NAME)
            );
            self.warn(&wish.member, text);
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
            &wish.member,
            format!("{word} name `{name}` is used by {whose} too, {then}"),
        );
        shown
    }

    fn is_uri(&self) -> bool {
        matches!(self.kind, Kind::Resource | Kind::Template)
    }

    fn word(&self) -> &'static str {
        match self.kind {
            Kind::Tool => "tool",
            Kind::Prompt => "prompt",
            Kind::Resource => "resource",
            Kind::Template => "resource template",
        }
    }

    fn warn(&mut self, member: &Member, text: String) {
        self.warnings.push(Warning {
            upstream: Arc::clone(&member.name),
            text,
        });
    }
}
