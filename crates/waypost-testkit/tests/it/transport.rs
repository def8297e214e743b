//! What every request is held to before its method runs.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use waypost_testkit::client::{Client, Post};
use waypost_testkit::demo::demo_everything;
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_testkit::seen::{Outcome, Seen};

async fn server() -> (Running, Client) {
    let running = demo_everything(ANY_PORT).await.unwrap();
    let client = Client::new(&running.url);
    (running, client)
}

/// Sends `bend(a correct call)` and compares status and code; the id must come back.
async fn check(bend: impl FnOnce(Post) -> Post, status: u16, code: i64) {
    let (_running, client) = server().await;
    let post = client.post("tools/call", json!({ "name": "test_simple_text" }));
    let id = post.message["id"].clone();
    let reply = client.ask(bend(post)).await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (status, code),
        "{reply:?}"
    );
    if code != 0 {
        assert_eq!(reply.answer["id"], id);
    }
}

fn without_meta(mut post: Post, key: &str) -> Post {
    post.message["params"]["_meta"]
        .as_object_mut()
        .unwrap()
        .remove(key);
    post
}

fn with_version(mut post: Post, version: &str) -> Post {
    post.message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = version.into();
    post
}

#[tokio::test]
async fn a_correct_call_is_answered() {
    check(|post| post, 200, 0).await;
    check(
        |post| post.header("mcp-name", "=?base64?dGVzdF9zaW1wbGVfdGV4dA==?="),
        200,
        0,
    )
    .await;
    check(|post| post.header("mcp-param-unknown", "ignored"), 200, 0).await;
}

#[tokio::test]
async fn required_meta_missing_is_400_and_32602() {
    let version = "io.modelcontextprotocol/protocolVersion";
    check(|post| without_meta(post, version), 400, -32602).await;
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    check(|post| without_meta(post, capabilities), 400, -32602).await;
}

#[tokio::test]
async fn headers_that_differ_from_the_body_are_400_and_32020() {
    check(|post| post.without("mcp-method"), 400, -32020).await;
    check(|post| post.header("mcp-method", "TOOLS/CALL"), 400, -32020).await;
    check(|post| post.without("mcp-name"), 400, -32020).await;
    check(
        |post| post.header("mcp-name", "test_image_content"),
        400,
        -32020,
    )
    .await;
    check(|post| post.header("mcp-name", "=?base64?!!?="), 400, -32020).await;
    check(|post| post.without("mcp-protocol-version"), 400, -32020).await;
    check(
        |post| post.header("mcp-protocol-version", "2025-11-25"),
        400,
        -32020,
    )
    .await;
    check(|post| with_version(post, "v999.0.0"), 400, -32020).await;
}

#[tokio::test]
async fn an_unknown_version_is_named_with_those_supported() {
    let (_running, client) = server().await;
    let post = with_version(client.post("server/discover", json!({})), "v999.0.0");
    let reply = client
        .ask(post.header("mcp-protocol-version", "v999.0.0"))
        .await
        .unwrap();
    assert_eq!(
        (reply.status, reply.code()),
        (StatusCode::BAD_REQUEST, -32022)
    );
    let data = &reply.answer["error"]["data"];
    assert_eq!(
        data,
        &json!({ "supported": ["2026-07-28"], "requested": "v999.0.0" })
    );
}

#[tokio::test]
async fn a_client_of_the_session_era_learns_what_is_spoken_here() {
    let (_running, client) = server().await;
    let mut post = client.post("initialize", json!({ "protocolVersion": "2025-11-25" }));
    post.message["params"]
        .as_object_mut()
        .unwrap()
        .remove("_meta");
    let reply = client.ask(post).await.unwrap();
    assert_eq!(reply.code(), -32022);
    assert_eq!(
        reply.answer["error"]["data"]["supported"],
        json!(["2026-07-28"])
    );
}

#[tokio::test]
async fn methods_that_do_not_exist_are_404_and_32601() {
    let (_running, client) = server().await;
    let gone = [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "tasks/list",
    ];
    for method in gone.into_iter().chain(["tasks/get", "unknown/method"]) {
        let params = json!({ "taskId": "t", "uri": "test://static-text" });
        let reply = client.call(method, params).await.unwrap();
        assert_eq!(
            (reply.status, reply.code()),
            (StatusCode::NOT_FOUND, -32601),
            "{method}"
        );
    }
}

#[tokio::test]
async fn bodies_that_are_no_request_are_refused() {
    let (_running, client) = server().await;
    let cases: [(&str, u16, i64); 5] = [
        ("{", 400, -32700),
        ("[]", 400, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, 400, -32600),
        (r#"{"id":1,"method":"server/discover"}"#, 400, -32600),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"server/discover"}"#,
            400,
            -32600,
        ),
    ];
    for (body, status, code) in cases {
        let post = client.post("server/discover", json!({})).raw(body);
        let reply = client.ask(post).await.unwrap();
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (status, code),
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_notification_gets_202_and_no_body() {
    let (_running, client) = server().await;
    let body = r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
    let reply = client
        .ask(client.post("x", json!({})).raw(body))
        .await
        .unwrap();
    assert_eq!(
        (reply.status, reply.answer),
        (StatusCode::ACCEPTED, Value::Null)
    );
}

#[tokio::test]
async fn the_http_contract_is_enforced() {
    let (_running, client) = server().await;
    let post = || client.post("server/discover", json!({}));
    let mut get = post();
    get.http_method = Method::GET;
    let cases = [
        (get, 405),
        (post().header("content-type", "text/plain"), 415),
        (post().header("accept", "application/json"), 406),
        (post().header("accept", "*/*"), 200),
        (post().header("host", "evil.example.com"), 403),
        (post().header("origin", "http://evil.example.com"), 403),
        (post().header("origin", "http://localhost:1"), 200),
        (post().raw(vec![b' '; 5 * 1024 * 1024]), 413),
    ];
    for (post, status) in cases {
        let shown = format!("{:?}", post.headers);
        assert_eq!(client.ask(post).await.unwrap().status, status, "{shown}");
    }
}

#[tokio::test]
async fn annotated_arguments_must_match_their_headers() {
    let (_running, client) = server().await;
    let call = || {
        let arguments = json!({ "region": "eu", "priority": 7, "place": { "city": "Köln" } });
        let params = json!({ "name": "test_mirrored_headers", "arguments": arguments });
        let post = client.post("tools/call", params);
        post.header("mcp-param-region", "eu")
            .header("mcp-param-priority", "7")
            .header("mcp-param-city", "=?base64?S8O2bG4=?=")
    };
    let ok = client.ask(call()).await.unwrap();
    assert_eq!(ok.result()["structuredContent"]["place"]["city"], "Köln");
    let wrong = [
        call().without("mcp-param-region"),
        call().header("mcp-param-priority", "8"),
        call().header("mcp-param-city", "Koeln"),
        call().header("mcp-param-dry-run", "true"),
    ];
    for post in wrong {
        let reply = client.ask(post).await.unwrap();
        assert_eq!(
            (reply.status, reply.code()),
            (StatusCode::BAD_REQUEST, -32020)
        );
    }
}

#[tokio::test]
async fn what_reached_a_server_is_recorded() {
    let (running, client) = server().await;
    client.tool("test_simple_text", json!({})).await.unwrap();
    let calls = running.seen().of("tools/call");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].header("mcp-name"), Some("test_simple_text"));
    assert_eq!(calls[0].json()["params"]["name"], "test_simple_text");
    let answered = |seen: &Seen| seen.of("tools/call")[0].outcome == Outcome::Answered;
    assert!(running.seen().wait_for(answered).await);
}
