//! What session clients make the front log and count.

/// A client session holds something as long as this lives.
#[derive(Debug)]
pub(crate) struct OpenSession(());

impl OpenSession {
    /// Counts one.
    pub(crate) fn new() -> Self {
        metrics::gauge!("waypost_client_sessions").increment(1);
        Self(())
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        metrics::gauge!("waypost_client_sessions").decrement(1);
    }
}

/// What a session set could not be stored: it holds until the session is freed, no longer.
pub(crate) fn not_stored(error: &waypost_hub::store::StoreError) {
    let source = &error.source;
    tracing::error!(%error, %source, "what a client session set is not remembered");
}
