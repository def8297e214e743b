//! HTTP answers that refuse, in the words of the servers that are in use.

use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::options::{Lost, Sdk};
use crate::kit::http::json_response;

/// The header that names a session.
pub(super) const SESSION: &str = "mcp-session-id";

fn error(status: StatusCode, id: &Value, code: i64, message: &str) -> Response {
    let error = json!({ "code": code, "message": message });
    json_response(
        status,
        &json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    )
}

/// The session is not known (any more).
pub(super) fn lost(lost: Lost, id: &Value) -> Response {
    let words = "Session not found";
    match lost {
        Lost::NotFound => error(StatusCode::NOT_FOUND, &Value::Null, -32001, words),
        Lost::PlainText => (StatusCode::NOT_FOUND, words).into_response(),
        Lost::BadRequest => {
            let words = "Bad Request: session not found";
            error(StatusCode::BAD_REQUEST, &Value::Null, -32000, words)
        }
        Lost::ServerError => {
            let id = "server-error".into();
            let words = "Bad Request: No valid session ID provided";
            error(StatusCode::BAD_REQUEST, &id, -32600, words)
        }
        Lost::JsonRpc => error(StatusCode::OK, id, -32001, words),
    }
}

/// The request names no session.
pub(super) fn missing(sdk: Sdk) -> Response {
    match sdk {
        Sdk::TypeScript => {
            let words = "Bad Request: Server not initialized";
            error(StatusCode::BAD_REQUEST, &Value::Null, -32000, words)
        }
        Sdk::Python => {
            let id = "server-error".into();
            let words = "Bad Request: Missing session ID";
            let response = error(StatusCode::BAD_REQUEST, &id, -32600, words);
            with_session(response, &uuid::Uuid::new_v4().simple().to_string())
        }
    }
}

/// The version header names a revision that is not spoken here.
pub(super) fn version() -> Response {
    let words = "Bad Request: Unsupported protocol version";
    error(StatusCode::BAD_REQUEST, &Value::Null, -32000, words)
}

/// Names the session of this response.
pub(super) fn with_session(mut response: Response, id: &str) -> Response {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(SESSION, id);
    }
    response
}
