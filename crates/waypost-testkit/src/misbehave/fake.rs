//! What the fakes share: a bare endpoint, and a few honest answers around the dishonest one.

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::kit::http::json_response;
use crate::kit::words::{META_CAPABILITIES, TASKS, VERSION};
use crate::run::{ANY_PORT, Running, serve};

/// One request, taken as it is: nothing is checked.
#[derive(Clone, Debug)]
pub(crate) struct Rpc {
    pub(crate) http_method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// `Null` when there is none.
    pub(crate) id: Value,
    /// Empty when there is none.
    pub(crate) method: String,
    pub(crate) params: Value,
}

impl Rpc {
    fn read(http_method: Method, headers: HeaderMap, body: Bytes) -> Self {
        let message: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let member = |key: &str| message.get(key).cloned().unwrap_or(Value::Null);
        let method = member("method").as_str().unwrap_or_default().to_owned();
        Self {
            http_method,
            headers,
            id: member("id"),
            method,
            params: member("params"),
            body,
        }
    }

    /// Whether the caller declared the tasks extension.
    pub(crate) fn has_tasks(&self) -> bool {
        let declared = self
            .params
            .get("_meta")
            .and_then(|meta| meta.get(META_CAPABILITIES));
        declared
            .and_then(|all| all.get("extensions")?.get(TASKS))
            .is_some()
    }

    /// `params.taskId`.
    pub(crate) fn task_id(&self) -> Value {
        self.params.get("taskId").cloned().unwrap_or(Value::Null)
    }

    /// A result.
    pub(crate) fn ok(&self, result: &Value) -> Response {
        let body = json!({ "jsonrpc": "2.0", "id": self.id, "result": result });
        json_response(StatusCode::OK, &body)
    }

    /// An error with `data` (`Null` for none).
    pub(crate) fn fail(
        &self,
        status: StatusCode,
        code: i64,
        message: &str,
        data: &Value,
    ) -> Response {
        let mut error = json!({ "code": code, "message": message });
        if let (Some(members), false) = (error.as_object_mut(), data.is_null()) {
            members.insert("data".into(), data.clone());
        }
        json_response(
            status,
            &json!({ "jsonrpc": "2.0", "id": self.id, "error": error }),
        )
    }

    /// The honest answer to everything except the methods a fake lies about: `server/discover`
    /// and a list of two tools, `work` and `other`; tools say `done`; the rest is unknown.
    pub(crate) fn honest(&self, tasks: bool) -> Response {
        match self.method.as_str() {
            "server/discover" => self.ok(&discover(tasks)),
            "tools/list" => self.ok(&tool_list()),
            "tools/call" => self.ok(&text("done")),
            method if method.starts_with("notifications/") => StatusCode::ACCEPTED.into_response(),
            _ => self.fail(
                StatusCode::NOT_FOUND,
                -32601,
                "unknown method",
                &Value::Null,
            ),
        }
    }
}

/// Serves `answer` on any path of a free port.
pub(crate) async fn fake<F, A>(answer: A) -> io::Result<Running>
where
    F: Future<Output = Response> + Send + 'static,
    A: Fn(Rpc) -> F + Send + Sync + 'static,
{
    let answer = Arc::new(answer);
    let handler = move |method: Method, headers: HeaderMap, body: Bytes| {
        answer(Rpc::read(method, headers, body))
    };
    let router = Router::new()
        .fallback(any(handler))
        .layer(axum::extract::DefaultBodyLimit::disable());
    serve(ANY_PORT, router, CancellationToken::new()).await
}

/// [`fake`], for answers that need no waiting.
pub(crate) async fn fake_now<A>(answer: A) -> io::Result<Running>
where
    A: Fn(&Rpc) -> Response + Send + Sync + 'static,
{
    fake(move |rpc| std::future::ready(answer(&rpc))).await
}

pub(crate) fn discover(tasks: bool) -> Value {
    let extensions = if tasks {
        json!({ TASKS: {} })
    } else {
        json!({})
    };
    json!({
        "resultType": "complete",
        "supportedVersions": [VERSION],
        "capabilities": { "tools": {}, "extensions": extensions },
        "ttlMs": 0,
        "cacheScope": "public",
    })
}

pub(crate) fn tool_list() -> Value {
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    json!({
        "resultType": "complete",
        "tools": [tool("work"), tool("other")],
        "ttlMs": 0,
        "cacheScope": "public",
    })
}

/// A complete tool result.
pub(crate) fn text(text: &str) -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] })
}

/// A task with everything a client looks at; `result_type` tells creation from reading.
pub(crate) fn task(id: &Value, result_type: &str, status: &str) -> Value {
    json!({
        "resultType": result_type,
        "taskId": id,
        "status": status,
        "createdAt": "2026-07-28T00:00:00.000Z",
        "lastUpdatedAt": "2026-07-28T00:00:00.000Z",
        "ttlMs": null,
        "pollIntervalMs": 10,
    })
}

/// A task that ended with [`text`]`("done")`.
pub(crate) fn completed(id: &Value) -> Value {
    let mut all = task(id, "complete", "completed");
    if let Some(members) = all.as_object_mut() {
        members.insert("result".into(), text("done"));
    }
    all
}

/// A new, unguessable task id.
pub(crate) fn new_id() -> Value {
    uuid::Uuid::new_v4().to_string().into()
}

/// The empty acknowledgement of `tasks/update` and `tasks/cancel`.
pub(crate) fn ack() -> Value {
    json!({ "resultType": "complete" })
}

/// An event stream of `frames`, as they are.
pub(crate) fn event_stream(body: axum::body::Body) -> Response {
    ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
}
