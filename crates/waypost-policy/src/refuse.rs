//! The answers of layers that refuse.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde_json::Value;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::encode_error;

/// A JSON-RPC error without an id: the request's body has not been read.
pub(crate) fn answer<B: From<Bytes>>(
    status: StatusCode,
    code: i64,
    message: &str,
    data: &Value,
) -> Response<B> {
    let error = ErrorObject::with_data(code, message, data);
    let mut response = Response::new(B::from(encode_error(None, &error)));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
