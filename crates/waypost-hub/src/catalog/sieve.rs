//! What of an upstream's list is shown, and as what: the file's filters, pins and changes.

use std::sync::Arc;

use waypost_config::config::Pin;
use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, clip};

use super::build::Warning;
use super::entry::{Definition, Kind, Rejected};
use super::patterns::meant;
use super::shaping::Shaping;
use crate::member::Member;
use crate::pins::{self, Pending, Pinned};

/// Holds back what is not to be seen, and changes what is.
pub(super) struct Sieve<'a> {
    member: &'a Member,
    kind: Kind,
    shaping: Option<&'a Shaping>,
    /// What the tools were; `None` where that is not known, or does not matter.
    pins: Option<&'a Pinned>,
    pub(super) held: Held,
}

/// What an upstream lists and clients do not see, or should not without a look at it.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Original names that the file's filters hide.
    pub(super) hidden: Vec<Arc<str>>,
    /// Texts of those templates that it denies.
    pub(super) denied: Vec<Arc<str>>,
    /// Tools that are not as they were.
    pub(super) pending: Vec<Pending>,
    pub(super) warnings: Vec<Warning>,
}

impl<'a> Sieve<'a> {
    pub(super) fn new(member: &'a Member, kind: Kind, pins: Option<&'a Pinned>) -> Self {
        Self {
            member,
            kind,
            shaping: member.shaping(),
            pins,
            held: Held::default(),
        }
    }

    /// What is shown of a definition, if anything.
    pub(super) fn pass(
        &mut self,
        raw: &Raw,
        definition: Definition,
    ) -> Result<Option<Definition>, Rejected> {
        let Some(shaping) = self.shaping else {
            return Ok(Some(definition));
        };
        let original = &definition.original;
        let globs = shaping.globs(self.kind);
        if !globs.shows(self.kind, original) {
            if self.kind == Kind::Template && globs.denies(original) {
                self.held.denied.push(Arc::clone(original));
            }
            self.held.hidden.push(Arc::clone(original));
            return Ok(None);
        }
        if let Some(pin) = shaping.pin.filter(|_| self.kind == Kind::Tool)
            && self.is_held(pin, raw, original)
        {
            return Ok(None);
        }
        let Some(one) = shaping.one(self.kind, original) else {
            return Ok(Some(definition));
        };
        for (key, param, known) in one.unknown_params(&raw.as_object()?) {
            let (tool, param) = (clip(original, NAME), clip(param, NAME));
            let what =
                format!("`tools.{key}` is for `{param}` of `{tool}`, which has no such parameter");
            self.held.warnings.push(Warning {
                upstream: Arc::clone(&self.member.name),
                text: what + &meant(&param, known.iter().map(String::as_str)),
            });
        }
        definition.shaped(self.kind, one).map(Some)
    }

    /// Looks at whether a tool is as it was, and whether it is kept back because it is not.
    fn is_held(&mut self, pin: Pin, raw: &Raw, original: &Arc<str>) -> bool {
        let held = pin == Pin::Block;
        let Some(pins) = self.pins else {
            // Before it is known what the tools were, none can be said to be as it was.
            return held;
        };
        let Some(pending) = pins::compare(pins, original, raw, held) else {
            return false;
        };
        self.held.pending.push(pending);
        held
    }
}
