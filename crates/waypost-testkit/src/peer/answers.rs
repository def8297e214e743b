//! What a client answers when it is asked.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

type Answer = dyn Fn(&str, &Value) -> Result<Value, Value> + Send + Sync;

/// The answers to a server's questions; cheap to clone.
#[derive(Clone)]
pub struct Answers(Arc<Answer>);

/// A question as it was asked, the same in every era.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: String,
    /// What was asked.
    pub params: Value,
}

impl fmt::Debug for Answers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Answers")
    }
}

impl Answers {
    /// Answers by method and parameters: a result, or a JSON-RPC error.
    pub fn new(
        answer: impl Fn(&str, &Value) -> Result<Value, Value> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(answer))
    }

    /// Accepts every URL and form (defaults, else something of the right type), says `sampled text` as
    /// the model, and has the root `file:///root`.
    pub fn usual() -> Self {
        Self::new(|method, params| Ok(usual(method, params)))
    }

    /// As [`Answers::usual`], but declines every form.
    pub fn declining() -> Self {
        Self::new(|method, params| {
            Ok(match method {
                "elicitation/create" => json!({ "action": "decline" }),
                _ => usual(method, params),
            })
        })
    }

    /// Refuses everything with an error.
    pub fn refusing() -> Self {
        Self::new(|method, _| {
            let message = format!("this client does not answer `{method}`");
            Err(json!({ "code": -32601, "message": message }))
        })
    }

    pub(super) fn of(&self, method: &str, params: &Value) -> Result<Value, Value> {
        (self.0)(method, params)
    }
}

fn usual(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" if params.get("mode") == Some(&json!("url")) => {
            json!({ "action": "accept" })
        }
        "elicitation/create" => json!({ "action": "accept", "content": filled(params) }),
        "sampling/createMessage" => json!({
            "role": "assistant",
            "content": { "type": "text", "text": "sampled text" },
            "model": "test-model",
            "stopReason": "endTurn",
        }),
        _ => json!({ "roots": [{ "uri": "file:///root", "name": "root" }] }),
    }
}

/// A form filled in.
fn filled(params: &Value) -> Map<String, Value> {
    let properties = params.pointer("/requestedSchema/properties");
    let properties = properties.and_then(Value::as_object).into_iter().flatten();
    let fill = |(key, schema): (&String, &Value)| (key.clone(), value_of(key, schema));
    properties.map(fill).collect()
}

fn value_of(key: &str, schema: &Value) -> Value {
    let first = |path: &str| schema.pointer(path).cloned();
    if let Some(value) = first("/default")
        .or_else(|| first("/enum/0"))
        .or_else(|| first("/oneOf/0/const"))
    {
        return value;
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => true.into(),
        Some("integer" | "number") => 7.into(),
        Some("array") => first("/items/enum/0")
            .or_else(|| first("/items/anyOf/0/const"))
            .into_iter()
            .collect(),
        _ => format!("my {key}").into(),
    }
}
