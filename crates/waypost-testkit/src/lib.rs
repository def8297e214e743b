//! Demo servers and misbehaving fakes.

pub mod cli;
pub mod demo;
pub mod kit;
pub mod misbehave;
pub mod run;
pub mod seen;
