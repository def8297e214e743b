//! Streams of a request that are cut before their answer.

use std::sync::Arc;
use std::time::Duration;

use super::fake::{Fake, Step, http};
use super::kit::{Moments, PROGRESS, answer, count, end, open, stream, usual};
use crate::fault::Fault;

/// A server whose `tools/call` begins with `first`, and whose GETs with a place do `then`.
async fn server(
    first: fn() -> Vec<Step>,
    then: impl Fn(&str, usize) -> Vec<Step> + Send + Sync + 'static,
) -> (Fake, Arc<Moments>) {
    let moments = Arc::new(Moments::default());
    let clock = Arc::clone(&moments);
    let resumed = std::sync::atomic::AtomicUsize::new(0);
    let fake = Fake::start(
        move |_, seen| match (seen.what(), seen.header("last-event-id")) {
            ("tools/call", _) => {
                clock.now();
                first()
            }
            ("GET", Some(place)) => {
                clock.now();
                let times = resumed.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                then(place, times)
            }
            _ => usual(seen),
        },
    )
    .await;
    (fake, moments)
}

#[tokio::test]
async fn a_stream_that_the_server_closed_is_asked_for_again_when_it_said() {
    let first = || {
        let text = format!("id: e1\nretry: 300\ndata:\n\nid: e2\n{PROGRESS}");
        vec![stream(&text), end()]
    };
    let (fake, moments) = server(first, |place, _| {
        assert_eq!(place, "e2");
        vec![
            stream(&format!("id: e3\n{PROGRESS}id: e4\n{}", answer("9"))),
            end(),
        ]
    })
    .await;
    let line = open(&fake).await;
    line.request(9, "tools/call").await.unwrap();
    let expected = [
        "on 9: notifications/progress",
        "on 9: notifications/progress",
        "on 9: 9 has {}",
    ];
    assert_eq!(line.notes.all()[1..], expected);
    let waited = moments.between(0, 1);
    assert!(waited >= Duration::from_millis(300), "{waited:?}");
    assert!(waited < Duration::from_millis(600), "{waited:?}");
    let seen = fake.requests();
    let resumed = seen
        .iter()
        .find(|seen| seen.header("last-event-id").is_some());
    assert_eq!(resumed.unwrap().header("mcp-session-id"), Some("s-1"));
    assert_eq!(count(&seen, "tools/call"), 1);
}

#[tokio::test]
async fn a_stream_that_broke_is_asked_for_until_the_answer_is_there() {
    let first = || vec![stream("id: a\nretry: 1\ndata:\n\n"), Step::Close];
    let (fake, _) = server(first, |_, times| match times {
        0 => vec![stream("id: b\ndata:\n\n"), end()],
        1 => vec![Step::Send(http("503 Busy", "text/plain", "").into_bytes())],
        2 => vec![stream(PROGRESS), Step::Close],
        _ => vec![stream(&answer("2")), end()],
    })
    .await;
    let line = open(&fake).await;
    line.request(2, "tools/call").await.unwrap();
    let expected = ["on 2: notifications/progress", "on 2: 2 has {}"];
    assert_eq!(line.notes.all()[1..], expected);
    let seen = fake.requests();
    let places = seen.iter().filter_map(|seen| seen.header("last-event-id"));
    assert_eq!(places.collect::<Vec<_>>(), ["a", "b", "b", "b"]);
}

#[tokio::test]
async fn an_initialize_can_be_cut_too() {
    let fake = Fake::start(
        |_, seen| match (seen.what(), seen.header("last-event-id")) {
            ("initialize", _) => {
                let head = super::kit::with_session(super::fake::STREAM, "s-9");
                let text = super::fake::chunk("id: a\nretry: 1\ndata:\n\n");
                vec![Step::Send(format!("{head}{text}").into_bytes()), end()]
            }
            ("GET", Some("a")) => {
                assert_eq!(seen.header("mcp-session-id"), Some("s-9"));
                vec![stream(&answer("0")), end()]
            }
            _ => usual(seen),
        },
    )
    .await;
    let line = open(&fake).await;
    assert_eq!(line.notes.all(), ["on 0: 0 has {}"]);
}

#[tokio::test]
async fn a_stream_without_a_place_ends_with_its_connection() {
    for (first, expected) in [
        (
            (|| vec![stream(PROGRESS), end()]) as fn() -> Vec<Step>,
            "the stream ended without an answer",
        ),
        (
            || vec![stream("retry: 1\ndata:\n\n"), Step::Close],
            "closed the connection before the answer was complete",
        ),
    ] {
        let (fake, _) = server(first, |_, _| panic!("asked for a place")).await;
        let line = open(&fake).await;
        let fault = line.request(1, "tools/call").await.unwrap_err();
        assert_eq!(fault.to_string(), expected);
        assert!(!fault.not_executed());
    }
}

#[tokio::test]
async fn a_rest_that_is_refused_is_no_lost_session() {
    for status in ["404 Not Found", "405 Method Not Allowed", "400 Bad Request"] {
        let first = || vec![stream("id: a\nretry: 1\ndata:\n\n"), end()];
        let (fake, _) = server(first, move |_, _| {
            let answer = http(status, "text/plain", "Session not found");
            vec![Step::Send(answer.into_bytes())]
        })
        .await;
        let line = open(&fake).await;
        let fault = line.request(1, "tools/call").await.unwrap_err();
        assert!(matches!(fault, Fault::NoEnd), "{status}: {fault:?}");
        // Nothing else was lost with it.
        line.request(2, "tools/list").await.unwrap();
    }
}
