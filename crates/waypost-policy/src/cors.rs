//! What a browser must hear before it lets a page of another origin call (Fetch, CORS protocol).

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};

/// The answer to the browser's question before a call, should the request be one. The page's
/// origin has been found to be allowed.
pub(crate) fn preflight<B, R: From<Bytes>>(request: &Request<B>) -> Option<Response<R>> {
    let headers = request.headers();
    let asks = headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if request.method() != Method::OPTIONS || !asks {
        return None;
    }
    let mut response = Response::new(Bytes::new().into());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, DELETE");
    answer.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    // Whatever the page wants to send: headers that mirror arguments have any name, and a
    // wildcard would leave out the key.
    if let Some(wanted) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    answer.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    Some(response)
}

/// Lets the page read the answer. It is for this origin alone, and carries no cookies.
pub(crate) fn allow<R>(response: &mut Response<R>, origin: HeaderValue) {
    const READABLE: &str = "mcp-name, mcp-session-id, retry-after, www-authenticate, x-request-id";
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    let readable = HeaderValue::from_static(READABLE);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, readable);
    headers.append(VARY, HeaderValue::from(ORIGIN));
}
