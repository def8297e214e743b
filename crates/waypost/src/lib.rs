//! Waypost, the program: command line, assembly, runtimes, admin listener, shutdown.
//!
//! `stack` shows in what order things happen to a request, `assemble` what is made from the
//! configuration, `runtime` which thread does what, and [`daemon`] is all of it as one value.

mod admin;
mod assemble;
mod check;
pub mod cli;
pub mod daemon;
mod demo;
mod ending;
pub mod exit;
mod identify;
mod keys;
mod last_words;
mod latest;
mod logging;
mod output;
mod reload;
mod runtime;
mod serve;
mod signal;
mod stack;
mod stdio;
mod tools;
mod unseen;
pub mod walkthrough;
