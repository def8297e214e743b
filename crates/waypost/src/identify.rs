//! Gives each request an id, and each of its log lines.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use http::{HeaderName, HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use tracing::Span;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Keeps the `x-request-id` of a proxy in front, or makes one; the answer carries it, and so does
/// every line that is written on the way.
///
/// Ids are short, new and cheap: a number that counts, behind one that tells processes and cores
/// apart.
#[derive(Clone, Debug)]
pub(crate) struct IdentifyLayer {
    maker: u32,
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
            maker: rand::random(),
            next: Arc::default(),
        }
    }

    fn id(&self) -> Option<HeaderValue> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        HeaderValue::try_from(format!("{:08x}-{number:x}", self.maker)).ok()
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
        let given = request.headers().get(REQUEST_ID).cloned();
        let id = given.or_else(|| {
            let made = self.layer.id()?;
            request.headers_mut().insert(REQUEST_ID, made.clone());
            Some(made)
        });
        let text = id.as_ref().and_then(|id| id.to_str().ok());
        let span = tracing::info_span!("request", request_id = text.unwrap_or_default());
        let inner = span.in_scope(|| self.inner.call(request));
        Identified { inner, id, span }
    }
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
