//! What an operator finds in the log.

use serde_json::{Value, json};
use waypost_testkit::misbehave::odd_sse::chatty_sse;

use crate::process::{Home, Served};

/// The line with this message that is about `request_id`.
async fn line(waypost: &Served, message: &str, request_id: &str) -> Value {
    let about = format!("\"{request_id}\"");
    let line = waypost.wait_for_log(&about).await;
    let log = waypost.log();
    let of_it = |line: &&str| line.contains(message) && line.contains(&about);
    let found = log.lines().find(of_it).unwrap_or(&line);
    serde_json::from_str(found).unwrap()
}

#[tokio::test]
async fn every_line_of_a_call_names_its_request_and_its_upstream() {
    let server = chatty_sse().await.unwrap();
    let upstreams = json!({ "good": { "url": server.url } });
    let home = Home::new(&json!({ "upstreams": upstreams }).to_string());
    let waypost = Served::start(&home).await;
    let client = waypost.client();
    let post = client.post(
        "tools/call",
        json!({ "name": "good_work", "arguments": {} }),
    );
    let post = post.header("x-request-id", "find-me");
    assert_eq!(client.ask(post).await.unwrap().status, 200);
    let audited = line(&waypost, "waypost::audit", "find-me").await;
    assert_eq!(audited["span"]["request_id"], "find-me", "{audited}");
    assert_eq!(audited.to_string().matches("find-me").count(), 1);
    assert_eq!(audited["span"]["upstream"], "good", "{audited}");
}
