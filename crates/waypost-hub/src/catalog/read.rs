//! The definitions of one upstream, read as far as needed and kept from catalogue to catalogue.

use std::sync::Arc;

use waypost_wire::text::{NAME, clip};

use super::build::Warning;
use super::entry::{Definition, Kind};
use super::globs::Globs;
use super::patterns;
use super::sieve::{Held, Sieve};
use super::template::{self, Stance};
use crate::event::DefinitionsRefused;
use crate::member::Member;
use crate::pins::Pinned;
use crate::registry::Learned;

/// So much of what is wrong with one definition is told.
const FLAWS: usize = 5;

/// What one upstream lists of a kind, sorted by original name.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) member: Arc<Member>,
    pub(super) kind: Kind,
    pub(super) definitions: Vec<Definition>,
    /// What could not be used, and settings that are of no use.
    pub(super) dropped: Vec<Warning>,
    pub(super) held: Held,
    learned: Arc<Learned>,
    /// What the tools were.
    pinned: Option<Arc<Pinned>>,
}

impl Reading {
    /// Reads a list; the one `before` again if the list is the same. `None` where there is none.
    pub(super) fn of(
        member: &Arc<Member>,
        kind: Kind,
        before: Option<&Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let learned = member.learned()?;
        kind.listing(&learned.catalogue)?;
        match before {
            Some(before) if before.is_of(member, &learned) => Some(Arc::clone(before)),
            _ => Some(Arc::new(Self::new(member, kind, learned))),
        }
    }

    fn is_of(&self, member: &Arc<Member>, learned: &Arc<Learned>) -> bool {
        let items = |learned: &Arc<Learned>| {
            let listing = self.kind.listing(&learned.catalogue);
            listing.map(|listing| (listing.items.as_ptr(), listing.items.len()))
        };
        let same = || {
            let [one, two] = [&self.learned, learned].map(|l| self.kind.listing(&l.catalogue));
            one.map(|l| &l.items) == two.map(|l| &l.items)
        };
        let is_pinned_so = || {
            let pinned = member.pinned();
            let at = |pinned: &Option<Arc<Pinned>>| pinned.as_ref().map(Arc::as_ptr);
            at(&pinned) == at(&self.pinned)
        };
        Arc::ptr_eq(&self.member, member)
            && is_pinned_so()
            && (items(&self.learned) == items(learned) || same())
    }

    /// What these templates say of a URI.
    pub(super) fn stance(&self, globs: &Globs, uri: &str) -> Stance {
        let shown = self.definitions.iter().map(|shown| &shown.original);
        let shown = shown.map(|text| (text, globs.allows_text(text)));
        template::stance(shown, self.held.denied.iter(), uri)
    }

    fn new(member: &Arc<Member>, kind: Kind, learned: Arc<Learned>) -> Self {
        let (mut definitions, mut dropped) = (Vec::<Definition>::new(), Vec::new());
        let listing = kind.listing(&learned.catalogue);
        let items = listing.map(|l| l.items.as_slice()).unwrap_or_default();
        dropped.extend(patterns::unmatched(member, kind, &learned));
        let pinned = member.pinned();
        let mut sieve = Sieve::new(member, kind, pinned.as_deref());
        let mut refused = 0_u32;
        for raw in items {
            let read = Definition::read(kind, raw);
            match read.and_then(|definition| sieve.pass(raw, definition)) {
                Ok(definition) => {
                    dropped.extend(definition.as_ref().and_then(|d| mended(member, kind, d)));
                    definitions.extend(definition);
                }
                Err(why) => {
                    refused += 1;
                    let object = raw.as_object().ok();
                    let name = object.and_then(|o| o.string(kind.name_member()));
                    let name = name.unwrap_or_else(|| "?".to_owned());
                    let name = clip(&name, NAME);
                    dropped.push(Warning {
                        upstream: Arc::clone(&member.name),
                        text: format!("{} `{name}` is dropped: {why}", kind.word()),
                    });
                }
            }
        }
        DefinitionsRefused {
            upstream: &member.name,
            kind: kind.word(),
            // Of a disabled one nobody is shown anything.
            count: if member.settings.disabled { 0 } else { refused },
        }
        .emit();
        // Stable, so that of two with one name it is always the same that is shown.
        definitions.sort_by(|a, b| a.original.cmp(&b.original));
        definitions.dedup_by(|second, first| {
            let is_again = second.original == first.original;
            if is_again {
                let name = clip(&first.original, NAME);
                dropped.push(Warning {
                    upstream: Arc::clone(&member.name),
                    text: format!("{} `{name}` is listed twice, shown once", kind.word()),
                });
            }
            is_again
        });
        let mut held = sieve.held;
        dropped.append(&mut held.warnings);
        held.hidden.sort();
        Self {
            member: Arc::clone(member),
            kind,
            definitions,
            dropped,
            held,
            learned,
            pinned,
        }
    }
}

/// What is told of a definition that could be shown in part only.
fn mended(member: &Member, kind: Kind, definition: &Definition) -> Option<Warning> {
    let flaws = definition.flaws.iter().take(FLAWS);
    let flaws: Vec<String> = flaws.map(ToString::to_string).collect();
    let more = definition.flaws.len() - flaws.len();
    let more = match more {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let (name, flaws) = (clip(&definition.original, NAME), flaws.join(", "));
    (!flaws.is_empty()).then(|| Warning {
        upstream: Arc::clone(&member.name),
        text: format!(
            "{} `{name}` is shown without what is wrong: {flaws}{more}",
            kind.word()
        ),
    })
}
