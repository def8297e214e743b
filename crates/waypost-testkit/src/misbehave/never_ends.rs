//! Creates tasks that work for ever; cancelling is acknowledged and has no effect.

use std::io;

use serde_json::{Value, json};

use super::fake::{ack, fake_now, new_id, task};
use crate::run::Running;

/// What the tasks of [`never_ends`] say about time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// `ttlMs`; `None` is `null`.
    pub ttl_ms: Option<u64>,
    /// `pollIntervalMs`; `None` leaves it out. Useful: 0, an hour.
    pub poll_interval_ms: Option<u64>,
}

/// Its tasks are always `working`.
///
/// # Errors
///
/// When no port is free.
pub async fn never_ends(hints: Hints) -> io::Result<Running> {
    fake_now(move |rpc| match rpc.method.as_str() {
        "tools/call" if rpc.has_tasks() => {
            rpc.ok(&hinted(task(&new_id(), "task", "working"), hints))
        }
        "tasks/get" => rpc.ok(&hinted(task(&rpc.task_id(), "complete", "working"), hints)),
        "tasks/update" | "tasks/cancel" => rpc.ok(&ack()),
        _ => rpc.honest(true),
    })
    .await
}

fn hinted(mut task: Value, hints: Hints) -> Value {
    if let Some(members) = task.as_object_mut() {
        members.insert("ttlMs".into(), json!(hints.ttl_ms));
        match hints.poll_interval_ms {
            Some(interval) => members.insert("pollIntervalMs".into(), interval.into()),
            None => members.remove("pollIntervalMs"),
        };
    }
    task
}
