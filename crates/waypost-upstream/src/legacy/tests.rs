//! Sessions over a link that a test plays, under paused time.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod kit;
mod life;
mod questions;
