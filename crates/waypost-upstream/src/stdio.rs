//! Servers that run as child processes and speak over their standard streams.
//!
//! [`launcher`] starts processes: [`command`] decides what is run and in which environment.
//! [`child`] is one process as callers see it and [`process`] its life; [`writer`], [`reader`] and
//! [`errors`] are its three pipes. What it says goes to an ear, whoever that is.
//!
//! [`modern`] speaks to a process without a session: [`calls`] knows which answer belongs to whom,
//! and [`abandoned`] which may still come for nobody.

mod abandoned;
mod calls;
mod child;
mod command;
mod errors;
mod kept_apart;
mod launcher;
mod modern;
mod process;
mod reader;
mod redact;
pub(crate) mod sniff;
mod waiter;
mod writer;

pub(crate) use self::abandoned::{Abandoned, Sort};
pub(crate) use self::child::Child;
pub(crate) use self::command::Program;
pub use self::command::SpawnFault;
pub(crate) use self::kept_apart::{Apart, Processes};
pub(crate) use self::launcher::Launcher;
pub(crate) use self::modern::{ModernStdio, Speaker};
pub(crate) use self::writer::Outgoing;
