//! What the log says of requests.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing::Level;
use tracing_subscriber::util::SubscriberInitExt as _;
use waypost_front::legacy::Sessions;

use crate::fake::{Front, Post};
use crate::peer::{LATEST, initialize, post, session_parts, text};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines from this level on while `work` is done.
async fn logged(level: Level, work: impl Future<Output = ()>) -> Vec<Value> {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt()
        .json()
        .with_max_level(level)
        .with_writer(move || writer.clone());
    let guard = log.set_default();
    work.await;
    drop(guard);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[tokio::test]
async fn whoever_speaks_an_era_that_is_off_is_seen_in_the_log() {
    let lines = logged(Level::INFO, async {
        let modern = Front::complete();
        post(&modern.router, &[], &initialize(LATEST, &json!({}))).await;
        let long = initialize(&"2".repeat(1000), &json!({}));
        post(&modern.router, &[], &long).await;

        let sessions = Sessions::new(session_parts(&Arc::default()));
        let legacy = Front::with(
            |_| Ok(text("ok")),
            |parts| {
                parts.sessions = Some(sessions);
                parts.modern = false;
            },
        );
        legacy.send(Post::call().build()).await;
        // Looks, and goes on with `initialize`.
        let probe = Post::new("server/discover", &json!({}));
        legacy.send(probe.build()).await;
    })
    .await;
    let said = |line: &Value| {
        assert_eq!(line["fields"]["message"], "request refused");
        assert_eq!(line["fields"]["reason"], "era");
        assert!(line["fields"]["request_id"].is_string(), "{line}");
        let field = |name: &str| line["fields"][name].as_str().unwrap().to_owned();
        (field("era"), field("requested"))
    };
    let expected = [
        ("legacy", LATEST.to_owned()),
        ("legacy", "2".repeat(32)),
        ("modern", "2026-07-28".to_owned()),
    ];
    let expected = expected.map(|(era, requested)| (era.to_owned(), requested));
    assert_eq!(lines.iter().map(said).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_line_says_the_id_once_and_a_time_that_can_be_read() {
    let lines = logged(Level::DEBUG, async {
        let request = || Post::call().header("x-request-id", "r1").build();
        let front = Front::complete();
        front.send(request()).await;
        let span = tracing::info_span!("request", request_id = "r1");
        tracing::Instrument::instrument(front.send(request()), span).await;
    })
    .await;
    let finished = |line: &&Value| line["fields"]["message"] == "request finished";
    let finished: Vec<_> = lines.iter().filter(finished).collect();
    let ids = |line: &&Value| line.to_string().matches("\"r1\"").count();
    // In the span, which is written as the current one and among all.
    assert_eq!(finished.iter().map(ids).collect::<Vec<_>>(), [1, 2]);
    assert!(finished[1]["fields"]["request_id"].is_null());
    for line in finished {
        let took = line["fields"]["took_ms"].to_string();
        let decimals = took.split_once('.').map_or(0, |(_, rest)| rest.len());
        assert!(decimals <= 3, "{took}");
    }
}
