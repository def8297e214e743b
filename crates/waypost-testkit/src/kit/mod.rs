//! A small kit for MCP servers of revision 2026-07-28, and in [`legacy`] of
//! those before: a [`Server`](server::Server) says what its
//! methods do, the kit does the protocol around them, over HTTP and stdio.
//!
//! It exists for demonstrations and tests: no authorization, lists of one page. It
//! shares no code with the gateway, so that a mistake there is not hidden by the same one here.

pub(crate) mod clock;
pub(crate) mod dispatch;
pub mod events;
pub mod fail;
pub(crate) mod guard;
pub(crate) mod headers;
pub(crate) mod http;
pub mod legacy;
pub(crate) mod listen;
pub mod out;
pub mod request;
pub(crate) mod schema;
pub mod seal;
pub mod server;
pub(crate) mod spawn;
pub mod stdio;
pub mod words;
