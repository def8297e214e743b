//! Takes its time before it says that a call has become a task.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::fake::{Rpc, ack, event_stream, fake, new_id, task};
use crate::run::Running;

/// In which words it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// One piece of JSON.
    Whole,
    /// An event stream, whose head comes at once.
    Stream,
    /// Those of 2025-11-25, which it speaks alone.
    Sessions,
    /// The same, and is too busy when it is first told to cancel a task.
    Busy,
    /// The same, and its tool is not known to make tasks.
    Plain,
}

/// Each permit in `go` lets one `tools/call` become a task. Who has closed the stream by then does
/// not hear of it.
///
/// # Errors
///
/// When no port is free.
pub async fn late_tasks(words: Words, go: Arc<Semaphore>) -> io::Result<Running> {
    let was_busy = Arc::new(AtomicBool::new(false));
    fake(move |rpc| answer(rpc, words, Arc::clone(&go), Arc::clone(&was_busy))).await
}

async fn answer(rpc: Rpc, words: Words, go: Arc<Semaphore>, was_busy: Arc<AtomicBool>) -> Response {
    let turn = async move {
        if let Ok(permit) = go.acquire().await {
            permit.forget();
        }
    };
    match (rpc.method.as_str(), words) {
        ("tools/call", Words::Whole) => {
            turn.await;
            rpc.ok(&task(&new_id(), "task", "working"))
        }
        ("tools/call", Words::Stream) => {
            let result = task(&new_id(), "task", "working");
            let answer = json!({ "jsonrpc": "2.0", "id": rpc.id, "result": result });
            let event = Bytes::from(format!("data: {answer}\n\n"));
            let later = stream::once(async {
                turn.await;
                Ok::<_, io::Error>(event)
            });
            event_stream(Body::from_stream(later))
        }
        ("tools/call", Words::Sessions | Words::Busy | Words::Plain) => {
            turn.await;
            rpc.ok(&json!({ "task": old_task(&new_id()) }))
        }
        ("tasks/cancel", Words::Whole | Words::Stream) => rpc.ok(&ack()),
        ("tasks/cancel", Words::Busy) if !was_busy.swap(true, Ordering::SeqCst) => {
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
        ("tasks/cancel", _) => rpc.ok(&old_task(&rpc.task_id())),
        (_, Words::Whole | Words::Stream) => rpc.honest(true),
        (_, Words::Sessions | Words::Busy) => in_session(&rpc, "required"),
        (_, Words::Plain) => in_session(&rpc, "optional"),
    }
}

fn old_task(id: &Value) -> Value {
    let time = "2025-11-25T00:00:00.000Z";
    json!({
        "taskId": id, "status": "working", "ttl": null,
        "createdAt": time, "lastUpdatedAt": time,
    })
}

fn in_session(rpc: &Rpc, task_support: &str) -> Response {
    if rpc.http_method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    match rpc.method.as_str() {
        "initialize" => rpc.ok(&json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "tools": {},
                "tasks": { "cancel": {}, "requests": { "tools": { "call": {} } } },
            },
            "serverInfo": { "name": "late-tasks", "version": "1.0.0" },
        })),
        "tools/list" => rpc.ok(&json!({ "tools": [{
            "name": "work",
            "inputSchema": { "type": "object" },
            "execution": { "taskSupport": task_support },
        }] })),
        method if method.starts_with("notifications/") => StatusCode::ACCEPTED.into_response(),
        _ => rpc.fail(StatusCode::OK, -32601, "Method not found", &Value::Null),
    }
}
