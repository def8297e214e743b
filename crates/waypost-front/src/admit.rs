//! From HTTP to a checked request, or a refusal.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts as Head;
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use waypost_hub::call::CallHeaders;
use waypost_wire::depth;
use waypost_wire::id::Id;
use waypost_wire::message::{Message, Request};
use waypost_wire::meta::{META, PROTOCOL_VERSION, RequestMeta};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::version;

use crate::Parts;
use crate::era::{self, Era};
use crate::headers;
use crate::media::{self, Wants};
use crate::refusal::{Refusal, Refused};

/// What a POST turned out to be.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// To be answered.
    Request(Box<Admission>),
    /// Taken note of; nothing in the stateless era acts on one.
    Notification,
}

/// A request of the stateless era that keeps the rules of HTTP and of the envelope.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) id: Id,
    pub(crate) method: String,
    /// Without `_meta`.
    pub(crate) params: Object,
    pub(crate) meta: RequestMeta,
    pub(crate) headers: CallHeaders,
    pub(crate) wants: Wants,
}

/// Methods of earlier versions that are gone: no upstream and no rule brings them back.
const REMOVED: &[&str] = &[
    method::INITIALIZE,
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "tasks/list",
    "tasks/result",
];

/// Lets a POST in.
pub(crate) async fn admit(parts: &Parts, head: &Head, body: Body) -> Result<Admitted, Refused> {
    media::check_content_type(&head.headers)?;
    let wants = Wants::of(&head.headers)?;
    let body = read(body, parts, head).await?;
    match parse(&body, parts.json_depth)? {
        Message::Request(request) => {
            let admission = admit_request(head, request, wants, parts.strict_headers)?;
            Ok(Admitted::Request(Box::new(admission)))
        }
        Message::Notification(_) => Ok(Admitted::Notification),
        Message::Response(..) => Err(Refusal::NotRequest.into()),
    }
}

async fn read(mut body: Body, parts: &Parts, head: &Head) -> Result<Bytes, Refusal> {
    let limit = parts.request_body;
    // A length that is said to be too much is not read.
    let said = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let whole = async {
        if said > limit {
            return Err(Refusal::BodyTooLarge { limit });
        }
        match Limited::new(&mut body, limit).collect().await {
            Ok(whole) => Ok(whole.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(Refusal::BodyTooLarge { limit }),
            Err(_) => Err(Refusal::BodyBroken),
        }
    };
    let whole = tokio::time::timeout(parts.body_timeout, whole).await;
    let whole = whole.unwrap_or(Err(Refusal::BodyTimeout));
    // Who asks first whether to send the body gets the refusal in place of it.
    if matches!(whole, Err(Refusal::BodyTooLarge { .. })) && !head.headers.contains_key(EXPECT) {
        discard(body).await;
    }
    whole
}

/// Takes what a client is still sending, within reason: one whose connection is closed while it
/// writes does not see the answer, and tries again.
async fn discard(mut body: Body) {
    const MOST: usize = 16 << 20;
    const LONGEST: Duration = Duration::from_secs(2);
    let rest = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, Bytes::len);
            if seen > MOST {
                break;
            }
        }
    };
    drop(tokio::time::timeout(LONGEST, rest).await);
}

fn parse(body: &Bytes, depth: usize) -> Result<Message, Refused> {
    let deep = depth::check(body, depth);
    // Reading is shallow, so text that is nested too deep still gives its id away.
    let message = Message::parse(body);
    let (id, reason) = match (deep, message) {
        (Ok(()), Ok(message)) => return Ok(message),
        (Ok(()), Err(unreadable)) => (unreadable.id, unreadable.reason),
        (Err(deep), Ok(Message::Request(request))) => (Some(request.id), deep),
        (Err(deep), Ok(Message::Notification(_) | Message::Response(..))) => (None, deep),
        (Err(deep), Err(unreadable)) => (unreadable.id, deep),
    };
    Err(Refused {
        id,
        refusal: Refusal::Malformed(reason),
    })
}

fn admit_request(
    head: &Head,
    request: Request,
    wants: Wants,
    strict: bool,
) -> Result<Admission, Refused> {
    let Request {
        id,
        method,
        mut params,
    } = request;
    match check(head, &method, &mut params, wants, strict) {
        Ok((meta, headers)) => Ok(Admission {
            id,
            method,
            params,
            meta,
            headers,
            wants,
        }),
        Err(refusal) => Err(refusal.to(id)),
    }
}

/// The checks in the order in which they count.
fn check(
    head: &Head,
    method: &str,
    params: &mut Object,
    wants: Wants,
    strict: bool,
) -> Result<(RequestMeta, CallHeaders), Refusal> {
    let said = headers::peek_version(&head.headers);
    // Read once; what is wrong with it counts only after the version does.
    let meta = RequestMeta::object(params.remove(META));
    let readable = meta.as_ref().ok();
    if let Era::Legacy { requested } = era::of(method, params, readable, said.as_deref()) {
        return Err(Refusal::Legacy { requested });
    }
    // The rest of `_meta` is only judged in a version whose rules are known.
    if let Some(requested) = readable.and_then(|meta| meta.string(PROTOCOL_VERSION)) {
        headers::check_version(&head.headers, &requested)?;
        if !version::is_modern(&requested) {
            return Err(Refusal::Version { requested });
        }
    }
    let meta = meta.and_then(RequestMeta::read).map_err(Refusal::Meta)?;
    let headers = headers::check(&head.headers, method, params, strict)?;
    if REMOVED.contains(&method) {
        let method = method.to_owned();
        return Err(Refusal::NoSuchMethod { method });
    }
    // A subscription has no end that could be waited for.
    if wants == Wants::Json && method == method::LISTEN {
        return Err(Refusal::NeedsStream);
    }
    Ok((meta, headers))
}
