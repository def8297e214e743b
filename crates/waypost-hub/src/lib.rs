//! Decides, for one call, which upstream gets it, under which name, how answers become one, and
//! what becomes of tasks.
//!
//! Inside there is one dialect, the stateless protocol of 2026-07-28: a [`call::Call`] carries all
//! its context, its [`reply::Reply`] is notifications and exactly one end. Eras and transports
//! exist only at the edges, behind [`upstream::Upstream`] and in the front. No I/O happens here.

pub mod call;
pub mod error;
pub mod event;
pub mod forward;
pub mod keys;
pub mod lifecycle;
pub mod member;
pub mod own;
pub mod registry;
pub mod reply;
pub mod status;
pub mod store;
pub mod upstream;
