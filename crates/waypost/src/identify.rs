//! Gives each request an id, and each of its log lines.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use http::{HeaderName, HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use tracing::Span;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Bytes of an id that is kept.
const LONGEST: usize = 128;

/// Keeps the `x-request-id` of a proxy in front, or makes one; the answer carries it, and so does
/// every line that is written on the way.
///
/// Ids are short, new and cheap: a number that counts, behind one that tells processes and cores
/// apart.
#[derive(Clone, Debug)]
pub(crate) struct IdentifyLayer {
    maker: Arc<str>,
    next: Arc<AtomicU64>,
}

/// The service that [`IdentifyLayer`] makes.
#[derive(Clone, Debug)]
pub(crate) struct Identify<S> {
    inner: S,
    layer: IdentifyLayer,
}

pin_project! {
    /// The answer that will carry the id.
    #[derive(Debug)]
    pub(crate) struct Identified<F> {
        #[pin]
        inner: F,
        id: Option<HeaderValue>,
        span: Span,
    }
}

impl IdentifyLayer {
    pub(crate) fn new() -> Self {
        Self {
            maker: format!("{:08x}-", rand::random::<u32>()).into(),
            next: Arc::default(),
        }
    }

    fn id(&self) -> Option<HeaderValue> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(self.maker.len() + 16);
        id.push_str(&self.maker);
        write!(id, "{number:x}").ok()?;
        HeaderValue::try_from(id).ok()
    }
}

impl<S> Layer<S> for IdentifyLayer {
    type Service = Identify<S>;

    fn layer(&self, inner: S) -> Identify<S> {
        Identify {
            inner,
            layer: self.clone(),
        }
    }
}

impl<S, B, R> Service<Request<B>> for Identify<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Identified<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let given = request.headers().get(REQUEST_ID).filter(|id| is_usable(id));
        let given = given.cloned();
        let id = given.or_else(|| {
            let made = self.layer.id()?;
            request.headers_mut().insert(REQUEST_ID, made.clone());
            Some(made)
        });
        let text = id.as_ref().and_then(|id| id.to_str().ok());
        let span = tracing::info_span!(
            "request",
            request_id = text.unwrap_or_default(),
            // The hub's to say, once it knows.
            upstream = tracing::field::Empty,
        );
        let inner = span.in_scope(|| self.inner.call(request));
        Identified { inner, id, span }
    }
}

/// A stranger's text of any length or kind has no place in every log line.
fn is_usable(id: &HeaderValue) -> bool {
    (1..=LONGEST).contains(&id.len()) && id.to_str().is_ok()
}

impl<F, R, E> Future for Identified<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut answer = ready!(this.span.in_scope(|| this.inner.poll(cx)))?;
        if let Some(id) = this.id.take() {
            answer.headers_mut().insert(REQUEST_ID, id);
        }
        Poll::Ready(Ok(answer))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::{ServiceExt as _, service_fn};

    use super::*;

    async fn check(given: Option<&str>, kept: bool) {
        let inner = service_fn(async |request: Request<()>| {
            let seen = request.headers().get(REQUEST_ID).cloned();
            Ok::<_, Infallible>(Response::new(seen))
        });
        let mut request = Request::new(());
        if let Some(given) = given {
            let value = HeaderValue::from_bytes(given.as_bytes()).unwrap();
            request.headers_mut().insert(REQUEST_ID, value);
        }
        let service = IdentifyLayer::new().layer(inner);
        let answer = service.oneshot(request).await.unwrap();
        let id = answer.headers().get(REQUEST_ID).cloned();
        assert!(id.as_ref().is_some_and(|id| id.to_str().is_ok()));
        assert_eq!(
            id.as_ref().map(HeaderValue::as_bytes) == given.map(str::as_bytes),
            kept
        );
        assert_eq!(answer.into_body(), id, "what is inside sees the same id");
    }

    #[tokio::test]
    async fn an_id_of_a_proxy_is_kept_and_anything_else_replaced() {
        check(Some("4bf92f3577b34da6"), true).await;
        check(None, false).await;
        check(Some(""), false).await;
        check(Some("\u{e9}"), false).await;
        check(Some(&"x".repeat(LONGEST)), true).await;
        check(Some(&"x".repeat(LONGEST + 1)), false).await;
    }
}
