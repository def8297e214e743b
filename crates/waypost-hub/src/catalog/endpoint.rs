//! What a named endpoint shows: a part of the catalogue, or the same under names of its own.

use std::collections::HashSet;
use std::sync::Arc;

use waypost_config::config::Naming;
use waypost_wire::text::{NAME, clip};

use super::Catalog;
use super::build::{Builder, Claims};
use super::entry::Kind;
use super::family::{self, Merge};
use super::globs::Hits;
use super::patterns::meant;
use super::read::Reading;
use super::rules::Rules;
use super::table::{Shelf, Table};
use super::template::{Side, Sides, Stance};
use crate::member::Member;

/// One endpoint's part of a catalogue.
#[derive(Debug)]
pub struct Endpoint {
    /// What the file says of it.
    pub rules: Arc<Rules>,
    /// What the operator should know of it.
    pub warnings: Vec<String>,
    kinds: Vec<OfKind>,
}

/// What it shows of one kind.
#[derive(Debug)]
struct OfKind {
    kind: Kind,
    table: Arc<Table>,
    narrowed: Vec<Narrowed>,
}

/// What it shows of what one upstream has; kept from one catalogue to the next.
#[derive(Clone, Debug)]
struct Narrowed {
    /// All that there is to show.
    reading: Arc<Reading>,
    /// What of it has a name at `/mcp`; `None` is nothing.
    whole: Option<Arc<Shelf>>,
    shown: Option<Arc<Shelf>>,
    hits: Hits,
    sides: Sides,
}

impl Endpoint {
    /// One that has nothing to show yet.
    pub(super) fn empty(rules: &Arc<Rules>) -> Self {
        Self {
            rules: Arc::clone(rules),
            warnings: Vec::new(),
            kinds: Vec::new(),
        }
    }

    /// What it shows of a kind.
    pub fn table(&self, kind: Kind) -> Option<&Arc<Table>> {
        let own = self.of_kind(kind);
        own.map(|own| &own.table)
    }

    /// Whether it lets a URI of this upstream be read that is in no list: none that only a template
    /// stands for which it denies.
    pub(super) fn opens(&self, upstream: &str, original: &str) -> bool {
        let sides = self.sides(upstream);
        let globs = self.rules.globs(Kind::Resource);
        globs.allows_uri(original, |uri| {
            sides.map_or(Stance::Unsaid, |sides| sides.stance(uri))
        })
    }

    /// The templates of an upstream by whether they are seen here.
    pub(super) fn sides(&self, upstream: &str) -> Option<&Sides> {
        let own = &self.of_kind(Kind::Template)?.narrowed;
        let mut own = own.iter();
        let own = own.find(|own| *own.reading.member.name == *upstream);
        own.map(|own| &own.sides)
    }

    fn of_kind(&self, kind: Kind) -> Option<&OfKind> {
        self.kinds.iter().find(|own| own.kind == kind)
    }
}

/// Whether names of this kind are others where an endpoint has a prefix.
fn is_prefixed(kind: Kind) -> bool {
    matches!(kind, Kind::Tool | Kind::Prompt)
}

/// Builds an endpoint's part of `catalog`, which has everything else. What did not change since
/// `before` is not made again, and what it shows whole is not made at all.
pub(super) fn build(
    rules: &Arc<Rules>,
    naming: &Naming,
    catalog: &Catalog,
    before: &Catalog,
    claims: &mut Claims,
) -> Endpoint {
    let before = before.endpoint(&rules.name);
    // With other rules everything is looked at anew, but live names stay.
    let known = before.filter(|before| Arc::ptr_eq(&before.rules, rules));
    let mut endpoint = Endpoint::empty(rules);
    let nothing = Arc::new(Table::default());
    for kind in Kind::ALL {
        let live = before.and_then(|before| before.table(kind));
        let live = live.unwrap_or(&nothing);
        let known = known.and_then(|known| known.of_kind(kind));
        let known = known.map(|known| known.narrowed.as_slice());
        let own_names = rules.prefix.is_some() && is_prefixed(kind);
        let whole = catalog.table(kind);
        let shown = catalog.members.iter().filter(|m| rules.shows(&m.name));
        let readings = shown.filter_map(|member| catalog.reading(kind, &member.name));
        let narrowed: Vec<Narrowed> = readings
            .map(|reading| {
                let whole = whole.whole_shelf(&reading.member.name);
                let known = known.unwrap_or_default().iter();
                let mut known = known.filter(|known| known.is_of(reading, whole));
                let known = known.next().cloned();
                known.unwrap_or_else(|| narrow(rules, kind, reading, whole))
            })
            .collect();
        let table = if own_names {
            let mut warnings = Vec::new();
            let mut builder = Builder {
                kind,
                naming,
                whole: catalog,
                rules: Some(rules),
                before: live,
                warnings: &mut warnings,
                claims,
            };
            let table = Table::of_known(builder.shelves(), [live]);
            let warnings = warnings.into_iter();
            let said = warnings.map(|w| format!("upstream `{}`: {}", w.upstream, w.text));
            endpoint.warnings.extend(said);
            table
        } else {
            let shelves = narrowed.iter().filter_map(|one| one.shown.clone());
            let in_family =
                |shelf: &Arc<Shelf>| kind == Kind::Tool && shelf.member().settings.family.is_some();
            let (own, others): (Vec<_>, Vec<_>) = shelves.partition(in_family);
            let known = vec![&**whole, &**live];
            let merge = Merge { own, known };
            let listed = merge.left_of(whole);
            let shelves = family::together(others, (listed, merge.own), &catalog.members);
            Table::of_known(shelves, [whole, live])
        };
        endpoint.kinds.push(OfKind {
            kind,
            table,
            narrowed,
        });
    }
    let idle = idle_patterns(&endpoint, catalog);
    endpoint.warnings.extend(idle);
    endpoint
}

impl Narrowed {
    fn is_of(&self, reading: &Arc<Reading>, whole: Option<&Arc<Shelf>>) -> bool {
        let at = |shelf: Option<&Arc<Shelf>>| shelf.map(Arc::as_ptr);
        Arc::ptr_eq(&self.reading, reading) && at(self.whole.as_ref()) == at(whole)
    }
}

/// What the rules leave of what one upstream has.
fn narrow(
    rules: &Rules,
    kind: Kind,
    reading: &Arc<Reading>,
    whole: Option<&Arc<Shelf>>,
) -> Narrowed {
    let globs = rules.globs(kind);
    let mut hits = Hits::default();
    let (mut shown, mut sides) = (HashSet::new(), Vec::new());
    for definition in &reading.definitions {
        let text = &definition.original;
        if globs.look(kind, text, &mut hits) {
            shown.insert(&**text);
            sides.push((Arc::clone(text), globs.side(text)));
        } else if globs.denies(text) {
            sides.push((Arc::clone(text), Side::Denied));
        }
    }
    if kind != Kind::Template || globs.is_empty() {
        sides.clear();
    }
    let is_all = shown.len() == reading.definitions.len();
    let part = |whole: &Arc<Shelf>| {
        let entries = whole.entries().iter();
        let entries = entries.filter(|entry| shown.contains(&*entry.original));
        Arc::new(Shelf::new(whole.member(), entries.cloned().collect()))
    };
    Narrowed {
        shown: whole.map(|whole| {
            if is_all {
                Arc::clone(whole)
            } else {
                part(whole)
            }
        }),
        reading: Arc::clone(reading),
        whole: whole.cloned(),
        hits,
        sides: Sides::new(sides),
    }
}

/// Patterns that match nothing, once all is known that they could match: they are often misspelt.
fn idle_patterns(endpoint: &Endpoint, catalog: &Catalog) -> Vec<String> {
    let rules = &endpoint.rules;
    let mut idle = Vec::new();
    let groups: [(&str, &[Kind]); 3] = [
        ("tools", &[Kind::Tool]),
        ("prompts", &[Kind::Prompt]),
        ("resources", &[Kind::Resource, Kind::Template]),
    ];
    for (key, kinds) in groups {
        let Some(first) = kinds.first() else { continue };
        let is_known = |member: &Arc<Member>| {
            member.learned().is_some() && !kinds.iter().any(|kind| member.is_unread(*kind))
        };
        let shown = |member: &&Arc<Member>| !member.settings.disabled && rules.shows(&member.name);
        let mut members = catalog.members.iter().filter(shown);
        // With templates there are more resources than any list says.
        let listed = endpoint.of_kind(Kind::Template);
        let has_any = |own: &OfKind| {
            own.narrowed
                .iter()
                .any(|own| !own.reading.definitions.is_empty())
        };
        let open = *first == Kind::Resource && listed.is_some_and(has_any);
        if open || !members.all(is_known) {
            continue;
        }
        let (mut hits, mut names) = (Hits::default(), Vec::new());
        let own = endpoint
            .kinds
            .iter()
            .filter(|own| kinds.contains(&own.kind));
        for narrowed in own.flat_map(|own| &own.narrowed) {
            hits.add(&narrowed.hits);
            let all = narrowed.reading.definitions.iter();
            names.extend(all.map(|definition| &*definition.original));
        }
        for (at, (list, pattern)) in rules.patterns(*first).enumerate() {
            if !hits.has(at) {
                let what = format!(
                    "`{}` in `{key}.{list}` matches nothing",
                    clip(pattern, NAME)
                );
                idle.push(what + &meant(pattern, names.iter().copied()));
            }
        }
    }
    idle
}
