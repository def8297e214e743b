//! HTTP responses.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use waypost_hub::error::CallError;
use waypost_hub::limit::{NoRoom, TurnedAway};
use waypost_hub::reply::End;
use waypost_wire::header;
use waypost_wire::id::Id;

use crate::body::Whole;
use crate::encode::{self, Pieces};
use crate::media;
use crate::refusal::{Refusal, Refused};
use crate::rescue;

const MCP_NAME: HeaderName = HeaderName::from_static(header::NAME);
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A request that was not let in.
pub(crate) fn refused(refused: &Refused) -> Response {
    let (status, error) = rescue::refusal(&refused.refusal);
    let mut response = json(status, encode::error(refused.id.as_ref(), &error));
    let allowed = match refused.refusal {
        Refusal::NotPost => Some("POST"),
        Refusal::NotGet => Some("GET"),
        _ => None,
    };
    if let Some(allowed) = allowed {
        let allowed = HeaderValue::from_static(allowed);
        response.headers_mut().insert(ALLOW, allowed);
    }
    let later = match refused.refusal {
        Refusal::TooManySessions => Some("30"),
        Refusal::NoMemory | Refusal::StreamFull => Some("5"),
        Refusal::NoRoom(_) => Some("1"),
        _ => None,
    };
    if let Some(later) = later {
        let later = HeaderValue::from_static(later);
        response.headers_mut().insert(RETRY_AFTER, later);
    }
    if let Refusal::NoRoom(no_room) = refused.refusal {
        turned_away(&mut response, no_room, 1);
        if no_room == NoRoom::Draining {
            // The next try is to find another.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
    }
    response
}

/// Says to whoever counts that so many requests were refused for want of room.
pub(crate) fn turned_away(response: &mut Response, no_room: NoRoom, count: usize) {
    let turned = TurnedAway { no_room, count };
    response.extensions_mut().insert(turned);
}

/// A path where nothing is. The body has the shape of an OAuth error: that is what the clients
/// that guess such paths try to read.
pub(crate) fn nothing_here(refusal: &Refusal) -> Response {
    described(refusal, &refusal.to_string())
}

/// A path where OAuth would be; `keys` is whether callers need one of Waypost's.
pub(crate) fn no_oauth(refusal: &Refusal, keys: bool) -> Response {
    let text = match keys {
        true => "there is no OAuth here: send `Authorization: Bearer <key>`",
        false => "there is no OAuth here, and no key is needed",
    };
    described(refusal, text)
}

fn described(refusal: &Refusal, text: &str) -> Response {
    let (status, _) = rescue::refusal(refusal);
    let body = serde_json::json!({ "error": "not_found", "error_description": text });
    json(status, [body.to_string().into()].into())
}

/// A notification was taken.
pub(crate) fn accepted() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// The status of an end, or of a call that got none, while headers are unsent.
pub(crate) fn status(end: &Result<End, CallError>) -> StatusCode {
    match end {
        Ok(End::Complete(_) | End::InputRequired(_) | End::Task(_)) => StatusCode::OK,
        Ok(End::Error(error)) => rescue::status_of(error.code()),
        Err(error) => rescue::call_error(error).0,
    }
}

/// The end of a call, or its failure, as one JSON answer.
pub(crate) fn whole(id: &Id, end: &Result<End, CallError>) -> Response {
    let status = status(end);
    let message = match end {
        Ok(end) => encode::end(id, end),
        Err(error) => encode::error(Some(id), &rescue::call_error(error).1),
    };
    let mut response = named(json(status, message), task_name(end));
    if status == StatusCode::TOO_MANY_REQUESTS {
        let soon = HeaderValue::from_static("1");
        response.headers_mut().insert(RETRY_AFTER, soon);
    }
    response
}

/// A stream of events.
pub(crate) fn streaming<B>(body: B) -> Response
where
    B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media::SSE);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// The `Mcp-Name` of an answer that is a new task: what stands in front can remember by it where
/// the task lives.
pub(crate) fn task_name(end: &Result<End, CallError>) -> Option<HeaderValue> {
    let Ok(End::Task(task)) = end else {
        return None;
    };
    let handle = task.string("taskId")?;
    HeaderValue::try_from(header::encode(&handle).as_ref()).ok()
}

/// Adds the name of a new task.
pub(crate) fn named(mut response: Response, task: Option<HeaderValue>) -> Response {
    if let Some(name) = task {
        response.headers_mut().insert(MCP_NAME, name);
    }
    response
}

pub(crate) fn json(status: StatusCode, pieces: Pieces) -> Response {
    let mut response = Response::new(Body::new(Whole(pieces)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media::JSON);
    response
}
