//! How the task server is set up.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of *demo-tasks*.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where tasks are kept. Without it they live in a temporary directory, removed at the end.
    pub state: Option<PathBuf>,
    /// How long a task is kept, counted from its creation; `None` is for ever (`ttlMs: null`).
    pub ttl: Option<Duration>,
    /// The `pollIntervalMs` hint.
    pub poll_interval: Duration,
    /// How long `failing_job`, `protocol_error_job` and the steps of the asking tools work.
    pub work: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            state: None,
            ttl: Some(Duration::from_hours(1)),
            poll_interval: Duration::from_millis(500),
            work: Duration::from_millis(300),
        }
    }
}
