//! Bounds how many requests are worked on at once.
//!
//! Tower's own concurrency limit gives its permit back with the head of a response, so that a
//! thousand open streams would count as none. Here the permit travels with the body, unless the
//! response says that it is only listened to ([`Lasting`]): a thousand listeners that nothing
//! happens for are no work. How many of those there may be is the hub's to say. Work that may
//! outlive the response finds the permit among the request's extensions.
//!
//! While Waypost drains nothing begins either, as if there were no room: what is in flight goes on.
//!
//! Calls wait for what their clients answer, and are given up when those cancel them: where that
//! were refused for want of room, nothing would ever make some. So what names a session passes on
//! when there is none ([`NoRoom`]), up to a bound of its own, and whoever reads it does only what
//! begins no work. While Waypost drains, so does a request whose headers say that it could go on
//! with what a stateless client has begun. It is read within another bound ([`Entry`]), so that what
//! is refused then holds nothing up; if it does go on, it is work, and counts.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use waypost_hub::limit::{Entry, Limit, NoRoom, Permit, TurnedAway};
use waypost_hub::reply::Lasting;
use waypost_wire::code;
use waypost_wire::header::{METHOD, SESSION_ID};
use waypost_wire::method;

use crate::event::RequestRefused;
use crate::refuse;

/// Messages of sessions that are read at once while there is no room: they are small and take no
/// time.
const SPARE: usize = 64;

/// Requests that are read at once while Waypost drains, to see whether they go on with something.
const READING: usize = 256;

const METHOD_LINE: HeaderName = HeaderName::from_static(METHOD);

/// Answers 503 at once while `limit` requests are in flight. All services made by clones of one
/// layer share the limit.
#[derive(Clone, Debug)]
pub struct InFlightLayer {
    limit: Arc<Limit>,
    spare: Arc<Limit>,
    reading: Arc<Limit>,
    draining: Arc<AtomicBool>,
}

/// The service that [`InFlightLayer`] makes.
#[derive(Clone, Debug)]
pub struct InFlight<S> {
    inner: S,
    limit: Arc<Limit>,
    spare: Arc<Limit>,
    reading: Arc<Limit>,
    draining: Arc<AtomicBool>,
}

pin_project! {
    /// The answer that is being made, or the refusal.
    #[derive(Debug)]
    pub struct InFlightFuture<F> {
        #[pin]
        inner: Option<F>,
        permit: Option<Arc<Permit>>,
        entry: Option<Arc<Entry>>,
        no_room: NoRoom,
    }
}

pin_project! {
    /// A body that counts as in flight until it is dropped or has ended.
    #[derive(Debug)]
    pub struct Counted<B> {
        #[pin]
        inner: B,
        permit: Option<Arc<Permit>>,
    }
}

// === impl InFlightLayer ===

impl InFlightLayer {
    /// Allows so many requests at once.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit: Limit::new(limit),
            spare: Limit::new(SPARE),
            reading: Limit::new(READING),
            draining: Arc::default(),
        }
    }

    /// From now on so many requests are allowed at once.
    pub fn set(&self, limit: usize) {
        self.limit.set(limit);
    }

    /// From now on nothing begins any more.
    pub fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.limit.is_idle()
    }
}

impl<S> Layer<S> for InFlightLayer {
    type Service = InFlight<S>;

    fn layer(&self, inner: S) -> InFlight<S> {
        InFlight {
            inner,
            limit: Arc::clone(&self.limit),
            spare: Arc::clone(&self.spare),
            reading: Arc::clone(&self.reading),
            draining: Arc::clone(&self.draining),
        }
    }
}

// === impl InFlight ===

impl<S, B, R> Service<Request<B>> for InFlight<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: From<Bytes>,
{
    type Response = Response<Counted<R>>;
    type Error = S::Error;
    type Future = InFlightFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Over the limit the answer comes at once: a queue would only hide the overload.
        let no_room = match self.draining.load(Ordering::Relaxed) {
            true => NoRoom::Draining,
            false => NoRoom::Full,
        };
        let mut permit = match no_room {
            NoRoom::Draining => None,
            NoRoom::Full => self.limit.permit().map(Arc::new),
        };
        let mut entry = None;
        if let Some(permit) = &permit {
            // For what goes on after its client has left.
            request.extensions_mut().insert(Arc::clone(permit));
        } else if no_room == NoRoom::Draining && may_go_on(&request) {
            entry = Entry::begin(&self.reading, &self.limit).map(Arc::new);
            request.extensions_mut().insert(no_room);
            if let Some(entry) = &entry {
                request.extensions_mut().insert(Arc::clone(entry));
            }
        } else if is_of_session(&request) {
            permit = self.spare.permit().map(Arc::new);
            request.extensions_mut().insert(no_room);
        }
        let let_in = permit.is_some() || entry.is_some();
        InFlightFuture {
            inner: let_in.then(|| self.inner.call(request)),
            permit,
            entry,
            no_room,
        }
    }
}

/// Whether it may be what makes room: it names a session, in a header or in the address that an
/// HTTP+SSE client was given.
fn is_of_session<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    request.headers().contains_key(SESSION_ID) || path.starts_with("/messages")
}

/// Whether it may go on with what a stateless client has begun: it is about a task, or could be the
/// retry that brings the answers to questions. What the header says is held against the body later.
fn may_go_on<B>(request: &Request<B>) -> bool {
    let called = request.headers().get(METHOD_LINE);
    let called = called.and_then(|line| line.to_str().ok());
    called.is_some_and(|called| method::is_of_task(called) || method::may_ask(called))
}

// === impl InFlightFuture ===

impl<F, R, E> Future for InFlightFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: From<Bytes>,
{
    type Output = Result<Response<Counted<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match this.inner.as_pin_mut() {
            Some(inner) => {
                let response = ready!(inner.poll(cx))?;
                // Said by whoever has read it, and knows its id.
                if let Some(turned) = response.extensions().get::<TurnedAway>() {
                    (0..turned.count).for_each(|_| count(turned.no_room));
                }
                response
            }
            None => refuse(*this.no_room),
        };
        let entry = this.entry.take();
        let mut permit = this.permit.take().or(entry.map(|entry| entry.held()));
        if response.extensions().get::<Lasting>().is_some() {
            permit = None;
        }
        Poll::Ready(Ok(response.map(|inner| Counted { inner, permit })))
    }
}

fn count(no_room: NoRoom) {
    RequestRefused {
        reason: no_room.as_str(),
        presented: "",
    }
    .emit();
}

fn refuse<R: From<Bytes>>(no_room: NoRoom) -> Response<R> {
    count(no_room);
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let (message, data) = (no_room.message(), no_room.data());
    let mut response = refuse::answer(status, code::INTERNAL_ERROR, message, &data);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    if no_room == NoRoom::Draining {
        // The next try is to find another.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

// === impl Counted ===

impl<B: Body> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.inner.poll_frame(cx));
        if frame.is_none() {
            this.permit.take();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B: From<Bytes>> From<Bytes> for Counted<B> {
    fn from(bytes: Bytes) -> Self {
        Self {
            inner: B::from(bytes),
            permit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt as _, Full};
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    type Answer = Response<Counted<Full<Bytes>>>;

    fn layer_of(limit: usize) -> impl Fn() -> Pin<Box<dyn Future<Output = Answer>>> {
        let layer = InFlightLayer::new(limit);
        move || {
            let inner = service_fn(|_: Request<()>| async {
                Ok::<_, Infallible>(Response::new(Full::from("served")))
            });
            let service = layer.layer(inner);
            Box::pin(async move { service.oneshot(Request::new(())).await.unwrap() })
        }
    }

    #[tokio::test]
    async fn a_response_counts_until_its_body_is_gone() {
        let send = layer_of(2);
        let first = send().await;
        let second = send().await;
        assert_eq!(
            send().await.status(),
            503,
            "two heads came, two bodies live"
        );
        drop(first);
        let third = send().await;
        assert_eq!(third.status(), 200, "a body that is dropped counts no more");
        let mut body = second.into_body();
        while body.frame().await.is_some() {}
        assert_eq!(send().await.status(), 200, "nor does one that has ended");
    }

    #[tokio::test]
    async fn r58_streams_that_are_only_listened_to_leave_room_for_calls() {
        let layer = InFlightLayer::new(1);
        let send = async || {
            let inner = service_fn(|_: Request<()>| async {
                let mut response = Response::new(Full::<Bytes>::from("listening"));
                response.extensions_mut().insert(Lasting);
                Ok::<_, Infallible>(response)
            });
            let service = layer.layer(inner);
            service.oneshot(Request::new(())).await.unwrap()
        };
        let mut open = Vec::new();
        for _ in 0..5 {
            open.push(send().await);
        }
        assert!(open.iter().all(|response| response.status() == 200));
    }

    #[tokio::test]
    async fn what_is_of_a_session_passes_without_room_and_is_refused_when_it_begins_work() {
        let layer = InFlightLayer::new(1);
        let send = async |named: bool, begins: bool| {
            let inner = service_fn(move |request: Request<()>| async move {
                let no_room = request.extensions().get::<NoRoom>().copied();
                assert!(no_room.is_none() || request.extensions().get::<Arc<Permit>>().is_none());
                let mut response = Response::new(Full::<Bytes>::from("served"));
                if let Some(no_room) = no_room.filter(|_| begins) {
                    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    let turned = TurnedAway { no_room, count: 1 };
                    response.extensions_mut().insert(turned);
                }
                Ok::<_, Infallible>(response)
            });
            let mut request = Request::new(());
            if named {
                let id = HeaderValue::from_static("s");
                request.headers_mut().insert(SESSION_ID, id);
            }
            layer.layer(inner).oneshot(request).await.unwrap()
        };
        let held = send(true, true).await;
        assert_eq!(held.status(), 200, "there is room");
        assert_eq!(send(false, false).await.status(), 503);
        assert_eq!(send(true, true).await.status(), 503);
        for (path, of_session) in [("/messages/u?session=s", true), ("/mcp", false)] {
            let request = Request::builder().uri(path).body(()).unwrap();
            assert_eq!(is_of_session(&request), of_session, "{path}");
        }
        let mut open = Vec::new();
        for _ in 0..SPARE {
            open.push(send(true, false).await);
        }
        assert!(open.iter().all(|response| response.status() == 200));
        assert_eq!(send(true, false).await.status(), 503, "within bounds");
        drop((held, open));
        assert_eq!(send(false, true).await.status(), 200);
    }

    #[tokio::test]
    async fn while_draining_only_what_may_go_on_is_read_and_it_counts_when_it_does() {
        let layer = InFlightLayer::new(2);
        let send = async |called: &'static str, goes_on: bool| {
            let seen = layer.clone();
            let inner = service_fn(move |request: Request<()>| {
                let seen = seen.clone();
                async move {
                    let no_room = request.extensions().get::<NoRoom>().copied();
                    assert_eq!(no_room, Some(NoRoom::Draining));
                    let entry = request.extensions().get::<Arc<Entry>>().unwrap();
                    let before = seen.limit.used();
                    let entered = goes_on && entry.enter();
                    assert_eq!(seen.limit.used(), before + usize::from(entered));
                    let mut response = Response::new(Full::<Bytes>::from("served"));
                    if !entered {
                        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    }
                    Ok::<_, Infallible>(response)
                }
            });
            let mut request = Request::new(());
            let called = HeaderValue::from_static(called);
            request.headers_mut().insert(METHOD_LINE, called);
            layer.layer(inner).oneshot(request).await.unwrap()
        };
        layer.begin_drain();
        for called in ["tools/list", "server/discover", "subscriptions/listen", ""] {
            let refused = send(called, false).await;
            assert_eq!(refused.status(), 503, "{called}");
            assert_eq!(refused.headers()["connection"], "close");
        }
        for called in [
            "tools/call",
            "prompts/get",
            "resources/read",
            "tasks/get",
            "tasks/update",
            "tasks/cancel",
        ] {
            let served = send(called, true).await;
            assert_eq!(served.status(), 200, "{called}");
            assert!(!layer.is_idle());
            drop(served);
            let _refused = send(called, false).await;
            assert!(layer.is_idle(), "what is refused holds nothing up");
        }
        let held = [send("tasks/get", true).await, send("tasks/get", true).await];
        let full = send("tasks/get", true).await;
        assert_eq!(full.status(), 503, "within the limit");
        drop((held, full));
        let mut open = Vec::new();
        for _ in 0..READING {
            open.push(send("tools/call", false).await);
        }
        assert!(layer.reading.permit().is_none(), "within bounds");
        drop(open);
        assert!(layer.reading.is_idle());
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_counts_no_more() {
        let send = layer_of(1);
        drop(send());
        assert_eq!(send().await.status(), 200);
    }

    #[tokio::test]
    async fn over_the_limit_the_client_is_told_to_come_back() {
        let send = layer_of(1);
        let _held = send().await;
        let refused = send().await;
        assert_eq!(refused.headers()["retry-after"], "1");
        assert_eq!(refused.headers()["content-type"], "application/json");
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["data"]["retryable"], true);
        assert_eq!(
            send().await.status(),
            503,
            "a refusal holds no permit and frees none"
        );
    }
}
