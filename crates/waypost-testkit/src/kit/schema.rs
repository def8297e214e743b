//! Short ways to write down tools and their results.

use serde_json::{Map, Value, json};

/// A tool for `tools/list`; every property of `required` must be given by callers.
pub(crate) fn tool(name: &str, description: &str, properties: &Value, required: &[&str]) -> Value {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), properties.clone());
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    json!({ "name": name, "description": description, "inputSchema": schema })
}

/// A tool result of one text.
pub(crate) fn text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }], "isError": false })
}

/// A tool result that says the tool failed.
pub(crate) fn error(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }], "isError": true })
}

/// A form question with one required property.
pub(crate) fn form(message: &str, key: &str, kind: &str) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": { key: { "type": kind } },
                "required": [key],
            },
        },
    })
}

/// The `key` of an accepted form answer; `None` when it was declined, cancelled or left out.
pub(crate) fn accepted<'a>(response: &'a Value, key: &str) -> Option<&'a Value> {
    if response.get("action").and_then(Value::as_str) != Some("accept") {
        return None;
    }
    response.get("content")?.get(key)
}
