//! Decides, for one call, which upstream gets it, under which name, how answers become one, and
//! what becomes of tasks.
//!
//! Inside there is one dialect, the stateless protocol of 2026-07-28: a [`call::Call`] carries all
//! its context, its [`reply::Reply`] is notifications and exactly one end. Eras and transports
//! exist only at the edges, behind [`upstream::Upstream`] and in the front. No I/O happens here.

#![warn(missing_docs)]

pub mod aftermath;
pub mod asks;
pub mod backoff;
pub mod call;
mod carry;
pub mod catalog;
mod choose;
mod discover;
pub mod error;
pub mod event;
mod finish;
mod follow;
pub mod forward;
pub mod generate;
mod hop;
pub mod hub;
pub mod keys;
mod leavers;
pub mod lifecycle;
pub mod limit;
mod listen;
mod makeup;
pub mod member;
mod meta;
mod naming;
pub mod own;
pub mod pins;
mod questions;
mod readiness;
mod reads;
mod refresh;
pub mod registry;
pub mod reload;
pub mod reply;
mod router;
#[cfg(test)]
mod sample;
mod saving;
pub mod sealed;
pub mod search;
pub mod shared;
mod shut_out;
pub mod status;
pub mod store;
mod subscription;
mod supervise;
pub mod tasks;
mod unread;
pub mod upstream;
