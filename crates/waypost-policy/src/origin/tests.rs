use std::convert::Infallible;

use http_body_util::{BodyExt as _, Full};
use tower::{ServiceExt as _, service_fn};

use super::*;

type Body = Full<Bytes>;

fn front(hosts: &[&str], origins: &[&str]) -> Front {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    Front {
        allowed_hosts: own(hosts),
        allowed_origins: own(origins),
        ..waypost_config::parse_str("").unwrap().config.front
    }
}

struct Guard(OriginGuardLayer);

impl Guard {
    fn new(listen: &str, front: &Front) -> Self {
        Self(OriginGuardLayer::new(listen.parse().unwrap(), front))
    }

    async fn send(&self, headers: &[(&str, &str)]) -> Response<Body> {
        let inner = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(Body::default()))
        });
        let mut request = Request::post("/mcp");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        self.0.layer(inner).oneshot(request).await.unwrap()
    }

    async fn check(&self, headers: &[(&str, &str)], allowed: bool) {
        let status = self.send(headers).await.status();
        let expected = if allowed { 200 } else { 403 };
        assert_eq!(status, expected, "{headers:?}");
    }
}

#[tokio::test]
async fn r32_on_loopback_the_loopback_names_are_served_with_any_port() {
    for listen in ["127.0.0.1:7400", "[::1]:7400"] {
        let guard = Guard::new(listen, &front(&[], &[]));
        for host in [
            "localhost",
            "localhost:8080",
            "LOCALHOST:1",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:7400",
            "127.1.2.3",
            "[::1]",
            "[::1]:8080",
        ] {
            guard.check(&[("host", host)], true).await;
        }
        for host in [
            "gw.internal",
            "evil.example",
            "evil.example:7400",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "evil.example@localhost",
            "localhost:80:80",
            "localhost:x",
            "192.168.0.1",
            "",
            "a b",
            "[::2]",
        ] {
            guard.check(&[("host", host)], false).await;
        }
    }
}

#[tokio::test]
async fn r32_the_origin_must_be_known_and_null_is_not() {
    let rules = front(&[], &["https://app.example", "http://tools.example:*"]);
    let guard = Guard::new("127.0.0.1:7400", &rules);
    let host = ("host", "localhost:7400");
    guard.check(&[host], true).await;
    for origin in [
        "https://app.example",
        "HTTPS://App.Example",
        "http://tools.example",
        "http://tools.example:81",
        "http://localhost:3000",
        "https://127.0.0.1",
        "http://[::1]:7400",
    ] {
        guard.check(&[host, ("origin", origin)], true).await;
    }
    for origin in [
        "null",
        "",
        "https://app.example:444",
        "http://app.example",
        "https://app.example.evil.example",
        "https://evil.example",
        "https://tools.example:81",
        "http://tools.example:x",
        "http://tools.example.evil.example:81",
        "http://localhost.evil.example",
        "http://localhost@evil.example",
        "file://localhost",
    ] {
        guard.check(&[host, ("origin", origin)], false).await;
    }
    let two = [host, ("origin", "https://app.example"), ("origin", "null")];
    guard.check(&two, false).await;
}

#[tokio::test]
async fn r32_other_names_are_served_once_the_file_names_them() {
    let guard = Guard::new("127.0.0.1:7400", &front(&["gw.internal", "[fd00::1]"], &[]));
    for host in [
        "gw.internal",
        "GW.internal:8080",
        "[fd00::1]:80",
        "localhost",
    ] {
        guard.check(&[("host", host)], true).await;
    }
    guard.check(&[("host", "evil.example")], false).await;
    guard.check(&[("host", "a.gw.internal")], false).await;
}

#[tokio::test]
async fn on_other_addresses_names_are_only_checked_against_a_list() {
    let origin = ("origin", "http://evil.example");
    let open = Guard::new("0.0.0.0:7400", &front(&[], &[]));
    open.check(&[("host", "waypost.default.svc:7400")], true)
        .await;
    open.check(&[("host", "evil.example"), origin], false).await;
    open.check(&[("host", "a"), ("origin", "http://localhost")], false)
        .await;
    let listed = Guard::new("0.0.0.0:7400", &front(&["waypost"], &[]));
    for (host, allowed) in [
        ("waypost:7400", true),
        ("10.1.2.3:7400", true),
        ("localhost:7400", true),
        ("evil.example", false),
    ] {
        listed.check(&[("host", host)], allowed).await;
    }
}

#[tokio::test]
async fn a_request_that_names_its_host_in_the_target_is_checked_there() {
    let rules = OriginGuardLayer::new("127.0.0.1:1".parse().unwrap(), &front(&[], &[])).rules;
    let target = |uri: &str| Request::post(uri).body(()).unwrap();
    assert_eq!(rules.stranger(&target("http://localhost:1/mcp")), None);
    let found = rules.stranger(&target("http://evil.example/mcp"));
    assert_eq!(found, Some((Stranger::Host, "evil.example".to_owned())));
    assert_eq!(rules.stranger(&target("/mcp")), None, "no browser");
}

#[tokio::test]
async fn r32_the_refusal_names_the_key_to_change() {
    let guard = Guard::new("127.0.0.1:7400", &front(&[], &[]));
    for (headers, key) in [
        ([("host", "gw.internal"), ("x", "")], "front.allowed_hosts"),
        (
            [("host", "localhost"), ("origin", "https://a.example")],
            "front.allowed_origins",
        ),
    ] {
        let response = guard.send(&headers).await;
        assert_eq!(response.status(), 403);
        assert_eq!(response.headers()["content-type"], "application/json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], -32600);
        assert!(
            body["error"]["data"]["hint"]
                .as_str()
                .unwrap()
                .contains(key)
        );
        assert!(body.get("id").is_none());
    }
}

/// A browser asks before a page of `origin` may call.
fn asks(origin: &str) -> Request<()> {
    Request::options("/mcp")
        .header("host", "localhost")
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "authorization,mcp-param-x",
        )
        .body(())
        .unwrap()
}

#[tokio::test]
async fn a_listed_page_may_call_and_read_the_answer() {
    let rules = front(&[], &["https://app.example", "http://localhost:*"]);
    let guard = Guard::new("127.0.0.1:7400", &rules);
    for origin in ["https://app.example", "http://localhost:6274"] {
        let inner = service_fn(|_: Request<()>| async { panic!("answered in front") });
        let service = guard.0.layer(inner);
        let response: Result<Response<Body>, Infallible> = service.oneshot(asks(origin)).await;
        let response = response.unwrap();
        assert_eq!(response.status(), 204);
        let headers = response.headers();
        assert_eq!(headers["access-control-allow-origin"], origin);
        assert_eq!(
            headers["access-control-allow-headers"],
            "authorization,mcp-param-x"
        );
        let call = guard
            .send(&[("host", "localhost"), ("origin", origin)])
            .await;
        assert_eq!(call.headers()["access-control-allow-origin"], origin);
        assert_eq!(call.headers()["vary"], "origin");
    }
}

#[tokio::test]
async fn other_pages_are_told_nothing() {
    let rules = front(&[], &["https://app.example"]);
    let guard = Guard::new("127.0.0.1:7400", &rules);
    let header = "access-control-allow-origin";
    for origin in [&[][..], &[("origin", "http://localhost:3000")]] {
        let response = guard.send(origin).await;
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key(header));
    }
    let stranger = guard.send(&[("origin", "https://evil.example")]).await;
    assert_eq!(stranger.status(), 403);
    assert!(!stranger.headers().contains_key(header));
    let inner = service_fn(|_: Request<()>| async {
        let mut response = Response::new(Body::default());
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        Ok::<_, Infallible>(response)
    });
    let service = guard.0.layer(inner);
    let local = service
        .oneshot(asks("http://localhost:3000"))
        .await
        .unwrap();
    assert_eq!(local.status(), 405, "the question is passed on");
}
