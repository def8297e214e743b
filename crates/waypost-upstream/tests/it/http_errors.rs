//! What servers over Streamable HTTP answer instead of a result, and what that becomes.

use waypost_hub::error::Kind;
use waypost_hub::reply::End;

use crate::fake::{Fake, STREAM, Step, chunk, error, http};
use crate::kit::{end_of, failure, parts, tool, upstream, upstream_with};

#[tokio::test]
async fn errors_of_the_server_are_answers_at_any_status() {
    let cases: [(&str, Option<&str>); 7] = [
        ("200 OK", None),
        ("400 Bad Request", None),
        ("404 Not Found", None),
        ("500 Internal Server Error", None),
        ("400 Bad Request", Some("null")),
        ("400 Bad Request", Some("\"server-error\"")),
        ("200 OK", Some("null")),
    ];
    for (status, id) in cases {
        let fake = Fake::always(move |seen| {
            let own = seen.id();
            let body = r#"{"code":-32602,"message":"m","data":{"x":1.0}}"#;
            error(status, id.unwrap_or(&own), body)
        })
        .await;
        let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
        match end_of(&*upstream, tool("t")).await {
            Ok(End::Error(error)) => {
                assert_eq!(
                    error.raw().text(),
                    r#"{"code":-32602,"message":"m","data":{"x":1.0}}"#
                );
            }
            other => panic!("{status} {id:?}: {other:?}"),
        }
    }
}

/// The failure that answering these bytes and closing must become.
#[track_caller]
fn check(answer: &str, kind: Kind, retryable: bool, detail: &str) {
    let answer = answer.to_owned();
    let at = std::panic::Location::caller();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let script = answer.clone();
        let fake = Fake::start(move |_, seen| {
            vec![
                Step::Send(script.replace("{id}", &seen.id()).into_bytes()),
                Step::Close,
            ]
        })
        .await;
        let settings = format!(
            "era: modern, url: '{}?api_key=canary', headers: {{ Authorization: Bearer canary }}",
            fake.url()
        );
        let mut parts = parts();
        parts.response_limit = 2000;
        let upstream = upstream_with(&settings, &parts);
        let error = failure(&*upstream).await;
        assert_eq!(error.detail.as_deref(), Some(detail), "{at}");
        assert_eq!((error.kind, error.retryable), (kind, retryable), "{at}");
        let all = format!("{error} {error:?} {upstream:?}");
        assert!(
            !all.contains("canary") && !all.contains("body-text"),
            "{at}: {all}"
        );
        assert_eq!(fake.requests().len(), 1, "{at}: sent again");
    });
}

#[test]
fn r36_statuses_become_plain_words_without_secrets() {
    let page = |status: &str| http(status, "text/html", "<p>body-text canary</p>");
    let note = "answered HTTP 401 (credentials are missing or wrong)";
    check(&page("401 Unauthorized"), Kind::Unavailable, true, note);
    let own = error(
        "401 Unauthorized",
        "{id}",
        r#"{"code":-32001,"message":"body-text"}"#,
    );
    check(&own, Kind::Unavailable, true, note);
    check(
        &page("403 Forbidden"),
        Kind::Unavailable,
        false,
        "answered HTTP 403 (not allowed)",
    );
    let note = "answered HTTP 404 (no MCP endpoint at this address)";
    check(&page("404 Not Found"), Kind::BadUpstream, false, note);
    let note = "answered HTTP 302 (redirects are not followed)";
    let moved =
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/canary\r\ncontent-length: 0\r\n\r\n";
    check(moved, Kind::BadUpstream, false, note);
    check(
        &page("429 Slow"),
        Kind::Throttled,
        true,
        "answered HTTP 429 (too many requests)",
    );
    let wait = "HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
    check(
        wait,
        Kind::Throttled,
        true,
        "answered HTTP 429 (asks to wait 7 s)",
    );
    check(
        &page("500 Oops"),
        Kind::BadUpstream,
        false,
        "answered HTTP 500",
    );
    check(
        &page("502 Bad Gateway"),
        Kind::Unavailable,
        false,
        "answered HTTP 502",
    );
    // Not JSON-RPC, whatever the header says.
    let json = http("503 Busy", "application/json", r#"{"error":"body-text"}"#);
    check(&json, Kind::Unavailable, false, "answered HTTP 503");
}

#[test]
fn answers_that_are_not_the_protocol_say_what_they_are() {
    let json = |body: &str| http("200 OK", "application/json", body);
    let bad = |answer: &str, detail: &str| check(answer, Kind::BadUpstream, false, detail);
    let not_valid = "the answer is not valid: not valid JSON at line 1, column 16";
    bad(&json("{\"jsonrpc\":\"2.0\""), not_valid);
    bad(
        &json("[]"),
        "the answer is not valid: batches are not supported, send one message per request",
    );
    let other = "the answer belongs to another request";
    bad(&json(r#"{"jsonrpc":"2.0","id":"x","result":{}}"#), other);
    bad(&json(r#"{"jsonrpc":"2.0","method":"body-text"}"#), other);
    let html = "answered with `text/html` instead of JSON or an event stream";
    bad(
        &http("200 OK", "text/html; charset=utf-8", "<p>body-text</p>"),
        html,
    );
    let none = "answered with no content type instead of JSON or an event stream";
    bad("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", none);
    let closed = "closed the connection before the answer was complete";
    bad("", closed);
    bad("HTTP/1.1 200 OK\r\n", closed);
    bad(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
        closed,
    );
    bad(&format!("{STREAM}5\r\nda"), closed);
    bad(
        &format!("{STREAM}0\r\n\r\n"),
        "the stream ended without an answer",
    );
    bad(
        "SSH-2.0-OpenSSH_9.9 body-text\r\n",
        "answered something that is not HTTP/1.1",
    );
    let long = "x".repeat(3000);
    let large = "the answer is larger than 2000 bytes";
    bad(
        &json(&format!(
            r#"{{"jsonrpc":"2.0","id":{{id}},"result":{{"a":"{long}"}}}}"#
        )),
        large,
    );
    let half = long.get(..1500).unwrap();
    let unannounced = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{}{}",
        chunk(half),
        chunk(half)
    );
    bad(&unannounced, large);
    bad(
        &format!("{STREAM}{}", chunk(&format!("data: {long}\n"))),
        large,
    );
}

#[tokio::test]
async fn a_refused_connection_is_retryable_and_says_so() {
    let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = unused.local_addr().unwrap().port();
    drop(unused);
    let upstream = upstream(&format!(
        "era: modern, url: 'http://127.0.0.1:{port}/mcp?api_key=canary'"
    ));
    let error = failure(&*upstream).await;
    assert_eq!(error.to_string(), "upstream `u`: connection refused");
    assert_eq!((error.kind, error.retryable), (Kind::Unavailable, true));
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_called_so() {
    let upstream = upstream("era: modern, url: 'http://no-such-host.invalid/mcp'");
    let error = failure(&*upstream).await;
    assert_eq!(error.to_string(), "upstream `u`: host not found");
    assert!(error.retryable);
}
