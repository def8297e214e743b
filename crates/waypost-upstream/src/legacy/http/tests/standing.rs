//! The stream on which the server speaks unasked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::fake::{Fake, Step, http};
use super::kit::{
    Moments, PROGRESS, TOO_MUCH, count, end, in_time, more, open, stream, until, usual,
};

/// A server whose GETs do this; the number counts them from 0.
async fn server(get: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> Fake {
    let gets = AtomicUsize::new(0);
    Fake::start(move |_, seen| match seen.what() {
        "GET" => get(gets.fetch_add(1, Ordering::SeqCst)),
        _ => usual(seen),
    })
    .await
}

const CHANGED: &str =
    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";

#[tokio::test]
async fn what_the_server_says_unasked_is_heard() {
    let told = Arc::new(Notify::new());
    let tell = Arc::clone(&told);
    let fake = server(move |_| {
        let ask = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n";
        vec![
            stream(": hi\n\nid: a\ndata:\n\n"),
            Step::When(Arc::clone(&tell)),
            more(&format!("{CHANGED}: still here\n\n{ask}data: junk\n\n")),
            more("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":[}\n\n"),
            Step::Hang,
        ]
    })
    .await;
    let line = open(&fake).await;
    assert_eq!(line.notes.all().len(), 1);
    told.notify_one();
    let notes = line.notes.first(4).await;
    assert_eq!(notes[1], "notifications/tools/list_changed");
    assert_eq!(notes[2], "1 asks ping");
    assert!(notes[3].starts_with("spoiled 7: the answer is not valid"));
    let mut gone = fake.gone.clone();
    in_time(line.link.close()).await;
    in_time(gone.wait_for(|gone| *gone == 1)).await.unwrap();
}

#[tokio::test]
async fn a_failure_inside_leaves_nobody_deaf() {
    let fake = server(|number| {
        let said = if number == 0 { TOO_MUCH } else { CHANGED };
        vec![stream(said), Step::Hang]
    })
    .await;
    let line = open(&fake).await;
    let notes = line.notes.first(2).await;
    assert_eq!(notes[1], "notifications/tools/list_changed");
    assert_eq!(count(&fake.requests(), "initialize"), 1);
}

#[tokio::test]
async fn calls_wait_for_the_servers_ear_to_be_open() {
    let told = Arc::new(Notify::new());
    let tell = Arc::clone(&told);
    let fake =
        server(move |_| vec![Step::When(Arc::clone(&tell)), stream(CHANGED), Step::Hang]).await;
    let line = open(&fake).await;
    let call = line.request(1, "tools/call");
    tokio::pin!(call);
    tokio::select! {
        done = &mut call => panic!("{done:?}"),
        seen = until(&fake, |seen| count(seen, "GET") == 1) => {
            assert_eq!(count(&seen, "tools/call"), 0);
        }
    }
    told.notify_one();
    call.await.unwrap();
    let notes = line.notes.first(3).await;
    assert!(notes.contains(&"notifications/tools/list_changed".to_owned()));
}

#[tokio::test]
async fn a_server_that_keeps_its_head_back_does_not_hold_calls_up() {
    let fake = server(|_| vec![Step::Hang]).await;
    let line = open(&fake).await;
    line.request(1, "tools/call").await.unwrap();
    let begun = std::time::Instant::now();
    for id in 2..6 {
        line.request(id, "tools/call").await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_millis(400), "each waits");
}

#[tokio::test]
async fn r4_comments_are_nothing() {
    let comment = ": {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n:data: {}\n:\n\n";
    let told = Arc::new(Notify::new());
    let tell = Arc::clone(&told);
    let fake = Fake::start(move |_, seen| match seen.what() {
        "GET" => vec![
            stream(&comment.repeat(3)),
            Step::When(Arc::clone(&tell)),
            more(&format!("{comment}{CHANGED}{comment}")),
            Step::Hang,
        ],
        "tools/call" => {
            let answer = super::kit::answer(&seen.id());
            let text = format!("{comment}{comment}{PROGRESS}{comment}{answer}{comment}");
            vec![stream(&text), end()]
        }
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    line.request(1, "tools/call").await.unwrap();
    told.notify_one();
    let expected = [
        "on 1: notifications/progress",
        "on 1: 1 has {}",
        "notifications/tools/list_changed",
    ];
    assert_eq!(line.notes.first(4).await[1..], expected);
}

#[tokio::test]
async fn r58_a_stream_that_is_not_offered_is_not_asked_for_again() {
    for status in [
        "405 Method Not Allowed",
        "404 Not Found",
        "501 Not Implemented",
    ] {
        let fake =
            server(move |_| vec![Step::Send(http(status, "text/plain", "").into_bytes())]).await;
        let line = open(&fake).await;
        line.request(1, "tools/list").await.unwrap();
        // Two minutes in which nothing but a timer could make it come again.
        tokio::time::pause();
        for _ in 0..120 {
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        tokio::time::resume();
        line.request(2, "tools/list").await.unwrap();
        let seen = fake.requests();
        assert_eq!(count(&seen, "GET"), 1, "{status}");
        assert_eq!(line.notes.all().len(), 3, "{status}");
    }
}

#[tokio::test]
async fn r58_a_stream_that_ends_is_opened_again_after_a_while() {
    let moments = Arc::new(Moments::default());
    let clock = Arc::clone(&moments);
    let fake = server(move |_| {
        clock.now();
        vec![stream(": nothing\n\n"), end()]
    })
    .await;
    let _line = open(&fake).await;
    until(&fake, |seen| count(seen, "GET") == 3).await;
    let (first, second) = (moments.between(0, 1), moments.between(1, 2));
    assert!(first >= Duration::from_millis(400), "{first:?}");
    assert!(second >= Duration::from_millis(800), "{second:?}");
}

#[tokio::test]
async fn a_stream_goes_on_where_it_was_when_the_server_said() {
    let moments = Arc::new(Moments::default());
    let clock = Arc::clone(&moments);
    let fake = server(move |times| {
        clock.now();
        match times {
            0 => vec![stream("id: a\nretry: 700\ndata:\n\n"), end()],
            1 => vec![stream(&format!("id: b\n{PROGRESS}")), Step::Close],
            2 => vec![Step::Send(
                http("400 Bad Request", "text/plain", "place?").into_bytes(),
            )],
            _ => vec![stream(CHANGED), Step::Hang],
        }
    })
    .await;
    let line = open(&fake).await;
    let notes = line.notes.first(3).await;
    assert_eq!(
        notes[1..],
        ["notifications/progress", "notifications/tools/list_changed"]
    );
    let waited = moments.between(0, 1);
    assert!(waited >= Duration::from_millis(700), "{waited:?}");
    assert!(waited < Duration::from_millis(1000), "{waited:?}");
    let seen = fake.requests();
    let gets = seen.iter().filter(|seen| seen.what() == "GET");
    let places: Vec<_> = gets.map(|seen| seen.header("last-event-id")).collect();
    assert_eq!(places, [None, Some("a"), Some("b"), None]);
}
