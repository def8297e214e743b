//! Which thread does what.
//!
//! Requests are served by one single-threaded runtime per core: a connection stays on the core
//! that accepted it, and so do the connections to upstreams that its calls use. What exists once
//! (children, tasks followed for callers, the store, the admin listener) lives on one control
//! runtime. Nothing here knows what a request means.

mod bind;
mod connection;
mod core;

pub use self::bind::Shares;
pub(crate) use self::bind::bind;
pub(crate) use self::connection::{Answers, Door};
pub(crate) use self::core::Core;
