//! Sessions over HTTP+SSE.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use waypost_hub::lifecycle::Tasks;

use super::fake::{Fake, STREAM, Seen, Step, chunk, http};
use super::kit::{
    LIMIT, Line, TOO_MUCH, accepted, count, dial, dialer, dialer_on, end, in_time, more, stream,
};
use crate::fault::Fault;
use crate::legacy::http::Transport;

/// A server of HTTP+SSE: its stream begins with `endpoint` and goes on with the answers to what
/// is posted, whose lines end with `ends`.
pub(super) async fn server(
    endpoint: impl Fn(&Seen) -> String + Send + Sync + 'static,
    ends: &'static str,
) -> Fake {
    let (answers, stream) = mpsc::channel::<Vec<u8>>(64);
    let stream = Arc::new(Mutex::new(stream));
    Fake::start(move |_, seen| {
        if seen.what() == "GET" {
            let first = format!(": hi\n\nevent: endpoint\ndata: {}\n\n", endpoint(seen));
            let first = chunk(&first.replace('\n', ends));
            return vec![
                Step::Send(format!("{STREAM}{first}").into_bytes()),
                Step::Relay(Arc::clone(&stream)),
            ];
        }
        let path = seen.line.split(' ').nth(1).unwrap();
        if !path.contains("messages") {
            let answer = http("405 Method Not Allowed", "text/plain", "no");
            return vec![Step::Send(answer.into_bytes())];
        }
        if let Some(id) = seen.body.get("id") {
            let text = format!(
                "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\ndata: \"result\":{{\"text\":\"日本\"}}}}\n\n"
            );
            for piece in text.replace('\n', ends).as_bytes().chunks(5) {
                let mut bytes = format!("{:x}\r\n", piece.len()).into_bytes();
                bytes.extend(piece);
                bytes.extend(b"\r\n");
                answers.try_send(bytes).unwrap();
            }
        }
        vec![Step::Send(accepted().into_bytes())]
    })
    .await
}

fn url(fake: &Fake) -> String {
    format!("http://127.0.0.1:{}/p/sse?key=k", fake.port)
}

async fn session(url: &str) -> Result<Line, Fault> {
    dial(&dialer(url, Transport::Sse, LIMIT)).await
}

#[tokio::test]
async fn r14_messages_are_posted_where_the_first_event_says() {
    for (endpoint, path, ends) in [
        ("/messages?s=1", "/messages?s=1", "\n"),
        ("messages?x=1&y=%20", "/p/messages?x=1&y=%20", "\r\n"),
        ("http://{host}/a/messages/", "/a/messages/", "\r"),
    ] {
        let fake = server(
            move |seen| endpoint.replace("{host}", seen.header("host").unwrap()),
            ends,
        )
        .await;
        let line = session(&url(&fake)).await.unwrap();
        line.greet("2024-11-05").await.unwrap();
        line.request(1, "tools/call").await.unwrap();
        let notes = line.notes.first(2).await;
        assert_eq!(
            notes,
            ["0 has {\"text\":\"日本\"}", "1 has {\"text\":\"日本\"}"]
        );
        let seen = fake.requests();
        let whats: Vec<_> = seen.iter().map(Seen::what).collect();
        let expected = [
            "GET",
            "initialize",
            "notifications/initialized",
            "tools/call",
        ];
        assert_eq!(whats, expected);
        assert_eq!(seen[0].line, "GET /p/sse?key=k HTTP/1.1");
        assert_eq!(seen[0].header("accept"), Some("text/event-stream"));
        for posted in &seen[1..] {
            assert_eq!(posted.line, format!("POST {path} HTTP/1.1"));
            assert_eq!(posted.header("authorization"), Some("Bearer canary"));
            assert_eq!(posted.header("mcp-protocol-version"), None);
            assert_eq!(posted.header("mcp-session-id"), None);
        }
        let mut gone = fake.gone.clone();
        in_time(line.link.close()).await;
        in_time(gone.wait_for(|gone| *gone >= 1)).await.unwrap();
    }
}

#[tokio::test]
async fn r14_another_origin_is_refused_and_sees_nothing() {
    let other = server(|_| "/messages".to_owned(), "\n").await;
    let elsewhere = format!("http://127.0.0.1:{}/messages?s=1", other.port);
    let fake = server(move |_| elsewhere.clone(), "\n").await;
    let fault = session(&url(&fake)).await.unwrap_err();
    assert!(fault.not_executed());
    assert_eq!(
        fault.to_string(),
        "speaks HTTP+SSE and wants messages posted to another origin than that of its stream, \
         which is refused\n\
         hint: use the address that the server takes for its own as `url`, or say with \
         `message_url` where to post"
    );
    assert!(other.requests().is_empty());
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn a_failure_inside_ends_the_session_and_leaves_nobody_waiting() {
    let fake = Fake::start(|_, seen| match seen.what() {
        "GET" => {
            let first = "event: endpoint\ndata: /messages\n\n";
            vec![stream(first), more(TOO_MUCH), Step::Hang]
        }
        _ => vec![Step::Send(accepted().into_bytes())],
    })
    .await;
    let line = session(&url(&fake)).await.unwrap();
    let notes = line.notes.first(1).await;
    assert_eq!(notes, ["gone: internal error while listening"]);
    let fault = line.request(1, "tools/call").await.unwrap_err();
    assert!(matches!(fault, Fault::SessionLost));
}

#[tokio::test]
async fn a_later_version_over_the_old_transport_has_its_header() {
    let fake = server(|_| "messages".to_owned(), "\n").await;
    let line = session(&url(&fake)).await.unwrap();
    line.greet("2025-06-18").await.unwrap();
    let seen = fake.requests();
    assert_eq!(seen[1].header("mcp-protocol-version"), None);
    assert_eq!(seen[2].header("mcp-protocol-version"), Some("2025-06-18"));
}

#[tokio::test]
async fn a_stream_that_names_no_endpoint_is_called_so() {
    for (steps, expected) in [
        (
            (|| vec![stream("data: {}\n\n"), end()]) as fn() -> Vec<Step>,
            "ended the event stream before it named where to post messages",
        ),
        (
            || vec![stream(": hi\n\n"), Step::Hang],
            "opened an event stream but did not name where to post messages within 10s",
        ),
        (
            || vec![stream("event: endpoint\ndata: http://[\n\n"), Step::Hang],
            "named a place to post messages to that is not a URL",
        ),
        (
            || vec![Step::Send(http("200 OK", "text/html", "<p>").into_bytes())],
            "answered with `text/html` instead of JSON or an event stream",
        ),
        (
            || vec![Step::Send(http("503 Busy", "text/html", "").into_bytes())],
            "answered HTTP 503",
        ),
    ] {
        let fake = Fake::start(move |_, _| steps()).await;
        let dialer = dialer(&fake.url(), Transport::Sse, LIMIT);
        let opening = dial(&dialer);
        tokio::pin!(opening);
        tokio::select! {
            biased;
            opened = &mut opening => {
                assert_eq!(opened.err().unwrap().to_string(), expected);
                continue;
            }
            () = std::future::ready(()) => {}
        }
        super::kit::until(&fake, |seen| !seen.is_empty()).await;
        // Only what is silent waits for the clock.
        if expected.ends_with("10s") {
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(11)).await;
            tokio::time::resume();
        }
        assert_eq!(opening.await.err().unwrap().to_string(), expected);
    }
}

#[tokio::test]
async fn a_session_ends_with_its_stream() {
    let (drop_it, stream_end) = mpsc::channel::<Vec<u8>>(1);
    let stream_end = Arc::new(Mutex::new(stream_end));
    let fake = Fake::start(move |_, seen| match seen.what() {
        "GET" => vec![
            stream("event: endpoint\ndata: messages\n\n"),
            Step::Relay(Arc::clone(&stream_end)),
            Step::Close,
        ],
        _ => vec![Step::Send(accepted().into_bytes())],
    })
    .await;
    let line = session(&url(&fake)).await.unwrap();
    line.request(1, "tools/call").await.unwrap();
    drop(drop_it);
    let notes = line.notes.first(1).await;
    let gone = "gone: closed the connection before the answer was complete";
    assert_eq!(notes, [gone]);
    let again = line.request(2, "tools/call").await;
    assert!(matches!(again, Err(Fault::SessionLost)), "{again:?}");
    assert_eq!(count(&fake.requests(), "tools/call"), 1);
}

#[tokio::test]
async fn what_is_in_flight_is_still_heard_when_waypost_stops() {
    let fake = server(|_| "messages".to_owned(), "\n").await;
    let tasks = Tasks::on(tokio::runtime::Handle::current());
    let line = dial(&dialer_on(&tasks, &url(&fake), Transport::Sse, LIMIT)).await;
    let line = line.unwrap();
    line.greet("2024-11-05").await.unwrap();
    line.notes.busy.send_replace(true);
    let drained = tasks.drain(Duration::from_secs(15));
    let last = async {
        line.request(1, "tools/call").await.unwrap();
        assert_eq!(line.notes.first(2).await.len(), 2);
        line.notes.busy.send_replace(false);
    };
    let (drained, ()) = tokio::join!(in_time(drained), last);
    assert!(drained);
    assert_eq!(line.notes.all()[2], "gone: stopping");
    let again = line.request(2, "tools/call").await;
    assert!(matches!(again, Err(Fault::SessionLost)), "{again:?}");
}

#[tokio::test]
async fn r2_an_unknown_session_is_lost_and_a_refusal_is_not() {
    let fake = Fake::start(move |_, seen| {
        let answer = match seen.what() {
            "GET" => {
                let first = stream("event: endpoint\ndata: messages\n\n");
                return vec![first, Step::Hang];
            }
            "lost" => http("404 Not Found", "text/plain", "Could not find session"),
            "broken" => http("500 Oops", "text/plain", "session not found"),
            _ => accepted(),
        };
        vec![Step::Send(answer.into_bytes())]
    })
    .await;
    let line = session(&url(&fake)).await.unwrap();
    // Nothing can be lost yet.
    let early = line.request(0, "lost").await;
    assert!(matches!(early, Err(Fault::Status { status: 404, .. })));
    line.link.opened();
    let broken = line.request(1, "broken").await;
    assert!(matches!(broken, Err(Fault::Status { status: 500, .. })));
    let lost = line.request(2, "lost").await;
    assert!(matches!(lost, Err(Fault::SessionLost)), "{lost:?}");
}

#[tokio::test]
async fn r55_a_message_over_the_limit_fails_its_call_alone() {
    let fake = Fake::start(|_, seen| match seen.what() {
        "GET" => {
            let long = "x".repeat(30_000);
            let large =
                format!("data: {{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"a\":\"{long}\"}}}}");
            let behind =
                format!("data: {{\"result\":{{\"a\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":8}}");
            let notice = format!("data: {{\"method\":\"{long}\"}}");
            let small = r#"data: {"jsonrpc":"2.0","id":9,"result":{}}"#;
            vec![
                stream("event: endpoint\ndata: messages\n\n"),
                more(&format!("{large}\n\n{notice}\n\n{behind}\n\n{small}\n\n")),
                Step::Hang,
            ]
        }
        _ => vec![Step::Send(accepted().into_bytes())],
    })
    .await;
    let line = dial(&dialer(&url(&fake), Transport::Sse, 10_000)).await;
    let notes = line.unwrap().notes.first(3).await;
    let expected = [
        "spoiled 7: the answer is larger than 10000 bytes",
        "spoiled 8: the answer is larger than 10000 bytes",
        "9 has {}",
    ];
    assert_eq!(notes, expected);
}
