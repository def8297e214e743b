//! The admin listener as operators and probes meet it.

use serde_json::{Value, json};
use waypost_testkit::client::Client;
use waypost_testkit::demo::{demo_all, tasks};
use waypost_testkit::misbehave::legacy_only::{Sdk, legacy_only};
use waypost_testkit::run::ANY_PORT;

use crate::support::{SOON, Waypost};

#[tokio::test]
async fn upstreams_show_what_they_are_and_no_secret() {
    let demo = demo_all(ANY_PORT, tasks::Options::default()).await.unwrap();
    let yaml = format!(
        "upstreams: {{ demo: {{ url: '{}?key=canary-query', headers: {{ X-Key: canary-header }} }} }}",
        demo.url
    );
    let waypost = Waypost::start(&yaml).await;
    assert!(waypost.daemon.ready(SOON).await);
    waypost.wait_for("demo", "up").await;
    let demo_entry = waypost.upstream("demo").await;
    assert_eq!(demo_entry["era"], "modern");
    assert_eq!(demo_entry["versions"], json!(["2026-07-28"]));
    assert_eq!(
        demo_entry["extensions"]["io.modelcontextprotocol/tasks"],
        json!({})
    );
    assert!(demo_entry["tools"].as_u64().unwrap() > 5);
    assert!(demo_entry["prompts"].as_u64().unwrap() > 0);
    for path in ["/api/v1/upstreams", "/metrics", "/readyz", "/nothing"] {
        let reply = waypost.admin(path).await;
        let text = String::from_utf8(reply.raw.to_vec()).unwrap();
        assert!(!text.contains("canary"), "{path}: {text}");
    }
    demo.stop().await;
}

#[tokio::test]
async fn a_server_of_the_session_era_is_reported_with_its_version() {
    let legacy = legacy_only(Sdk::Python).await.unwrap();
    let upstreams = format!("upstreams: {{ old: {{ url: '{}' }} }}", legacy.url);
    let waypost = Waypost::start(&upstreams).await;
    waypost.wait_for("old", "up").await;
    let old = waypost.upstream("old").await;
    assert_eq!(old["era"], "legacy");
    assert_eq!(old["protocol"], "2025-11-25");
    legacy.stop().await;
}

#[tokio::test]
async fn probes_have_both_of_their_usual_names() {
    let waypost = Waypost::start("{}").await;
    for path in ["/healthz", "/health", "/readyz", "/ready"] {
        assert_eq!(waypost.admin(path).await.status, 200, "{path}");
    }
    assert_eq!(waypost.admin("/mcp").await.status, 404);
    // Nothing of it is to be had where clients are.
    let mcp = waypost.daemon.mcp;
    for path in ["/healthz", "/metrics", "/api/v1/upstreams"] {
        assert_eq!(
            crate::support::get(&format!("http://{mcp}{path}"))
                .await
                .status,
            404,
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_token_is_asked_for_once_it_is_set() {
    let yaml = "admin: { listen: 127.0.0.1:0, token: 0123456789abcdef0123456789abcdef }";
    let waypost = Waypost::start(yaml).await;
    assert_eq!(waypost.admin("/api/v1/upstreams").await.status, 401);
    assert_eq!(waypost.admin("/readyz").await.status, 200);
    let client = Client::new(format!("http://{}/api/v1/upstreams", waypost.daemon.admin));
    let mut post = client.post("", Value::Null).raw("");
    post.http_method = http::Method::GET;
    let post = post.header("authorization", "Bearer 0123456789abcdef0123456789abcdef");
    assert_eq!(client.ask(post).await.unwrap().status, 200);
}

#[tokio::test]
async fn calls_are_counted() {
    let demo = demo_all(ANY_PORT, tasks::Options::default()).await.unwrap();
    let waypost = Waypost::start(&format!(
        "upstreams: {{ counted: {{ url: '{}' }} }}",
        demo.url
    ))
    .await;
    assert!(waypost.daemon.ready(SOON).await);
    let client = waypost.client();
    client
        .tool("counted_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    let reply = waypost.admin("/metrics").await;
    let text = String::from_utf8(reply.raw.to_vec()).unwrap();
    let mut lines = text.lines();
    let line = lines.find(|line| {
        line.starts_with("waypost_upstream_calls_total")
            && ["counted", "tools/call", "greet", "complete"]
                .iter()
                .all(|label| line.contains(label))
    });
    assert!(line.is_some_and(|line| line.ends_with(" 1")), "{text}");
    assert!(
        text.contains("waypost_upstream_up{upstream=\"counted\"} 1"),
        "{text}"
    );
    let parked = "waypost_upstream_parked_calls{upstream=\"counted\"} 0";
    assert!(text.contains(parked), "{text}");
    demo.stop().await;
}

#[tokio::test]
async fn who_is_not_ready_says_whom_it_misses() {
    let waypost = Waypost::start(
        "upstreams: { gone: { url: 'http://127.0.0.1:1/mcp', required: true }, \
         other: { url: 'http://127.0.0.1:1/mcp' } }",
    )
    .await;
    let reply = waypost.admin("/readyz").await;
    assert_eq!(reply.status, 503);
    let said: Value = serde_json::from_slice(&reply.raw).unwrap();
    assert_eq!(said["missing"], json!(["gone"]), "{said}");
}
