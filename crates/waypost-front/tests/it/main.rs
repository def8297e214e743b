//! The front as a service: requests in, responses out, no sockets.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod fake;
mod peer;

mod answers;
mod batches;
mod beside;
mod bridge;
mod bugs;
mod changes;
mod counts;
mod ends;
mod envelope;
mod headers;
mod log;
mod paths;
mod pipe;
mod questions;
mod repeats;
mod resumption;
mod sessions;
mod sse;
mod stack;
mod store;
mod streams;
