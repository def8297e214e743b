//! Faces clients: HTTP in or a pipe, either era, decided for each request.
//!
//! A request's way: [`Routes`] finds the endpoint, `admit` turns HTTP into a checked message of
//! one era or a refusal, `modern` makes a `Call` of a stateless request and an answer of the
//! reply, [`legacy`] does so for the messages of a session, `rescue` knows the status and code
//! of everything that can go wrong. [`stdio`] is the same for a host on a pipe.

mod admit;
mod answer;
mod body;
mod encode;
mod era;
mod event;
mod events;
mod headers;
mod in_flight;
pub mod legacy;
mod media;
mod modern;
mod outlet;
mod refusal;
mod rescue;
mod routes;
pub mod stdio;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;
use waypost_hub::call::{Call, Principal, View};
use waypost_hub::error::CallError;
use waypost_hub::reply::Reply;

use legacy::Sessions;
pub use routes::{Endpoints, Routes};

/// What answers calls: the hub under the layers of the call seam.
pub type Calls = BoxCloneSyncService<Call, Reply, CallError>;

/// Finds what `/mcp/<name>` shows this caller, and `/mcp` itself for the empty name; `None` is no
/// such endpoint.
pub type Views = Arc<dyn Fn(&Principal, &str) -> Option<View> + Send + Sync>;

/// What the front is made of.
#[derive(Clone)]
pub struct Parts {
    /// Answers calls.
    pub calls: Calls,
    /// Knows the endpoints at and below `/mcp`.
    pub views: Views,
    /// Longest silence before a comment is sent on a stream, and longest wait for the first event
    /// before an answer becomes a stream; zero is no comments and no such bound.
    pub keep_alive: Duration,
    /// Whether stateless requests are served; they or `sessions` are.
    pub modern: bool,
    /// The client sessions, one and the same on every core; `None` serves none.
    pub sessions: Option<Sessions>,
    /// Whether `tasks/*` without `Mcp-Name` is refused.
    pub strict_headers: bool,
    /// Levels of JSON in a request.
    pub json_depth: usize,
    /// Bytes of a request body.
    pub request_body: usize,
    /// Longest wait for a whole request body.
    pub body_timeout: Duration,
    /// From then on nothing begins any more.
    pub draining: CancellationToken,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("keep_alive", &self.keep_alive)
            .field("modern", &self.modern)
            .field("sessions", &self.sessions)
            .field("strict_headers", &self.strict_headers)
            .field("json_depth", &self.json_depth)
            .field("request_body", &self.request_body)
            .field("body_timeout", &self.body_timeout)
            .finish_non_exhaustive()
    }
}
