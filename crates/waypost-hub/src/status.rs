//! How each upstream is doing, from what really happened to calls.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::error::CallError;
use crate::registry::now_ms;

/// What an upstream is good for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Switched off in the file.
    Disabled,
    /// The first connect attempt is not over.
    Starting,
    /// Calls work.
    Up,
    /// It answered lately, but recent calls failed or a list of it cannot be read; what was
    /// learned is still served.
    Degraded,
    /// It wants credentials that Waypost does not have.
    AuthRequired,
    /// It cannot be reached.
    Down,
}

impl State {
    /// The word in status, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Degraded => "degraded",
            Self::AuthRequired => "auth_required",
            Self::Down => "down",
        }
    }
}

/// A state, since when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the upstream is good for.
    pub state: State,
    /// Milliseconds since the epoch.
    pub since_ms: u64,
    /// In our words, without secrets.
    pub last_error: Option<String>,
    /// What is behind it, for the operator: not to be shown to clients.
    pub last_cause: Option<String>,
    /// Milliseconds since the epoch; zero while there was none.
    pub last_error_ms: u64,
}

/// After so many calls in a row that failed, an upstream that is up is called degraded.
const DEGRADED_AFTER: u32 = 3;

/// The live status of one upstream.
#[derive(Debug)]
pub struct Status {
    report: ArcSwap<Report>,
    failures: AtomicU32,
    calls: AtomicU64,
    /// A list cannot be read.
    unread: AtomicBool,
}

impl Status {
    /// A status to begin with.
    pub fn new(state: State) -> Self {
        let report = Report {
            state,
            since_ms: now_ms(),
            last_error: None,
            last_cause: None,
            last_error_ms: 0,
        };
        Self {
            report: ArcSwap::from_pointee(report),
            failures: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            unread: AtomicBool::new(false),
        }
    }

    /// What it is now.
    pub fn report(&self) -> Report {
        Report::clone(&self.report.load())
    }

    /// The state alone.
    pub fn state(&self) -> State {
        self.report.load().state
    }

    /// How many calls went out.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A connect attempt ended so. Up is at most degraded while a list cannot be read.
    pub fn set(&self, state: State, error: Option<&str>) {
        if state == State::Up {
            self.failures.store(0, Ordering::Relaxed);
            self.update(|_| self.best(), error);
        } else {
            self.update(|_| state, error);
        }
    }

    /// All lists were read, or one could not be, for this reason.
    pub(crate) fn lists(&self, failed: Option<&CallError>) {
        self.unread.store(failed.is_some(), Ordering::Relaxed);
        let works = self.failures.load(Ordering::Relaxed) < DEGRADED_AFTER;
        let next = |state| match state {
            State::Up | State::Degraded if works => self.best(),
            state => state,
        };
        let text = failed.map(ToString::to_string);
        self.update(next, text.as_deref());
        if let Some(error) = failed {
            self.explain(error);
        }
    }

    fn best(&self) -> State {
        if self.unread.load(Ordering::Relaxed) {
            State::Degraded
        } else {
            State::Up
        }
    }

    /// What is behind the error that was reported last.
    pub fn explain(&self, error: &CallError) {
        let Some(cause) = &error.source else { return };
        self.report.rcu(|old| Report {
            last_cause: Some(cause.to_string()),
            ..Report::clone(old)
        });
    }

    /// A call was answered: by a result or by the server's own error, which is an answer too.
    pub fn answered(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        // The common case writes nothing shared between cores beyond the counter.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            if self.state() == State::Degraded {
                let up = |state| match state {
                    State::Degraded => self.best(),
                    state => state,
                };
                self.update(up, None);
            }
        }
    }

    /// A call was not answered. `true` when this makes it worth asking the server anew.
    pub fn failed(&self, error: &str) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let degraded = |state| match state {
            State::Up if failures >= DEGRADED_AFTER => State::Degraded,
            state => state,
        };
        self.update(degraded, Some(error));
        failures == 1 || failures.is_multiple_of(DEGRADED_AFTER)
    }

    /// The next state is made from the one that is replaced: what another core has just found
    /// out must not be undone by what was known before it.
    fn update(&self, next: impl Fn(State) -> State, error: Option<&str>) {
        self.report.rcu(|old| {
            let (now, state) = (now_ms(), next(old.state));
            let since_ms = if old.state == state {
                old.since_ms
            } else {
                now
            };
            match error {
                Some(text) => Report {
                    state,
                    since_ms,
                    last_error: Some(text.to_owned()),
                    last_cause: None,
                    last_error_ms: now,
                },
                None => Report {
                    state,
                    since_ms,
                    ..Report::clone(old)
                },
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r57_an_upstream_whose_calls_fail_is_not_up() {
        let status = Status::new(State::Up);
        assert!(status.failed("answered HTTP 500"));
        assert_eq!(status.state(), State::Up);
        status.failed("answered HTTP 500");
        status.failed("answered HTTP 500");
        assert_eq!(status.state(), State::Degraded);
        status.answered();
        let report = status.report();
        assert_eq!(report.state, State::Up);
        assert_eq!(report.last_error.as_deref(), Some("answered HTTP 500"));
    }

    #[test]
    fn r57_a_lost_connection_is_not_undone_by_calls_that_end_at_the_same_time() {
        for _ in 0..2_000 {
            let status = Status::new(State::Up);
            std::thread::scope(|scope| {
                scope.spawn(|| status.set(State::Down, Some("the connection was lost")));
                scope.spawn(|| (0..4).filter(|_| status.failed("closed")).count());
                scope.spawn(|| (0..4).for_each(|_| status.answered()));
            });
            assert_eq!(status.state(), State::Down);
        }
    }
}
