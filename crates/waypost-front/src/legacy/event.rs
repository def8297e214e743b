//! What session clients make the front log and count.

use waypost_hub::call::Principal;
use waypost_hub::error::CallError;

use crate::legacy::session::Session;

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

/// What is kept of a session could not be read: it does not open.
pub(crate) fn not_read(error: &waypost_hub::store::StoreError) {
    let source = &error.source;
    tracing::error!(%error, %source, "a client session is not opened again");
}

/// The end of a session could not be stored; it is tried again.
pub(crate) fn end_not_stored(error: &waypost_hub::store::StoreError) {
    let source = &error.source;
    tracing::error!(%error, %source, "the end of a client session is not stored yet");
}

/// The hub does not say what changes for a session; it is asked again.
pub(crate) fn not_listened(session: &Session, error: &CallError) {
    let mark = session.mark;
    tracing::warn!(mark, %error, "a client session hears of no changes for now");
}

/// A session begins to hold something: it is new, or its id was opened again.
pub(crate) fn opened(session: &Session, again: bool) {
    let (mark, principal) = (session.mark, session.principal.as_str());
    let version = &session.ticket.version;
    tracing::debug!(mark, principal, version, again, "session opened");
}

/// A client of HTTP+SSE opened its stream.
pub(crate) fn stream_opened(principal: &Principal) {
    let principal = principal.as_str();
    tracing::debug!(principal, "stream opened");
}

/// A session holds nothing any more.
pub(crate) fn freed(session: &Session, why: &'static str) {
    let (mark, principal) = (session.mark, session.principal.as_str());
    tracing::debug!(mark, principal, why, "session freed");
}
