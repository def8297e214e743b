//! The hub with upstreams in memory, under paused time.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod collisions;
mod fake;
mod families;
mod forwarding;
mod heard;
mod leaving;
mod links;
mod listening;
mod misplaced;
mod ordering;
mod owning;
mod paging;
mod pinning;
mod reading;
mod reloading;
mod routing;
mod search;
mod searching;
mod shaping;
mod sharing;
mod slow_listeners;
mod sound;
mod stopping;
mod supervising;
mod tasks;
mod unread;
mod views;
mod watching;
