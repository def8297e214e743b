//! Nests what it says deeper than any reader can that calls itself: schemas, results, errors,
//! questions and what it tells meanwhile.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::fake::{Rpc, ack, discover, event_stream, fake_now, task, text};
use crate::kit::words::VERSION;
use crate::run::Running;

/// Which protocol it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2026-07-28.
    Modern,
    /// 2025-11-25, without session ids.
    Session,
    /// 2026-07-28, and what it says that it can is nested too.
    Discovered,
}

/// The id of its one task.
const TASK: &str = "t1";

/// What stands for the deep value until the text is sent: `serde_json` would not write it.
const HERE: &str = "\"<here>\"";

/// Of its tools `deep` has a schema that is nested so. `work` answers as its argument `how` says: `result`, `error`, `told`, `question` or `task`, whose
/// `tasks/get` is an error too. `other` says `done`.
///
/// # Errors
///
/// When no port is free.
pub async fn nested(era: Era, levels: usize) -> io::Result<Running> {
    let deep: Arc<str> = format!(
        "{}\"{TASK}\"{}",
        "{\"a\":[".repeat(levels / 2),
        "]}".repeat(levels / 2)
    )
    .into();
    fake_now(move |rpc| answer(era, &deep, rpc)).await
}

fn answer(era: Era, deep: &str, rpc: &Rpc) -> Response {
    let of_work = rpc.params.get("name").and_then(Value::as_str) == Some("work");
    let how = rpc.params.pointer("/arguments/how").and_then(Value::as_str);
    let error = json!({ "code": -32603, "message": format!("no {TASK}"), "data": "<here>" });
    let reply = |member: &str, value: &Value| message(rpc, deep, member, value);
    match (rpc.method.as_str(), how.filter(|_| of_work)) {
        ("server/discover", _) if era == Era::Discovered => reply("result", &discover_nested()),
        ("server/discover", _) if era == Era::Modern => reply("result", &discover(true)),
        ("initialize", _) if era == Era::Session => reply("result", &initialized()),
        ("tools/list", _) => reply("result", &tools()),
        ("tools/call", Some("error")) | ("tasks/get", _) => reply("error", &error),
        ("tools/call", Some("result")) => reply("result", &result()),
        ("tools/call", Some("told")) => told(rpc, deep),
        ("tools/call", Some("question")) if era == Era::Modern => {
            let asks =
                json!({ "resultType": "input_required", "inputRequests": { "q": question() } });
            reply("result", &asks)
        }
        ("tools/call", Some("task")) if era == Era::Modern => {
            reply("result", &task(&TASK.into(), "task", "working"))
        }
        ("tools/call", _) => reply("result", &text("done")),
        ("tasks/cancel" | "tasks/update", _) => rpc.ok(&ack()),
        (method, _) if method.starts_with("notifications/") => StatusCode::ACCEPTED.into_response(),
        _ if rpc.http_method != Method::POST => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        _ => rpc.fail(StatusCode::OK, -32601, "Method not found", &Value::Null),
    }
}

fn initialized() -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "nested", "version": "1.0.0" },
    })
}

fn discover_nested() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": [VERSION],
        "capabilities": { "tools": {}, "extensions": { "com.example/x": "<here>" } },
        "ttlMs": 0,
        "cacheScope": "public",
    })
}

fn tools() -> Value {
    let schema = json!({ "type": "object", "properties": { "x": { "anyOf": "<here>" } } });
    let deep = json!({ "name": "deep", "inputSchema": schema, "outputSchema": schema,
        "annotations": { "x-mcp-header": "<here>" }, "_meta": { "ui": "<here>" } });
    let plain = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let tools = [plain("work"), plain("other"), deep];
    json!({ "resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "public" })
}

fn result() -> Value {
    json!({
        "resultType": "complete",
        "content": [{ "type": "text", "text": "done" }],
        "structuredContent": { "uri": "<here>" },
        "_meta": { "ui": { "resourceUri": "<here>" } },
    })
}

fn question() -> Value {
    json!({ "method": "elicitation/create", "params": { "message": "?", "mode": "form",
        "requestedSchema": { "type": "object", "properties": "<here>" } } })
}

/// A stream with notifications before the answer.
fn told(rpc: &Rpc, deep: &str) -> Response {
    let token = rpc.params.pointer("/_meta/progressToken").cloned();
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progressToken": token, "progress": 1, "message": "<here>" } });
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message",
        "params": { "level": "error", "data": "<here>" } });
    let question = question();
    let asks = json!({ "jsonrpc": "2.0", "id": 1, "method": question.get("method"),
        "params": question.get("params") });
    let end = json!({ "jsonrpc": "2.0", "id": rpc.id, "result": text("done") });
    let frames = [progress, log, asks, end];
    let frames = frames.map(|frame| format!("data: {}\n\n", put(&frame, deep)));
    event_stream(Body::from(frames.concat()))
}

fn message(rpc: &Rpc, deep: &str, member: &str, value: &Value) -> Response {
    let body = json!({ "jsonrpc": "2.0", "id": rpc.id, member: value });
    ([(CONTENT_TYPE, "application/json")], put(&body, deep)).into_response()
}

fn put(message: &Value, deep: &str) -> String {
    message.to_string().replace(HERE, deep)
}
