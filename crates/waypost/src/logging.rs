//! Log lines on standard error.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use waypost_config::{Log, LogFormat};

/// Starts logging, once per process; a second call changes nothing.
pub(crate) fn start(log: &Log) {
    // The configuration has checked the directives.
    let filter = EnvFilter::try_new(&log.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match log.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        // Flat, so that a line's fields are found under their own names.
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging runs already");
    }
}
