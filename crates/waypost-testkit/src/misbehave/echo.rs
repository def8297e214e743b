//! Answers `tools/call` with exactly what arrived, or with exactly given bytes: what a gateway
//! changes becomes visible.

use std::io;

use axum::response::IntoResponse as _;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::fake::{Rpc, fake_now};
use crate::run::Running;

/// The text of the result is the raw body; `structuredContent.headers` has all headers in order,
/// as `[name, value]`, and `structuredContent.body` the body again.
///
/// # Errors
///
/// When no port is free.
pub async fn echo() -> io::Result<Running> {
    fake_now(|rpc| match rpc.method.as_str() {
        "tools/call" => {
            let body = String::from_utf8_lossy(&rpc.body);
            rpc.ok(&json!({
                "resultType": "complete",
                "content": [{ "type": "text", "text": body }],
                "structuredContent": { "headers": headers(rpc), "body": body },
            }))
        }
        _ => rpc.honest(false),
    })
    .await
}

/// The `result` of every `tools/call` is `result`, byte for byte.
///
/// # Errors
///
/// When no port is free.
pub async fn raw_result(result: impl Into<Bytes>) -> io::Result<Running> {
    let result = result.into();
    fake_now(move |rpc| {
        if rpc.method != "tools/call" {
            return rpc.honest(false);
        }
        let mut body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", rpc.id).into_bytes();
        body.extend_from_slice(&result);
        body.push(b'}');
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    })
    .await
}

fn headers(rpc: &Rpc) -> Value {
    let pairs = rpc
        .headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]));
    Value::Array(pairs.collect())
}
