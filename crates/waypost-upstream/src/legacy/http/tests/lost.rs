//! Sessions that the server does not know any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::fake::{Fake, Seen, Step, error, http};
use super::kit::{Line, count, dial, dialer, end, in_time, open, stream, usual};
use crate::fault::Fault;
use crate::legacy::http::Transport;

/// What a request gets whose session is gone.
async fn refused(answer: fn(&str) -> String) -> (Fake, Line, Result<(), Fault>) {
    let fake = Fake::start(move |_, seen| match seen.what() {
        "tools/call" => vec![Step::Send(answer(&seen.id()).into_bytes())],
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    let answered = line.request(1, "tools/call").await;
    (fake, line, answered)
}

#[tokio::test]
async fn r2_a_lost_session_is_known_whichever_way_the_server_says_it() {
    let ways: [fn(&str) -> String; 8] = [
        |_| http("404 Not Found", "text/plain", "Session not found"),
        |_| http("404 Not Found", "text/html", "<p>no such route</p>"),
        |_| {
            let text = r#"{"code":-32001,"message":"Session not found"}"#;
            error("404 Not Found", "null", text)
        },
        |_| "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
        |_| {
            let text = r#"{"code":-32600,"message":"Bad Request: No valid session ID provided"}"#;
            error("400 Bad Request", "\"server-error\"", text)
        },
        |_| http("400 Bad Request", "text/plain", "Invalid session ID\n"),
        |id| {
            error(
                "200 OK",
                id,
                r#"{"code":-32001,"message":"Session not found"}"#,
            )
        },
        |id| {
            let text = format!(
                "data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32000,\"message\":\"Bad Request: Server not initialized\"}}}}\n\n"
            );
            http("200 OK", "text/event-stream", &text)
        },
    ];
    for (index, way) in ways.into_iter().enumerate() {
        let (fake, line, answered) = refused(way).await;
        assert!(
            matches!(answered, Err(Fault::SessionLost)),
            "{index}: {answered:?}"
        );
        assert_eq!(line.notes.all().len(), 1, "{index}: heard");
        // Nothing more is sent in it, and there is nothing to delete.
        for id in 2..5 {
            let again = line.request(id, "tools/list").await;
            assert!(matches!(again, Err(Fault::SessionLost)));
        }
        assert!(matches!(line.tell("x").await, Err(Fault::SessionLost)));
        in_time(line.link.close()).await;
        let seen = fake.requests();
        let others = seen.iter().map(Seen::what).filter(|what| *what != "GET");
        let expected = ["initialize", "notifications/initialized", "tools/call"];
        assert_eq!(others.collect::<Vec<_>>(), expected, "{index}");
    }
}

#[tokio::test]
async fn an_answer_that_only_sounds_like_it_is_one() {
    let ways: [fn(&str) -> String; 3] = [
        |id| {
            error(
                "200 OK",
                id,
                r#"{"code":-32603,"message":"Session not found"}"#,
            )
        },
        |id| {
            error(
                "404 Not Found",
                id,
                r#"{"code":-32601,"message":"tools/call"}"#,
            )
        },
        |id| {
            error(
                "400 Bad Request",
                id,
                r#"{"code":-32602,"message":"no such tool"}"#,
            )
        },
    ];
    for way in ways {
        let (_fake, line, answered) = refused(way).await;
        answered.unwrap();
        assert!(line.notes.all()[1].starts_with("on 1: 1 fails -326"));
        line.request(2, "tools/list").await.unwrap();
    }
}

#[tokio::test]
async fn a_call_that_has_begun_is_not_repeated_whatever_it_says_of_sessions() {
    const ERROR: &str = r#"{"code":-32001,"message":"Session not found"}"#;
    let ways: [fn(&str) -> String; 3] = [
        |id| {
            let text = r#"{"code":-32001,"message":"Session not found: tab-7"}"#;
            error("200 OK", id, text)
        },
        |id| {
            let note = r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#;
            let text = format!(
                "data: {note}\n\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{ERROR}}}\n\n"
            );
            http("200 OK", "text/event-stream", &text)
        },
        |id| {
            let text = r#"{"code":-32002,"message":"no such page"}"#;
            error("404 Not Found", id, text)
        },
    ];
    for (index, way) in ways.into_iter().enumerate() {
        let (_fake, line, answered) = refused(way).await;
        assert!(answered.is_ok(), "{index}: {answered:?}");
        let notes = line.notes.all();
        let last = notes.last().unwrap();
        assert!(last.starts_with("on 1: 1 fails"), "{index}: {last}");
        line.request(2, "tools/list").await.unwrap();
    }
}

#[tokio::test]
async fn r2_every_call_in_flight_learns_it() {
    let lost = Arc::new(AtomicBool::new(false));
    let restarted = Arc::clone(&lost);
    let fake = Fake::start(move |_, seen| match seen.what() {
        "tools/call" if restarted.load(Ordering::SeqCst) => {
            let answer = http("404 Not Found", "text/plain", "Session not found");
            vec![Step::Send(answer.into_bytes())]
        }
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    line.request(1, "tools/call").await.unwrap();
    lost.store(true, Ordering::SeqCst);
    let calls = (2..22).map(|id| line.request(id, "tools/call"));
    for answered in futures_util::future::join_all(calls).await {
        assert!(matches!(answered, Err(Fault::SessionLost)), "{answered:?}");
    }
}

#[tokio::test]
async fn r73_nothing_is_lost_during_the_handshake() {
    let stage = Arc::new(std::sync::Mutex::new("initialize"));
    let down = Arc::clone(&stage);
    let fake = Fake::start(move |_, seen| {
        if seen.what() == *down.lock().unwrap() {
            let answer = http("404 Not Found", "text/plain", "no route");
            return vec![Step::Send(answer.into_bytes())];
        }
        usual(seen)
    })
    .await;
    let dialer = dialer(&fake.url(), Transport::Streamable, 10_000);
    for what in ["initialize", "notifications/initialized", "none"] {
        *stage.lock().unwrap() = what;
        let line = dial(&dialer).await.unwrap();
        let greeted = line.greet("2025-11-25").await;
        match greeted {
            Err(Fault::Status { status: 404, .. }) => assert_ne!(what, "none"),
            // And the same server is as good as new when its proxy has a route again.
            Ok(()) => assert_eq!(what, "none"),
            Err(fault) => panic!("{what}: {fault:?}"),
        }
        in_time(line.link.close()).await;
    }
}

#[tokio::test]
async fn r59_a_session_that_ends_between_calls_is_known_from_its_stream() {
    let lost = Arc::new(AtomicBool::new(false));
    let restarted = Arc::clone(&lost);
    let fake = Fake::start(move |_, seen| match seen.what() {
        "GET" if restarted.swap(true, Ordering::SeqCst) => {
            let answer = http("404 Not Found", "text/plain", "Session not found");
            vec![Step::Send(answer.into_bytes())]
        }
        "GET" => vec![stream("id: a\nretry: 1\ndata:\n\n"), end()],
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    let notes = line.notes.first(2).await;
    assert_eq!(notes[1], "gone: does not know the session any more");
    let again = line.request(1, "tools/list").await;
    assert!(matches!(again, Err(Fault::SessionLost)));
    in_time(line.link.close()).await;
    assert_eq!(count(&fake.requests(), "DELETE"), 0);
}

/// A server that refuses everything in its session like this once told so.
async fn forgetting(refusal: fn(&Seen) -> String) -> (Fake, Arc<AtomicBool>) {
    let lost = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&lost);
    let fake = Fake::start(move |_, seen| match seen.what() {
        "tools/call" | "ping" if flag.load(Ordering::SeqCst) => {
            vec![Step::Send(refusal(seen).into_bytes())]
        }
        _ => usual(seen),
    })
    .await;
    (fake, lost)
}

#[tokio::test]
async fn r2_a_404_in_words_of_its_own_is_a_lost_session_when_a_ping_gets_it_too() {
    let (fake, lost) = forgetting(|seen| {
        let text = r#"{"code":-32001,"message":"The MCP session ended, start a new one"}"#;
        error("404 Not Found", &seen.id(), text)
    })
    .await;
    let line = open(&fake).await;
    line.request(1, "tools/call").await.unwrap();
    lost.store(true, Ordering::SeqCst);
    let calls = (2..12).map(|id| line.request(id, "tools/call"));
    for answered in futures_util::future::join_all(calls).await {
        assert!(matches!(answered, Err(Fault::SessionLost)), "{answered:?}");
    }
    assert_eq!(count(&fake.requests(), "ping"), 1);
    assert_eq!(line.notes.all().len(), 2, "nothing was heard");
}

#[tokio::test]
async fn r2_a_refusal_that_may_be_the_calls_own_is_heard_and_the_session_is_left() {
    let ways: [fn(&Seen) -> String; 3] = [
        |seen| {
            let text = r#"{"code":-32001,"message":"No such session"}"#;
            error("400 Bad Request", &seen.id(), text)
        },
        |seen| {
            let text = r#"{"code":-32600,"message":"Session abc not found"}"#;
            error("200 OK", &seen.id(), text)
        },
        |_| http("405 Method Not Allowed", "text/plain", "no"),
    ];
    for (index, way) in ways.into_iter().enumerate() {
        let (fake, lost) = forgetting(way).await;
        let line = open(&fake).await;
        lost.store(true, Ordering::SeqCst);
        let first = line.request(1, "tools/call").await;
        assert!(!matches!(first, Err(Fault::SessionLost)), "{index}");
        in_time(async {
            let mut id = 2;
            while !matches!(
                line.request(id, "tools/list").await,
                Err(Fault::SessionLost)
            ) {
                id += 1;
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(count(&fake.requests(), "ping"), 1, "{index}");
    }
}

#[tokio::test]
async fn an_error_of_a_call_costs_a_living_session_one_ping_in_a_while() {
    let (fake, line, answered) = refused(|id| {
        let text = r#"{"code":-32001,"message":"no such tab"}"#;
        error("400 Bad Request", id, text)
    })
    .await;
    answered.unwrap();
    for id in 2..8 {
        line.request(id, "tools/call").await.unwrap();
    }
    assert_eq!(count(&fake.requests(), "ping"), 1);
}
