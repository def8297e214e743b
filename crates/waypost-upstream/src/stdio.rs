//! Servers that run as child processes and speak over their standard streams, modern era.
//!
//! [`upstream`] is what the hub holds; it survives the process. [`child`] is one process as callers
//! see it and [`process`] its life; [`calls`] knows which answer belongs to whom, and [`abandoned`]
//! which may still come for nobody; [`writer`], [`reader`] and [`errors`] are its three pipes;
//! [`command`] decides what is run and in which environment.

mod abandoned;
mod calls;
mod child;
mod command;
mod errors;
mod lines;
mod process;
mod reader;
mod redact;
mod sniff;
mod upstream;
mod waiter;
mod writer;

pub(crate) use self::command::Program;
pub use self::command::SpawnFault;
pub(crate) use self::upstream::{Settings, StdioUpstream};
