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

    const API: [&str; 5] = [
        "/api/v1/upstreams",
        "/api/v1/endpoints",
        "/api/v1/tools/pending",
        "/api/v1/tools/approve",
        "/api/v1/config",
    ];

    /// What the listener answers everything with.
    async fn app(guard: Guard) -> axum::Router {
        let (_, hub) = crate::stack::tests::hub("{}").await;
        let admin = crate::admin::Admin {
            hub,
            metrics: crate::admin::metrics::start(),
            reloads: Arc::default(),
            draining: tokio_util::sync::CancellationToken::new(),
        };
        crate::admin::routes(admin, Arc::new(guard))
    }

    async fn check(guard: Guard, path: &str, headers: &[(&str, &str)], expected: u16) {
        let method = if path.ends_with("approve") {
            "POST"
        } else {
            "GET"
        };
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("content-type", "application/json");
        let request = request.body(Body::from(r#"{"tools":[]}"#)).unwrap();
        let answer = app(guard).await.oneshot(request).await.unwrap();
        assert_eq!(answer.status(), expected, "{path} {headers:?}");
    }

    fn guard(loopback: bool, token: Option<&str>) -> Guard {
        Guard::new(loopback, token.map(Secret::new))
    }

    #[tokio::test]
    async fn beyond_loopback_only_probes_are_open_until_there_is_a_token() {
        let host = ("host", "waypost.svc:7401");
        for probe in ["/healthz", "/health", "/readyz", "/ready", "/metrics"] {
            check(guard(false, None), probe, &[host], 200).await;
        }
        let right = ("authorization", "Bearer letmein");
        let wrong = ("authorization", "Bearer letmeim");
        for path in API {
            check(guard(false, None), path, &[host], 403).await;
            check(guard(false, None), path, &[host, right], 403).await;
            check(guard(false, Some("letmein")), path, &[host, right], 200).await;
            check(guard(false, Some("letmein")), path, &[host], 401).await;
            check(guard(false, Some("letmein")), path, &[host, wrong], 401).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for_for_ever() {
        let never = futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let request = Request::post("/api/v1/tools/approve")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Body::from_stream(never))
            .unwrap();
        let answer = app(guard(true, None)).await.oneshot(request);
        let answer = tokio::time::timeout(std::time::Duration::from_secs(60), answer).await;
        assert_eq!(answer.expect("an answer in time").unwrap().status(), 408);
    }

    #[tokio::test]
    async fn on_loopback_only_its_own_names_are_served() {
        for host in [
            "localhost:7401",
            "127.0.0.1:7401",
            "[::1]:7401",
            "LOCALHOST",
        ] {
            check(guard(true, None), API[0], &[("host", host)], 200).await;
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""] {
            check(guard(true, None), "/healthz", &[("host", host)], 403).await;
        }
        let two = [("host", "localhost"), ("host", "evil.example")];
        check(guard(true, None), "/healthz", &two, 403).await;
        check(guard(true, None), "/healthz", &[], 403).await;
    }
}
