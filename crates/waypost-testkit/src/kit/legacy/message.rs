//! What a client of the session era may send.

use serde_json::{Map, Value};

use crate::kit::fail::Fail;
use crate::kit::request::{Message, Request};

/// One message.
#[derive(Debug)]
pub(super) enum Incoming {
    Request(Request),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// The answer to a question, whole.
    Answer(Value),
}

impl Incoming {
    /// Reads one message; a refusal carries the id to answer to.
    pub(super) fn parse(body: &[u8]) -> Result<Self, (Value, Fail)> {
        let value: Value =
            serde_json::from_slice(body).map_err(|_| (Value::Null, Fail::parse()))?;
        let has = |key: &str| value.get(key).is_some();
        if !has("method") && has("id") && (has("result") || has("error")) {
            return Ok(Self::Answer(value));
        }
        Ok(match Message::parse(body)? {
            Message::Request(request) => Self::Request(request),
            Message::Notification { method, params } => Self::Notification { method, params },
        })
    }
}
