//! Answers that stream.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::BodyDataStream;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::service_fn;
use tower::util::BoxCloneSyncService;
use waypost_front::{Endpoints, Routes};
use waypost_hub::call::Call;
use waypost_hub::error::{CallError, Kind};
use waypost_hub::reply::{End, Event, EventStream, Reply};
use waypost_wire::message::Notification;

use crate::fake::{Front, Post, object, parts};

type Item = Result<Event, CallError>;

fn progress(n: u32) -> Item {
    Ok(Event::Notification(Notification {
        method: "notifications/progress".to_owned(),
        params: object(&json!({"progressToken": "p", "progress": n})),
    }))
}

fn done() -> Item {
    let result = object(&json!({"resultType": "complete"}));
    Ok(Event::End(End::Complete(result)))
}

/// Events, each after so many seconds of silence; then silence for ever, should none be an end.
fn timed(items: Vec<(u64, Item)>) -> EventStream {
    stream::iter(items)
        .then(|(seconds, item)| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            item
        })
        .chain(stream::pending())
        .boxed()
}

fn streams(items: impl Fn() -> Vec<(u64, Item)> + Send + Sync + Clone + 'static) -> Front {
    Front::new(move |_| Ok(Reply::Stream(timed(items()))))
}

const RESULT: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}"#;

fn result() -> Value {
    serde_json::from_str(RESULT).unwrap()
}

#[tokio::test]
async fn notifications_then_the_answer_are_events() {
    let front = streams(|| vec![(0, progress(1)), (0, progress(2)), (0, done())]);
    let answer = front.send(Post::call().build()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    assert_eq!(answer.header("content-length"), None);
    let progress = |n: u32| {
        json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": "p", "progress": n}})
    };
    assert_eq!(answer.events(), [progress(1), progress(2), result()]);
}

#[tokio::test]
async fn a_stream_of_only_the_answer_is_json() {
    let front = streams(|| vec![(0, done())]);
    let answer = front.send(Post::call().build()).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.text, RESULT);
}

#[tokio::test]
async fn r43_a_client_of_json_only_waits_for_the_answer() {
    let front = streams(|| vec![(0, progress(1)), (0, done())]);
    let post = || Post::call().set("accept", "application/json");
    let answer = front.send(post().build()).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.text, RESULT);
    let listen = Post::new("subscriptions/listen", &json!({})).set("accept", "application/json");
    assert_eq!(front.send(listen.build()).await.refusal(), (406, -32600));
}

/// The chunks of a body and the seconds at which they came, until the body ends or is silent.
async fn chunks(mut body: BodyDataStream, silent: u64) -> Vec<(u64, String)> {
    let start = Instant::now();
    let mut seen = Vec::new();
    let wait = Duration::from_secs(silent);
    while let Ok(Some(chunk)) = tokio::time::timeout(wait, body.next()).await {
        let text = String::from_utf8(chunk.unwrap().to_vec()).unwrap();
        seen.push((start.elapsed().as_secs(), text));
    }
    seen
}

const COMMENT: &str = ": keep-alive\n\n";

#[tokio::test(start_paused = true)]
async fn r4_a_silent_call_becomes_a_stream_that_is_kept_alive() {
    let front = streams(|| vec![(40, done())]);
    let start = Instant::now();
    let response = front.head(Post::call().build()).await;
    assert_eq!(start.elapsed(), Duration::from_secs(15));
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let seen = chunks(response.into_body().into_data_stream(), 60).await;
    let event = format!("event: message\ndata: {RESULT}\n\n");
    let expected = [(0, COMMENT), (15, COMMENT), (25, event.as_str())];
    assert_eq!(seen, expected.map(|(at, text)| (at, text.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn r4_comments_come_only_after_silence() {
    let front = streams(|| {
        vec![
            (0, progress(1)),
            (10, progress(2)),
            (10, progress(3)),
            (20, done()),
        ]
    });
    let response = front.head(Post::call().build()).await;
    let seen = chunks(response.into_body().into_data_stream(), 60).await;
    let at: Vec<(u64, bool)> = seen
        .iter()
        .map(|(at, text)| (*at, text == COMMENT))
        .collect();
    assert_eq!(
        at,
        [
            (0, false),
            (10, false),
            (20, false),
            (35, true),
            (40, false)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn r4_zero_turns_comments_off() {
    let front = Front::with(
        |_| {
            Ok(Reply::Stream(timed(vec![
                (100, progress(1)),
                (100, done()),
            ])))
        },
        |parts| parts.keep_alive = Duration::ZERO,
    );
    let start = Instant::now();
    let response = front.head(Post::call().build()).await;
    assert_eq!(start.elapsed(), Duration::from_secs(100));
    let seen = chunks(response.into_body().into_data_stream(), 200).await;
    assert_eq!(seen.len(), 2, "no comments: {seen:?}");
}

#[tokio::test]
async fn the_first_event_is_there_with_the_head() {
    let front = streams(|| vec![(0, progress(1))]);
    let response = front.head(Post::call().build()).await;
    let mut body = response.into_body().into_data_stream();
    let first = body.next().now_or_never().flatten();
    assert!(first.unwrap().unwrap().starts_with(b"event: message\n"));
}

#[tokio::test]
async fn a_failure_in_mid_stream_is_an_error_event() {
    let failure = || CallError::upstream(Kind::Timeout, &"builds".into()).source("secret");
    let front = streams(move || vec![(0, progress(1)), (0, Err(failure()))]);
    let answer = front.send(Post::call().build()).await;
    let events = answer.events();
    assert_eq!(events.len(), 2);
    assert_eq!(events[1]["id"], 1);
    let error = json!({"code": -32603, "message": "upstream `builds`: no answer in time",
        "data": {"kind": "timeout", "upstream": "builds", "retryable": false}});
    assert_eq!(events[1]["error"], error);
}

#[tokio::test]
async fn a_stream_that_stops_without_an_end_ends_in_an_error() {
    let front = Front::new(|_| Ok(Reply::Stream(stream::iter([progress(1)]).boxed())));
    let events = front.send(Post::call().build()).await.events();
    assert_eq!(events[1]["error"]["data"]["kind"], "bad_upstream");
    let empty = Front::new(|_| Ok(Reply::Stream(stream::empty().boxed())));
    for accept in ["*/*", "application/json"] {
        let post = Post::call().set("accept", accept);
        let answer = empty.send(post.build()).await;
        assert_eq!(answer.refusal(), (200, -32603));
    }
}

#[tokio::test]
async fn nothing_follows_the_end() {
    let front = streams(|| vec![(0, progress(1)), (0, done()), (0, progress(2)), (0, done())]);
    let events = front.send(Post::call().build()).await.events();
    assert_eq!(events.len(), 2);
}

/// Tells when it is dropped.
#[derive(Clone)]
struct Dropped(Arc<AtomicBool>);

struct Held {
    events: EventStream,
    dropped: Dropped,
}

impl Stream for Held {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.events.poll_next_unpin(cx)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.dropped.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_drops_the_reply() {
    for seconds in [0, 60] {
        let dropped = Dropped(Arc::default());
        let flag = dropped.clone();
        let front = Front::new(move |_| {
            let held = Held {
                events: timed(vec![(seconds, progress(1))]),
                dropped: flag.clone(),
            };
            Ok(Reply::Stream(held.boxed()))
        });
        let response = front.head(Post::call().build()).await;
        let mut body = response.into_body().into_data_stream();
        assert!(body.next().await.is_some());
        assert!(!dropped.0.load(Ordering::SeqCst));
        drop(body);
        assert!(
            dropped.0.load(Ordering::SeqCst),
            "dropping the body cancels"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_before_the_head_drops_the_call() {
    for accept in ["*/*", "application/json"] {
        let dropped = Dropped(Arc::default());
        let flag = dropped.clone();
        let mut parts = parts(|_| panic!("replaced"));
        parts.calls = BoxCloneSyncService::new(service_fn(move |_: Call| {
            let held = Held {
                events: stream::pending().boxed(),
                dropped: flag.clone(),
            };
            async move {
                let held = held;
                std::future::pending::<()>().await;
                drop(held);
                Err(CallError::no_end())
            }
        }));
        let router = Routes::new(Endpoints::new(parts));
        let request = Post::call().set("accept", accept).build();
        let request = tower::ServiceExt::oneshot(router, request);
        let waited = tokio::time::timeout(Duration::from_secs(1), request).await;
        assert!(waited.is_err(), "no answer yet");
        assert!(dropped.0.load(Ordering::SeqCst));
    }
}

#[tokio::test]
async fn line_breaks_in_raw_values_do_not_break_events() {
    let raw = "{\"a\":[1,\r\n\r\n2],\"b\":\"\\n\"}";
    let front = Front::new(move |_| {
        let params = waypost_wire::object::Object::parse(&raw.into()).unwrap();
        let event = Event::Notification(Notification {
            method: "notifications/message".to_owned(),
            params,
        });
        Ok(Reply::Stream(stream::iter([Ok(event), done()]).boxed()))
    });
    let events = front.send(Post::call().build()).await.events();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0]["params"], json!({"a": [1, 2], "b": "\n"}));
}
