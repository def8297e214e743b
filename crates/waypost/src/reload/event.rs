//! What is logged and counted of reloads.

use std::sync::Arc;

use metrics::{counter, gauge};
use waypost_config::{Problem, Severity};
use waypost_hub::registry::now_ms;
use waypost_hub::reload::Difference;

/// What a reload came of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// SIGHUP.
    Signal,
    /// Something changed that the configuration is read from.
    File,
}

/// A configuration with errors was read; nothing changed.
pub(super) struct Invalid<'a> {
    pub(super) trigger: Trigger,
    pub(super) problems: &'a [Problem],
}

/// A configuration was read that is the one that runs.
pub(super) struct Unchanged<'a> {
    pub(super) trigger: Trigger,
    /// Keys of settings that need a restart.
    pub(super) waiting: &'a [&'static str],
}

/// Another configuration runs.
pub(super) struct Applied<'a> {
    pub(super) trigger: Trigger,
    pub(super) difference: &'a Difference,
    /// Keys of settings that need a restart.
    pub(super) waiting: &'a [&'static str],
    pub(super) warnings: &'a [Problem],
}

/// The configuration of the start was good, or there would be none.
pub(super) fn begin() {
    for outcome in ["applied", "unchanged", "invalid"] {
        counter!("waypost_config_reloads_total", "outcome" => outcome).absolute(0);
    }
    succeeded();
}

fn succeeded() {
    gauge!("waypost_config_last_reload_successful").set(1.0);
    let seconds = std::time::Duration::from_millis(now_ms()).as_secs_f64();
    gauge!("waypost_config_last_reload_success_timestamp_seconds").set(seconds);
}

fn count(outcome: &'static str) {
    counter!("waypost_config_reloads_total", "outcome" => outcome).increment(1);
}

fn tell(problem: &Problem) {
    match problem.severity {
        Severity::Error => tracing::error!("{problem}"),
        Severity::Warning => tracing::warn!("{problem}"),
    }
}

fn restart(waiting: &[&str]) {
    for setting in waiting {
        tracing::warn!(setting, "needs a restart, the old value counts until then");
    }
}

// === impl Trigger ===

impl Trigger {
    /// The word in status and log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::File => "file",
        }
    }
}

// === impl Invalid ===

impl Invalid<'_> {
    pub(super) fn emit(&self) {
        count("invalid");
        gauge!("waypost_config_last_reload_successful").set(0.0);
        self.problems.iter().for_each(tell);
        tracing::error!(
            trigger = self.trigger.as_str(),
            problems = self.problems.len(),
            "the new configuration is not valid, nothing changes"
        );
    }
}

// === impl Unchanged ===

impl Unchanged<'_> {
    pub(super) fn emit(&self) {
        count("unchanged");
        succeeded();
        restart(self.waiting);
        tracing::info!(
            trigger = self.trigger.as_str(),
            "the configuration is the one that runs"
        );
    }
}

// === impl Applied ===

impl Applied<'_> {
    pub(super) fn emit(&self) {
        count("applied");
        succeeded();
        self.warnings.iter().for_each(tell);
        restart(self.waiting);
        let names = |names: &[Arc<str>]| (!names.is_empty()).then(|| names.join(","));
        let Difference {
            added,
            changed,
            removed,
            kept,
            gone: _,
        } = self.difference;
        tracing::info!(
            trigger = self.trigger.as_str(),
            added = names(added),
            changed = names(changed),
            removed = names(removed),
            kept,
            "reloaded"
        );
    }
}
