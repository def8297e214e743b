//! Answers every `tools/call` with a task, whatever the caller declared.

use std::io;

use super::fake::{ack, completed, fake_now, new_id, task};
use crate::run::Running;

/// Its tasks are `completed` (with the text `done`) when first looked at.
///
/// # Errors
///
/// When no port is free.
pub async fn always_tasks() -> io::Result<Running> {
    fake_now(|rpc| match rpc.method.as_str() {
        "tools/call" => rpc.ok(&task(&new_id(), "task", "working")),
        "tasks/get" => rpc.ok(&completed(&rpc.task_id())),
        "tasks/update" | "tasks/cancel" => rpc.ok(&ack()),
        _ => rpc.honest(true),
    })
    .await
}
