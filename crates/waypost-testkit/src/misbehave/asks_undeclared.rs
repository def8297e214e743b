//! Asks the user of a caller that did not declare elicitation (several real servers do), in the
//! result of a call or in a task.

use std::io;

use serde_json::{Value, json};

use super::fake::{ack, fake_now, new_id, task, text};
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

/// The same in a task, which `tools/call` always makes and which asks for ever.
///
/// # Errors
///
/// When no port is free.
pub async fn task_asks_undeclared() -> io::Result<Running> {
    fake_now(|rpc| match rpc.method.as_str() {
        "tools/call" if rpc.has_tasks() => rpc.ok(&task(&new_id(), "task", "working")),
        "tasks/get" => {
            let mut asks = task(&rpc.task_id(), "complete", "input_required");
            if let Some(members) = asks.as_object_mut() {
                let question = form("What is your name?", "name", "string");
                members.insert("inputRequests".to_owned(), json!({ "name": question }));
            }
            rpc.ok(&asks)
        }
        "tasks/update" | "tasks/cancel" => rpc.ok(&ack()),
        _ => rpc.honest(true),
    })
    .await
}
