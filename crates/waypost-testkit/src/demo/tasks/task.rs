//! One task: its states, what moves it, and how the wire sees it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::kit::clock::{iso, now_ms};

/// Where a task stands. The last three never change again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Everything about a task, as it is kept on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) id: String,
    /// The tool and arguments: enough to take up the work again after a restart.
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) status: Status,
    pub(crate) message: String,
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) poll_ms: u64,
    /// The questions still open, by key.
    pub(crate) questions: Map<String, Value>,
    /// The answers so far, by key.
    pub(crate) answers: Map<String, Value>,
    pub(crate) result: Option<Value>,
    pub(crate) error: Option<Value>,
}

/// What is to happen to a task.
#[derive(Debug)]
pub(crate) enum Step {
    /// Goes on working, with a new message.
    Say(String),
    /// Asks, by key; keys that were ever used are left out.
    Ask(String, Map<String, Value>),
    /// Takes the answers to open questions; others are ignored.
    Answer(Map<String, Value>),
    Complete(Value),
    Fail {
        message: String,
        error: Value,
    },
    Cancel,
}

impl Task {
    /// Takes a step. `false`: it changes nothing, as everything after the end.
    pub(crate) fn take(&mut self, step: Step) -> bool {
        if self.status.is_terminal() {
            return false;
        }
        let changed = match step {
            Step::Say(message) => self.enter(Status::Working, message),
            Step::Ask(message, questions) => self.ask(message, questions),
            Step::Answer(answers) => self.answer(answers),
            Step::Complete(result) => {
                self.result = Some(result);
                self.enter(Status::Completed, "finished".into())
            }
            Step::Fail { message, error } => {
                self.error = Some(error);
                self.enter(Status::Failed, message)
            }
            Step::Cancel => self.enter(Status::Cancelled, "cancelled by the client".into()),
        };
        if changed {
            self.updated_ms = now_ms().max(self.updated_ms);
        }
        changed
    }

    fn enter(&mut self, status: Status, message: String) -> bool {
        if self.status == status && self.message == message {
            return false;
        }
        self.status = status;
        self.message = message;
        if status.is_terminal() {
            self.questions.clear();
        }
        true
    }

    fn ask(&mut self, message: String, questions: Map<String, Value>) -> bool {
        let new = questions.into_iter().filter(|(key, _)| {
            !self.answers.contains_key(key) && !self.questions.contains_key(key)
        });
        let new: Vec<_> = new.collect();
        self.questions.extend(new);
        !self.questions.is_empty() && self.enter(Status::InputRequired, message)
    }

    fn answer(&mut self, answers: Map<String, Value>) -> bool {
        let mut taken = false;
        for (key, answer) in answers {
            if self.questions.remove(&key).is_some() {
                self.answers.insert(key, answer);
                taken = true;
            }
        }
        if taken && self.questions.is_empty() {
            self.enter(Status::Working, "input received".into());
        }
        taken
    }

    /// When it may be forgotten.
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        self.ttl_ms.map(|ttl| self.created_ms.saturating_add(ttl))
    }

    /// `CreateTaskResult`: the bare task, without what only `tasks/get` shows.
    pub(crate) fn created(&self) -> Value {
        let mut task = self.bare();
        task.insert("resultType".into(), "task".into());
        Value::Object(task)
    }

    /// The detailed task of `tasks/get` and `notifications/tasks`.
    pub(crate) fn detailed(&self) -> Value {
        let mut task = self.bare();
        if let Some(result) = &self.result {
            task.insert("result".into(), result.clone());
        }
        if let Some(error) = &self.error {
            task.insert("error".into(), error.clone());
        }
        if self.status == Status::InputRequired {
            task.insert(
                "inputRequests".into(),
                Value::Object(self.questions.clone()),
            );
        }
        Value::Object(task)
    }

    fn bare(&self) -> Map<String, Value> {
        let task = json!({
            "taskId": self.id,
            "status": self.status.as_str(),
            "statusMessage": self.message,
            "createdAt": iso(self.created_ms),
            "lastUpdatedAt": iso(self.updated_ms),
            "ttlMs": self.ttl_ms,
            "pollIntervalMs": self.poll_ms,
        });
        match task {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            id: "t".into(),
            tool: "confirm_delete".into(),
            arguments: Map::new(),
            status: Status::Working,
            message: "working".into(),
            created_ms: 0,
            updated_ms: 0,
            ttl_ms: None,
            poll_ms: 1,
            questions: Map::new(),
            answers: Map::new(),
            result: None,
            error: None,
        }
    }

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn terminal_states_never_change() {
        let ends = [
            Step::Complete(json!({})),
            Step::Fail {
                message: "no".into(),
                error: json!({}),
            },
            Step::Cancel,
        ];
        for end in ends {
            let mut task = task();
            assert!(task.take(end));
            let before = task.detailed();
            assert!(!task.take(Step::Cancel));
            assert!(!task.take(Step::Say("again".into())));
            assert!(!task.take(Step::Ask("?".into(), map(&json!({ "k": {} })))));
            assert!(!task.take(Step::Complete(json!({ "content": [] }))));
            assert_eq!(task.detailed(), before);
        }
    }

    #[test]
    fn answers_in_parts_leave_the_rest_open() {
        let mut task = task();
        task.take(Step::Ask(
            "two".into(),
            map(&json!({ "a": { "method": "m" }, "b": {} })),
        ));
        assert!(task.take(Step::Answer(map(&json!({ "a": {}, "unknown": {} })))));
        assert_eq!(task.status, Status::InputRequired);
        assert_eq!(task.detailed()["inputRequests"], json!({ "b": {} }));
        assert!(!task.take(Step::Answer(map(&json!({ "a": { "again": true } })))));
        assert_eq!(task.answers["a"], json!({}));
        assert!(task.take(Step::Answer(map(&json!({ "b": {} })))));
        assert_eq!(task.status, Status::Working);
        assert!(task.detailed().get("inputRequests").is_none());
    }

    #[test]
    fn a_used_key_is_never_asked_again() {
        let mut task = task();
        task.take(Step::Ask("one".into(), map(&json!({ "a": {} }))));
        task.take(Step::Answer(map(&json!({ "a": {} }))));
        assert!(!task.take(Step::Ask(
            "one".into(),
            map(&json!({ "a": { "other": 1 } }))
        )));
        assert_eq!(task.status, Status::Working);
    }
}
