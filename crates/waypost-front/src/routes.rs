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
use tower::Service;
use uuid::Uuid;
use waypost_hub::call::{Principal, View};

use crate::Parts;
use crate::admit::{self, Admitted};
use crate::answer;
use crate::event::Finish;
use crate::legacy;
use crate::modern::{self, Asker};
use crate::refusal::{Refusal, Refused};

const ROOT: &str = "/mcp";
const REQUEST_ID: &str = "x-request-id";

/// What answers at `/mcp` and `/mcp/<view>`. The caller's [`Principal`] is read from the
/// request's extensions, where a layer around this puts it.
#[derive(Clone, Debug)]
pub struct Endpoints(Arc<Parts>);

/// Sends requests to the endpoints; every other path is a small JSON 404, the ones where clients
/// look for OAuth among them.
///
/// Three paths need no router, which would cost each request some boxes and look-ups.
#[derive(Clone, Debug)]
pub struct Routes<E>(E);

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
        Self(endpoints)
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
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if is_endpoint(request.uri().path()) {
            Either::Left(self.0.call(request.map(Body::new)))
        } else {
            Either::Right(ready(Ok(nothing_here(request))))
        }
    }
}

/// `/mcp`, or one name below it.
fn is_endpoint(path: &str) -> bool {
    path.strip_prefix(ROOT).is_some_and(|below| {
        let name = below.strip_prefix('/');
        below.is_empty() || name.is_some_and(|name| !name.contains('/'))
    })
}

fn nothing_here<B>(request: Request<B>) -> Response {
    let (head, _) = request.into_parts();
    let mut finish = Finish::new(request_id(&head), principal(&head));
    let refusal = Refusal::NoSuchPath;
    finish.refused(&refusal);
    answer::nothing_here(&refusal)
}

async fn serve(parts: &Parts, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let request_id = request_id(&head);
    let principal = principal(&head);
    let mut finish = Finish::new(Arc::clone(&request_id), principal.clone());
    let Some(view) = view(parts, head.uri.path()) else {
        let refusal = Refusal::NoSuchView;
        finish.refused(&refusal);
        return answer::nothing_here(&refusal);
    };
    let asker = Asker {
        request_id,
        principal,
        view,
    };
    let admitted = match (&head.method, &parts.sessions) {
        (&Method::POST, _) => admit::admit(parts, &head, body).await,
        (&Method::GET | &Method::DELETE, Some(sessions)) => {
            let answer = legacy::stream_or_end(parts, sessions, asker, &head, finish);
            return Box::pin(answer).await;
        }
        _ => Err(Refused::from(Refusal::NotPost)),
    };
    match admitted {
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
    }
}

/// Names of views need no percent encoding, so a path that has some names none.
fn view(parts: &Parts, path: &str) -> Option<View> {
    match path.strip_prefix(ROOT)?.trim_matches('/') {
        "" => Some(View::All),
        name => (parts.views)(name),
    }
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
