//! Who gets through the door, and what never goes out by it.

use serde_json::{Value, json};
use waypost_testkit::client::Client;
use waypost_testkit::misbehave::echo::echo;
use waypost_tests::gateway::Gateway;

use crate::support::get;

#[tokio::test]
async fn r27_nothing_of_a_clients_headers_reaches_a_server() {
    let server = echo().await.unwrap();
    let upstreams = format!(
        "own: {{ url: '{url}', headers: {{ Authorization: Bearer upstream, X-Api-Key: theirs }} }}\n\
         none: {{ url: '{url}' }}",
        url = server.url
    );
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    for (tool, authorization, key) in [
        ("own_work", Some("Bearer upstream"), Some("theirs")),
        ("none_work", None, None),
    ] {
        let mut post = client.post("tools/call", json!({ "name": tool, "arguments": {} }));
        for name in [
            "authorization",
            "cookie",
            "x-api-key",
            "x-custom",
            "x-forwarded-for",
            "x-real-ip",
            "te",
            "via",
            "mcp-session-id",
            "user-agent",
            "origin-agent-cluster",
        ] {
            post = post.header(name, "of-the-client");
        }
        let reply = client.ask(post).await.unwrap();
        let headers = reply.result()["structuredContent"]["headers"]
            .as_array()
            .unwrap();
        let values = |name: &str| {
            let of_name = headers.iter().filter(|pair| pair[0] == name);
            of_name
                .map(|pair| pair[1].as_str().unwrap())
                .collect::<Vec<_>>()
        };
        assert!(
            !Value::Array(headers.clone())
                .to_string()
                .contains("of-the-client"),
            "{headers:?}"
        );
        assert_eq!(values("authorization"), Vec::from_iter(authorization));
        assert_eq!(values("x-api-key"), Vec::from_iter(key));
        assert_eq!(values("host"), [server.address.to_string()]);
        assert_eq!(values("mcp-name"), ["work"]);
        assert_eq!(values("content-type"), ["application/json"]);
    }
}

#[tokio::test]
async fn r15_oauth_is_looked_for_in_vain_and_told_so_in_json() {
    let gateway = Gateway::start("{}").await.unwrap();
    let root = gateway.url.trim_end_matches("/mcp");
    let mut paths = vec!["/register".to_owned(), "/mcp/.well-known/x".to_owned()];
    for kind in [
        "oauth-protected-resource",
        "oauth-authorization-server",
        "openid-configuration",
    ] {
        paths.push(format!("/.well-known/{kind}"));
        paths.push(format!("/.well-known/{kind}/mcp"));
        paths.push(format!("/mcp/.well-known/{kind}"));
    }
    for path in paths {
        let reply = get(&format!("{root}{path}")).await;
        assert_eq!(reply.status, 404, "{path}");
        assert_eq!(reply.headers["content-type"], "application/json", "{path}");
        assert!(reply.answer.is_object(), "{path}: {:?}", reply.raw);
    }
    // Whoever comes with a key all the same is served: there are none to be wrong.
    let client = Client::new(&gateway.url);
    let post = client.post("server/discover", json!({}));
    let reply = client.ask(post.header("authorization", "Bearer any")).await;
    assert_eq!(reply.unwrap().status, 200);
}

#[tokio::test]
async fn r32_hosts_and_origins_are_those_of_the_file() {
    let more = "front: { allowed_hosts: [gw.internal], allowed_origins: ['https://app.example'] }";
    let gateway = Gateway::with("{}", more).await.unwrap();
    let client = Client::new(&gateway.url);
    let rows = [
        ("host", "localhost:8080", 200),
        ("host", "127.0.0.1", 200),
        ("host", "[::1]:8080", 200),
        ("host", "gw.internal", 200),
        ("host", "gw.internal:443", 200),
        ("host", "evil.example", 403),
        ("origin", "https://app.example", 200),
        ("origin", "https://app.example.evil.test", 403),
        ("origin", "null", 403),
    ];
    for (name, value, status) in rows {
        let post = client
            .post("server/discover", json!({}))
            .header(name, value);
        let reply = client.ask(post).await.unwrap();
        assert_eq!(reply.status, status, "{name}: {value}");
        if status == 403 {
            let key = format!("allowed_{name}s");
            assert!(reply.answer.to_string().contains(&key), "{}", reply.answer);
        }
    }
}

#[tokio::test]
async fn a_client_of_an_era_that_is_switched_off_learns_what_is_spoken_here() {
    let gateway = Gateway::with("{}", "front: { eras: [modern] }")
        .await
        .unwrap();
    let client = Client::new(&gateway.url);
    let body = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } },
    });
    let post = client.post("initialize", json!({})).raw(body.to_string());
    let post = post.without("mcp-protocol-version").without("mcp-method");
    let reply = client.ask(post).await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.code()), (400, -32022));
    let data = &reply.answer["error"]["data"];
    assert_eq!(data["supported"], json!(["2026-07-28"]));
    assert_eq!(data["requested"], "2025-11-25");
}
