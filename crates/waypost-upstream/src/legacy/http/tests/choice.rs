//! Which transport a server turns out to have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::fake::{Fake, Seen, Step, http};
use super::kit::{LIMIT, count, dial, dialer, end, in_time, stream, usual};
use super::sse::server;
use crate::fault::Fault;
use crate::legacy::http::Transport;

fn whats(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(Seen::what).collect()
}

#[tokio::test]
async fn r76_a_server_that_takes_no_post_is_asked_for_its_stream_and_remembered() {
    let fake = server(|_| "/messages".to_owned(), "\n").await;
    let dialer = dialer(&fake.url(), Transport::Either, LIMIT);
    let line = dial(&dialer).await.unwrap();
    line.greet("2024-11-05").await.unwrap();
    line.request(1, "tools/list").await.unwrap();
    assert_eq!(line.notes.first(2).await.len(), 2);
    let seen = fake.requests();
    let expected = [
        "initialize",
        "GET",
        "initialize",
        "notifications/initialized",
        "tools/list",
    ];
    assert_eq!(whats(&seen), expected);
    assert!(seen[0].line.starts_with("POST /mcp "));
    assert!(seen[2].line.starts_with("POST /messages "));
    let mut gone = fake.gone.clone();
    in_time(line.link.close()).await;
    in_time(gone.wait_for(|gone| *gone >= 1)).await.unwrap();

    let line = dial(&dialer).await.unwrap();
    line.greet("2024-11-05").await.unwrap();
    let seen = fake.requests();
    assert_eq!(whats(&seen[5..])[..2], ["GET", "initialize"]);
}

#[tokio::test]
async fn r76_a_server_that_has_been_replaced_is_asked_again() {
    let old = Arc::new(AtomicBool::new(true));
    let replaced = Arc::clone(&old);
    let fake = Fake::start(move |_, seen| match seen.what() {
        "GET" if old.load(Ordering::SeqCst) => {
            vec![stream("event: endpoint\ndata: /messages\n\n"), Step::Hang]
        }
        "initialize" if old.load(Ordering::SeqCst) && seen.line.contains("/mcp") => {
            let answer = http("404 Not Found", "text/html", "Cannot POST /mcp");
            vec![Step::Send(answer.into_bytes())]
        }
        _ => usual(seen),
    })
    .await;
    let dialer = dialer(&fake.url(), Transport::Either, LIMIT);
    let line = dial(&dialer).await.unwrap();
    line.request(0, "initialize").await.unwrap();
    in_time(line.link.close()).await;
    replaced.store(false, Ordering::SeqCst);
    let refused = dial(&dialer).await.err().unwrap();
    assert!(matches!(refused, Fault::Status { status: 405, .. }));
    let line = dial(&dialer).await.unwrap();
    line.greet("2025-11-25").await.unwrap();
    assert_eq!(line.notes.all(), ["on 0: 0 has {\"init\":true}"]);
}

#[tokio::test]
async fn r76_the_first_refusal_stands_when_there_is_no_stream_either() {
    for (status, gets) in [
        ("404 Not Found", 1),
        ("405 Method Not Allowed", 1),
        ("400 Bad Request", 1),
        ("403 Forbidden", 0),
        ("503 Busy", 0),
    ] {
        let fake = Fake::start(move |_, seen| match seen.what() {
            // A stream, but none that names an endpoint.
            "GET" => vec![stream("data: {}\n\n"), end()],
            _ => vec![Step::Send(http(status, "text/plain", "no").into_bytes())],
        })
        .await;
        let line = dial(&dialer(&fake.url(), Transport::Either, LIMIT)).await;
        let line = line.unwrap();
        let fault = line.request(0, "initialize").await.unwrap_err();
        let code = status.split(' ').next().unwrap();
        assert!(fault.to_string().contains(code), "{fault}");
        assert_eq!(count(&fake.requests(), "GET"), gets, "{status}");
    }
}

#[tokio::test]
async fn r76_a_transport_that_is_named_is_kept_to() {
    let fake = server(|_| "/messages".to_owned(), "\n").await;
    let line = dial(&dialer(&fake.url(), Transport::Streamable, LIMIT)).await;
    let fault = line.unwrap().request(0, "initialize").await.unwrap_err();
    assert!(matches!(fault, Fault::Status { status: 405, .. }));
    assert_eq!(whats(&fake.requests()), ["initialize"]);

    let fake = server(|_| "/messages".to_owned(), "\n").await;
    let line = dial(&dialer(&fake.url(), Transport::Sse, LIMIT)).await;
    line.unwrap().request(0, "initialize").await.unwrap();
    assert_eq!(whats(&fake.requests()), ["GET", "initialize"]);
}

#[tokio::test]
async fn an_error_of_a_server_that_does_take_posts_is_its_answer() {
    let fake = Fake::start(|_, seen| {
        let error = r#"{"code":-32602,"message":"no"}"#;
        let answer = super::fake::error("400 Bad Request", &seen.id(), error);
        vec![Step::Send(answer.into_bytes())]
    })
    .await;
    let line = dial(&dialer(&fake.url(), Transport::Either, LIMIT)).await;
    let line = line.unwrap();
    line.request(0, "initialize").await.unwrap();
    assert_eq!(line.notes.all(), ["on 0: 0 fails -32602"]);
    assert_eq!(whats(&fake.requests()), ["initialize"]);
}
