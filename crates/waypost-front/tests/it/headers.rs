//! Headers must say what the body says (official scenarios `server-stateless`,
//! `http-header-validation`, `tasks-request-headers`).

use serde_json::{Value, json};

use crate::fake::{Answer, Front, Post};

async fn send(post: Post) -> Answer {
    Front::complete().send(post.build()).await
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: i64) -> Value {
    assert_eq!(answer.refusal(), (status, code), "{}", answer.text);
    assert_eq!(answer.json()["id"], 1, "the id is echoed");
    answer.json()["error"]["data"].clone()
}

#[tokio::test]
async fn a_correct_request_is_answered_with_json() {
    let answer = send(Post::call()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(
        answer.text,
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}"#
    );
}

#[tokio::test]
async fn a_missing_member_of_meta_is_invalid_params() {
    let discover = || Post::new("server/discover", &json!({}));
    let without = |member: &'static str| {
        discover().edit(move |body| {
            let meta = body["params"]["_meta"].as_object_mut().unwrap();
            meta.remove(member).unwrap();
        })
    };
    let no_meta = discover().edit(|body| body["params"] = json!({}));
    refused(&send(no_meta).await, 400, -32602);
    let no_params = discover().edit(|body| {
        body.as_object_mut().unwrap().remove("params");
    });
    refused(&send(no_params).await, 400, -32602);
    for member in [
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientCapabilities",
    ] {
        refused(&send(without(member)).await, 400, -32602);
    }
    let anonymous = send(without("io.modelcontextprotocol/clientInfo")).await;
    assert_eq!(anonymous.status, 200, "clientInfo is optional");
}

fn versions(header: Option<&str>, meta: &str) -> Post {
    let meta = meta.to_owned();
    let post = Post::new("tools/list", &json!({}))
        .without("mcp-protocol-version")
        .edit(|body| {
            body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = meta.into();
        });
    match header {
        Some(header) => post.header("mcp-protocol-version", header),
        None => post,
    }
}

#[tokio::test]
async fn an_unknown_version_is_answered_with_the_supported_ones() {
    let data = refused(
        &send(versions(Some("v999.0.0"), "v999.0.0")).await,
        400,
        -32022,
    );
    assert_eq!(
        data,
        json!({"supported": ["2026-07-28"], "requested": "v999.0.0"})
    );
    refused(
        &send(versions(Some("2025-11-25"), "2025-11-25")).await,
        400,
        -32022,
    );
}

#[tokio::test]
async fn r60_versions_that_differ_are_a_header_mismatch() {
    refused(
        &send(versions(Some("2026-07-28"), "v999.0.0")).await,
        400,
        -32020,
    );
    refused(
        &send(versions(Some("2025-11-25"), "2026-07-28")).await,
        400,
        -32020,
    );
    refused(&send(versions(None, "2026-07-28")).await, 400, -32020);
    let twice = Post::call().header("mcp-protocol-version", "2026-07-28");
    refused(&send(twice).await, 400, -32020);
}

#[tokio::test]
async fn r60_mcp_method_must_be_the_method() {
    let list = || Post::new("tools/list", &json!({}));
    for post in [
        list().set("mcp-method", "prompts/list"),
        list().set("mcp-method", "TOOLS/LIST"),
        list().without("mcp-method"),
        list().header("mcp-method", "tools/list"),
        Post::call().set("mcp-method", "tasks/get"),
    ] {
        refused(&send(post).await, 400, -32020);
    }
    for name in ["mcp-method", "MCP-METHOD", "Mcp-Method"] {
        let post = list().without("mcp-method").header(name, " tools/list\t");
        assert_eq!(send(post).await.status, 200);
    }
}

#[tokio::test]
async fn r60_mcp_name_must_be_the_name() {
    for post in [
        Post::call().set("mcp-name", "wrong_tool_name"),
        Post::call().set("mcp-name", "Echo"),
        Post::call().without("mcp-name"),
        Post::call().header("mcp-name", "echo"),
        Post::call().set("mcp-name", "=?base64?ZWNobw?="),
        Post::new("prompts/get", &json!({"name": "p"})).without("mcp-name"),
        Post::new("resources/read", &json!({"uri": "test://a"})).set("mcp-name", "test://b"),
        Post::call().edit(|body| body["params"]["name"] = json!(1)),
    ] {
        refused(&send(post).await, 400, -32020);
    }
    for value in ["echo", "  echo  ", "=?base64?ZWNobw==?="] {
        let answer = send(Post::call().set("mcp-name", value)).await;
        assert_eq!(answer.status, 200, "{value}");
    }
    let uri = send(Post::new("resources/read", &json!({"uri": "test://ä"}))).await;
    assert_eq!(uri.status, 200, "encoded names are decoded");
}

#[tokio::test]
async fn a_name_header_counts_only_where_the_method_has_a_name() {
    let list = Post::new("tools/list", &json!({})).header("mcp-name", "anything");
    assert_eq!(send(list).await.status, 200);
}

#[tokio::test]
async fn a_body_without_a_name_is_left_to_whoever_answers_the_method() {
    let front = Front::complete();
    let post = Post::new("tools/call", &json!({}));
    assert_eq!(front.send(post.build()).await.status, 200);
    assert_eq!(front.calls().len(), 1);
}

#[tokio::test]
async fn tasks_without_mcp_name_are_served_unless_headers_are_strict() {
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let post = || Post::new(method, &json!({"taskId": "a~b~c~d"}));
        let strict = Front::with(
            |_| panic!("must not be called"),
            |parts| parts.strict_headers = true,
        );
        let answer = strict.send(post().without("mcp-name").build()).await;
        refused(&answer, 400, -32020);
        let lenient = Front::complete();
        let answer = lenient.send(post().without("mcp-name").build()).await;
        assert_eq!(answer.status, 200);
        let wrong = lenient.send(post().set("mcp-name", "a~b~c~x").build());
        refused(&wrong.await, 400, -32020);
        assert_eq!(lenient.send(post().build()).await.status, 200);
        assert_eq!(lenient.calls().len(), 2);
    }
}

#[tokio::test]
async fn mirrored_arguments_reach_the_call_undecoded() {
    let front = Front::complete();
    let post = Post::call()
        .header("Mcp-Param-City", "=?base64?SGVsbG8?=")
        .header("mcp-param-City", "two");
    assert_eq!(front.send(post.build()).await.status, 200);
    let params = [
        ("mcp-param-city", "=?base64?SGVsbG8?="),
        ("mcp-param-city", "two"),
    ];
    let expected = params.map(|(n, v)| (n.to_owned(), v.to_owned()));
    assert_eq!(front.calls()[0].headers.params, expected);
}

#[tokio::test]
async fn bytes_that_are_no_text_in_a_header_are_refused() {
    for name in [
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-param-x",
    ] {
        let mut request = Post::call().build();
        let value = http::HeaderValue::from_bytes(b"\xff").unwrap();
        let name: http::HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, value);
        refused(&Front::complete().send(request).await, 400, -32020);
    }
}

#[tokio::test]
async fn removed_methods_are_not_found() {
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    ] {
        let front = Front::new(|_| panic!("must not be called"));
        let answer = front.send(Post::new(method, &json!({})).build()).await;
        refused(&answer, 404, -32601);
    }
}

#[tokio::test]
async fn a_request_of_the_session_era_learns_the_supported_versions() {
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"},
    }});
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let version = "mcp-protocol-version";
    for (post, requested) in [
        (Post::raw(initialize.clone()), "2025-11-25"),
        (
            Post::raw(initialize).header(version, "2026-07-28"),
            "2025-11-25",
        ),
        (Post::raw(list.clone()), "2025-03-26"),
        (Post::raw(list).header(version, "2025-06-18"), "2025-06-18"),
    ] {
        let data = refused(&send(post).await, 400, -32022);
        let expected = json!({"supported": ["2026-07-28"], "requested": requested});
        assert_eq!(data, expected);
    }
}
