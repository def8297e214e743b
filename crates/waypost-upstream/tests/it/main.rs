//! Upstreams against servers that behave and misbehave, over real sockets and pipes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a test fails by panicking, and its servers need no orderly shutdown"
)]

mod discover;
mod fake;
mod http;
mod http_errors;
mod isolation;
mod kit;
mod legacy;
mod legacy_http;
mod legacy_http_streams;
mod legacy_tasks;
mod stdio;
mod stdio_life;
mod subscriptions;
mod tls;
mod turns;
