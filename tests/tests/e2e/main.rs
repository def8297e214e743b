//! The daemon end to end: real sockets and pipes, demo servers and misbehaving ones behind it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod access;
mod admin;
mod commands;
mod failures;
mod fake;
mod keys;
mod lifecycle;
mod limits;
mod listening;
mod matrix;
mod process;
mod rounds;
mod secrets;
mod sharing;
mod stage;
mod stdio;
mod support;
mod tasks;
mod transparency;
mod waiting;
