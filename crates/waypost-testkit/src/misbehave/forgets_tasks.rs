//! Creates tasks and then does not know them: `-32602` on every `tasks/*`.

use std::io;

use http::StatusCode;
use serde_json::Value;

use super::fake::{fake_now, new_id, task};
use crate::run::Running;

/// Its tasks are gone as soon as they are created.
///
/// # Errors
///
/// When no port is free.
pub async fn forgets_tasks() -> io::Result<Running> {
    fake_now(|rpc| match rpc.method.as_str() {
        "tools/call" if rpc.has_tasks() => rpc.ok(&task(&new_id(), "task", "working")),
        "tasks/get" | "tasks/update" | "tasks/cancel" => {
            rpc.fail(StatusCode::OK, -32602, "unknown task", &Value::Null)
        }
        _ => rpc.honest(true),
    })
    .await
}
