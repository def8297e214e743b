//! JSON-RPC errors, and the HTTP status each travels with.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::words::{TASKS, VERSION};

/// A JSON-RPC error answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Fail {
    /// The JSON-RPC code.
    pub code: i64,
    /// One sentence for the reader.
    pub message: String,
    /// What the code's specification says about it.
    pub data: Option<Value>,
    status: StatusCode,
}

impl Fail {
    fn new(status: StatusCode, code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            status,
        }
    }

    /// The body is not JSON.
    pub fn parse() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            -32700,
            "the body is not valid JSON",
        )
    }

    /// JSON, but no JSON-RPC request.
    pub fn invalid_request(why: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32600, why)
    }

    /// The request lacks what every request must carry: HTTP 400.
    pub fn bad_meta(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32602, why)
    }

    /// Parameters this method cannot use; an answer, so HTTP 200.
    pub fn invalid_params(why: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, -32602, why)
    }

    /// The server itself failed.
    pub fn internal(why: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, -32603, why)
    }

    /// An answer with this code; HTTP 200.
    pub fn with_code(code: i64, why: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, code, why)
    }

    /// No such method here.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            -32601,
            format!("unknown method `{method}`"),
        )
    }

    /// A header is missing, malformed or differs from the body.
    pub fn header_mismatch(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32020, why)
    }

    /// The caller did not declare `required` (shaped like client capabilities).
    pub fn missing_capability(required: &Value) -> Self {
        let mut fail = Self::new(
            StatusCode::BAD_REQUEST,
            -32021,
            "missing required client capability",
        );
        fail.data = Some(json!({ "requiredCapabilities": required }));
        fail
    }

    /// [`Fail::missing_capability`] for the tasks extension.
    pub fn missing_tasks() -> Self {
        Self::missing_capability(&json!({ "extensions": { TASKS: {} } }))
    }

    /// A protocol revision that is not spoken here.
    pub fn unsupported_version(requested: &str) -> Self {
        let mut fail = Self::new(
            StatusCode::BAD_REQUEST,
            -32022,
            format!("unsupported protocol version `{requested}`"),
        );
        fail.data = Some(json!({ "supported": [VERSION], "requested": requested }));
        fail
    }

    /// Adds `data`.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// The HTTP status while headers are unsent.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The `error` member.
    pub fn to_value(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".into(), self.code.into());
        error.insert("message".into(), self.message.clone().into());
        if let Some(data) = &self.data {
            error.insert("data".into(), data.clone());
        }
        Value::Object(error)
    }

    /// The whole JSON-RPC response.
    pub fn to_response(&self, id: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "error": self.to_value() })
    }
}
