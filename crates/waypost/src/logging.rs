//! Log lines on standard error.

mod fields;
mod lines;

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use waypost_config::{Log, LogFormat};

use crate::exit::Fatal;

pub(crate) use self::lines::LastLines;

/// Starts logging, once per process; a second call changes nothing. Lines are written by a thread
/// of their own; what this gives waits for the last ones when it is dropped.
///
/// # Errors
/// [`Fatal`] when no thread can be started.
pub(crate) fn start(log: &Log) -> Result<LastLines, Fatal> {
    let (lines, last) = lines::start(io::stderr()).context("cannot start a thread")?;
    // The configuration has checked the directives.
    let filter = EnvFilter::try_new(&log.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = fmt().with_env_filter(filter).with_writer(lines);
    let started = match log.format {
        LogFormat::Text => {
            let builder = builder.with_ansi(io::stderr().is_terminal());
            builder.fmt_fields(fields::Fields::default()).try_init()
        }
        // Flat, so that a line's fields are found under their own names; there is one span at
        // most, so a list of them would only say it again.
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true);
            builder.with_span_list(false).try_init()
        }
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging runs already");
    }
    Ok(last)
}
