//! HTTP responses.

use axum::body::Body;
use axum::response::Response;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use waypost_hub::error::CallError;
use waypost_hub::reply::End;
use waypost_wire::header;
use waypost_wire::id::Id;

use crate::body::{EventBody, Whole};
use crate::encode::{self, Pieces};
use crate::media;
use crate::refusal::{Refusal, Refused};
use crate::rescue;

const MCP_NAME: HeaderName = HeaderName::from_static(header::NAME);
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The word for an end in logs and metrics.
pub(crate) fn outcome(end: &End) -> &'static str {
    match end {
        End::Complete(_) => "complete",
        End::InputRequired(_) => "input_required",
        End::Task(_) => "task",
        End::Error(_) => "error",
    }
}

/// A request that was not let in.
pub(crate) fn refused(refused: &Refused) -> Response {
    let (status, error) = rescue::refusal(&refused.refusal);
    let mut response = json(status, encode::error(refused.id.as_ref(), &error));
    if refused.refusal == Refusal::NotPost {
        let post = HeaderValue::from_static("POST");
        response.headers_mut().insert(ALLOW, post);
    }
    response
}

/// A path where nothing is. The body has the shape of an OAuth error: that is what the clients
/// that guess such paths try to read.
pub(crate) fn nothing_here(refusal: &Refusal) -> Response {
    let (status, _) = rescue::refusal(refusal);
    let body = serde_json::json!({
        "error": "not_found",
        "error_description": refusal.to_string(),
    });
    json(status, [body.to_string().into()].into())
}

/// A notification was taken.
pub(crate) fn accepted() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// The status that an end has while headers are unsent.
pub(crate) fn status(end: &End) -> StatusCode {
    match end {
        End::Complete(_) | End::InputRequired(_) | End::Task(_) => StatusCode::OK,
        End::Error(error) => rescue::status_of(error.code()),
    }
}

/// The end of a call as one JSON answer.
pub(crate) fn ended(id: &Id, end: &End) -> Response {
    named(json(status(end), encode::end(id, end)), end)
}

/// A call without an answer.
pub(crate) fn failed(id: &Id, error: &CallError) -> Response {
    let (status, object) = rescue::call_error(error);
    let mut response = json(status, encode::error(Some(id), &object));
    if status == StatusCode::TOO_MANY_REQUESTS {
        let soon = HeaderValue::from_static("1");
        response.headers_mut().insert(RETRY_AFTER, soon);
    }
    response
}

/// A stream of events.
pub(crate) fn streaming(body: EventBody) -> Response {
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media::SSE);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Names a new task in `Mcp-Name`, so that what stands in front can remember where it lives.
pub(crate) fn named(mut response: Response, end: &End) -> Response {
    if let End::Task(task) = end
        && let Some(handle) = task.string("taskId")
        && let Ok(value) = HeaderValue::try_from(header::encode(&handle).as_ref())
    {
        response.headers_mut().insert(MCP_NAME, value);
    }
    response
}

fn json(status: StatusCode, pieces: Pieces) -> Response {
    let mut response = Response::new(Body::new(Whole(pieces)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media::JSON);
    response
}
