//! The seam to what is remembered across restarts.

use std::fmt;

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

/// What Waypost remembers. `hub` owns this trait; `waypost-store` implements it.
pub trait Store: Send + Sync + fmt::Debug {
    /// Everything learned so far.
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>>;

    /// Remembers what was learned of one upstream, replacing what was known of it.
    fn save(&self, learned: Learned) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Forgets an upstream that is no longer configured.
    fn forget(&self, upstream: &str) -> BoxFuture<'_, Result<(), StoreError>>;
}
