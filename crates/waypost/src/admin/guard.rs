//! Who may see what of the admin listener.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::HOST;
use http::{HeaderMap, StatusCode};
use waypost_config::{KeyHash, Secret};
use waypost_policy::headers::{bears, host_name, is_loopback};

use super::refusal;

/// What decides.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Only this machine reaches the listener.
    loopback: bool,
    token: ArcSwapOption<Secret>,
}

impl Guard {
    /// `loopback` is whether only this machine reaches the listener.
    pub(crate) fn new(loopback: bool, token: Option<Secret>) -> Self {
        Self {
            loopback,
            token: ArcSwapOption::new(token.map(Arc::new)),
        }
    }

    /// From now on this is the token.
    pub(crate) fn set_token(&self, token: Option<Secret>) {
        self.token.store(token.map(Arc::new));
    }
}

/// Refuses names of other hosts on loopback: a page in a browser can make its own name resolve to
/// 127.0.0.1, but not be this machine.
pub(super) async fn host(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    if guard.loopback && !is_this_machine(request.headers()) {
        return refusal(StatusCode::FORBIDDEN, "this `Host` is not served here");
    }
    next.run(request).await
}

/// Asks for the token; without one, loopback is enough.
pub(super) async fn token(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    match guard.token.load_full() {
        None if guard.loopback => next.run(request).await,
        None => refusal(
            StatusCode::FORBIDDEN,
            "set `admin.token` to use this from other machines",
        ),
        Some(token) if bears(request.headers(), &KeyHash::of(token.expose())) => {
            next.run(request).await
        }
        Some(_) => refusal(StatusCode::UNAUTHORIZED, "bearer token needed"),
    }
}

fn is_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    host_name(host.as_bytes()).is_some_and(|name| is_loopback(&name))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;

    async fn check(guard: Guard, path: &str, headers: &[(&str, &str)], expected: u16) {
        let guard = Arc::new(guard);
        let state = |guard: &Arc<Guard>| Arc::clone(guard);
        let api = axum::Router::new()
            .route("/api", axum::routing::get(|| async {}))
            .route_layer(axum::middleware::from_fn_with_state(state(&guard), token));
        let app = axum::Router::new()
            .route("/healthz", axum::routing::get(|| async {}))
            .merge(api)
            .layer(axum::middleware::from_fn_with_state(guard, host));
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let answer = app.oneshot(request).await.unwrap();
        assert_eq!(answer.status(), expected, "{path} {headers:?}");
    }

    fn guard(loopback: bool, token: Option<&str>) -> Guard {
        Guard::new(loopback, token.map(Secret::new))
    }

    #[tokio::test]
    async fn beyond_loopback_only_probes_are_open_until_there_is_a_token() {
        let host = ("host", "waypost.svc:7401");
        check(guard(false, None), "/healthz", &[host], 200).await;
        check(guard(false, None), "/api", &[host], 403).await;
        let right = ("authorization", "Bearer letmein");
        check(guard(false, None), "/api", &[host, right], 403).await;
        check(guard(false, Some("letmein")), "/api", &[host, right], 200).await;
        check(guard(false, Some("letmein")), "/api", &[host], 401).await;
        let wrong = ("authorization", "Bearer letmeim");
        check(guard(false, Some("letmein")), "/api", &[host, wrong], 401).await;
    }

    #[tokio::test]
    async fn on_loopback_only_its_own_names_are_served() {
        for host in [
            "localhost:7401",
            "127.0.0.1:7401",
            "[::1]:7401",
            "LOCALHOST",
        ] {
            check(guard(true, None), "/api", &[("host", host)], 200).await;
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""] {
            check(guard(true, None), "/healthz", &[("host", host)], 403).await;
        }
        let two = [("host", "localhost"), ("host", "evil.example")];
        check(guard(true, None), "/healthz", &two, 403).await;
        check(guard(true, None), "/healthz", &[], 403).await;
    }
}
