//! Subscriptions to single resources.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use waypost_config::config::Isolation;
use waypost_hub::call::Call;
use waypost_hub::reply::{Event, EventStream};
use waypost_wire::raw::Raw;

use super::kit::{Line, Played, object};
use crate::legacy::Legacy;

const WELCOME: &str = r#"{"result":{"protocolVersion":"2025-06-18","capabilities":
    {"resources":{"subscribe":true}}}}"#;

fn server() -> (Played, Legacy) {
    let server = Played::new();
    server.welcomes(Duration::ZERO, WELCOME);
    let legacy = server.legacy(Isolation::Shared, 9);
    (server, legacy)
}

/// Listens to these; the stream, and what was acknowledged.
async fn listens(legacy: &Legacy, uris: &[&str]) -> (EventStream, Vec<String>) {
    let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
    let call = Call::own("subscriptions/listen", object(&wanted));
    let mut events = legacy.call(call).await.unwrap().into_stream();
    let Some(Ok(Event::Notification(first))) = events.next().await else {
        panic!("no acknowledgement")
    };
    let honoured = first.params.get("notifications").unwrap().as_object();
    let honoured = honoured.unwrap();
    let uris = honoured.get("resourceSubscriptions");
    (events, uris.and_then(Raw::decode).unwrap_or_default())
}

async fn agrees(line: &Line, method: &str) -> String {
    let request = line.request(method).await;
    line.says(&json!({ "id": request["id"], "result": {} }));
    request["params"]["uri"].as_str().unwrap().to_owned()
}

async fn is_asked(line: &Line, method: &str, within: u64) -> Option<Value> {
    let asked = timeout(Duration::from_secs(within), line.request(method));
    asked.await.ok()
}

#[tokio::test(start_paused = true)]
async fn one_subscription_that_is_not_answered_holds_up_no_other() {
    let (server, legacy) = server();
    let started = Instant::now();
    let plays = async {
        let line = server.first().await;
        let silent = line.request("resources/subscribe").await;
        assert_eq!(silent["params"]["uri"], "x:1");
        for _ in 0..2 {
            agrees(&line, "resources/subscribe").await;
        }
        assert_eq!(started.elapsed(), Duration::ZERO);
        // Another client is not held up either.
        let other = listens(&legacy, &["x:4"]);
        let (other, _) = join(other, agrees(&line, "resources/subscribe")).await;
        assert_eq!(other.1, ["x:4"]);
        assert_eq!(started.elapsed(), Duration::ZERO);
        (line, other.0)
    };
    let listening = listens(&legacy, &["x:1", "x:2", "x:3"]);
    let ((_events, honoured), (line, _other)) = Box::pin(join(listening, plays)).await;
    assert_eq!(honoured, ["x:2", "x:3"]);
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    // It may have subscribed.
    let taken_back = is_asked(&line, "resources/unsubscribe", 10).await.unwrap();
    assert_eq!(taken_back["params"]["uri"], "x:1");
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_subscribed_to_once_and_until_the_last_has_gone() {
    let (server, legacy) = server();
    let first = async {
        let line = server.first().await;
        agrees(&line, "resources/subscribe").await
    };
    let (one, _) = join(listens(&legacy, &["x:1"]), first).await;
    let two = listens(&legacy, &["x:1"]).await;
    assert_eq!((&one.1, &two.1), (&vec!["x:1".to_owned()], &one.1));
    let line = server.line(0);
    assert!(is_asked(&line, "resources/subscribe", 1).await.is_none());
    drop(one);
    assert!(is_asked(&line, "resources/unsubscribe", 1).await.is_none());
    drop(two);
    agrees(&line, "resources/unsubscribe").await;
    let (three, _) = join(
        listens(&legacy, &["x:1"]),
        agrees(&line, "resources/subscribe"),
    )
    .await;
    assert_eq!(three.1, ["x:1"]);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_before_the_server_has_agreed_leaves_no_subscription() {
    let (server, legacy) = server();
    let legacy = Arc::new(legacy);
    let leaves = timeout(Duration::from_secs(1), listens(&legacy, &["x:1"]));
    let (left, line) = join(leaves, server.first()).await;
    assert!(left.is_err());
    agrees(&line, "resources/subscribe").await;
    let taken_back = is_asked(&line, "resources/unsubscribe", 1).await.unwrap();
    // Who comes meanwhile waits for the next answer.
    let comes = listens(&legacy, &["x:1"]);
    let plays = async {
        assert!(is_asked(&line, "resources/subscribe", 1).await.is_none());
        line.says(&json!({ "id": taken_back["id"], "result": {} }));
        agrees(&line, "resources/subscribe").await
    };
    let (came, _) = join(comes, plays).await;
    assert_eq!(came.1, ["x:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_for_ever() {
    let (server, legacy) = server();
    let refuses = async {
        let line = server.first().await;
        let request = line.request("resources/subscribe").await;
        let error = json!({ "code": -32602, "message": "m" });
        line.says(&json!({ "id": request["id"], "error": error }));
        line
    };
    let (refused, line) = join(listens(&legacy, &["x:1"]), refuses).await;
    assert!(refused.1.is_empty());
    let again = agrees(&line, "resources/subscribe");
    let (agreed, _) = join(listens(&legacy, &["x:1"]), again).await;
    assert_eq!(agreed.1, ["x:1"]);
}
