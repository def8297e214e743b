//! Shapes of the Tasks extension (SEP-2663).

use std::time::Duration;

use crate::object::Object;
use crate::raw::Raw;

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It runs.
    Working,
    /// It waits for answers by `tasks/update`.
    InputRequired,
    /// It ended with a result, which may itself say `isError`. Terminal.
    Completed,
    /// It ended with a JSON-RPC error. Terminal.
    Failed,
    /// It was stopped before it was done. Terminal.
    Cancelled,
}

impl Status {
    /// Reads the text of `status`.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "working" => Self::Working,
            "input_required" => Self::InputRequired,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "cancelled" => Self::Cancelled,
            _ => return None,
        })
    }

    /// The text of `status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A task as a server described it: a `CreateTaskResult`, the answer to `tasks/get`, or the
/// params of `notifications/tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// As its server made it: opaque and unguessable.
    pub id: String,
    /// As of the message this was read from.
    pub status: Status,
    /// The server's words on it, for people.
    pub status_message: Option<String>,
    /// How often the server wants to be asked.
    pub poll_interval: Option<Duration>,
    /// How long after creation the server keeps it; `None` is without end.
    pub ttl: Option<Duration>,
    /// All members as received, `result`, `error` and `inputRequests` among them.
    pub members: Object,
}

impl Task {
    /// Reads a task; `None` when `taskId` or `status` is missing.
    ///
    /// A status that is not known is one of a later version, or a server's own, and none that ends
    /// a task: it counts as [`Status::Working`]. [`Self::is_odd`] tells.
    pub fn read(members: Object) -> Option<Self> {
        let id = members.string("taskId")?;
        let status = Status::parse(&members.string("status")?).unwrap_or(Status::Working);
        Some(Self {
            id,
            status,
            status_message: members.string("statusMessage"),
            poll_interval: millis(members.get("pollIntervalMs")),
            ttl: millis(members.get("ttlMs")),
            members,
        })
    }
}

impl Task {
    /// Whether its status is one that is not known.
    pub fn is_odd(&self) -> bool {
        let said = self.members.str("status");
        said.is_none_or(|said| said != self.status.as_str())
    }
}

/// A count of milliseconds. Some servers write it with a fraction; below zero is zero.
fn millis(raw: Option<&Raw>) -> Option<Duration> {
    let value: f64 = raw?.decode()?;
    Duration::try_from_secs_f64(value.max(0.0) / 1e3).ok()
}
