//! A service that can be replaced while it serves.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use http::Request;
use tower::util::Oneshot;
use tower::{Service, ServiceExt as _};

/// Answers each request by the service that is the latest then, on connections that are open for
/// long too. Clones are one.
pub(crate) struct Latest<S>(Arc<ArcSwap<S>>);

impl<S> Latest<S> {
    /// Begins with this one.
    pub(crate) fn new(service: S) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(service)))
    }

    /// Requests from now on are for this one; those before stay where they are.
    pub(crate) fn set(&self, service: S) {
        self.0.store(Arc::new(service));
    }
}

impl<S> Clone for Latest<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> fmt::Debug for Latest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Latest(..)")
    }
}

impl<S, B> Service<Request<B>> for Latest<S>
where
    S: Service<Request<B>, Error = Infallible> + Clone,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = Oneshot<S, Request<B>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        S::clone(&self.0.load()).oneshot(request)
    }
}

#[cfg(test)]
mod tests {
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn a_clone_made_before_serves_what_came_later() {
        let service =
            |answer: u8| move |_: Request<()>| std::future::ready(Ok::<_, Infallible>(answer));
        let latest = Latest::new(service_fn(service(1)));
        let connection = latest.clone();
        let ask = || connection.clone().oneshot(Request::new(()));
        assert_eq!(ask().await, Ok(1));
        let early = connection.clone().call(Request::new(()));
        latest.set(service_fn(service(2)));
        assert_eq!(ask().await, Ok(2));
        assert_eq!(early.await, Ok(1), "what had begun stays where it was");
    }
}
