//! From HTTP to a checked request, or a refusal.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts as Head;
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::Instant;
use waypost_hub::call::CallHeaders;
use waypost_hub::limit::NoRoom;
use waypost_wire::batch;
use waypost_wire::depth;
use waypost_wire::error::Malformed;
use waypost_wire::id::Id;
use waypost_wire::message::{Message, Notification, Request};
use waypost_wire::meta::{META, PROTOCOL_VERSION, RequestMeta};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::result::{INPUT_RESPONSES, REQUEST_STATE};
use waypost_wire::version;

use crate::Parts;
use crate::era::{self, Era};
use crate::headers;
use crate::in_flight::MOST_CALLS;
use crate::legacy::PING;
use crate::media::{self, Wants};
use crate::refusal::{BatchFault, Refusal, Refused};

/// What a POST turned out to be.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// To be answered.
    Request(Box<Admission>),
    /// Taken note of; nothing in the stateless era acts on one.
    Notification,
    /// Of the session era.
    Legacy(Box<LegacyMessage>),
    /// Several at once, for a session that has batches.
    Batch(Batch),
}

/// Several messages in one POST.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) members: Vec<Result<Admitted, Refused>>,
    pub(crate) wants: Wants,
}

/// A message of the session era; whether there is a session is yet to be seen.
#[derive(Debug)]
pub(crate) struct LegacyMessage {
    /// A request's params are without `_meta`.
    pub(crate) message: Message,
    /// What a request's `_meta` said. One that cannot be read is for the session to refuse.
    pub(crate) meta: Result<Object, Malformed>,
    /// The version that the message asks for, where it names one.
    pub(crate) requested: Option<String>,
    pub(crate) wants: Wants,
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

/// What a request without any version is taken for (specification 2025-06-18, transports).
pub(crate) const UNSAID: &str = "2025-03-26";

/// Lets a POST in.
pub(crate) async fn admit(parts: &Parts, head: &Head, body: Body) -> Result<Admitted, Refused> {
    media::check_content_type(&head.headers)?;
    let wants = Wants::of(&head.headers)?;
    let body = read(body, parts, head).await?;
    if batch::is_batch(&body) && has_batches(parts, head)? {
        let read = members(&body, parts.json_depth)?.into_iter();
        let members = read.map(|(_, one)| one.and_then(|one| message(parts, head, one, wants)));
        let members = members.collect();
        return Ok(Admitted::Batch(Batch { members, wants }));
    }
    let one = parse(&body, parts.json_depth)?;
    message(parts, head, one, wants)
}

/// Whether the message could be of a session that has batches.
fn has_batches(parts: &Parts, head: &Head) -> Result<bool, Refusal> {
    let said = headers::peek_version(&head.headers)?;
    Ok(parts.sessions.is_some() && said.is_none_or(|said| said == batch::VERSION))
}

fn message(
    parts: &Parts,
    head: &Head,
    message: Message,
    wants: Wants,
) -> Result<Admitted, Refused> {
    match message {
        Message::Request(request) => admit_request(parts, head, request, wants),
        Message::Notification(notification) => {
            Ok(admit_notification(parts, head, notification, wants)?)
        }
        Message::Response(id, outcome) => {
            let said = headers::peek_version(&head.headers)?;
            let modern = said
                .as_deref()
                .is_some_and(|said| !version::is_legacy(said));
            if modern || parts.sessions.is_none() {
                return Err(Refusal::NotRequest.into());
            }
            Ok(Admitted::legacy(
                Message::Response(id, outcome),
                Ok(Object::new()),
                said.map(Cow::into_owned),
                wants,
            ))
        }
    }
}

impl Admitted {
    /// The id of a request that begins work, where that may not be.
    pub(crate) fn begins(&self, no_room: NoRoom) -> Option<&Id> {
        match self {
            Self::Request(admission) => {
                let goes_on = no_room == NoRoom::Draining
                    && !begins(&Era::Modern, &admission.method, &admission.params);
                (!goes_on).then_some(&admission.id)
            }
            Self::Notification => None,
            Self::Batch(batch) => {
                let mut members = batch.members.iter().flatten();
                members.find_map(|member| member.begins(no_room))
            }
            Self::Legacy(legacy) => match &legacy.message {
                Message::Request(request) => (request.method != PING).then_some(&request.id),
                Message::Notification(_) | Message::Response(..) => None,
            },
        }
    }

    fn legacy(
        message: Message,
        meta: Result<Object, Malformed>,
        requested: Option<String>,
        wants: Wants,
    ) -> Self {
        Self::Legacy(Box::new(LegacyMessage {
            message,
            meta,
            requested,
            wants,
        }))
    }
}

/// Whether a request begins work. One of the session era does, a ping apart: what goes on with its
/// calls are answers. A stateless one does not where it is about a task, or brings back what a call
/// that asked has given.
pub(crate) fn begins(era: &Era, called: &str, params: &Object) -> bool {
    let brings_back = || {
        let answers = params.get(INPUT_RESPONSES);
        let answers = answers.and_then(|raw| raw.as_object().ok());
        answers.is_some_and(|answers| !answers.is_empty()) || params.str(REQUEST_STATE).is_some()
    };
    match era {
        Era::Legacy { .. } => called != PING,
        Era::Modern => {
            let goes_on = method::may_ask(called) && brings_back();
            !goes_on && !method::is_of_task(called)
        }
    }
}

fn admit_notification(
    parts: &Parts,
    head: &Head,
    notification: Notification,
    wants: Wants,
) -> Result<Admitted, Refusal> {
    let said = headers::peek_version(&head.headers)?;
    let params = &notification.params;
    let meta = params.get(META).and_then(|raw| raw.as_object().ok());
    let era = era::of(&notification.method, params, meta.as_ref(), said.as_deref());
    Ok(match era {
        Era::Legacy { requested } if parts.sessions.is_some() => {
            let message = Message::Notification(notification);
            Admitted::legacy(message, Ok(Object::new()), requested, wants)
        }
        Era::Legacy { requested: _ } | Era::Modern => Admitted::Notification,
    })
}

/// Reads a request body.
pub(crate) async fn read(mut body: Body, parts: &Parts, head: &Head) -> Result<Bytes, Refusal> {
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
    let whole = tokio::select! {
        biased;
        whole = whole => whole,
        () = too_late(parts) => Err(Refusal::BodyTimeout),
    };
    // Who asks first whether to send the body gets the refusal in place of it.
    if matches!(whole, Err(Refusal::BodyTooLarge { .. })) && !head.headers.contains_key(EXPECT) {
        discard(body).await;
    }
    whole
}

/// Resolves when a body has taken too long. Shutdown waits for no longer than for a body on its way:
/// it is looked for now and then, for a wait for it would be one more thing that all cores share.
async fn too_late(parts: &Parts) {
    const LOOK: Duration = Duration::from_secs(1);
    let until = Instant::now() + parts.body_timeout;
    let mut ends = false;
    loop {
        let next = Instant::now() + LOOK;
        tokio::time::sleep_until(next.min(until)).await;
        if ends || next >= until {
            return;
        }
        ends = parts.draining.is_cancelled();
    }
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

/// Reads the messages of a batch; with each, what was read.
///
/// # Errors
/// Why none of it is taken: it is no array, has none or too many, or begins a session.
pub(crate) fn members(body: &Bytes, depth: usize) -> Result<Vec<Member>, Refusal> {
    let limit = MOST_CALLS;
    let members = batch::members(body, limit).map_err(Refusal::Malformed)?;
    let members = members.ok_or(BatchFault::TooLong { limit })?;
    if members.is_empty() {
        return Err(BatchFault::Empty.into());
    }
    let mut read = Vec::with_capacity(members.len());
    for raw in members {
        let one = parse(raw.as_bytes(), depth);
        match &one {
            Ok(Message::Request(request)) if request.method == method::INITIALIZE => {
                return Err(BatchFault::Initialize.into());
            }
            _ => read.push((raw.as_bytes().clone(), one)),
        }
    }
    Ok(read)
}

/// One message of a batch.
type Member = (Bytes, Result<Message, Refused>);

/// Reads one message.
pub(crate) fn parse(body: &Bytes, depth: usize) -> Result<Message, Refused> {
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
    parts: &Parts,
    head: &Head,
    request: Request,
    wants: Wants,
) -> Result<Admitted, Refused> {
    let Request {
        id,
        method,
        mut params,
    } = request;
    // Read once; what is wrong with it counts only after the version does.
    let raw = params.remove(META);
    let bare = raw.is_none();
    let meta = RequestMeta::object(raw);
    let said = match headers::peek_version(&head.headers) {
        Ok(said) => said,
        // Compared with what `_meta` says below.
        Err(_) if meta.as_ref().is_ok_and(|m| m.contains(PROTOCOL_VERSION)) => None,
        Err(refusal) => return Err(refusal.to(id)),
    };
    let era = era::of(&method, &params, meta.as_ref().ok(), said.as_deref());
    let checked = match era {
        Era::Legacy { requested } => {
            let meta = if bare { Ok(Object::new()) } else { meta };
            if parts.sessions.is_none() {
                let requested = requested.unwrap_or_else(|| UNSAID.to_owned());
                return Err(Refusal::Legacy { requested }.to(id));
            }
            let message = Message::Request(Request { id, method, params });
            return Ok(Admitted::legacy(message, meta, requested, wants));
        }
        Era::Modern if !parts.modern => {
            let asked = meta.as_ref().ok().and_then(|m| m.string(PROTOCOL_VERSION));
            Err(Refusal::Modern {
                requested: asked.or(said.map(Cow::into_owned)).unwrap_or_default(),
                probe: method == method::DISCOVER,
            })
        }
        Era::Modern => check(parts, head, &method, &params, meta).and_then(|checked| {
            // A subscription has no end that could be waited for.
            if wants == Wants::Json && method == method::LISTEN {
                return Err(Refusal::NeedsStream);
            }
            Ok(checked)
        }),
    };
    match checked {
        Ok((meta, headers)) => Ok(Admitted::Request(Box::new(Admission {
            id,
            method,
            params,
            meta,
            headers,
            wants,
        }))),
        Err(refusal) => Err(refusal.to(id)),
    }
}

/// The checks of the stateless era, in the order in which they count.
fn check(
    parts: &Parts,
    head: &Head,
    method: &str,
    params: &Object,
    meta: Result<Object, Malformed>,
) -> Result<(RequestMeta, CallHeaders), Refusal> {
    let readable = meta.as_ref().ok();
    // The rest of `_meta` is only judged in a version whose rules are known.
    if let Some(requested) = readable.and_then(|meta| meta.str(PROTOCOL_VERSION)) {
        headers::check_version(&head.headers, &requested)?;
        spoken(&requested)?;
    }
    let meta = meta.and_then(RequestMeta::read).map_err(Refusal::Meta)?;
    let headers = headers::check(&head.headers, method, params, parts.strict_headers)?;
    served(method)?;
    Ok((meta, headers))
}

/// The same where there are no headers.
pub(crate) fn check_bare(method: &str, meta: Object) -> Result<RequestMeta, Refusal> {
    if let Some(requested) = meta.str(PROTOCOL_VERSION) {
        spoken(&requested)?;
    }
    let meta = RequestMeta::read(meta).map_err(Refusal::Meta)?;
    served(method)?;
    Ok(meta)
}

fn spoken(requested: &str) -> Result<(), Refusal> {
    if version::is_modern(requested) {
        Ok(())
    } else {
        let requested = requested.to_owned();
        Err(Refusal::Version { requested })
    }
}

fn served(method: &str) -> Result<(), Refusal> {
    if REMOVED.contains(&method) {
        let method = method.to_owned();
        return Err(Refusal::NoSuchMethod { method });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_brings_nothing_back_or_is_of_the_session_era_begins_work() {
        let legacy = Era::Legacy { requested: None };
        for (method, params, goes_on) in [
            ("tools/call", r#"{"name":"a"}"#, false),
            ("tools/call", r#"{"inputResponses":{}}"#, false),
            ("tools/call", r#"{"inputResponses":null}"#, false),
            ("tools/call", r#"{"inputResponses":["a"]}"#, false),
            ("tools/call", r#"{"requestState":null}"#, false),
            ("tools/call", r#"{"requestState":{}}"#, false),
            ("tools/call", r#"{"requestState":"s"}"#, true),
            ("prompts/get", r#"{"inputResponses":{"who":{}}}"#, true),
            ("resources/read", r#"{"requestState":"s"}"#, true),
            ("tools/list", r#"{"requestState":"s"}"#, false),
            ("tasks/get", r#"{"taskId":"t"}"#, true),
        ] {
            let params = Object::parse(&Bytes::from_static(params.as_bytes())).unwrap();
            let modern = begins(&Era::Modern, method, &params);
            assert_eq!(modern, !goes_on, "{method} {params:?}");
            assert!(begins(&legacy, method, &params), "{method} {params:?}");
        }
        assert!(!begins(&legacy, PING, &Object::new()));
    }
}
