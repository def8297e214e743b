//! Makes one catalogue of all upstreams' lists.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use waypost_config::config::{Naming, OnCollision};

use super::entry::{Definition, Entry, Kind};
use super::{Catalog, Table};
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

/// Builds the catalogue of all members.
///
/// `before` is the one that clients see now: a name that is live there stays with its upstream,
/// whoever arrives later.
pub fn build(
    members: &[Arc<Member>],
    naming: &Naming,
    before: &Catalog,
) -> (Catalog, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut table = |kind| {
        let mut builder = Builder {
            kind,
            naming,
            before: before.table(kind),
            warnings: &mut warnings,
        };
        Table::new(builder.entries(members))
    };
    let catalog = Catalog {
        tools: table(Kind::Tool),
        prompts: table(Kind::Prompt),
        resources: table(Kind::Resource),
        templates: table(Kind::Template),
        members: members.to_vec(),
    };
    (catalog, warnings)
}

struct Builder<'a> {
    kind: Kind,
    naming: &'a Naming,
    before: &'a Table,
    warnings: &'a mut Vec<Warning>,
}

/// A definition with the name it would like to have.
struct Wish {
    member: Arc<Member>,
    definition: Definition,
    name: String,
}

impl Builder<'_> {
    fn entries(&mut self, members: &[Arc<Member>]) -> Vec<Arc<Entry>> {
        let wishes: Vec<Wish> = members
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
                    format!("`{name}` is shown already, the second is not"),
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
                        format!("{} `{name}` is dropped: {why}", self.word()),
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
            Kind::Resource | Kind::Template => original.to_owned(),
        }
    }

    /// Which upstream gets each wished name: the one that has it now, else the first in the
    /// file; nobody (`None`) where the policy is `error` and several want it.
    fn owners(&self, wishes: &[Wish]) -> HashMap<String, Option<Arc<str>>> {
        let mut owners: HashMap<String, Option<Arc<str>>> = HashMap::new();
        let mut wanted: HashMap<&str, HashSet<&str>> = HashMap::new();
        for wish in wishes {
            let wanting = wanted.entry(&wish.name).or_default();
            wanting.insert(&wish.member.name);
            let live = self.before.by_name.get(&*wish.name);
            let live = live
                .and_then(|at| self.before.entries.get(*at))
                .map(|e| &e.member.name);
            let own = Arc::clone(&wish.member.name);
            match owners.get_mut(&wish.name) {
                None => {
                    owners.insert(wish.name.clone(), Some(own));
                }
                Some(owner) if live == Some(&wish.member.name) => *owner = Some(own),
                Some(_) => {}
            }
        }
        if self.naming.on_collision == OnCollision::Error && !self.is_uri() {
            for (name, wanting) in wanted {
                if wanting.len() > 1 {
                    owners.insert(name.to_owned(), None);
                }
            }
        }
        owners
    }

    /// The name a wish ends up with, if any.
    fn settle(&mut self, wish: &Wish, owner: Option<&Arc<str>>) -> Option<String> {
        if owner == Some(&wish.member.name) {
            return Some(wish.name.clone());
        }
        let (upstream, original) = (&wish.member.name, &wish.definition.original);
        let (word, name) = (self.word(), &wish.name);
        if self.is_uri() {
            let shown = naming::qualified_uri(upstream, original);
            let text = format!("{word} `{name}` belongs to another upstream, shown as `{shown}`");
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
