//! What a session's requests do when something below them breaks, and under which name.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::peer::{LATEST, Peer, front, request, text};

#[tokio::test]
async fn a_call_that_panics_is_answered_and_its_id_is_free_again() {
    let front = front(|call| match call.params.string("name") {
        Some(name) if name == "broken" => panic!("a bug"),
        _ => Ok(text("ok")),
    });
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let call = |name: &str| request(1, "tools/call", &json!({ "name": name }));
    let answer = peer.post(&call("broken")).await;
    assert_eq!(answer.refusal(), (200, -32603));
    assert_eq!(answer.json()["id"], 1);
    assert_eq!(answer.json()["error"]["data"]["kind"], "internal");
    let answer = peer.post(&call("whole")).await;
    assert_eq!(answer.json()["result"]["content"][0]["text"], "ok");
}

#[tokio::test]
async fn a_call_of_a_session_runs_in_the_span_of_its_request() {
    let _log = tracing_subscriber::registry().set_default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let spans = Arc::clone(&seen);
    let front = front(move |_| {
        let span = tracing::Span::current();
        let has = |name| span.has_field(name);
        let name = span.metadata().map(|metadata| metadata.name());
        spans
            .lock()
            .unwrap()
            .push((name, has("request_id") && has("upstream")));
        Ok(text("ok"))
    });
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let answer: Value = peer.ask("tools/call", &json!({})).await.json();
    assert!(answer["result"].is_object());
    assert_eq!(*seen.lock().unwrap(), [(Some("request"), true)]);
}
