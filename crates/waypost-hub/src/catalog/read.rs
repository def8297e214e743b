//! The definitions of one upstream, read as far as needed and kept from catalogue to catalogue.

use std::collections::HashSet;
use std::sync::Arc;

use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, SENTENCE, clip};

use super::build::Warning;
use super::entry::{Definition, Kind, Rejected};
use super::few::Few;
use super::patterns;
use super::sieve::{Held, Sieve};
use super::template::{Side, Sides};
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
    /// Of templates, where the file filters resources.
    pub(super) sides: Sides,
    learned: Arc<Learned>,
    /// See [`patterns::is_open`].
    open: bool,
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
            && self.open == patterns::is_open(member, learned)
            && (items(&self.learned) == items(learned) || same())
    }

    fn new(member: &Arc<Member>, kind: Kind, learned: Arc<Learned>) -> Self {
        let (mut definitions, mut dropped) = (Vec::<Definition>::new(), Vec::new());
        let listing = kind.listing(&learned.catalogue);
        let items = listing.map(|l| l.items.as_slice()).unwrap_or_default();
        dropped.extend(patterns::unmatched(member, kind, &learned));
        let pinned = member.pinned();
        let mut sieve = Sieve::new(member, kind, pinned.as_deref());
        let (mut refused, mut again) = (Few::new(member), Few::new(member));
        let mut mended = Few::new(member);
        let mut firsts = Firsts::default();
        for raw in items {
            let read = match firsts.read(kind, raw) {
                Ok(Counted::Not(original)) => {
                    let name = clip(&original, NAME);
                    again.add(|| format!("{} `{name}` is listed twice, shown once", kind.word()));
                    continue;
                }
                Ok(Counted::As(definition)) => Ok(*definition),
                Err(why) => Err(why),
            };
            match read.and_then(|definition| sieve.pass(raw, definition)) {
                Ok(definition) => {
                    let shown = definition.as_ref().filter(|shown| !shown.flaws.is_empty());
                    shown
                        .into_iter()
                        .for_each(|shown| mended.add(|| told(kind, shown)));
                    definitions.extend(definition);
                }
                Err(why) => refused.add(|| {
                    let object = raw.as_object().ok();
                    let name = object.and_then(|o| o.string(kind.name_member()));
                    let name = name.unwrap_or_else(|| "?".to_owned());
                    let (name, why) = (clip(&name, NAME), why.to_string());
                    let why = clip(&why, SENTENCE);
                    format!("{} `{name}` is dropped: {why}", kind.word())
                }),
            }
        }
        DefinitionsRefused {
            upstream: &member.name,
            kind: kind.word(),
            // Of a disabled one nobody is shown anything.
            count: match member.settings.disabled {
                true => 0,
                false => u32::try_from(refused.count).unwrap_or(u32::MAX),
            },
        }
        .emit();
        dropped.extend(refused.told(|more| format!("{more} more {}s are dropped", kind.word())));
        dropped.extend(mended.told(|more| {
            format!(
                "{more} more {}s are shown without what is wrong in them",
                kind.word()
            )
        }));
        dropped.extend(again.told(|more| format!("{more} more {}s are listed twice", kind.word())));
        definitions.sort_by(|a, b| a.original.cmp(&b.original));
        let mut held = sieve.held;
        dropped.append(&mut held.warnings);
        held.hidden.sort();
        Self {
            sides: sides(member, kind, &definitions, &held),
            open: patterns::is_open(member, &learned),
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

/// Which definitions of a list count: of those with one name the first that can be read. It is the
/// one that is shown, pinned and held against its pin.
#[derive(Debug, Default)]
pub(crate) struct Firsts(HashSet<Arc<str>>);

#[derive(Debug)]
pub(crate) enum Counted {
    As(Box<Definition>),
    /// There was one of this name before.
    Not(Arc<str>),
}

impl Firsts {
    /// The next one of the list.
    pub(crate) fn read(&mut self, kind: Kind, raw: &Raw) -> Result<Counted, Rejected> {
        let definition = Definition::read(kind, raw)?;
        let original = Arc::clone(&definition.original);
        Ok(match self.0.insert(Arc::clone(&original)) {
            true => Counted::As(Box::new(definition)),
            false => Counted::Not(original),
        })
    }
}

/// What is not looked at where the file lets everything be read.
fn sides(member: &Member, kind: Kind, shown: &[Definition], held: &Held) -> Sides {
    let shaping = member.shaping().filter(|_| kind == Kind::Template);
    let Some(globs) = shaping.map(|shaping| shaping.globs(kind)) else {
        return Sides::default();
    };
    let shown = shown.iter().map(|shown| &shown.original);
    let shown = shown.map(|text| (Arc::clone(text), globs.side(text)));
    let denied = held
        .denied
        .iter()
        .map(|text| (Arc::clone(text), Side::Denied));
    Sides::new(shown.chain(denied))
}

/// What is told of a definition that can be shown in part only.
fn told(kind: Kind, definition: &Definition) -> String {
    let flaws = definition.flaws.iter().take(FLAWS);
    let flaws: Vec<String> = flaws.map(ToString::to_string).collect();
    let more = match definition.flaws.len() - flaws.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let (name, flaws) = (clip(&definition.original, NAME), flaws.join(", "));
    let kind = kind.word();
    format!("{kind} `{name}` is shown without what is wrong: {flaws}{more}")
}
