//! Sessions over HTTP against servers that are written down byte for byte.

#![expect(
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "the servers of a test need no orderly shutdown"
)]

#[path = "../../../tests/it/fake.rs"]
mod fake;

mod choice;
mod kit;
mod lost;
mod resumption;
mod sse;
mod standing;
mod streamable;
