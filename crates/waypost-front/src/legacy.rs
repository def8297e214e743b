//! The session era: `initialize`, session ids, streams that outlive their connection, requests
//! from server to client.
//!
//! Everything that differs from the stateless era is in this folder. `session` is what is in
//! flight for one client, `serve` takes its messages, `exchange` answers one request,
//! `rounds` by as many stateless calls as it takes, `ask` makes what servers ask in between into
//! requests to the client, also `outside` of calls, `listen` what changes meanwhile into
//! notifications, as `wishes` has it: these know no transport. `http`, `body` and `ring` put them on Streamable HTTP,
//! `pipe` on standard input and output and, through `sse`, on a stream of HTTP+SSE; `sessions` and
//! `ticket` are the session ids. `bridge` is the other end: the session of a host at a daemon.

mod ask;
mod body;
pub(crate) mod bridge;
mod event;
mod exchange;
mod http;
mod initialize;
mod listen;
mod outside;
pub(crate) mod pipe;
mod place;
mod progress;
mod ring;
mod rounds;
pub(crate) mod serve;
pub(crate) mod session;
mod sessions;
pub(crate) mod sse;
mod ticket;
mod translate;
mod wishes;

pub(crate) use serve::PING;
pub use sessions::{SessionParts, Sessions};

pub(crate) use http::{batch, message, stream_or_end};
