//! The one table from what can go wrong to HTTP status and JSON-RPC error.
//!
//! A failure behind the gateway is a JSON-RPC error in an HTTP 200, so that clients show its
//! message; HTTP errors are for broken HTTP contracts, authentication and load. No match over a kind
//! has a catch-all arm: a new one does not compile until it has numbers.

use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use waypost_hub::error::{CallError, Kind, Origin};
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::version;

use crate::refusal::Refusal;

/// The answer to a refusal.
pub(crate) fn refusal(refusal: &Refusal) -> (StatusCode, ErrorObject) {
    let (status, code) = match refusal {
        Refusal::NoSuchPath | Refusal::NoSse | Refusal::NoSuchView => {
            (StatusCode::NOT_FOUND, code::INVALID_REQUEST)
        }
        Refusal::NotPost | Refusal::NotGet => {
            (StatusCode::METHOD_NOT_ALLOWED, code::INVALID_REQUEST)
        }
        Refusal::NotAcceptable | Refusal::NeedsStream => {
            (StatusCode::NOT_ACCEPTABLE, code::INVALID_REQUEST)
        }
        Refusal::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, code::INVALID_REQUEST),
        Refusal::BodyTooLarge { limit: _ } => {
            (StatusCode::PAYLOAD_TOO_LARGE, code::INVALID_REQUEST)
        }
        Refusal::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, code::INVALID_REQUEST),
        Refusal::BodyBroken
        | Refusal::NotRequest
        | Refusal::Batch(_)
        | Refusal::Contradictory { header: _ } => (StatusCode::BAD_REQUEST, code::INVALID_REQUEST),
        Refusal::Malformed(malformed) => (StatusCode::BAD_REQUEST, malformed.code()),
        Refusal::Meta(_) => (StatusCode::BAD_REQUEST, code::INVALID_PARAMS),
        Refusal::Header(_) => (StatusCode::BAD_REQUEST, code::HEADER_MISMATCH),
        Refusal::NoSuchMethod { method: _ } => (StatusCode::NOT_FOUND, code::METHOD_NOT_FOUND),
        Refusal::Version { requested } | Refusal::Legacy { requested } => {
            let data = json!({ "supported": version::MODERN_VERSIONS, "requested": requested });
            let message = refusal.to_string();
            let error = ErrorObject::with_data(code::UNSUPPORTED_VERSION, &message, &data);
            return (StatusCode::BAD_REQUEST, error);
        }
        Refusal::Modern { requested, probe } => return modern_off(refusal, requested, *probe),
        Refusal::NoVersion | Refusal::NotOpened | Refusal::NoSession => {
            (StatusCode::BAD_REQUEST, code::INVALID_REQUEST)
        }
        Refusal::UnknownSession | Refusal::NoStream => {
            (StatusCode::NOT_FOUND, code::INVALID_REQUEST)
        }
        Refusal::TooManySessions | Refusal::NoMemory | Refusal::StreamFull => {
            (StatusCode::SERVICE_UNAVAILABLE, code::INTERNAL_ERROR)
        }
        Refusal::NoRoom(no_room) => {
            let (message, data) = (no_room.message(), no_room.data());
            let error = ErrorObject::with_data(code::INTERNAL_ERROR, message, &data);
            return (StatusCode::SERVICE_UNAVAILABLE, error);
        }
        // Only ever of a session that is there.
        Refusal::DuplicateId => (StatusCode::OK, code::INVALID_REQUEST),
        Refusal::SessionBusy => (StatusCode::OK, code::INTERNAL_ERROR),
    };
    (status, ErrorObject::new(code, &refusal.to_string()))
}

/// The same for a request as it should be, in a session that is there: its client shows the
/// message of a JSON-RPC error, not that of a 4xx.
pub(crate) fn in_session(refused: &Refusal) -> (StatusCode, ErrorObject) {
    match (refused, refusal(refused)) {
        (Refusal::Meta(_), (_, error)) => (StatusCode::OK, error),
        (_, answer) => answer,
    }
}

/// Every client falls back to `initialize` on an unknown method; not every one does when it is
/// told of versions.
fn modern_off(refusal: &Refusal, requested: &str, probe: bool) -> (StatusCode, ErrorObject) {
    let data = json!({ "supported": version::LEGACY_VERSIONS, "requested": requested });
    let (status, code) = if probe {
        (StatusCode::NOT_FOUND, code::METHOD_NOT_FOUND)
    } else {
        (StatusCode::BAD_REQUEST, code::UNSUPPORTED_VERSION)
    };
    let error = ErrorObject::with_data(code, &refusal.to_string(), &data);
    (status, error)
}

/// What is counted and logged for a refusal.
pub(crate) fn outcome(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NoSuchPath | Refusal::NoSse | Refusal::NoSuchView => "no_such_path",
        Refusal::NotPost => "not_post",
        Refusal::NotGet => "not_get",
        Refusal::NoStream => "no_stream",
        Refusal::NotAcceptable | Refusal::NeedsStream => "not_acceptable",
        Refusal::MediaType => "media_type",
        Refusal::BodyTooLarge { limit: _ } => "body_too_large",
        Refusal::BodyTimeout => "body_timeout",
        Refusal::BodyBroken => "body_broken",
        Refusal::Malformed(_) | Refusal::NotRequest | Refusal::Batch(_) => "malformed",
        Refusal::Meta(_) => "meta",
        Refusal::Header(_) => "header_mismatch",
        Refusal::Contradictory { header: _ } => "contradictory_header",
        Refusal::Version { requested: _ } => "unsupported_version",
        Refusal::Legacy { requested: _ } => "legacy",
        Refusal::NoSuchMethod { method: _ } => "no_such_method",
        Refusal::Modern { .. } => "modern",
        Refusal::NoVersion | Refusal::NotOpened => "no_version",
        Refusal::NoSession => "no_session",
        Refusal::UnknownSession => "unknown_session",
        Refusal::TooManySessions => "too_many_sessions",
        Refusal::NoMemory => "no_memory",
        Refusal::DuplicateId => "duplicate_id",
        Refusal::SessionBusy => "session_busy",
        Refusal::StreamFull => "stream_full",
        Refusal::NoRoom(no_room) => no_room.as_str(),
    }
}

/// The answer to a call that got none. The cause stays behind; it is for the log.
pub(crate) fn call_error(error: &CallError) -> (StatusCode, ErrorObject) {
    let (status, code) = match error.kind {
        Kind::UnknownTarget => (StatusCode::OK, code::INVALID_PARAMS),
        // What a caller may not use does not exist for it.
        Kind::Denied => return call_error(&as_unknown(error)),
        // One upstream that is busy is an error to show, not a reason to leave the gateway alone.
        Kind::Throttled if matches!(error.origin, Origin::Upstream(_)) => {
            (StatusCode::OK, code::INTERNAL_ERROR)
        }
        Kind::Throttled => (StatusCode::TOO_MANY_REQUESTS, code::INTERNAL_ERROR),
        Kind::Unavailable | Kind::Timeout | Kind::BadUpstream | Kind::Internal => {
            (StatusCode::OK, code::INTERNAL_ERROR)
        }
    };
    let data = Data {
        kind: error.kind.as_str(),
        upstream: match &error.origin {
            Origin::Upstream(name) => Some(name),
            Origin::Client | Origin::Gateway => None,
        },
        retryable: error.retryable,
    };
    let message = error.to_string();
    (status, ErrorObject::with_data(code, &message, &data))
}

fn as_unknown(denied: &CallError) -> CallError {
    let mut unknown = CallError::new(Kind::UnknownTarget, Origin::Client);
    unknown.detail.clone_from(&denied.detail);
    unknown
}

/// The HTTP status of a JSON-RPC error that is passed on, by its code. A call that got so far is
/// well-formed: that a server could not read what it was sent is not its caller's mistake.
pub(crate) fn status_of(code: i64) -> StatusCode {
    match code {
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION => {
            StatusCode::BAD_REQUEST
        }
        code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

#[derive(Serialize)]
struct Data<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    retryable: bool,
}
