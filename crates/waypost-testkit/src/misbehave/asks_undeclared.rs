//! Asks the user of a caller that did not declare elicitation (several real servers do).

use std::io;

use serde_json::{Value, json};

use super::fake::{fake_now, text};
use crate::kit::schema::form;
use crate::run::Running;

/// `tools/call` asks `name` and, once answered, says `done`.
///
/// # Errors
///
/// When no port is free.
pub async fn asks_undeclared() -> io::Result<Running> {
    fake_now(|rpc| match rpc.method.as_str() {
        "tools/call"
            if rpc
                .params
                .get("inputResponses")
                .is_some_and(Value::is_object) =>
        {
            rpc.ok(&text("done"))
        }
        "tools/call" => rpc.ok(&json!({
            "resultType": "input_required",
            "inputRequests": { "name": form("What is your name?", "name", "string") },
            "requestState": "opaque",
        })),
        _ => rpc.honest(false),
    })
    .await
}
