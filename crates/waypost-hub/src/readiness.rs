//! Whether the gateway should be given traffic.

use std::sync::Arc;

/// The answer to `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether both lists below allow traffic.
    pub ready: bool,
    /// Upstreams whose first connect attempt is not over.
    pub starting: Vec<Arc<str>>,
    /// `required` upstreams that cannot be called, or of which a list was never read.
    pub missing: Vec<Arc<str>>,
}
