//! Which thread does what.
//!
//! Requests are served by one single-threaded runtime per core: a connection stays on the core
//! that accepted it, and so do the connections to upstreams that its calls use and the tasks that
//! are followed for its callers. What exists once (children, the store, what keeps upstreams
//! known, the admin listener) lives on one control runtime. Nothing here knows what a request
//! means.

mod bind;
mod connection;
mod core;
mod http2;
mod patient;
mod resets;

pub use self::bind::Shares;
pub(crate) use self::bind::bind;
pub(crate) use self::connection::{Answers, Door};
pub(crate) use self::core::Core;
