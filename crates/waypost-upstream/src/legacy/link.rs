//! The seam between a session and the transport it runs over.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use waypost_hub::upstream::BoxFuture;

use crate::ear::SharedEar;
use crate::fault::Fault;

/// One connection that one session runs over. What the server says goes to the ear that it was
/// dialled with.
///
/// Calls come in this order: `request` with `initialize` (the answer is heard like any other, and
/// what its head says of the session is kept), [`Link::agreed`], `tell` with
/// `notifications/initialized`, [`Link::opened`]; then anything.
pub(crate) trait Link: Send + Sync + fmt::Debug {
    /// Sends `message`, the request with the number `id`.
    ///
    /// Resolves when the answer was heard, or is to come on the one channel for all. Everything
    /// that the server says on the request's own stream is heard with `of: Some(id)` before that;
    /// the future is polled until then, also while the call is parked. Dropped, it lets go of the
    /// stream; the server is told by `tell`, where it has to be.
    ///
    /// # Errors
    /// [`Fault::SessionLost`] when the server certainly did not execute it because it does not
    /// know the session any more (404 with a session id; 400 or a JSON-RPC error that says so,
    /// which then is not heard). Never during the handshake. [`Fault::Modern`] when it was not
    /// executed because the server wants no sessions any more. Otherwise why there is no answer;
    /// [`Fault::NoEnd`] when the stream ended properly without one.
    fn request(&self, id: u64, message: Bytes) -> BoxFuture<'_, Result<(), Fault>>;

    /// Sends a notification, or an answer to a question of the server's. Resolves when it was
    /// accepted (HTTP: any 2xx) or written.
    ///
    /// # Errors
    /// As [`Link::request`].
    fn tell(&self, message: Bytes) -> BoxFuture<'_, Result<(), Fault>>;

    /// How many messages [`Link::tell`] may be given at once; one where their order is the
    /// channel's.
    fn side_by_side(&self) -> usize {
        1
    }

    /// Whether a message that [`Link::tell`] was dropped with has certainly not been taken.
    fn knows_what_it_took(&self) -> bool {
        false
    }

    /// The server has answered `initialize` with this version: goes into headers from now on.
    fn agreed(&self, protocol: &str);

    /// The handshake is over: what the server speaks on unasked is opened now, and kept open.
    fn opened(&self) {}

    /// Ends the session and the connection, in bounded time. Again, it does nothing more.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// A tag of what answers, where the server's tasks die with it: a process.
    fn instance(&self) -> Option<Arc<str>> {
        None
    }
}

/// Makes links to one server; a new one for each session.
pub(crate) trait Dial: Send + Sync + fmt::Debug {
    /// Opens what comes before the first message: a child process, the stream of HTTP+SSE, or
    /// nothing.
    ///
    /// # Errors
    /// Why it cannot be opened; nothing was sent.
    fn dial(&self, ear: SharedEar) -> BoxFuture<'_, Result<Arc<dyn Link>, Fault>>;
}
