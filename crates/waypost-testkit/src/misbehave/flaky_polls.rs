//! Fails the first polls of a task by HTTP, as a restarting balancer does; then it is done.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::IntoResponse as _;
use http::StatusCode;

use super::fake::{ack, completed, fake_now, new_id, task};
use crate::run::Running;

/// The first `failures` calls of `tasks/get` get `status` and no JSON.
///
/// # Errors
///
/// When no port is free.
pub async fn flaky_polls(failures: usize, status: StatusCode) -> io::Result<Running> {
    let polls = AtomicUsize::new(0);
    fake_now(move |rpc| match rpc.method.as_str() {
        "tools/call" if rpc.has_tasks() => rpc.ok(&task(&new_id(), "task", "working")),
        "tasks/get" if polls.fetch_add(1, Ordering::SeqCst) < failures => {
            (status, "the server is not there").into_response()
        }
        "tasks/get" => rpc.ok(&completed(&rpc.task_id())),
        "tasks/update" | "tasks/cancel" => rpc.ok(&ack()),
        _ => rpc.honest(true),
    })
    .await
}
