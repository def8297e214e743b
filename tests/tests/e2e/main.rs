//! The daemon end to end: real sockets and pipes, demo servers and misbehaving ones behind it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` reads better without a borrow"
)]

mod access;
mod admin;
mod asking;
mod catalogue;
mod checking;
mod codes;
mod commands;
mod draining;
mod eras;
mod failures;
mod fake;
mod freshness;
mod keys;
mod leaving;
mod lifecycle;
mod limits;
mod listening;
mod logs;
mod matrix;
mod process;
mod reloading;
mod rounds;
mod searching;
mod secrets;
mod shaping;
mod sharing;
mod sse_front;
mod stage;
mod stdio;
mod stdio_front;
mod streams;
mod support;
mod tasks;
mod transparency;
mod views;
mod waiting;
