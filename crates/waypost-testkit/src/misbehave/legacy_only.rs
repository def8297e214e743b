//! Servers of 2025-11-25 that have never heard of `server/discover`.

use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;

use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::fake::{Rpc, fake_now};
use crate::kit::http::json_response;
use crate::run::Running;

const SESSION: &str = "mcp-session-id";

/// Whose way of refusing a request outside a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// The TypeScript SDK 1.x: 400, `-32000`, `id: null`.
    TypeScript,
    /// The Python SDK 1.x: 400, `-32600`, `id: "server-error"`, and a session id to be ignored.
    Python,
}

/// It works after `initialize`: `tools/list` and the tool `work`, which says `done`.
///
/// # Errors
///
/// When no port is free.
pub async fn legacy_only(sdk: Sdk) -> io::Result<Running> {
    let sessions: Mutex<Vec<String>> = Mutex::default();
    fake_now(move |rpc| {
        let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let session = rpc
            .headers
            .get(SESSION)
            .and_then(|id| id.to_str().ok())
            .map(str::to_owned);
        if rpc.method == "initialize" {
            let id = uuid::Uuid::new_v4().simple().to_string();
            sessions.push(id.clone());
            return with_session(rpc.ok(&initialized(rpc)), &id);
        }
        let Some(session) = session else {
            return refuse(sdk);
        };
        if !sessions.contains(&session) {
            return rpc.fail(
                StatusCode::NOT_FOUND,
                -32001,
                "Session not found",
                &Value::Null,
            );
        }
        if rpc.http_method == Method::DELETE {
            sessions.retain(|known| *known != session);
            return StatusCode::OK.into_response();
        }
        if rpc.http_method != Method::POST {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        in_session(rpc)
    })
    .await
}

fn in_session(rpc: &Rpc) -> Response {
    match rpc.method.as_str() {
        "ping" => rpc.ok(&json!({})),
        "tools/list" => rpc.ok(&json!({
            "tools": [{ "name": "work", "inputSchema": { "type": "object" } }],
        })),
        "tools/call" => rpc.ok(&json!({ "content": [{ "type": "text", "text": "done" }] })),
        method if method.starts_with("notifications/") => StatusCode::ACCEPTED.into_response(),
        _ => rpc.fail(StatusCode::OK, -32601, "Method not found", &Value::Null),
    }
}

fn initialized(rpc: &Rpc) -> Value {
    let known = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
    let asked = rpc
        .params
        .get("protocolVersion")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let version = known
        .into_iter()
        .find(|known| *known == asked)
        .unwrap_or("2025-11-25");
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "legacy-only", "version": "1.0.0" },
    })
}

fn refuse(sdk: Sdk) -> Response {
    let (id, code, message) = match sdk {
        Sdk::TypeScript => (Value::Null, -32000, "Bad Request: Server not initialized"),
        Sdk::Python => (
            "server-error".into(),
            -32600,
            "Bad Request: Missing session ID",
        ),
    };
    let error = json!({ "code": code, "message": message });
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    let response = json_response(StatusCode::BAD_REQUEST, &body);
    match sdk {
        Sdk::TypeScript => response,
        Sdk::Python => with_session(response, &uuid::Uuid::new_v4().simple().to_string()),
    }
}

fn with_session(mut response: Response, id: &str) -> Response {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(SESSION, id);
    }
    response
}
