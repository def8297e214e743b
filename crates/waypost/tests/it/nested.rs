//! Upstreams that nest what they say without end: it is the sender's affair, never the process's.

use serde_json::{Value, json};
use waypost_testkit::client::Client;
use waypost_testkit::misbehave::nested::{Era, nested};

use crate::support::{SOON, Waypost, tool_names};

/// More than any stack holds of a reader that calls itself, in a text that is not long.
const LEVELS: usize = 6_000;

async fn is_up(waypost: &Waypost, client: &Client, after: &str) {
    let other = client.tool("n_other", json!({})).await.unwrap();
    assert_eq!(other.text(), "done", "after {after}: {:?}", other.answer);
    assert_eq!(waypost.admin("/healthz").await.status, 200, "after {after}");
}

/// What came, unread: most readers give up at such a depth.
async fn raw(client: &Client, method: &str, params: Value) -> String {
    let mut arriving = client.send(client.post(method, params)).await.unwrap();
    if !arriving.is_stream() {
        let reply = arriving.finish().await.unwrap();
        return String::from_utf8(reply.raw.to_vec()).unwrap();
    }
    let mut text = String::new();
    while let Some(event) = arriving.event().await.unwrap() {
        text.push_str(&event.data);
    }
    text
}

async fn check_task(waypost: &Waypost, client: &Client) {
    let made = client.tool("n_work", json!({ "how": "task" })).await;
    let made = made.unwrap();
    let handle = made.result()["taskId"].clone();
    assert!(handle.is_string(), "{made:?}");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({ "taskId": handle, "inputResponses": {} });
        let came = raw(client, method, params).await;
        assert!(came.contains("\"jsonrpc\""), "{method}: {came:.200}");
        is_up(waypost, client, method).await;
    }
}

async fn check(era: Era) {
    let server = nested(era, LEVELS).await.unwrap();
    let yaml = format!(
        "upstreams: {{ n: {{ url: '{}', pin: warn, \
         tools: {{ describe: {{ work: x }}, annotations: {{ work: {{ y: z }} }} }} }} }}",
        server.url
    );
    let waypost = Waypost::start(&yaml).await;
    assert!(waypost.daemon.ready(SOON).await);
    waypost.wait_for("n", "up").await;
    let client = waypost.client().with_tasks();
    // Who reads the list as a whole can read it.
    assert_eq!(tool_names(&client).await, ["n_other", "n_work"]);
    is_up(&waypost, &client, "a schema").await;
    waypost.admin("/api/v1/upstreams").await;
    waypost.admin("/api/v1/tools/pending").await;
    for how in ["result", "error", "told", "question"] {
        let params = json!({ "name": "n_work", "arguments": { "how": how },
            "_meta": { "progressToken": 1, "io.modelcontextprotocol/logLevel": "debug" } });
        let came = raw(&client, "tools/call", params).await;
        assert!(came.contains("\"jsonrpc\""), "{how}: {came:.200}");
        is_up(&waypost, &client, how).await;
    }
    if era == Era::Modern {
        check_task(&waypost, &client).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn what_an_upstream_nests_without_end_ends_no_process() {
    check(Era::Modern).await;
}

#[tokio::test]
async fn what_an_upstream_of_the_session_era_nests_without_end_ends_no_process() {
    check(Era::Session).await;
}

#[tokio::test]
async fn an_upstream_whose_extensions_nobody_could_read_keeps_them_to_itself() {
    let server = nested(Era::Discovered, LEVELS).await.unwrap();
    let good = nested(Era::Modern, LEVELS).await.unwrap();
    let yaml = format!(
        "upstreams: {{ bad: {{ url: '{}' }}, n: {{ url: '{}' }} }}\n\
         extensions: {{ expose: {{ com.example/x: [] }} }}",
        server.url, good.url
    );
    let waypost = Waypost::start(&yaml).await;
    waypost.wait_for("n", "up").await;
    waypost.wait_for("bad", "down").await;
    let why = waypost.upstream("bad").await["lastError"].to_string();
    assert!(why.contains("nested deeper than"), "{why}");
    let client = waypost.client();
    let said = client.call("server/discover", json!({})).await.unwrap();
    assert_eq!(said.result()["resultType"], "complete");
    is_up(&waypost, &client, "discovery").await;
    server.stop().await;
    good.stop().await;
}
