//! Which path is what.

use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use serde_json::json;
use tower::ServiceExt as _;
use waypost_config::{Key, KeyHash};
use waypost_hub::call::{Principal, View};

use crate::fake::{Front, Post, read};

#[tokio::test]
async fn r15_where_clients_look_for_oauth_there_is_a_small_json_404() {
    let front = Front::new(|_| panic!("must not be called"));
    let mut paths = [
        "/register",
        "/",
        "/sse",
        "/sse/builds",
        "/messages?session=x",
    ]
    .map(str::to_owned)
    .to_vec();
    for name in [
        "oauth-protected-resource",
        "oauth-authorization-server",
        "openid-configuration",
    ] {
        for path in ["", "/mcp", "/mcp/builds"] {
            paths.push(format!("/.well-known/{name}{path}"));
        }
        paths.push(format!("/mcp/.well-known/{name}"));
        paths.push(format!("/mcp/builds/.well-known/{name}"));
    }
    for path in paths {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            for accept in ["application/json", "text/html"] {
                let request = Request::builder()
                    .method(method.clone())
                    .uri(&path)
                    .header("accept", accept)
                    .body(Body::empty())
                    .unwrap();
                let answer = front.send(request).await;
                assert_eq!(answer.status, 404, "{method} {path}");
                assert_eq!(answer.header("content-type"), Some("application/json"));
                assert_eq!(answer.json()["error"], "not_found");
                assert!(answer.header("www-authenticate").is_none());
                assert!(answer.text.len() < 200, "small");
            }
        }
    }
}

#[tokio::test]
async fn r15_who_looks_for_oauth_is_told_what_to_send_instead() {
    let front = Front::new(|_| panic!("must not be called"));
    let key = Key {
        name: "ci".to_owned(),
        hash: KeyHash::of("wp_ci"),
        endpoint: None,
    };
    let said = async |router: Router, path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = read(router.oneshot(request).await.unwrap()).await;
        assert_eq!(answer.status, 404);
        answer.json()["error_description"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for path in ["/register", "/.well-known/oauth-authorization-server/mcp"] {
        let guarded = said(front.guarded(std::slice::from_ref(&key)), path).await;
        assert!(
            guarded.contains("no OAuth") && guarded.contains("Bearer <key>"),
            "{guarded}"
        );
        let open = said(front.guarded(&[]), path).await;
        assert!(
            open.contains("no OAuth") && !open.contains("Bearer"),
            "{open}"
        );
    }
    assert!(
        !said(front.guarded(&[]), "/elsewhere")
            .await
            .contains("OAuth")
    );
    assert!(
        said(front.guarded(&[]), "/sse")
            .await
            .contains("`front.sse: true`")
    );
}

#[tokio::test]
async fn only_post_is_served() {
    let front = Front::new(|_| panic!("must not be called"));
    for method in [Method::GET, Method::DELETE, Method::PUT, Method::OPTIONS] {
        for path in ["/mcp", "/mcp/", "/mcp/builds"] {
            let request = Request::builder().method(method.clone()).uri(path);
            let answer = front.send(request.body(Body::empty()).unwrap()).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.header("allow"), Some("POST"));
            assert_eq!(answer.json()["error"]["code"], -32600);
        }
    }
}

#[tokio::test]
async fn the_path_chooses_the_view() {
    let front = Front::complete();
    for path in ["/mcp", "/mcp/", "/mcp?x=1", "/mcp/builds"] {
        let answer = front.send(Post::call().path(path).build()).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    let views: Vec<View> = front.calls().into_iter().map(|call| call.view).collect();
    let builds = View::Upstream("builds".into());
    assert_eq!(views, [View::All, View::All, View::All, builds]);
    for path in ["/mcp/other", "/mcp/%62uilds", "/mcp/builds/", "/mcpx"] {
        let answer = front.send(Post::call().path(path).build()).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.json()["error"], "not_found");
    }
}

#[tokio::test]
async fn the_call_carries_who_asked_and_which_request() {
    let front = Front::complete();
    let mut named = Post::call().header("x-request-id", "abc").build();
    named.extensions_mut().insert(Principal::new("ci"));
    front.send(named).await;
    front.send(Post::call().build()).await;
    let endless = "x".repeat(129);
    front
        .send(Post::call().header("x-request-id", &endless).build())
        .await;
    let calls = front.calls();
    assert_eq!(calls[0].principal, Principal::new("ci"));
    assert_eq!(&*calls[0].request_id, "abc");
    assert_eq!(calls[1].principal, Principal::anonymous());
    assert_eq!(calls[1].request_id.len(), 36);
    assert_eq!(calls[2].request_id.len(), 36, "a name without end is none");
}

#[tokio::test]
async fn the_call_has_the_body_without_meta() {
    let front = Front::complete();
    let body = Post::call().body.to_string().replace(
        r#""arguments":{}"#,
        r#""arguments":{"n":1.0,"big":12345678901234567890123, "z":{} }"#,
    );
    let body = body.replace(r#""_meta":{"#, r#""_meta":{"progressToken":7,"x/y":[1],"#);
    front.send(Post::call().build_with(body)).await;
    let call = &front.calls()[0];
    assert_eq!(call.method, "tools/call");
    assert_eq!(call.id.raw().text(), "1");
    assert!(!call.params.contains("_meta"));
    assert_eq!(
        call.params.get("arguments").unwrap().text(),
        r#"{"n":1.0,"big":12345678901234567890123, "z":{} }"#
    );
    assert_eq!(call.meta.progress_token.as_ref().unwrap().text(), "7");
    assert_eq!(call.meta.rest.get("x/y").unwrap().text(), "[1]");
    let info = json!({"name": "test", "version": "1"}).to_string();
    assert_eq!(call.meta.client_info.as_ref().unwrap().text(), info);
}

#[tokio::test]
async fn who_is_bound_to_an_endpoint_finds_it_at_mcp_and_nothing_elsewhere() {
    let front = Front::complete();
    let ask = |path: &str| {
        let mut request = Post::call().path(path).build();
        request.extensions_mut().insert(Principal::new("bound"));
        request
    };
    assert_eq!(front.send(ask("/mcp")).await.status, 200);
    let views: Vec<View> = front.calls().into_iter().map(|call| call.view).collect();
    assert_eq!(views, [View::Endpoint("review".into())]);
    for path in ["/mcp/builds", "/mcp/review", "/mcp/nothing"] {
        let answer = front.send(ask(path)).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.json()["error"], "not_found");
    }
    assert_eq!(front.calls().len(), 1);
}
