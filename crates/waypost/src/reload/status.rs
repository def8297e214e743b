//! How the last reloads went, for operators.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use waypost_config::{Problem, Severity};
use waypost_hub::registry::now_ms;

use super::event::Trigger;
use super::watch::How;
use crate::admin::time::iso;

/// Read by the admin listener, written by who reloads.
#[derive(Debug)]
pub(crate) struct Status(ArcSwap<Known>);

#[derive(Clone, Debug)]
struct Known {
    watching: How,
    last: Option<Last>,
    /// When the configuration that runs was read, or found to be the same.
    good_since_ms: u64,
    error: Option<Failure>,
    waiting: Vec<&'static str>,
}

#[derive(Clone, Debug)]
struct Last {
    at_ms: u64,
    trigger: Trigger,
    outcome: &'static str,
}

#[derive(Clone, Debug)]
struct Failure {
    at_ms: u64,
    problems: Arc<[Problem]>,
}

impl Default for Status {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(Known {
            watching: How::Off,
            last: None,
            good_since_ms: now_ms(),
            error: None,
            waiting: Vec::new(),
        }))
    }
}

impl Status {
    /// As the admin API shows it. Problems name keys and places, never values.
    pub(crate) fn json(&self) -> Value {
        let known = self.0.load();
        let last = known.last.as_ref().map(|last| {
            json!({
                "at": iso(last.at_ms),
                "trigger": last.trigger.as_str(),
                "outcome": last.outcome,
            })
        });
        let error = known.error.as_ref().map(|error| {
            let errors = error.problems.iter();
            let errors = errors.filter(|problem| problem.severity == Severity::Error);
            let problems = errors.map(ToString::to_string);
            json!({ "at": iso(error.at_ms), "problems": problems.collect::<Vec<_>>() })
        });
        json!({
            "watch": known.watching.as_str(),
            "good_since": iso(known.good_since_ms),
            "last_reload": last,
            "last_error": error,
            "needs_restart": known.waiting,
        })
    }

    /// Whether the last thing that was read has these problems.
    pub(super) fn is_last_error(&self, problems: &[Problem]) -> bool {
        let known = self.0.load();
        known
            .error
            .as_ref()
            .is_some_and(|error| *error.problems == *problems)
    }

    /// Whether it is news that the configuration is the one that runs, but for these settings.
    pub(super) fn is_news(&self, waiting: &[&'static str]) -> bool {
        let known = self.0.load();
        known.error.is_some() || known.waiting != waiting
    }

    pub(super) fn set_watching(&self, watching: How) {
        self.change(|known| known.watching = watching);
    }

    pub(super) fn failed(&self, trigger: Trigger, problems: Vec<Problem>) {
        self.change(|known| {
            let at_ms = now_ms();
            let outcome = "invalid";
            known.last = Some(Last {
                at_ms,
                trigger,
                outcome,
            });
            known.error = Some(Failure {
                at_ms,
                problems: problems.into(),
            });
        });
    }

    pub(super) fn went_well(
        &self,
        trigger: Trigger,
        outcome: &'static str,
        waiting: Vec<&'static str>,
    ) {
        self.change(|known| {
            let at_ms = now_ms();
            known.last = Some(Last {
                at_ms,
                trigger,
                outcome,
            });
            known.good_since_ms = at_ms;
            known.error = None;
            known.waiting = waiting;
        });
    }

    /// One task writes.
    fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut known = Known::clone(&self.0.load());
        change(&mut known);
        self.0.store(Arc::new(known));
    }
}
