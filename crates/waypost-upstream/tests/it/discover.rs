//! The era of a server (design: era of an upstream), as servers in the field answer the probe.

use std::time::Duration;

use waypost_hub::error::Kind;
use waypost_hub::upstream::Facts;
use waypost_wire::raw::Raw;

use crate::fake::{Fake, Step, error, http, result};
use crate::kit::{complete, in_time, object, tool, upstream};

/// What asking a server that answers everything so yields: `modern`, `legacy` for one that is
/// asked for a session, or the text of the failure.
#[track_caller]
fn check(answer: impl Fn(&crate::fake::Seen) -> String + Send + Sync + 'static, expected: &str) {
    check_known(None, answer, expected);
}

/// The same for a server that spoke this version when it was last understood.
#[track_caller]
fn check_known(
    known: Option<&str>,
    answer: impl Fn(&crate::fake::Seen) -> String + Send + Sync + 'static,
    expected: &str,
) {
    let at = std::panic::Location::caller();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let fake = Fake::always(answer).await;
        let upstream = upstream(&format!("url: '{}'", fake.url()));
        let got = in_time(upstream.discover(known)).await;
        let asked = fake.requests();
        let got = match got {
            Ok(_) => "modern".to_owned(),
            // One that is known to be modern is asked too, and has to agree.
            Err(_)
                if known.is_none()
                    && asked.iter().any(|seen| seen.body["method"] == "initialize") =>
            {
                "legacy".to_owned()
            }
            Err(error) => error.detail.unwrap().into_owned(),
        };
        assert_eq!(got, expected, "{at}");
    });
}

#[tokio::test]
async fn a_modern_server_is_known_by_what_it_says() {
    let fake = Fake::always(|seen| {
        result(
            seen,
            r#"{"resultType":"complete","supportedVersions":["2025-11-25","2026-07-28"],
                "capabilities":{"tools":{},"extensions":{"x/y":{"n":1.0}}},"instructions":"do \"this\"",
                "serverInfo":{"name":"ignored"},
                "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#,
        )
    })
    .await;
    let upstream = upstream(&format!("url: '{}'", fake.url()));
    let expected = Facts {
        protocol: "2026-07-28".to_owned(),
        versions: vec!["2025-11-25".to_owned(), "2026-07-28".to_owned()],
        capabilities: object(r#"{"tools":{},"extensions":{"x/y":{"n":1.0}}}"#),
        server_info: Some(Raw::from(object(r#"{"name":"s","version":"1"}"#))),
        instructions: Some("do \"this\"".to_owned()),
    };
    let got = in_time(upstream.discover(None)).await.unwrap();
    assert_eq!(got, expected);
    let seen = fake.requests().remove(0);
    assert_eq!(seen.header("mcp-method"), Some("server/discover"));
    assert_eq!(seen.header("mcp-name"), None);
    let meta = &seen.body["params"]["_meta"];
    assert_eq!(
        meta["io.modelcontextprotocol/clientInfo"]["name"],
        "waypost"
    );
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        serde_json::json!({})
    );
}

#[test]
fn versions_decide() {
    check(
        |s| result(s, r#"{"supportedVersions":["2026-07-28"]}"#),
        "modern",
    );
    check(
        |s| result(s, r#"{"supportedVersions":["2025-11-25"]}"#),
        "legacy",
    );
    check(|s| result(s, r#"{"supportedVersions":[]}"#), "legacy");
    let wrong = "the answer is not valid: `supportedVersions` must be a list of strings";
    check(|s| result(s, r#"{"supportedVersions":{}}"#), wrong);
    // Some servers of the session era have an empty result for every method.
    check(|s| result(s, "{}"), "legacy");
    let silent = "answered `server/discover` without `supportedVersions`";
    check_known(Some("2026-07-28"), |s| result(s, "{}"), silent);
}

#[test]
fn servers_of_the_session_era_are_known_by_how_they_refuse() {
    for status in ["200 OK", "400 Bad Request", "404 Not Found", "500 Oops"] {
        for code in [-32601, -32602] {
            let body = format!(r#"{{"code":{code},"message":"m"}}"#);
            check(move |s| error(status, &s.id(), &body), "legacy");
        }
    }
}

type Answer = dyn Fn(&crate::fake::Seen) -> String + Send + Sync;

#[test]
fn a_server_of_which_nothing_is_known_is_asked_for_a_session() {
    // TypeScript v1, Python v1 with an id of its own making, and what is no server at all.
    let typescript = r#"{"code":-32000,"message":"Bad Request: Server not initialized"}"#;
    check(|_| error("400 Bad Request", "null", typescript), "legacy");
    let python = r#"{"code":-32600,"message":"Bad Request: Missing session ID"}"#;
    check(
        |_| error("400 Bad Request", "\"server-error\"", python),
        "legacy",
    );
    for status in ["400", "404", "405", "406", "415", "422"] {
        check(
            move |_| http(&format!("{status} A"), "text/plain", "no"),
            "legacy",
        );
    }
}

#[test]
fn r73_what_a_proxy_without_a_route_says_too_is_no_change_of_a_modern_server() {
    let check = |answer: Box<Answer>, expected: &str| {
        check_known(Some("2026-07-28"), move |seen| answer(seen), expected);
    };
    // TypeScript v1.
    let typescript = r#"{"code":-32000,"message":"Bad Request: Server not initialized"}"#;
    check(
        Box::new(|_| error("400 Bad Request", "null", typescript)),
        "refused `server/discover` with error -32000",
    );
    // Python v1, with an id of its own making.
    let python = r#"{"code":-32600,"message":"Bad Request: Missing session ID"}"#;
    check(
        Box::new(|_| error("400 Bad Request", "\"server-error\"", python)),
        "refused `server/discover` with error -32600",
    );
    for status in ["400", "405", "406", "415", "422"] {
        check(
            Box::new(move |_| http(&format!("{status} A"), "text/plain", "no")),
            &format!("answered HTTP {status}"),
        );
    }
    check(
        Box::new(|_| http("404 Not Found", "text/plain", "no")),
        "answered HTTP 404 (no MCP endpoint at this address)",
    );
}

#[test]
fn modern_refusals_are_not_the_session_era() {
    let refuse = |code: i64, data: &'static str| {
        move |s: &crate::fake::Seen| {
            let body = format!(r#"{{"code":{code},"message":"m","data":{data}}}"#);
            error("400 Bad Request", &s.id(), &body)
        }
    };
    let refused = |code| format!("refused `server/discover` with error {code}");
    check(refuse(-32020, "{}"), &refused(-32020));
    check(refuse(-32021, "{}"), &refused(-32021));
    check(
        refuse(-32022, r#"{"supported":["2027-01-01"]}"#),
        &refused(-32022),
    );
    check(refuse(-32022, "{}"), &refused(-32022));
    check(refuse(-32022, r#"{"supported":["2025-11-25"]}"#), "legacy");
    check(
        refuse(-32022, r#"{"supported":["2026-07-28"]}"#),
        &refused(-32022),
    );
}

#[tokio::test]
async fn a_server_that_asks_for_our_version_is_asked_once_more() {
    let fake = Fake::start(|number, seen| {
        let answer = if number == 0 {
            let body = r#"{"code":-32022,"message":"m","data":{"supported":["2026-07-28"]}}"#;
            error("400 Bad Request", &seen.id(), body)
        } else {
            result(seen, r#"{"supportedVersions":["2026-07-28"]}"#)
        };
        vec![Step::Send(answer.into_bytes())]
    })
    .await;
    let upstream = upstream(&format!("url: '{}'", fake.url()));
    in_time(upstream.discover(None)).await.unwrap();
    assert_eq!(fake.requests().len(), 2);
}

#[test]
fn trouble_decides_nothing() {
    let page = |status: &'static str| move |_: &crate::fake::Seen| http(status, "text/html", "x");
    check(
        page("401 A"),
        "answered HTTP 401 (credentials are missing or wrong)",
    );
    check(page("403 A"), "answered HTTP 403 (not allowed)");
    check(page("408 A"), "answered HTTP 408");
    check(page("429 A"), "answered HTTP 429 (too many requests)");
    check(page("500 A"), "answered HTTP 500");
    check(page("503 A"), "answered HTTP 503");
    let internal = r#"{"code":-32603,"message":"m"}"#;
    check(
        move |s| error("503 A", &s.id(), internal),
        "answered HTTP 503",
    );
    check(
        move |s| error("403 A", &s.id(), internal),
        "answered HTTP 403 (not allowed)",
    );
    let refused = "refused `server/discover` with error -32603";
    check(move |s| error("200 OK", &s.id(), internal), refused);
}

#[tokio::test]
async fn how_long_to_wait_and_a_broken_connection_are_told_apart_from_words() {
    let failure = |answer: &'static str| async move {
        let steps = move || vec![Step::Send(answer.as_bytes().to_vec()), Step::Close];
        let fake = Fake::start(move |_, _| steps()).await;
        let upstream = upstream(&format!("url: '{}'", fake.url()));
        in_time(upstream.discover(None)).await.unwrap_err()
    };
    let busy = "HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
    let busy = failure(busy).await;
    assert_eq!(busy.retry_after, Some(Duration::from_secs(7)));
    assert!(!busy.disconnected);
    let broken = failure("").await;
    assert_eq!((broken.retry_after, broken.disconnected), (None, true));
}

#[tokio::test]
async fn credentials_are_named_by_their_status() {
    let fake = Fake::always(|_| http("401 Unauthorized", "text/plain", "")).await;
    let upstream = upstream(&format!("url: '{}'", fake.url()));
    let error = in_time(upstream.discover(None)).await.unwrap_err();
    assert_eq!(error.http_status, Some(401));
    assert_eq!(error.kind, Kind::Unavailable);
}

#[tokio::test]
async fn who_waits_for_another_s_look_takes_over_when_that_one_leaves() {
    let fake = Fake::start(|number, seen| match number {
        0 => vec![Step::Hang],
        _ if seen.what() == "server/discover" => {
            let described = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],
                "capabilities":{"tools":{}}}"#;
            vec![Step::Send(result(seen, described).into_bytes())]
        }
        _ => {
            let answer = r#"{"resultType":"complete","content":[]}"#;
            vec![Step::Send(result(seen, answer).into_bytes())]
        }
    })
    .await;
    let upstream = upstream(&format!("url: '{}'", fake.url()));
    let mut leaves = upstream.call(tool("t"));
    let looks = async {
        while fake.requests().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    in_time(async {
        tokio::select! {
            _ = &mut leaves => panic!("nothing answers"),
            () = looks => {}
        }
    })
    .await;
    let mut waits = Box::pin(complete(&*upstream, tool("t")));
    assert!(futures_util::poll!(&mut waits).is_pending());
    drop(leaves);
    assert!(waits.await.contains("content"));
}
