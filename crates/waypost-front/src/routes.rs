//! Which path is what.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, Ready, ready};
use http::request::Parts as Head;
use http::{Method, Request};
use tokio::time::Instant;
use tower::Service;
use uuid::Uuid;
use waypost_hub::call::{Principal, View};
use waypost_hub::limit::{Entry, NoRoom};

use crate::Parts;
use crate::admit::{self, Admitted};
use crate::answer;
use crate::event::Finish;
use crate::legacy;
use crate::legacy::sse::{MESSAGES, SSE};
use crate::modern::{self, Asker};
use crate::refusal::{Refusal, Refused};

const REQUEST_ID: &str = "x-request-id";

/// What answers at `/mcp` and `/mcp/<view>`, and at the same below the two paths of HTTP+SSE. The
/// caller's [`Principal`] is read from the
/// request's extensions, where a layer around this puts it.
#[derive(Clone, Debug)]
pub struct Endpoints(Arc<Parts>);

/// Sends requests to the endpoints; every other path is a small JSON 404, the ones where clients
/// look for OAuth among them.
///
/// So few paths need no router, which would cost each request some boxes and look-ups.
#[derive(Clone, Debug)]
pub struct Routes<E> {
    endpoints: E,
    sse: bool,
    keys: bool,
}

/// What a path is for; below each are the names of views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Mcp,
    /// Opens the streams of HTTP+SSE.
    Sse,
    /// Takes the messages that belong to them.
    Messages,
}

impl Endpoints {
    /// The endpoints made of `parts`.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl<E> Routes<E> {
    /// Routes to these endpoints. A layer that refuses belongs around them and not around the
    /// routes: the 404s stay open then, as clients expect.
    pub fn new(endpoints: E) -> Self {
        Self {
            endpoints,
            sse: false,
            keys: false,
        }
    }

    /// Whether callers need a key: those that look for OAuth in vain are told so.
    #[must_use]
    pub fn with_keys(mut self, keys: bool) -> Self {
        self.keys = keys;
        self
    }

    /// Whether the paths of HTTP+SSE lead to endpoints too.
    #[must_use]
    pub fn with_sse(mut self, sse: bool) -> Self {
        self.sse = sse;
        self
    }

    fn leads_on(&self, path: &str) -> bool {
        Door::of(path).is_some_and(|(door, _)| self.sse || door == Door::Mcp)
    }
}

impl Door {
    /// What a path is for, and the name of the view in it.
    fn of(path: &str) -> Option<(Self, &str)> {
        let doors = [
            (Self::Mcp, "/mcp"),
            (Self::Sse, SSE),
            (Self::Messages, MESSAGES),
        ];
        doors.into_iter().find_map(|(door, root)| {
            let below = path.strip_prefix(root)?;
            let name = below.strip_prefix('/');
            let known = below.is_empty() || name.is_some_and(|name| !name.contains('/'));
            known.then(|| (door, name.unwrap_or_default()))
        })
    }
}

impl Service<Request<Body>> for Endpoints {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let parts = Arc::clone(&self.0);
        Box::pin(async move { Ok(serve(&parts, request).await) })
    }
}

impl<E, B> Service<Request<B>> for Routes<E>
where
    E: Service<Request<Body>, Response = Response, Error = Infallible>,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<E::Future, Ready<Result<Response, Infallible>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.endpoints.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if self.leads_on(request.uri().path()) {
            Either::Left(self.endpoints.call(request.map(Body::new)))
        } else {
            Either::Right(ready(Ok(nothing_here(request, self.keys))))
        }
    }
}

fn nothing_here<B>(request: Request<B>, keys: bool) -> Response {
    let (head, _) = request.into_parts();
    let mut finish = Finish::new(request_id(&head), principal(&head));
    let refusal = match Door::of(head.uri.path()) {
        Some(_) => Refusal::NoSse,
        None => Refusal::NoSuchPath,
    };
    finish.refused(&refusal);
    match refusal {
        Refusal::NoSuchPath if is_of_oauth(head.uri.path()) => answer::no_oauth(&refusal, keys),
        refusal => answer::nothing_here(&refusal),
    }
}

/// Whether clients look for OAuth there. What they find is shown to their users.
fn is_of_oauth(path: &str) -> bool {
    path.contains("/.well-known/") || ["/authorize", "/register", "/token"].contains(&path)
}

async fn serve(parts: &Parts, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let request_id = request_id(&head);
    let principal = principal(&head);
    let mut finish = Finish::new(Arc::clone(&request_id), principal.clone());
    let Some((door, view)) = view(parts, &principal, head.uri.path()) else {
        let refusal = Refusal::NoSuchView;
        finish.refused(&refusal);
        return answer::nothing_here(&refusal);
    };
    let asker = Asker {
        request_id,
        principal,
        view,
        since: Instant::now(),
    };
    if door != Door::Mcp {
        return Box::pin(sse(parts, door, asker, &head, body, finish)).await;
    }
    let admitted = match (&head.method, &parts.sessions) {
        (&Method::POST, _) => admit::admit(parts, &head, body).await,
        (&Method::GET | &Method::DELETE, Some(sessions)) => {
            let answer = legacy::stream_or_end(parts, sessions, asker, &head, finish);
            return Box::pin(answer).await;
        }
        _ => Err(Refused::from(Refusal::NotPost)),
    };
    match make_room(&head, admitted) {
        Err(refused) => {
            finish.refused(&refused.refusal);
            answer::refused(&refused)
        }
        Ok(Admitted::Notification) => {
            finish.outcome("accepted");
            answer::accepted()
        }
        Ok(Admitted::Request(admission)) => modern::answer(parts, asker, *admission, finish).await,
        Ok(Admitted::Legacy(message)) => match &parts.sessions {
            Some(sessions) => {
                let answer = legacy::message(parts, sessions, asker, &head, *message, finish);
                Box::pin(answer).await
            }
            // Not admitted without.
            None => answer::refused(&Refusal::NotPost.into()),
        },
        Ok(Admitted::Batch(batch)) => match &parts.sessions {
            Some(sessions) => {
                let answer = legacy::batch(parts, sessions, &asker, &head, batch, finish);
                Box::pin(answer).await
            }
            None => answer::refused(&Refusal::NotPost.into()),
        },
    }
}

async fn sse(
    parts: &Parts,
    door: Door,
    asker: Asker,
    head: &Head,
    body: Body,
    finish: Finish,
) -> Response {
    match &parts.sessions {
        Some(sessions) if door == Door::Sse => {
            legacy::sse::open(parts, sessions, &asker, head, finish)
        }
        Some(sessions) => legacy::sse::message(parts, sessions, asker, head, body, finish).await,
        // Not routed to without.
        None => answer::nothing_here(&Refusal::NoSuchPath),
    }
}

/// Lets nothing pass that begins work where there is no room for it.
fn make_room(head: &Head, admitted: Result<Admitted, Refused>) -> Result<Admitted, Refused> {
    let admitted = admitted?;
    let Some(no_room) = head.extensions.get::<NoRoom>() else {
        return Ok(admitted);
    };
    if let Some(id) = admitted.begins(*no_room) {
        return Err(Refusal::NoRoom(*no_room).to(id.clone()));
    }
    // What goes on is work, and from here on it counts.
    match (&admitted, head.extensions.get::<Arc<Entry>>()) {
        (Admitted::Request(admission), Some(entry)) if !entry.enter() => {
            Err(Refusal::NoRoom(NoRoom::Full).to(admission.id.clone()))
        }
        _ => Ok(admitted),
    }
}

/// Names of views need no percent encoding, so a path that has some names none.
fn view(parts: &Parts, principal: &Principal, path: &str) -> Option<(Door, View)> {
    let (door, name) = Door::of(path)?;
    let view = (parts.views)(principal, name)?;
    Some((door, view))
}

fn principal(head: &Head) -> Principal {
    head.extensions
        .get()
        .cloned()
        .unwrap_or_else(Principal::anonymous)
}

/// The id that a layer in front gave, else a new one.
fn request_id(head: &Head) -> Arc<str> {
    let given = head.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    match given {
        Some(id) if !id.is_empty() && id.len() <= 128 => id.into(),
        _ => Uuid::new_v4().to_string().into(),
    }
}
