//! Reads an HTTP response as the answer to a request.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use waypost_hub::reply::End;
use waypost_wire::id::Id;
use waypost_wire::message::{Message, Outcome};

use super::pool::Lent;
use crate::fault::Fault;
use crate::outcome;

/// The body of an error status is a short JSON-RPC error or of no interest.
const ERROR_BODY: usize = 1024 * 1024;

/// The two bodies that an answer can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Events,
    Other,
}

impl BodyKind {
    /// What `Content-Type` says; parameters do not matter.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match essence(headers) {
            Some(essence) if essence.eq_ignore_ascii_case("application/json") => Self::Json,
            Some(essence) if essence.eq_ignore_ascii_case("text/event-stream") => Self::Events,
            _ => Self::Other,
        }
    }
}

/// The fault that a status alone stands for.
pub(crate) fn status_fault(status: StatusCode, headers: &HeaderMap) -> Fault {
    let wait = headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok());
    Fault::Status {
        status: status.as_u16(),
        retry_after: wait.and_then(|text| text.trim().parse().ok()),
    }
}

/// The fault of a body that is neither JSON nor events.
pub(crate) fn content_type_fault(headers: &HeaderMap) -> Fault {
    let plain = |text: &&str| {
        text.len() <= 64
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"/+-.".contains(&b))
    };
    Fault::ContentType(essence(headers).filter(plain).map(str::to_owned))
}

fn essence(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = value.split(';').next().unwrap_or_default().trim();
    (!essence.is_empty()).then_some(essence)
}

/// Reads a whole body of at most `limit` bytes. One that comes in one piece is not copied.
async fn collect(mut body: Lent, limit: usize) -> Result<Bytes, Fault> {
    let hint = body.size_hint();
    let announced = usize::try_from(hint.lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(Fault::TooLarge { limit });
    }
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Fault::Closed)?.into_data() else {
            continue;
        };
        if first.is_empty() && more.is_empty() {
            first = data;
        } else {
            if more.is_empty() {
                more.reserve(announced.max(first.len() + data.len()));
                more.extend_from_slice(&std::mem::take(&mut first));
            }
            more.extend_from_slice(&data);
        }
        if first.len().max(more.len()) > limit {
            return Err(Fault::TooLarge { limit });
        }
    }
    Ok(if more.is_empty() {
        first
    } else {
        more.freeze()
    })
}

/// Reads the whole body of a response with this status. One of an error status that cannot be
/// read says no more than its status.
pub(crate) async fn whole(
    body: Lent,
    limit: usize,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Bytes, Fault> {
    if status.is_success() {
        return collect(body, limit).await;
    }
    let body = collect(body, limit.min(ERROR_BODY)).await;
    body.map_err(|_| status_fault(status, headers))
}

/// Reads a JSON body as the end of the request `id`.
pub(crate) fn end(
    body: &Bytes,
    id: &Id,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<End, Fault> {
    // What nearly every answer is.
    match Message::parse_result(body) {
        Some((got, result)) if got.is_answer_to(id) => outcome::of_result(result),
        _ => outcome::end(outcome(body, id, status, headers)?),
    }
}

/// Reads a JSON body as the answer to the request `id`.
///
/// A response can only belong to its request, so an error whose id could not be filled in is
/// taken: servers refuse with no id, `null` or one of their own making.
pub(crate) fn outcome(
    body: &Bytes,
    id: &Id,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Outcome, Fault> {
    match Message::parse(body) {
        Ok(Message::Response(Some(got), outcome)) if got.is_answer_to(id) => Ok(outcome),
        // Without our id these statuses may come from anything in front of the server.
        _ if speaks_for_itself(status) => Err(status_fault(status, headers)),
        Ok(Message::Response(None, error @ Outcome::Error(_))) => Ok(error),
        Ok(Message::Response(Some(_), error @ Outcome::Error(_))) if !status.is_success() => {
            Ok(error)
        }
        _ if !status.is_success() => Err(status_fault(status, headers)),
        Ok(_) => Err(Fault::WrongAnswer),
        Err(unreadable) => Err(Fault::Malformed(unreadable.reason)),
    }
}

/// Whether a JSON body is a response that repeats `id`.
pub(crate) fn names(body: &Bytes, id: &Id) -> bool {
    matches!(Message::parse(body), Ok(Message::Response(Some(got), _)) if got.is_answer_to(id))
}

fn speaks_for_itself(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 408 | 429 | 500..=599)
}
