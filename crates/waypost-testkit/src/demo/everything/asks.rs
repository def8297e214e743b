//! Tools that ask one thing and tell what was answered, named as the scenarios of the session era
//! name them.

use serde_json::{Value, json};

use super::mrtr;
use crate::kit::fail::Fail;
use crate::kit::schema::text;
use crate::kit::server::ToolCall;

/// The key of the one answer.
const KEY: &str = "answer";

/// Answers one of these tools; `None` when the name is none of them.
pub(crate) fn call(call: &ToolCall<'_>) -> Option<Result<Value, Fail>> {
    let question = question(call)?;
    Some(ask(call, question))
}

fn ask(call: &ToolCall<'_>, question: Value) -> Result<Value, Fail> {
    let answer = call.request.input_responses()?.and_then(|all| all.get(KEY));
    let Some(answer) = answer else {
        return mrtr::ask(call.request, vec![(KEY, question)], None);
    };
    Ok(text(match call.name {
        "test_sampling" => format!("LLM response: {}", mrtr::sampled(answer)),
        "test_list_roots" => format!("Roots: {}", mrtr::root_uris(answer)),
        "test_elicitation" => format!("User response: {}", told(answer)),
        _ => format!("Elicitation completed: {}", told(answer)),
    }))
}

fn told(answer: &Value) -> String {
    let action = answer
        .get("action")
        .and_then(Value::as_str)
        .unwrap_or("none");
    let content = answer.get("content").cloned().unwrap_or_else(|| json!({}));
    format!("action={action}, content={content}")
}

fn question(call: &ToolCall<'_>) -> Option<Value> {
    let argument = |name: &str, otherwise: &'static str| {
        let given = call.arguments.get(name).and_then(Value::as_str);
        given.unwrap_or(otherwise).to_owned()
    };
    Some(match call.name {
        "test_sampling" => mrtr::sampling(&argument("prompt", "Say something."), 100),
        "test_list_roots" => json!({ "method": "roots/list", "params": {} }),
        "test_elicitation" => form(
            &argument("message", "Please answer."),
            &json!({
                "username": { "type": "string", "description": "User's response" },
                "email": { "type": "string", "description": "User's email address" },
            }),
            &["username", "email"],
        ),
        "test_elicitation_sep1034_defaults" => form("Check these defaults", &defaults(), &[]),
        "test_elicitation_sep1330_enums" => form("Choose", &enums(), &[]),
        _ => return None,
    })
}

fn form(message: &str, properties: &Value, required: &[&str]) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": properties,
                "required": required,
            },
        },
    })
}

/// A default of each primitive type.
fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": { "type": "boolean", "default": true },
    })
}

/// Each way of offering a choice.
fn enums() -> Value {
    let options = ["option1", "option2", "option3"];
    let titled = json!([
        { "const": "value1", "title": "First" },
        { "const": "value2", "title": "Second" },
        { "const": "value3", "title": "Third" },
    ]);
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": titled },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["One", "Two", "Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
    })
}
