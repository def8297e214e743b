//! The seam to what is remembered across restarts.

use std::fmt;
use std::time::Duration;

use waypost_wire::raw::Raw;

use crate::registry::Learned;
use crate::upstream::BoxFuture;

/// The store could not do it; the source says why.
#[derive(Debug, thiserror::Error)]
#[error("the state store failed to {action}")]
pub struct StoreError {
    /// A verb: `load`, `save`, `forget`.
    pub action: &'static str,
    /// For the log only; never sent to a client.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// An operation was given up. It may be done all the same, later.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", within.as_secs())]
pub struct Late {
    /// How long it was waited for.
    pub within: Duration,
}

impl StoreError {
    /// Whether it was given up, and so may be done all the same.
    pub fn is_late(&self) -> bool {
        self.source.is::<Late>()
    }
}

/// What is kept of one client session beside what its id says. The id itself is never stored:
/// whoever reads the store must not be able to use somebody's session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// The least level of log messages that the client asked for.
    pub log_level: Option<String>,
    /// The resources it wants to hear of, as it names them.
    pub resources: Vec<String>,
    /// The client ended it: its id must not open again. Once set this stays.
    pub ended: bool,
}

/// What a tool was when it was last approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedTool {
    /// The upstream's name.
    pub upstream: String,
    /// What the upstream calls the tool.
    pub tool: String,
    /// As the server sent it.
    pub definition: Raw,
}

/// What Waypost remembers. `hub` owns this trait; `waypost-store` implements it. Whatever is asked
/// of it ends within a time of its own: nobody waits for a disk that hangs.
pub trait Store: Send + Sync + fmt::Debug {
    /// Everything learned so far.
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>>;

    /// Remembers what was learned of one upstream, replacing what was known of it.
    fn save(&self, learned: Learned) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Forgets an upstream that is no longer configured.
    fn forget(&self, upstream: &str) -> BoxFuture<'_, Result<(), StoreError>>;

    /// What all tools were that are pinned. A store that remembers none has nothing.
    fn pins(&self) -> BoxFuture<'_, Result<Vec<PinnedTool>, StoreError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Keeps this of one upstream's tools, in place of what was kept. Forgetting the upstream does
    /// not touch it: a server at another address is not to be trusted for that.
    fn save_pins(
        &self,
        upstream: &str,
        tools: Vec<PinnedTool>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let _ = (upstream, tools);
        Box::pin(std::future::ready(Ok(())))
    }

    /// What is kept of the client session with this key; `None` when nothing is. A store that
    /// remembers no sessions has nothing.
    fn session(&self, key: &str) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        let _ = key;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Keeps this of a client session, in place of what was kept. A record that says `ended` is
    /// never replaced by one that does not.
    fn save_session(
        &self,
        key: &str,
        record: SessionRecord,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let _ = (key, record);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Remembers until `until_ms`, in milliseconds since the epoch, that the question of this name,
    /// which request states ask, was answered. `false` when it was before: of several who try, one
    /// gets `true`. To a store that remembers none each use is the first.
    fn use_state(&self, name: &str, until_ms: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
        let _ = (name, until_ms);
        Box::pin(std::future::ready(Ok(true)))
    }
}
