//! The same servers in the session era: revisions 2024-11-05 to 2025-11-25.
//!
//! A [`Server`](super::server::Server) knows the stateless protocol only. What its methods ask by
//! `input_required` is asked here by requests to the client while the call stays open, its tasks
//! are shown as the experimental ones of 2025-11-25, and everything a client said at `initialize`
//! or since is remembered in a session.

mod answer;
mod connection;
mod http;
mod log;
mod message;
mod options;
mod refusal;
mod revision;
mod session;
mod sessions;
mod shape;
mod sse;
pub(crate) mod stdio;
mod streamable;
mod tasks;

pub(crate) use self::answer::{ASK_OUTSIDE, CLOSE_STREAM};
pub(crate) use self::http::router;
pub use self::options::{
    Endpoint, Fault, GetStream, LineEnd, Lost, Options, Quirks, Sdk, Transport,
};
pub use self::revision::Revision;
pub use self::sessions::Sessions;
