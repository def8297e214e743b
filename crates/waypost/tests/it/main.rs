//! The daemon in process and the program as a process, against demo servers.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod admin;
mod drain;
mod gateway;
mod leaving;
mod nested;
mod program;
mod registry;
mod session_clients;
mod support;
