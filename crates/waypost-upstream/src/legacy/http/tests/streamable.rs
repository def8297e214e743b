//! Requests, answers and what a session is made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::fake::{Fake, STREAM, Step, chunk, http, result};
use super::kit::{
    PROGRESS, TOO_MUCH, accepted, answer, count, dial, dialer, end, in_time, more, open,
    open_within, stream, until, usual, with_session,
};
use crate::fault::Fault;
use crate::legacy::http::Transport;

const VERSION: &str = "mcp-protocol-version";
const SESSION: &str = "mcp-session-id";

#[tokio::test]
async fn requests_carry_what_the_version_has() {
    for (version, header) in [
        ("2025-03-26", None),
        ("2025-06-18", Some("2025-06-18")),
        ("2025-11-25", Some("2025-11-25")),
    ] {
        let fake = Fake::start(|_, seen| usual(seen)).await;
        let line = dial(&dialer(&fake.url(), Transport::Streamable, 10_000)).await;
        let line = line.unwrap();
        line.greet(version).await.unwrap();
        line.request(1, "tools/list").await.unwrap();
        until(&fake, |seen| count(seen, "GET") == 1).await;
        in_time(line.link.close()).await;
        let seen = fake.requests();
        let first = &seen[0];
        assert_eq!(first.what(), "initialize");
        assert_eq!((first.header(VERSION), first.header(SESSION)), (None, None));
        let both = Some("application/json, text/event-stream");
        for later in &seen[1..] {
            let what = later.what();
            assert_eq!(later.header(VERSION), header, "{what}");
            assert_eq!(later.header(SESSION), Some("s-1"), "{what}");
            assert_eq!(later.header("authorization"), Some("Bearer canary"));
            match what {
                "GET" => assert_eq!(later.header("accept"), Some("text/event-stream")),
                "DELETE" => {}
                _ => assert_eq!(later.header("accept"), both),
            }
            assert_eq!(later.header("last-event-id"), None);
            assert_eq!(later.header("mcp-method"), None);
        }
        assert_eq!(count(&seen, "DELETE"), 1);
    }
}

#[tokio::test]
async fn a_server_without_sessions_gets_no_id_and_no_delete() {
    let fake = Fake::start(|_, seen| match seen.what() {
        "initialize" => vec![Step::Send(result(seen, "{}").into_bytes())],
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    line.request(1, "tools/list").await.unwrap();
    in_time(line.link.close()).await;
    let seen = fake.requests();
    assert!(seen.iter().all(|seen| seen.header(SESSION).is_none()));
    assert_eq!(count(&seen, "DELETE"), 0);
}

#[tokio::test]
async fn a_session_id_on_an_error_is_ignored() {
    let fake = Fake::start(|_, _| {
        let error = r#"{"code":-32600,"message":"Bad Request: Missing session ID"}"#;
        let refused = super::fake::error("400 Bad Request", "\"server-error\"", error);
        vec![Step::Send(with_session(&refused, "wrong").into_bytes())]
    })
    .await;
    let line = dial(&dialer(&fake.url(), Transport::Streamable, 10_000)).await;
    let line = line.unwrap();
    line.request(0, "initialize").await.unwrap();
    assert_eq!(line.notes.all(), ["on 0: 0 fails -32600"]);
    in_time(line.link.close()).await;
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn r54_streams_are_heard_however_they_are_cut() {
    for (size, ends) in [(1, "\n"), (3, "\r\n"), (7, "\r"), (100_000, "\r\n")] {
        let fake = Fake::start(move |_, seen| {
            if seen.what() != "tools/call" {
                return usual(seen);
            }
            let body = format!(
                ": comment\n\nid: 7\nretry: 500\ndata:\n\nid: 8\n\n{PROGRESS}event: other\ndata: x\n\n\
                 : data: {{}}\n\ndata: {{\"jsonrpc\":\"2.0\",\"id\":\"z\",\n\
                 data: \"method\":\"roots/list\"}}\n\ndata: nonsense\n\n\
                 event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"text\":\"日本🦀\"}}}}\n\n",
                seen.id()
            );
            let body = body.replace('\n', ends);
            let mut answer = STREAM.to_owned().into_bytes();
            for piece in body.as_bytes().chunks(size) {
                answer.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                answer.extend(piece);
                answer.extend(b"\r\n");
            }
            answer.extend(b"0\r\n\r\n");
            vec![Step::Pieces(answer, size)]
        })
        .await;
        let line = open(&fake).await;
        line.request(5, "tools/call").await.unwrap();
        let expected = [
            "on 0: 0 has {\"init\":true}",
            "on 5: notifications/progress",
            "on 5: \"z\" asks roots/list",
            "on 5: 5 has {\"text\":\"日本🦀\"}",
        ];
        assert_eq!(line.notes.all(), expected, "{size}");
    }
}

#[tokio::test]
async fn r54_text_that_is_no_utf8_spoils_one_answer() {
    let fake = Fake::start(|_, seen| match seen.what() {
        "tools/call" => {
            let mut event = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{},", seen.id());
            event.push_str("\"result\":{\"a\":\"?\"}}\n\n");
            let bytes = event.into_bytes();
            let bytes = bytes.iter().map(|b| if *b == b'?' { 0xff } else { *b });
            let bytes: Vec<u8> = bytes.collect();
            let mut answer = STREAM.to_owned().into_bytes();
            answer.extend(format!("{:x}\r\n", bytes.len()).into_bytes());
            answer.extend(bytes);
            answer.extend(b"\r\n0\r\n\r\n");
            vec![Step::Send(answer)]
        }
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    let fault = line.request(1, "tools/call").await.unwrap_err();
    assert!(matches!(fault, Fault::Malformed(_)), "{fault:?}");
    line.request(2, "tools/list").await.unwrap();
}

#[tokio::test]
async fn r55_big_answers_arrive_whole_and_those_over_the_limit_fail_alone() {
    const SIZE: usize = 16 << 20;
    let fake = Fake::start(|_, seen| {
        if !seen.what().starts_with("tools/") {
            return usual(seen);
        }
        let size = if seen.what() == "tools/call" {
            SIZE
        } else {
            SIZE / 2
        };
        let event = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"t\":\"{}\"}}}}\n\n",
            seen.id(),
            "é".repeat(size / 2)
        );
        let mut answer = STREAM.to_owned().into_bytes();
        for piece in event.as_bytes().chunks(4093) {
            answer.extend(format!("{:x}\r\n", piece.len()).into_bytes());
            answer.extend(piece);
            answer.extend(b"\r\n");
        }
        answer.extend(b"0\r\n\r\n");
        vec![Step::Pieces(answer, 8191), Step::Close]
    })
    .await;
    let line = open_within(&fake, SIZE).await;
    line.request(1, "tools/list").await.unwrap();
    assert!(line.notes.all()[1].len() > SIZE / 2);
    let fault = line.request(2, "tools/call").await.unwrap_err();
    assert!(
        matches!(fault, Fault::TooLarge { limit: SIZE }),
        "{fault:?}"
    );
    line.request(3, "ping").await.unwrap();
}

#[tokio::test]
async fn questions_on_a_stream_are_answered_by_post() {
    let told = Arc::new(Notify::new());
    let fake = Fake::start(move |_, seen| match seen.what() {
        "tools/call" => {
            let ask = r#"data: {"jsonrpc":"2.0","id":"q","method":"elicitation/create"}"#;
            let answer = answer(&seen.id());
            let told = Arc::clone(&told);
            vec![
                stream(&format!("{ask}\n\n")),
                Step::When(told),
                more(&answer),
                end(),
            ]
        }
        "answer" => {
            told.notify_one();
            vec![Step::Send(accepted().into_bytes())]
        }
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    let call = line.request(3, "tools/call");
    let answer = async {
        let notes = line.notes.first(2).await;
        assert_eq!(notes[1], "on 3: \"q\" asks elicitation/create");
        let answer = br#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}"#;
        in_time(line.link.tell((&answer[..]).into())).await.unwrap();
    };
    let (called, ()) = tokio::join!(call, answer);
    called.unwrap();
    assert_eq!(line.notes.all()[2], "on 3: 3 has {}");
    let seen = fake.requests();
    let posted = seen.iter().find(|seen| seen.what() == "answer").unwrap();
    assert_eq!(posted.body["result"]["action"], "accept");
    assert_eq!(posted.header(SESSION), Some("s-1"));
}

#[tokio::test]
async fn a_batch_is_heard_message_by_message() {
    let fake = Fake::start(|_, seen| match seen.what() {
        "tools/call" => {
            let id = seen.id();
            let batch = format!(
                r#" [{{"jsonrpc":"2.0","method":"notifications/message"}},{{"jsonrpc":"2.0","id":{id},"result":{{"n":1.0}}}}]"#
            );
            let answer = http("200 OK", "application/json", &batch);
            vec![Step::Send(answer.into_bytes())]
        }
        "tools/list" => {
            let text = answer(&seen.id());
            let text = text.replace("data: ", "data: [").replace("\n\n", "]\n\n");
            vec![stream(&text), end()]
        }
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    line.request(1, "tools/call").await.unwrap();
    line.request(2, "tools/list").await.unwrap();
    let expected = [
        "on 1: notifications/message",
        "on 1: 1 has {\"n\":1.0}",
        "on 2: 2 has {}",
    ];
    assert_eq!(line.notes.all()[1..], expected);
}

#[tokio::test]
async fn a_call_that_failed_inside_may_have_run() {
    let fake = Fake::start(|_, seen| match seen.what() {
        "tools/call" => vec![stream(TOO_MUCH), Step::Hang],
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    let fault = line.request(1, "tools/call").await.unwrap_err();
    assert!(matches!(fault, Fault::Unheard) && !fault.not_executed());
}

#[tokio::test]
async fn r61_a_session_is_independent_of_connections() {
    let fake = Fake::start(|_, seen| {
        let mut steps = usual(seen);
        steps.push(Step::Close);
        steps
    })
    .await;
    let line = open(&fake).await;
    for id in 1..=4 {
        line.request(id, "tools/list").await.unwrap();
        // Lets the client, on this same thread, see that the server has closed.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    let seen = fake.requests();
    assert_eq!(count(&seen, "initialize"), 1);
    let calls = seen.iter().filter(|seen| seen.what() == "tools/list");
    let calls: Vec<_> = calls.collect();
    assert!(calls.iter().all(|seen| seen.header(SESSION) == Some("s-1")));
    assert_eq!(calls.len(), 4);
    assert!(
        calls
            .windows(2)
            .all(|two| two[0].connection < two[1].connection)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_outlives_the_runtimes_that_ask() {
    let fake = Fake::start(|_, seen| usual(seen)).await;
    let line = open(&fake).await;
    let line = &line;
    // As data cores do; what is opened lives on the runtime of the tasks.
    for id in 1..=3 {
        let ask = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(line.request(id, "tools/list")).unwrap();
        };
        std::thread::scope(|scope| scope.spawn(ask).join().unwrap());
    }
    let seen = fake.requests();
    let calls = seen.iter().filter(|seen| seen.what() == "tools/list");
    let mut connections: Vec<_> = calls.map(|seen| seen.connection).collect();
    connections.dedup();
    assert_eq!(connections.len(), 1);
}

#[tokio::test]
async fn dropping_a_request_closes_its_stream() {
    let fake = Fake::start(|_, seen| match seen.what() {
        "tools/call" => vec![stream(PROGRESS), Step::Hang],
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    let mut gone = fake.gone.clone();
    tokio::select! {
        done = line.request(1, "tools/call") => panic!("{done:?}"),
        _ = line.notes.first(2) => {}
    }
    in_time(gone.wait_for(|gone| *gone == 1)).await.unwrap();
    line.request(2, "tools/list").await.unwrap();
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_a_refusal_is_called_so() {
    let other = Fake::start(|_, seen| usual(seen)).await;
    let elsewhere = other.url();
    let fake = Fake::start(move |_, seen| match seen.what() {
        "tools/call" => {
            let moved = format!(
                "HTTP/1.1 307 Elsewhere\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n"
            );
            vec![Step::Send(moved.into_bytes())]
        }
        "tools/list" => {
            let answer = http("401 Unauthorized", "text/plain", "Session not found");
            vec![Step::Send(answer.into_bytes())]
        }
        "ping" => vec![Step::Send(http("200 OK", "text/html", "<p>").into_bytes())],
        "none" => vec![Step::Send(accepted().into_bytes())],
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    let mut faults = Vec::new();
    for (id, method) in [
        (1, "tools/call"),
        (2, "tools/list"),
        (3, "ping"),
        (4, "none"),
    ] {
        faults.push(line.request(id, method).await.unwrap_err().to_string());
    }
    let expected = [
        "answered HTTP 307 (redirects are not followed)",
        "answered HTTP 401 (credentials are missing or wrong)",
        "answered with `text/html` instead of JSON or an event stream",
        "answered with no content type instead of JSON or an event stream",
    ];
    assert_eq!(faults, expected);
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn errors_are_answers_at_any_status() {
    let fake = Fake::start(|_, seen| match seen.what() {
        "initialize" | "GET" | "notifications/initialized" => usual(seen),
        status => {
            let error = super::fake::error(status, &seen.id(), r#"{"code":-32602,"message":"m"}"#);
            vec![Step::Send(error.into_bytes())]
        }
    })
    .await;
    let line = open(&fake).await;
    for status in ["200 OK", "400 Bad Request", "500 Oops"] {
        line.request(1, status).await.unwrap();
    }
    assert_eq!(line.notes.all()[1..], ["on 1: 1 fails -32602"; 3]);
}

#[tokio::test]
async fn r64_a_session_is_deleted_once_whatever_the_server_says() {
    let refuse = Arc::new(AtomicBool::new(false));
    let hang = Arc::clone(&refuse);
    let fake = Fake::start(move |_, seen| match seen.what() {
        "DELETE" if hang.load(Ordering::SeqCst) => vec![Step::Hang],
        "DELETE" => {
            let answer = http("405 Method Not Allowed", "text/plain", "no");
            vec![Step::Send(answer.into_bytes())]
        }
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    in_time(line.link.close()).await;
    in_time(line.link.close()).await;
    assert_eq!(count(&fake.requests(), "DELETE"), 1);
    let fault = line.request(1, "tools/list").await.unwrap_err();
    assert!(fault.not_executed(), "{fault}");

    refuse.store(true, Ordering::SeqCst);
    let line = open(&fake).await;
    let begun = std::time::Instant::now();
    in_time(line.link.close()).await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    let seen = fake.requests();
    assert_eq!(count(&seen, "DELETE"), 2);
    let last = seen.iter().rfind(|seen| seen.what() == "DELETE").unwrap();
    assert_eq!(last.header(SESSION), Some("s-1"));
    assert_eq!(last.header(VERSION), Some("2025-11-25"));
}

#[tokio::test]
async fn connections_are_used_again() {
    let fake = Fake::start(|_, seen| match seen.what() {
        "tools/list" => vec![Step::Send(
            format!("{STREAM}{}0\r\n\r\n", chunk(&answer(&seen.id()))).into_bytes(),
        )],
        _ => usual(seen),
    })
    .await;
    let line = open(&fake).await;
    for id in 1..20 {
        line.request(id, "tools/list").await.unwrap();
    }
    let connections = fake.requests().iter().map(|seen| seen.connection).max();
    assert!(connections < Some(10), "{connections:?}");
}
