//! Refuses every `tools/call` of a caller that did not declare the tasks extension.

use std::io;

use http::StatusCode;
use serde_json::json;

use super::fake::{ack, completed, fake_now, new_id, task};
use crate::kit::words::TASKS;
use crate::run::Running;

/// Refuses with `code`: `-32021` as the specification says, `-32003` as its drafts said.
/// Callers that declared get a task, `completed` when first looked at.
///
/// # Errors
///
/// When no port is free.
pub async fn demands_tasks(code: i64) -> io::Result<Running> {
    fake_now(move |rpc| match rpc.method.as_str() {
        "tools/call" if rpc.has_tasks() => rpc.ok(&task(&new_id(), "task", "working")),
        "tools/call" => {
            let required = json!({ "requiredCapabilities": { "extensions": { TASKS: {} } } });
            rpc.fail(
                StatusCode::BAD_REQUEST,
                code,
                "this needs the tasks extension",
                &required,
            )
        }
        "tasks/get" => rpc.ok(&completed(&rpc.task_id())),
        "tasks/update" | "tasks/cancel" => rpc.ok(&ack()),
        _ => rpc.honest(true),
    })
    .await
}
