//! What is known of each upstream, kept across restarts.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use waypost_wire::capability::TASKS;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::catalog::entry::Kind;
use crate::upstream::Facts;

/// Who may share a cached answer (specification: caching).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everyone.
    Public,
    /// Only whoever asks with the same authorisation.
    Private,
}

/// One list of an upstream, all its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The definitions as received.
    pub items: Vec<Raw>,
    /// The smallest `ttlMs` of its pages; zero when the server gave none.
    pub ttl_ms: u64,
    /// Private unless every page says that it is public.
    pub scope: Scope,
    /// Milliseconds since the epoch.
    pub fetched_at: u64,
}

/// The lists of one upstream; `None` is a list that the server does not offer or that was never
/// read. An empty list is something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// All pages of `tools/list`.
    pub tools: Option<Listing>,
    /// All pages of `prompts/list`.
    pub prompts: Option<Listing>,
    /// All pages of `resources/list`.
    pub resources: Option<Listing>,
    /// All pages of `resources/templates/list`.
    pub templates: Option<Listing>,
}

impl Listing {
    /// Whether both say the same, whenever they were read.
    fn same(&self, other: &Self) -> bool {
        let Self {
            items,
            ttl_ms,
            scope,
            fetched_at: _,
        } = self;
        *items == other.items && *ttl_ms == other.ttl_ms && *scope == other.scope
    }
}

impl Catalogue {
    /// Whether both say the same, whenever they were read.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Kind::ALL
            .into_iter()
            .all(|kind| match (kind.listing(self), kind.listing(other)) {
                (Some(one), Some(two)) => one.same(two),
                (one, two) => one.is_none() && two.is_none(),
            })
    }
}

/// Everything learned of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// Its name in the file.
    pub upstream: String,
    /// The configuration it was learned under; another one discards it.
    pub fingerprint: String,
    /// What the server says of itself.
    pub facts: Facts,
    /// What it offers, under its own names.
    pub catalogue: Catalogue,
    /// Original names of tools that answer only with tasks.
    pub task_only: BTreeSet<String>,
    /// Names that it keeps although an upstream before it in the file wants them too, each
    /// with the word for its kind in front.
    pub claims: BTreeSet<String>,
    /// Milliseconds since the epoch.
    pub learned_at: u64,
    /// Why the last reading of its lists failed, where it did; in our words.
    pub last_error: Option<String>,
}

impl Learned {
    /// The `extensions` map, verbatim.
    pub fn extensions(&self) -> Object {
        let extensions = self.facts.capabilities.get("extensions");
        extensions
            .and_then(|raw| raw.as_object().ok())
            .unwrap_or_default()
    }

    /// Whether the server advertises the Tasks extension.
    pub fn has_tasks(&self) -> bool {
        self.extensions().get(TASKS).is_some_and(Raw::is_object)
    }

    /// Whether the server has a capability such as `tools` or `completions`.
    pub fn has(&self, capability: &str) -> bool {
        self.facts
            .capabilities
            .get(capability)
            .is_some_and(Raw::is_object)
    }
}

/// Milliseconds since the epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(same: bool, change: impl Fn(&mut Listing)) {
        let listing = Listing {
            items: vec![Raw::string("x")],
            ttl_ms: 1,
            scope: Scope::Public,
            fetched_at: 1,
        };
        let catalogue = |listing| Catalogue {
            prompts: Some(listing),
            ..Catalogue::default()
        };
        let mut other = listing.clone();
        change(&mut other);
        let (one, two) = (catalogue(listing), catalogue(other));
        assert_eq!((one.same(&two), two.same(&one)), (same, same));
        assert!(!one.same(&Catalogue::default()) && !Catalogue::default().same(&one));
    }

    #[test]
    fn a_list_that_was_only_read_again_has_not_changed() {
        check(true, |listing| listing.fetched_at += 1);
        check(false, |listing| listing.items.clear());
        check(false, |listing| listing.ttl_ms += 1);
        check(false, |listing| listing.scope = Scope::Private);
    }
}
