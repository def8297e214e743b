//! What came of a request, the same for every kind of client.

use http::StatusCode;
use serde_json::Value;

use super::answers::Asked;

/// A request from its first message to its last.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The HTTP status of the (last) answer; none over a pipe.
    pub status: Option<StatusCode>,
    /// The JSON-RPC response; `Null` when none came.
    pub answer: Value,
    /// What the server told on the way.
    pub notifications: Vec<Value>,
    /// What the server asked on the way.
    pub asked: Vec<Asked>,
    /// The task the call became, where this kind of client knows tasks.
    pub task: Option<Value>,
}

impl Outcome {
    /// The `result`; `Null` for an error.
    pub fn result(&self) -> &Value {
        self.answer.get("result").unwrap_or(&Value::Null)
    }

    /// The error's code; 0 when there is none.
    pub fn code(&self) -> i64 {
        let code = self.answer.pointer("/error/code").and_then(Value::as_i64);
        code.unwrap_or(0)
    }

    /// The text of the first content item, of a tool, a prompt or a resource; or nothing.
    pub fn text(&self) -> &str {
        [
            "/content/0/text",
            "/messages/0/content/text",
            "/contents/0/text",
        ]
        .iter()
        .find_map(|path| self.result().pointer(path)?.as_str())
        .unwrap_or_default()
    }

    /// Whether the tool says that it failed.
    pub fn is_tool_error(&self) -> bool {
        self.result().get("isError") == Some(&Value::Bool(true))
    }

    /// The parameters of the notifications with this method, in order.
    pub fn told(&self, method: &str) -> Vec<&Value> {
        self.notifications
            .iter()
            .filter(|told| told.get("method").and_then(Value::as_str) == Some(method))
            .filter_map(|told| told.get("params"))
            .collect()
    }

    /// The progress notifications.
    pub fn progress(&self) -> Vec<&Value> {
        self.told("notifications/progress")
    }

    /// The log messages.
    pub fn logs(&self) -> Vec<&Value> {
        self.told("notifications/message")
    }
}
