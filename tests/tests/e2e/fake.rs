//! An upstream that answers as a test says.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A server at `url`, until it is dropped.
pub(crate) struct Fake {
    pub(crate) url: String,
    served: JoinHandle<()>,
}

/// One request.
pub(crate) struct Rpc {
    pub(crate) method: String,
    pub(crate) id: Value,
    pub(crate) params: Value,
    pub(crate) headers: HeaderMap,
}

impl Fake {
    /// Answers with what `answer` makes of a request; `None` is the honest answer.
    #[expect(clippy::disallowed_methods, reason = "a test ends it by dropping it")]
    pub(crate) async fn start(
        answer: impl Fn(&Rpc) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        let handler = move |headers: HeaderMap, body: Bytes| {
            let rpc = Rpc::read(headers, &body);
            let response = answer(&rpc).unwrap_or_else(|| rpc.honest());
            std::future::ready(response)
        };
        let router = Router::new().fallback(any(handler));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let served = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, served }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.served.abort();
    }
}

impl Rpc {
    fn read(headers: HeaderMap, body: &[u8]) -> Self {
        let message: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        Self {
            method: message["method"].as_str().unwrap_or_default().to_owned(),
            id: message["id"].clone(),
            params: message["params"].clone(),
            headers,
        }
    }

    pub(crate) fn ok(&self, result: &Value) -> Response {
        self.raw(&result.to_string())
    }

    /// The result byte for byte.
    pub(crate) fn raw(&self, result: &str) -> Response {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id);
        json_body(StatusCode::OK, body)
    }

    pub(crate) fn error(&self, status: u16, error: &Value) -> Response {
        let body = json!({ "jsonrpc": "2.0", "id": self.id, "error": error });
        json_body(StatusCode::from_u16(status).unwrap(), body.to_string())
    }

    /// A modern server with tasks and one tool, `work`, that says `done`.
    fn honest(&self) -> Response {
        match self.method.as_str() {
            "server/discover" => {
                self.ok(&discover(&json!({ "io.modelcontextprotocol/tasks": {} })))
            }
            "tools/list" => self.ok(&tools(&json!([tool("work")]))),
            "tools/call" => self.ok(&text("done")),
            _ => self.error(404, &json!({ "code": -32601, "message": "unknown method" })),
        }
    }
}

fn json_body(status: StatusCode, body: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// An answer by HTTP alone.
pub(crate) fn plain(status: u16, body: &'static str) -> Response {
    (StatusCode::from_u16(status).unwrap(), Body::from(body)).into_response()
}

pub(crate) fn discover(extensions: &Value) -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": { "tools": {}, "extensions": extensions },
        "ttlMs": 0,
        "cacheScope": "public",
    })
}

pub(crate) fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

pub(crate) fn tools(tools: &Value) -> Value {
    json!({ "resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "public" })
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] })
}

/// A task as it is created (`task`) or looked at (`complete`).
pub(crate) fn task(id: &str, result_type: &str, status: &str) -> Value {
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
