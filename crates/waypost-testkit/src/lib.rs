//! Demo servers and misbehaving fakes.

pub mod cli;
pub mod client;
pub mod demo;
pub mod kit;
mod lines;
pub mod misbehave;
pub mod peer;
pub mod run;
pub mod seen;
pub mod temporary;
