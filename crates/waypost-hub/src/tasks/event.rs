//! What is logged and counted of tasks: one type per event.

use crate::event::request_id_field;

/// Why Waypost cancelled a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The caller closed its stream.
    CallerGone,
    /// `tasks.max_wait` is over.
    MaxWait,
    /// The task lived longer than its own `ttlMs`.
    Expired,
    /// The upstream's tasks are refused by the file.
    Refused,
    /// `tasks.input_wait` passed without an answer of the caller.
    InputWait,
    /// It asks for something that its caller did not declare.
    Undeclared,
    /// Too many calls wait for their callers already.
    Full,
    /// The upstream's answers about it cannot be used.
    Broken,
}

/// How a wait for a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With the task's result.
    Completed,
    /// With the task's JSON-RPC error.
    Failed,
    /// Somebody stopped the task at the upstream.
    Cancelled,
    /// The question went to the caller.
    Asked,
    /// The upstream forgot the task, or cannot be asked for it any more.
    Lost,
    /// Waited too long.
    TimedOut,
    /// Given up for another reason, which the answer says.
    GivenUp,
}

/// What becomes of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was handed to its caller.
    Passed,
    /// Waypost waits for it in its caller's place.
    Collapsed,
}

/// An upstream made a task of a call.
#[derive(Debug)]
pub(crate) struct TaskMade<'a> {
    /// Who waits for its end.
    pub(crate) fate: Fate,
    /// The call that became the task.
    pub(crate) request_id: &'a str,
    /// Where the task lives.
    pub(crate) upstream: &'a str,
    /// The tool's original name.
    pub(crate) tool: &'a str,
}

/// The wait is over.
#[derive(Debug)]
pub(crate) struct WaitEnded<'a> {
    /// The call that waited.
    pub(crate) request_id: &'a str,
    /// Where the task lives.
    pub(crate) upstream: &'a str,
    /// What became of the wait, and so what the caller got.
    pub(crate) outcome: Outcome,
    /// How often the upstream was asked.
    pub(crate) polls: u32,
}

/// A poll failed; it is tried again.
#[derive(Debug)]
pub(crate) struct PollFailed<'a> {
    /// The call that waits.
    pub(crate) request_id: &'a str,
    /// Where the task lives.
    pub(crate) upstream: &'a str,
    /// How many in a row.
    pub(crate) failures: u32,
    /// What went wrong this time; the caller sees at most the last one.
    pub(crate) error: &'a str,
}

/// Waypost cancelled a task.
#[derive(Debug)]
pub(crate) struct TaskCancelled<'a> {
    /// The call that waited.
    pub(crate) request_id: &'a str,
    /// Where the task lives.
    pub(crate) upstream: &'a str,
    /// Why nobody waits any more.
    pub(crate) reason: Reason,
    /// The upstream answered.
    pub(crate) answered: bool,
}

/// A tool turned out to answer only with tasks.
#[derive(Debug)]
pub(crate) struct TaskOnlyLearned<'a> {
    /// Whose tool it is.
    pub(crate) upstream: &'a str,
    /// The tool's original name.
    pub(crate) tool: &'a str,
}

/// A `tasks/*` request named no task that its caller may use.
#[derive(Debug)]
pub(crate) struct HandleRefused<'a> {
    /// The refused request.
    pub(crate) request_id: &'a str,
    /// Which `tasks/*` it is.
    pub(crate) method: &'a str,
}

// === impl Reason ===

impl Reason {
    /// The word in logs and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::CallerGone => "caller_gone",
            Self::MaxWait => "max_wait",
            Self::Expired => "expired",
            Self::Refused => "refused",
            Self::InputWait => "input_wait",
            Self::Undeclared => "undeclared",
            Self::Full => "full",
            Self::Broken => "broken",
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// The word in logs and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Asked => "asked",
            Self::Lost => "lost",
            Self::TimedOut => "timed_out",
            Self::GivenUp => "given_up",
        }
    }
}

// === impl the events: each writes its log line and its metrics; nothing else does ===

impl TaskMade<'_> {
    /// Logs and counts.
    pub(crate) fn emit(&self) {
        let Self {
            fate,
            request_id,
            upstream,
            tool,
        } = self;
        let (text, metric) = match fate {
            Fate::Passed => ("task handed to its caller", "waypost_tasks_passed_total"),
            Fate::Collapsed => ("waiting for a task", "waypost_tasks_collapsed_total"),
        };
        tracing::debug!(
            request_id = request_id_field(request_id),
            upstream,
            tool,
            "{text}"
        );
        count(metric, upstream);
    }
}

impl WaitEnded<'_> {
    /// Logs and counts.
    pub(crate) fn emit(&self) {
        let Self {
            request_id,
            upstream,
            outcome,
            polls,
        } = self;
        let outcome = outcome.as_str();
        tracing::debug!(
            request_id = request_id_field(request_id),
            upstream,
            outcome,
            polls,
            "wait for a task ended"
        );
        let labels = [
            ("upstream", (*upstream).to_owned()),
            ("outcome", outcome.to_owned()),
        ];
        metrics::counter!("waypost_task_waits_total", &labels).increment(1);
    }
}

impl PollFailed<'_> {
    /// Logs and counts.
    pub(crate) fn emit(&self) {
        let Self {
            request_id,
            upstream,
            failures,
            error,
        } = self;
        tracing::debug!(
            request_id = request_id_field(request_id),
            upstream,
            failures,
            error,
            "poll of a task failed"
        );
        count("waypost_task_poll_failures_total", upstream);
    }
}

impl TaskCancelled<'_> {
    /// Logs and counts.
    pub(crate) fn emit(&self) {
        let Self {
            request_id,
            upstream,
            reason,
            answered,
        } = self;
        let reason = reason.as_str();
        let request_id = request_id_field(request_id);
        if *answered {
            tracing::info!(request_id, upstream, reason, "task cancelled");
        } else {
            tracing::warn!(request_id, upstream, reason, "task could not be cancelled");
        }
        let labels = [
            ("upstream", (*upstream).to_owned()),
            ("reason", reason.to_owned()),
        ];
        metrics::counter!("waypost_tasks_cancelled_total", &labels).increment(1);
    }
}

impl TaskOnlyLearned<'_> {
    /// Logs.
    pub(crate) fn emit(&self) {
        let Self { upstream, tool } = self;
        tracing::info!(upstream, tool, "tool answers only with tasks");
    }
}

impl HandleRefused<'_> {
    /// Logs and counts.
    pub(crate) fn emit(&self) {
        let Self { request_id, method } = self;
        tracing::debug!(
            request_id = request_id_field(request_id),
            method,
            "unknown task"
        );
        metrics::counter!("waypost_task_handles_refused_total").increment(1);
    }
}

fn count(name: &'static str, upstream: &str) {
    metrics::counter!(name, "upstream" => upstream.to_owned()).increment(1);
}
