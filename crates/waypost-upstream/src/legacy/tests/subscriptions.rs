//! Subscriptions to single resources.

mod leaving;
mod places;
mod refusals;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use waypost_config::config::Isolation;
use waypost_hub::call::{Call, Session};
use waypost_hub::reply::{End, Event, EventStream, Reply};
use waypost_wire::raw::Raw;

use super::kit::{Line, Played, object};
use crate::legacy::{Legacy, Places};

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

fn awaiting(uri: &str) -> Call {
    let wanted = json!({ "notifications": { "resourceSubscriptions": [uri] } });
    let mut call = Call::own("subscriptions/listen", object(&wanted));
    call.awaits_servers = true;
    call
}

/// A client with a session of its own.
fn client(name: &str) -> Session {
    Session::new(name, CancellationToken::new())
}

fn in_session(client: &Session, uri: &str) -> Call {
    let mut call = awaiting(uri);
    call.session = Some(client.clone());
    call
}

/// As [`server`], with so many places for what is unanswered.
fn crowded(places: usize) -> (Played, Legacy) {
    let server = Played::new();
    server.welcomes(Duration::ZERO, WELCOME);
    let legacy = server.legacy_at(Isolation::Shared, 9, &Places::new(places));
    (server, legacy)
}

/// The server agrees to the next of these and leaves what it is asked before.
async fn who_agrees(line: &Line, begins: &str) {
    let is_it = |said: &Value| {
        let uri = said["params"]["uri"].as_str().unwrap_or_default();
        said["method"] == "resources/subscribe" && uri.starts_with(begins)
    };
    let request = line.hears(is_it).await;
    line.says(&json!({ "id": request["id"], "result": {} }));
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
    let ((events, honoured), (line, _other)) = Box::pin(join(listening, plays)).await;
    // What the server is still asked for will be told of.
    assert_eq!(honoured, ["x:1", "x:2", "x:3"]);
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    drop(events);
    for _ in 0..2 {
        agrees(&line, "resources/unsubscribe").await;
    }
    // It may have subscribed, which is taken back once that is known, or not in time.
    let waited = is_asked(&line, "resources/unsubscribe", 20).await;
    assert_eq!(waited, None);
    assert!(is_asked(&line, "resources/unsubscribe", 20).await.is_some());
}

/// Begins to listen to `x:1` at a server that has not answered when that is acknowledged.
async fn listens_early(legacy: &Legacy, server: &Played) -> (EventStream, Arc<Line>, Value) {
    let asked = async {
        let line = server.first().await;
        let request = line.request("resources/subscribe").await;
        (line, request)
    };
    let ((events, honoured), (line, request)) = join(listens(legacy, &["x:1"]), asked).await;
    assert_eq!(honoured, ["x:1"]);
    (events, line, request)
}

#[tokio::test(start_paused = true)]
async fn what_is_agreed_to_late_is_told_as_changed_and_heard_from_then_on() {
    let (server, legacy) = server();
    let (mut events, line, request) = listens_early(&legacy, &server).await;
    sleep(Duration::from_secs(40)).await;
    line.says(&json!({ "id": request["id"], "result": {} }));
    let updated = json!({ "method": "notifications/resources/updated",
        "params": { "uri": "x:1" } });
    for _ in 0..2 {
        let told = timeout(Duration::from_secs(1), events.next())
            .await
            .unwrap();
        let Some(Ok(Event::Notification(told))) = told else {
            panic!("{told:?}")
        };
        assert_eq!(told.method, "notifications/resources/updated");
        assert_eq!(told.params.string("uri").as_deref(), Some("x:1"));
        line.says(&updated);
    }
    assert!(is_asked(&line, "resources/subscribe", 10).await.is_none());
    drop(events);
    agrees(&line, "resources/unsubscribe").await;
}

#[tokio::test(start_paused = true)]
async fn what_is_never_answered_is_asked_again() {
    let (server, legacy) = server();
    let (_events, line, _) = listens_early(&legacy, &server).await;
    let again = timeout(
        Duration::from_secs(700),
        agrees(&line, "resources/subscribe"),
    );
    assert_eq!(again.await.unwrap(), "x:1");
}

#[tokio::test(start_paused = true)]
async fn who_awaits_the_server_gets_its_own_answer() {
    let (server, legacy) = server();
    let refusal = json!({ "code": -32002, "message": "no such page" });
    let plays = async {
        let line = server.first().await;
        for answer in [json!({ "result": {} }), json!({ "error": refusal })] {
            let mut answer = answer;
            answer["id"] = line.request("resources/subscribe").await["id"].clone();
            sleep(Duration::from_secs(50)).await;
            line.says(&answer);
        }
    };
    let asks = async {
        let agreed = legacy.call(awaiting("x:1")).await.unwrap();
        assert!(matches!(agreed, Reply::Stream(_)), "{agreed:?}");
        let refused = legacy.call(awaiting("x:2")).await.unwrap();
        let Reply::End(End::Error(error)) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(
            (error.said(), &*error.message()),
            (Some(-32002), "no such page")
        );
    };
    join(asks, plays).await;
}

#[tokio::test(start_paused = true)]
async fn many_at_a_slow_server_all_stand_in_the_end() {
    let (server, legacy) = server();
    let uris: Vec<String> = (0..40).map(|n| format!("x:{n}")).collect();
    let wanted: Vec<&str> = uris.iter().map(String::as_str).collect();
    let asked = async {
        let line = server.first().await;
        let mut stands = Vec::new();
        while stands.len() < 40 {
            let mut open = Vec::new();
            while let Some(request) = is_asked(&line, "resources/subscribe", 3).await {
                open.push(request);
            }
            assert!((1..=16).contains(&open.len()), "{} at once", open.len());
            for request in open {
                line.says(&json!({ "id": request["id"], "result": {} }));
                stands.push(request["params"]["uri"].as_str().unwrap().to_owned());
            }
        }
        stands
    };
    let ((_events, honoured), mut stands) = join(listens(&legacy, &wanted), asked).await;
    assert_eq!(honoured, wanted);
    stands.sort();
    let mut expected = uris.clone();
    expected.sort();
    assert_eq!(stands, expected);
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
async fn who_awaits_the_server_gets_no_failure_of_before() {
    let (server, legacy) = server();
    let (_events, line, _) = listens_early(&legacy, &server).await;
    // The first request has failed, and the next one is not due.
    sleep(Duration::from_millis(598_100)).await;
    assert!(is_asked(&line, "resources/subscribe", 0).await.is_none());
    let before = Instant::now();
    let asks = legacy.call(awaiting("x:1"));
    let (answer, asked) = join(asks, agrees(&line, "resources/subscribe")).await;
    assert_eq!(asked, "x:1");
    assert!(matches!(answer, Ok(Reply::Stream(_))), "{answer:?}");
    assert!(before.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn who_awaits_the_server_does_not_notice_that_it_lost_the_session() {
    let (server, legacy) = server();
    let plays = async {
        let line = server.first().await;
        line.request("resources/subscribe").await;
        line.is_forgotten();
        while server.dialled() < 2 {
            sleep(Duration::from_millis(1)).await;
        }
        agrees(&server.line(1), "resources/subscribe").await
    };
    let (answer, asked) = join(legacy.call(awaiting("x:1")), plays).await;
    assert_eq!(asked, "x:1");
    assert!(matches!(answer, Ok(Reply::Stream(_))), "{answer:?}");
}
