//! Log lines on standard error.

mod fields;
mod lines;

use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::reload::Handle;
use waypost_config::{Log, LogFormat};

use crate::exit::Fatal;

pub(crate) use self::lines::LastLines;

/// Sets the level of what [`start`] started.
static LEVEL: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// Starts logging, once per process; a second call changes nothing. Lines are written by a thread
/// of their own; what this gives waits for the last ones when it is dropped.
///
/// # Errors
/// [`Fatal`] when no thread can be started.
pub(crate) fn start(log: &Log) -> Result<LastLines, Fatal> {
    let (lines, last) = lines::start(io::stderr()).context("cannot start a thread")?;
    let builder = fmt().with_env_filter(filter(&log.level)).with_writer(lines);
    let started = match log.format {
        LogFormat::Text => {
            let builder = builder.with_ansi(io::stderr().is_terminal());
            let builder = builder.fmt_fields(fields::Fields::default());
            let builder = builder.with_filter_reloading();
            remember(builder.reload_handle());
            builder.try_init()
        }
        // Flat, so that a line's fields are found under their own names; there is one span at
        // most, so a list of them would only say it again.
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true);
            let builder = builder.with_span_list(false).with_filter_reloading();
            remember(builder.reload_handle());
            builder.try_init()
        }
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging runs already");
    }
    Ok(last)
}

/// From now on this is logged: directives that the configuration has checked.
pub(crate) fn set_level(level: &str) {
    if let Some(set) = LEVEL.get() {
        set(filter(level));
    }
}

fn remember<S>(handle: Handle<EnvFilter, S>)
where
    Handle<EnvFilter, S>: Send + Sync + 'static,
{
    let set = move |filter| {
        if let Err(error) = handle.reload(filter) {
            tracing::warn!(%error, "the level of the log stays as it was");
        }
    };
    // The first one counts, as it does for the lines.
    drop(LEVEL.set(Box::new(set)));
}

/// The configuration has checked the directives.
fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"))
}
