//! Answers `tools/call` with something that claims to be JSON.

use std::io;

use axum::response::IntoResponse as _;
use http::header::CONTENT_TYPE;

use super::fake::fake_now;
use crate::run::Running;

/// The body of every answer to `tools/call` is `body`, e.g. `{"jsonrpc":"2.0",`.
///
/// # Errors
///
/// When no port is free.
pub async fn invalid_json(body: &'static str) -> io::Result<Running> {
    fake_now(move |rpc| match rpc.method.as_str() {
        "tools/call" => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        _ => rpc.honest(false),
    })
    .await
}
