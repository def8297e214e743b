//! Sessions over Streamable HTTP (2025-11-25 and earlier: transports).

mod batch;

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::request::Parts as Head;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio_util::sync::CancellationToken;
use waypost_hub::error::{CallError, Kind, Origin};
use waypost_hub::limit::Permit;
use waypost_hub::reply::Lasting;
use waypost_wire::header::SESSION_ID;
use waypost_wire::id::Id;
use waypost_wire::message::{Message, Request};
use waypost_wire::method;

use crate::Parts;
use crate::admit::LegacyMessage;
use crate::answer;
use crate::encode::{self, Pieces};
use crate::event::Finish;
use crate::headers;
use crate::legacy::body::RingBody;
use crate::legacy::initialize;
use crate::legacy::listen;
use crate::legacy::place::{Marks, Place};
use crate::legacy::ring::{Reader, Ring};
use crate::legacy::serve::{self, Incoming};
use crate::legacy::session::Hold;
use crate::legacy::sessions::Sessions;
use crate::legacy::translate::LATEST;
use crate::media::Wants;
use crate::modern::Asker;
use crate::outlet::{Class, Outlet};
use crate::refusal::{Refusal, Refused};
use crate::rescue;

pub(crate) use batch::answer as batch;

const SESSION: HeaderName = HeaderName::from_static(SESSION_ID);
const LAST_EVENT: &str = "last-event-id";

/// Longest wait for an answer that could go without a stream.
const WHOLE_WITHIN: Duration = Duration::from_secs(1);

/// Answers a POST.
pub(crate) async fn message(
    parts: &Parts,
    sessions: &Sessions,
    asker: Asker,
    head: &Head,
    message: LegacyMessage,
    mut finish: Finish,
) -> Response {
    let id = match &message.message {
        Message::Request(request) => Some(request.id.clone()),
        Message::Notification(_) | Message::Response(..) => None,
    };
    let post = Post {
        parts,
        sessions,
        wants: message.wants,
    };
    if let Message::Request(request) = &message.message
        && request.method == method::INITIALIZE
    {
        return post.initialize(&asker, request, finish).await;
    }
    let permit = head.extensions.get::<Arc<Permit>>().cloned();
    let requested = message.requested.as_deref();
    let hold = match post.session(&asker, &head.headers, requested).await {
        Ok(hold) => hold,
        Err(refusal) => return refuse(id, refusal, finish),
    };
    match message.message {
        Message::Request(request) => {
            let meta = match message.meta {
                Ok(meta) => meta,
                Err(malformed) => {
                    let refusal = Refusal::Meta(malformed);
                    finish.method(&request.method);
                    finish.refused(&refusal);
                    return post.not_taken(request.id, refusal);
                }
            };
            let incoming = |outlet, cancelled| Incoming {
                request,
                meta,
                asker,
                hold: None,
                outlet,
                asks: post.wants != Wants::Json,
                cancelled,
                permit,
                finish,
            };
            match hold {
                Some(hold) => post.in_session(hold, incoming).await,
                None => post.alone(incoming).await,
            }
        }
        other @ (Message::Notification(_) | Message::Response(..)) => {
            if let Some(hold) = &hold {
                serve::told(hold.session(), other);
            }
            finish.outcome("accepted");
            answer::accepted()
        }
    }
}

/// What every POST is answered with.
struct Post<'a> {
    parts: &'a Parts,
    sessions: &'a Sessions,
    wants: Wants,
}

impl Post<'_> {
    async fn initialize(&self, asker: &Asker, request: &Request, mut finish: Finish) -> Response {
        finish.method(&request.method);
        let id = &request.id;
        let lasting = !self.sessions.has_none(&asker.view);
        let greeting = initialize::answer(&self.parts.calls, asker, &request.params, lasting);
        let greeting = greeting.await;
        let greeting = match greeting {
            Ok(greeting) => greeting,
            Err(error) => {
                finish.outcome("error");
                return self.one(encode::error(Some(id), &error));
            }
        };
        let message = [waypost_wire::message::encode_result(id, &greeting.result)].into();
        if !lasting {
            finish.outcome("complete");
            return self.one(message);
        }
        let opened = self
            .sessions
            .create(greeting.ticket, &asker.principal, &asker.view);
        let session = match opened {
            Ok(session) => session,
            Err(refusal) => return refuse(Some(id.clone()), refusal, finish),
        };
        finish.outcome("complete");
        let mut response = self.one(message);
        if let Ok(value) = HeaderValue::from_str(&session) {
            response.headers_mut().insert(SESSION, value);
        }
        response
    }

    /// The session that a message is of; `None` where there are none.
    async fn session(
        &self,
        asker: &Asker,
        head: &HeaderMap,
        requested: Option<&str>,
    ) -> Result<Option<Hold>, Refusal> {
        if self.sessions.has_none(&asker.view) {
            return Ok(None);
        }
        let Some(id) = headers::agreed(head, SESSION_ID)? else {
            return Err(match requested {
                Some(_) => Refusal::NoSession,
                None => Refusal::NoVersion,
            });
        };
        let id = id.to_str().map_err(|_| Refusal::UnknownSession)?;
        let hold = self.sessions.find(id, &asker.principal, &asker.view);
        hold.await.map(Some)
    }

    async fn in_session(
        &self,
        hold: Hold,
        incoming: impl FnOnce(Arc<dyn Outlet>, CancellationToken) -> Incoming,
    ) -> Response {
        let ring = Ring::new();
        let mut reader = ring.read(None);
        let mut incoming = incoming(ring, CancellationToken::new());
        let id = incoming.request.id.clone();
        incoming.hold = Some(hold.clone());
        if let Err(refusal) = serve::request(self.sessions, &self.parts.calls, incoming) {
            return self.not_taken(id, refusal);
        }
        match self.first(&mut reader).await {
            First::Whole(message) => self.one(message),
            First::Nothing => nothing(self.wants),
            First::Stream => {
                let body = RingBody::new(reader, self.parts.keep_alive);
                let session = hold.session();
                let number = session.expose(body.ring());
                let marks = Marks::new(session.mark, number, Some(&id));
                stream(body, &hold, marks)
            }
        }
    }

    /// Without a session nobody could come back for the answer: a client that leaves gives up.
    async fn alone(
        &self,
        incoming: impl FnOnce(Arc<dyn Outlet>, CancellationToken) -> Incoming,
    ) -> Response {
        let ring = Ring::new();
        let mut reader = ring.read(None);
        let cancelled = CancellationToken::new();
        let guard = cancelled.clone().drop_guard();
        let incoming = incoming(ring, cancelled);
        let id = incoming.request.id.clone();
        if let Err(refusal) = serve::request(self.sessions, &self.parts.calls, incoming) {
            return self.not_taken(id, refusal);
        }
        match self.first(&mut reader).await {
            First::Whole(message) => self.one(message),
            First::Nothing => nothing(self.wants),
            First::Stream => {
                let body = RingBody::new(reader, self.parts.keep_alive);
                answer::streaming(body.cancelling(guard).opened())
            }
        }
    }

    /// What to begin the answer with.
    async fn first(&self, reader: &mut Reader) -> First {
        if self.wants == Wants::Json {
            return match last(reader).await {
                Some(message) => First::Whole(message),
                None => First::Nothing,
            };
        }
        let keep_alive = self.parts.keep_alive;
        let within = if keep_alive.is_zero() {
            WHOLE_WITHIN
        } else {
            WHOLE_WITHIN.min(keep_alive)
        };
        match tokio::time::timeout(within, reader.next()).await {
            Ok(None) => First::Nothing,
            Ok(Some(item)) if item.class == Class::End => First::Whole(item.message),
            Ok(Some(item)) => {
                reader.unread(&item);
                First::Stream
            }
            Err(_) => First::Stream,
        }
    }

    /// The answer to a request that is as it should be, in a session that is there: session
    /// clients show the message of a JSON-RPC error, and lose that of an HTTP one.
    fn not_taken(&self, id: Id, refusal: Refusal) -> Response {
        match rescue::in_session(&refusal) {
            (StatusCode::OK, error) => self.one(encode::error(Some(&id), &error)),
            // Its client ended it meanwhile.
            _ => answer::refused(&refusal.to(id)),
        }
    }

    /// One message as the client takes it.
    fn one(&self, message: Pieces) -> Response {
        if self.wants != Wants::Sse {
            return answer::json(StatusCode::OK, message);
        }
        let ring = Ring::new();
        ring.post(Class::End, message);
        answer::streaming(RingBody::new(ring.read(None), Duration::ZERO))
    }
}

enum First {
    /// The answer alone.
    Whole(Pieces),
    /// There will be none.
    Nothing,
    /// It may take a while, or something comes before it.
    Stream,
}

/// The answer, what comes before it dropped.
async fn last(reader: &mut Reader) -> Option<Pieces> {
    while let Some(item) = reader.next().await {
        if item.class == Class::End {
            return Some(item.message);
        }
    }
    None
}

/// A request that was cancelled has no answer, but HTTP has one.
fn nothing(wants: Wants) -> Response {
    if wants == Wants::Json {
        return answer::accepted();
    }
    let ring = Ring::new();
    ring.close();
    answer::streaming(RingBody::new(ring.read(None), Duration::ZERO))
}

fn refuse(id: Option<Id>, refusal: Refusal, mut finish: Finish) -> Response {
    finish.refused(&refusal);
    answer::refused(&Refused { id, refusal })
}

/// A view of one of a session's streams.
fn stream(body: RingBody, hold: &Hold, marks: Marks) -> Response {
    let priming = hold.session().ticket.version == LATEST;
    answer::streaming(body.of_session(hold.clone(), marks, priming).opened())
}

/// Answers a GET or a DELETE.
pub(crate) async fn stream_or_end(
    parts: &Parts,
    sessions: &Sessions,
    asker: Asker,
    head: &Head,
    mut finish: Finish,
) -> Response {
    let named = match Named::of(&head.headers, sessions.has_none(&asker.view)) {
        Ok(named) => named,
        Err(refusal) => return refuse(None, refusal, finish),
    };
    let id = named.session;
    if head.method == Method::DELETE {
        if let Err(refusal) = sessions.end(id, &asker.principal, &asker.view).await {
            return refuse(None, refusal, finish);
        }
        finish.outcome("complete");
        return empty(StatusCode::NO_CONTENT);
    }
    let hold = match sessions.find(id, &asker.principal, &asker.view).await {
        Ok(hold) => hold,
        Err(refusal) => return refuse(None, refusal, finish),
    };
    match Wants::of(&head.headers) {
        Ok(Wants::Either | Wants::Sse) => {}
        Ok(Wants::Json) => return refuse(None, Refusal::NeedsStream, finish),
        Err(refusal) => return refuse(None, refusal, finish),
    }
    finish.outcome("complete");
    get(parts, sessions, &hold, named.last)
}

/// What the headers of a GET or a DELETE name.
struct Named<'a> {
    session: &'a str,
    /// The event after which a stream is to go on.
    last: Option<&'a str>,
}

impl<'a> Named<'a> {
    fn of(head: &'a HeaderMap, stateless: bool) -> Result<Self, Refusal> {
        let said = headers::peek_version(head)?;
        let Some(id) = headers::agreed(head, SESSION_ID)? else {
            let legacy = said.is_some_and(|said| waypost_wire::version::is_legacy(&said));
            return Err(match legacy && !stateless {
                true => Refusal::NoSession,
                false => Refusal::NotPost,
            });
        };
        if stateless {
            return Err(Refusal::NotPost);
        }
        let last = headers::agreed(head, LAST_EVENT)?;
        Ok(Self {
            session: id.to_str().unwrap_or_default(),
            last: last.and_then(|id| id.to_str().ok()),
        })
    }
}

fn get(parts: &Parts, sessions: &Sessions, hold: &Hold, last: Option<&str>) -> Response {
    let session = hold.session();
    let place = last.and_then(Place::parse);
    let (number, from) = match &place {
        None => (0, None),
        // Of an earlier life of the session, whose standing stream goes on in this one.
        Some(place) if place.mark != session.mark => (place.number, None),
        Some(place) => (place.number, Some(place.at)),
    };
    let foreign = from.is_none() && number != 0;
    let ring = session.stream(number).filter(|_| !foreign);
    let Some(ring) = ring else {
        return gone(hold, place);
    };
    // 204 tells a client not to come again for it.
    if from.is_some_and(|from| ring.is_over(from)) {
        return empty(StatusCode::NO_CONTENT);
    }
    let body = RingBody::new(ring.read(from), parts.keep_alive);
    let body = body.until(sessions.draining().clone());
    if number == 0 {
        listen::start(sessions, &parts.calls, session);
    }
    let call = place.and_then(|place| place.call);
    let marks = Marks::new(session.mark, number, call.as_ref());
    let mut response = stream(body, hold, marks);
    // Nothing is worked on for it.
    response.extensions_mut().insert(Lasting);
    response
}

/// The end of a stream that is not here: an error in place of the answer that the client may still
/// wait for. With the id of that event it comes for nothing more.
fn gone(hold: &Hold, place: Option<Place>) -> Response {
    let Some(Place {
        mark,
        number,
        call: Some(call),
        ..
    }) = place
    else {
        return empty(StatusCode::NO_CONTENT);
    };
    let error = CallError::new(Kind::Unavailable, Origin::Gateway).detail(
        "the answer to this call is lost: Waypost was restarted, or does not keep it any longer; \
         the call may have run",
    );
    let (_, error) = rescue::call_error(&error);
    let ring = Ring::new();
    ring.post(Class::End, encode::error(Some(&call), &error));
    let body = RingBody::new(ring.read(None), Duration::ZERO);
    let marks = Marks::new(mark, number, None);
    answer::streaming(body.of_session(hold.clone(), marks, false))
}

fn empty(status: StatusCode) -> Response {
    let mut response = answer::accepted();
    *response.status_mut() = status;
    response
}
