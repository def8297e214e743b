//! Keeps web pages from calling Waypost through the browser of somebody who can reach it.
//!
//! A page of a stranger can make a browser send requests here in two ways: openly, which the
//! browser marks with the page's `Origin`, or after binding its own name to this address (DNS
//! rebinding), which leaves the page's name in `Host`. So an `Origin` must be known, and `Host`
//! must be a name of ours.
//!
//! On a loopback address the loopback names are ours, with any port. On other addresses every
//! IP address is as well (no name was bound to anything), and as long as no
//! `front.allowed_hosts` are given the name is not looked at: browsers send `Origin` with every
//! POST, and the check of that alone holds then.
//!
//! Pages of `front.allowed_origins` are also told by the browser's rules (CORS) that they may
//! call and read the answers; without that the browser would hold them off. Pages on loopback
//! are not, unless they are listed.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode};
use pin_project_lite::pin_project;
use serde_json::json;
use tower::{Layer, Service};
use waypost_config::Front;
use waypost_wire::code;
use waypost_wire::text::{NAME, clip};

use crate::cors;
use crate::event::RequestRefused;
use crate::headers::{address, host_name, is_loopback};
use crate::refuse;

/// Refuses requests whose `Host` or `Origin` is a stranger's with 403.
#[derive(Clone, Debug)]
pub struct OriginGuardLayer {
    rules: Arc<Rules>,
}

/// The service that [`OriginGuardLayer`] makes.
#[derive(Clone, Debug)]
pub struct OriginGuard<S> {
    inner: S,
    rules: Arc<Rules>,
}

pin_project! {
    /// The answer that is being made, or the guard's own.
    #[derive(Debug)]
    pub struct OriginGuardFuture<F, R> {
        #[pin]
        inner: Option<F>,
        own: Option<R>,
        page: Option<HeaderValue>,
    }
}

#[derive(Debug)]
struct Rules {
    /// What most clients of this address send as `Host`, known without being taken apart.
    usual: Option<[String; 2]>,
    loopback: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Which header is a stranger's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stranger {
    Host,
    Origin,
}

// === impl OriginGuardLayer ===

impl OriginGuardLayer {
    /// A guard for the endpoint at `listen`.
    #[must_use]
    pub fn new(listen: SocketAddr, front: &Front) -> Self {
        let loopback = listen.ip().to_canonical().is_loopback();
        let usual = loopback.then(|| [listen.to_string(), format!("localhost:{}", listen.port())]);
        let rules = Rules {
            usual,
            loopback,
            hosts: front.allowed_hosts.clone(),
            origins: front.allowed_origins.clone(),
        };
        Self {
            rules: Arc::new(rules),
        }
    }
}

impl<S> Layer<S> for OriginGuardLayer {
    type Service = OriginGuard<S>;

    fn layer(&self, inner: S) -> OriginGuard<S> {
        OriginGuard {
            inner,
            rules: Arc::clone(&self.rules),
        }
    }
}

// === impl OriginGuard ===

impl<S, B, R> Service<Request<B>> for OriginGuard<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = OriginGuardFuture<S::Future, Response<R>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let stranger = self.rules.stranger(&request);
        let mut own = stranger.map(|(which, presented)| refused(which, &presented));
        let mut page = None;
        if own.is_none() {
            page = self.rules.listed(&request).cloned();
        }
        if page.is_some() {
            own = cors::preflight(&request);
        }
        OriginGuardFuture {
            inner: own.is_none().then(|| self.inner.call(request)),
            own,
            page,
        }
    }
}

// === impl OriginGuardFuture ===

impl<F, R, E> Future for OriginGuardFuture<F, Response<R>>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: From<Bytes>,
{
    type Output = Result<Response<R>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = match this.inner.as_pin_mut() {
            Some(inner) => ready!(inner.poll(cx))?,
            None => this
                .own
                .take()
                .unwrap_or_else(|| Response::new(Bytes::new().into())),
        };
        if let Some(page) = this.page.take() {
            cors::allow(&mut response, page);
        }
        Poll::Ready(Ok(response))
    }
}

fn refused<R: From<Bytes>>(which: Stranger, presented: &str) -> Response<R> {
    let (reason, header, key) = match which {
        Stranger::Host => ("host", "Host", "front.allowed_hosts"),
        Stranger::Origin => ("origin", "Origin", "front.allowed_origins"),
    };
    RequestRefused { reason, presented }.emit();
    let message = format!("`{header}` is not allowed here: `{presented}`");
    let hint = format!("the operator can add it to `{key}`");
    let data = json!({ "hint": hint });
    refuse::answer(
        StatusCode::FORBIDDEN,
        code::INVALID_REQUEST,
        &message,
        &data,
    )
}

// === impl Rules ===

impl Rules {
    /// The header that is a stranger's, and what it says.
    fn stranger<B>(&self, request: &Request<B>) -> Option<(Stranger, String)> {
        let lines = request.headers().get_all(HOST).iter();
        // A request can name its host in the target too; what does not name it at all comes from
        // no browser.
        let target = request.uri().authority().map(Authority::as_str);
        let mut hosts = lines
            .map(HeaderValue::as_bytes)
            .chain(target.map(str::as_bytes));
        if let Some(host) = hosts.find(|host| !self.knows_host(host)) {
            return Some((Stranger::Host, shown(host)));
        }
        let mut origins = request.headers().get_all(ORIGIN).iter();
        let origin = origins.find(|origin| !self.knows_origin(origin.as_bytes()))?;
        Some((Stranger::Origin, shown(origin.as_bytes())))
    }

    fn knows_host(&self, host: &[u8]) -> bool {
        let mut usual = self.usual.iter().flatten();
        if usual.any(|usual| usual.as_bytes() == host) {
            return true;
        }
        let Some(name) = host_name(host) else {
            return false;
        };
        let unbound = address(&name).is_some() && !self.loopback;
        let unasked = self.hosts.is_empty() && !self.loopback;
        is_loopback(&name) || unbound || unasked || self.hosts.contains(&name)
    }

    /// The origin of a page that the file lists.
    fn listed<'a, B>(&self, request: &'a Request<B>) -> Option<&'a HeaderValue> {
        let origin = request.headers().get(ORIGIN)?;
        let page = Page::read(origin.as_bytes())?;
        self.lists(&page).then_some(origin)
    }

    fn knows_origin(&self, origin: &[u8]) -> bool {
        let Some(page) = Page::read(origin) else {
            return false;
        };
        let web = page.scheme == "http" || page.scheme == "https";
        self.loopback && web && is_loopback(&page.name) || self.lists(&page)
    }

    fn lists(&self, page: &Page) -> bool {
        self.origins.iter().any(|allowed| {
            let (scheme, host) = allowed.split_once("://").unwrap_or_default();
            match host.strip_suffix(":*") {
                None => *allowed == page.origin,
                Some(name) => scheme == page.scheme && name == page.name,
            }
        })
    }
}

/// Where a page comes from, lower case.
struct Page {
    origin: String,
    scheme: String,
    name: String,
}

impl Page {
    fn read(origin: &[u8]) -> Option<Self> {
        let origin = std::str::from_utf8(origin).ok()?;
        let origin = origin.trim().to_ascii_lowercase();
        let (scheme, authority) = origin.split_once("://")?;
        Some(Self {
            scheme: scheme.to_owned(),
            name: host_name(authority.as_bytes())?,
            origin,
        })
    }
}

/// Text of a stranger, cut to what is worth showing.
fn shown(bytes: &[u8]) -> String {
    clip(&String::from_utf8_lossy(bytes), NAME).into_owned()
}

#[cfg(test)]
mod tests;
