//! What is known of each upstream, kept across restarts.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use waypost_wire::capability::TASKS;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::upstream::Facts;

/// Which protocol a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Modern,
    Legacy,
}

impl Era {
    /// The word in the store, status and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }
}

/// Who may share a cached answer (specification: caching).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Public,
    Private,
}

/// One list of an upstream, all its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The definitions as received.
    pub items: Vec<Raw>,
    /// The smallest `ttlMs` of its pages; zero when the server gave none.
    pub ttl_ms: u64,
    pub scope: Scope,
    /// Milliseconds since the epoch.
    pub fetched_at: u64,
}

/// The lists of one upstream; `None` is a list that the server does not offer or that was never
/// read. An empty list is something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    pub tools: Option<Listing>,
    pub prompts: Option<Listing>,
    pub resources: Option<Listing>,
    pub templates: Option<Listing>,
}

/// Everything learned of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    pub upstream: String,
    /// The configuration it was learned under; another one discards it.
    pub fingerprint: String,
    pub era: Era,
    pub facts: Facts,
    pub catalogue: Catalogue,
    /// Original names of tools that answer only with tasks.
    pub task_only: BTreeSet<String>,
    /// Milliseconds since the epoch.
    pub learned_at: u64,
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
