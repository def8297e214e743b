//! Headers that are there twice.

use http::Method;
use serde_json::{Value, json};

use crate::fake::{Answer, Front, Post, read};
use crate::peer::{LATEST, OLDEST, Peer, front, initialize, post, request, text};

fn ok() -> Front {
    front(|_| Ok(text("ok")))
}

fn list() -> Value {
    request("l", "tools/list", &json!({}))
}

#[track_caller]
fn refused(answer: &Answer, header: &str) {
    assert_eq!(answer.refusal(), (400, -32600), "{}", answer.text);
    let said = format!("`{header}` is there more than once, with different values");
    assert!(answer.text.contains(&said), "{}", answer.text);
}

#[tokio::test]
async fn r21_a_request_of_two_sessions_is_of_none() {
    let front = ok();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let other = Peer::open(&front, LATEST, &json!({})).await;
    let both = [("mcp-session-id", &*other.id)];
    let answer = read(peer.send(Method::POST, &both, &list().to_string()).await).await;
    refused(&answer, "mcp-session-id");
    assert_eq!(answer.json()["id"], "l");
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let answer = read(peer.send(Method::POST, &both, &told.to_string()).await).await;
    refused(&answer, "mcp-session-id");
    for method in [Method::GET, Method::DELETE] {
        refused(
            &read(peer.send(method, &both, "").await).await,
            "mcp-session-id",
        );
    }
    assert!(front.calls().iter().all(|call| call.method != "tools/list"));
    for peer in [&peer, &other] {
        assert_eq!(peer.post(&list()).await.status, 200, "none was ended");
    }
    // Twice the same says one thing; and who opens a new session says nothing with an old id.
    let same = [("mcp-session-id", &*peer.id)];
    let answer = peer.send(Method::POST, &same, &list().to_string()).await;
    assert_eq!(answer.status(), 200);
    let fresh = initialize(LATEST, &json!({})).to_string();
    assert_eq!(peer.send(Method::POST, &both, &fresh).await.status(), 200);
    let ended = peer.send(Method::DELETE, &same, "").await;
    assert_eq!(ended.status(), 204);
}

#[tokio::test]
async fn a_message_of_two_versions_is_refused() {
    let version = "mcp-protocol-version";
    let front = ok();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let answered = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
    for second in [OLDEST, crate::fake::MODERN] {
        let both = [(version, second)];
        for body in [list(), told.clone(), answered.clone()] {
            let answer = read(peer.send(Method::POST, &both, &body.to_string()).await).await;
            refused(&answer, version);
        }
        for method in [Method::GET, Method::DELETE] {
            refused(&read(peer.send(method, &both, "").await).await, version);
        }
        let two = [(version, LATEST), (version, second)];
        refused(
            &post(&front.router, &two, &initialize(LATEST, &json!({}))).await,
            version,
        );
    }
    let same = [(version, LATEST)];
    for body in [list(), told, answered] {
        let answer = peer.send(Method::POST, &same, &body.to_string()).await;
        assert!(answer.status().is_success(), "{body}");
    }
    // In a stateless request the header must be what the body says, once.
    let modern = front
        .send(Post::call().header(version, LATEST).build())
        .await;
    assert_eq!(modern.refusal(), (400, -32020));
}

#[tokio::test]
async fn a_stream_cannot_go_on_in_two_places() {
    let front = ok();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let mut stream = peer.get(None).await;
    stream.event().await.expect("one that primes");
    let last = stream.last.clone().unwrap();
    let same = [("last-event-id", &*last), ("last-event-id", &*last)];
    assert_eq!(peer.send(Method::GET, &same, "").await.status(), 200);
    let both = [("last-event-id", &*last), ("last-event-id", "x")];
    refused(
        &read(peer.send(Method::GET, &both, "").await).await,
        "last-event-id",
    );
}
