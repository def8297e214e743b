//! Sessions over HTTP against servers that are written down byte for byte.

#![expect(
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "the servers of a test need no orderly shutdown"
)]

#[path = "../../../tests/it/fake.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod fake;

mod choice;
mod kit;
mod lost;
mod resumption;
mod sse;
mod standing;
mod streamable;
