//! Servers that are replaced by others of today's protocol while sessions with them are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Call, Principal, Session};
use waypost_hub::reply::End;
use waypost_hub::upstream::Upstream;
use waypost_testkit::demo::{demo_everything, legacy_everything};
use waypost_testkit::kit::legacy::Options;
use waypost_testkit::run::ANY_PORT;

use crate::fake::{Fake, Seen, error, http, result};
use crate::kit::{complete, end_of, in_time, object, tool, upstream};

fn by(principal: &str, name: &str) -> Call {
    let mut call = tool(name);
    call.principal = Principal::new(principal);
    call
}

fn in_session(id: &str, released: &CancellationToken, name: &str) -> Call {
    let mut call = by("p", name);
    call.session = Some(Session::new(id, released.clone()));
    call
}

async fn is_told_to_look(upstream: &dyn Upstream) {
    in_time(upstream.lost()).await;
    let facts = in_time(upstream.discover(Some("2025-11-25")))
        .await
        .unwrap();
    assert_eq!(facts.protocol, "2026-07-28");
    let again = tokio::time::timeout(Duration::from_millis(50), upstream.lost()).await;
    assert!(again.is_err(), "once");
}

#[tokio::test]
async fn a_server_that_is_replaced_on_its_port_is_asked_anew_by_the_first_call() {
    for isolation in ["session", "shared"] {
        let old = legacy_everything(ANY_PORT, Options::default())
            .await
            .unwrap();
        let upstream = upstream(&format!("url: '{}', isolation: {isolation}", old.url));
        let facts = in_time(upstream.discover(None)).await.unwrap();
        assert_eq!(facts.protocol, "2025-11-25");
        complete(&*upstream, by("p", "test_simple_text")).await;
        let address = old.address;
        old.stop().await;
        let new = demo_everything(address).await.unwrap();

        let calls = (0..20).map(|_| complete(&*upstream, by("p", "test_simple_text")));
        in_time(join_all(calls)).await;
        assert_eq!(new.seen().count("server/discover"), 1);
        is_told_to_look(&*upstream).await;
    }
}

#[tokio::test]
async fn a_look_at_a_server_that_was_replaced_finds_it_out_too() {
    let old = legacy_everything(ANY_PORT, Options::default())
        .await
        .unwrap();
    let upstream = upstream(&format!("url: '{}'", old.url));
    in_time(upstream.discover(None)).await.unwrap();
    let address = old.address;
    old.stop().await;
    let _new = demo_everything(address).await.unwrap();
    let facts = in_time(upstream.discover(Some("2025-11-25")))
        .await
        .unwrap();
    assert_eq!(facts.protocol, "2026-07-28");
    complete(&*upstream, by("p", "test_simple_text")).await;
}

#[tokio::test]
async fn a_server_that_only_sounds_replaced_is_not_asked_with_every_call() {
    const REFUSED: &str = r#"{"code":-32602,"message":"`_meta` needs protocolVersion"}"#;
    let fake = Fake::always(|seen| match seen.what() {
        "initialize" => result(
            seen,
            r#"{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{}}"#,
        ),
        "tools/call" => error("400 Bad Request", &seen.id(), REFUSED),
        "ping" => result(seen, "{}"),
        "server/discover" => error("200 OK", &seen.id(), r#"{"code":-32601,"message":"m"}"#),
        "GET" => http("405 Method Not Allowed", "text/plain", ""),
        _ => http("202 Accepted", "text/plain", ""),
    })
    .await;
    let upstream = upstream(&format!("url: '{}'", fake.url()));
    in_time(upstream.discover(None)).await.unwrap();
    for _ in 0..5 {
        let error = end_of(&*upstream, by("p", "t")).await.unwrap_err();
        assert!(error.retryable, "{error}");
    }
    let asked = fake.requests();
    let asked = asked.iter().filter(|s| s.what() == "server/discover");
    assert_eq!(asked.count(), 2, "when it was met, and once in doubt");
}

/// A stateless server until it is replaced by one with sessions, which refuses what belongs to
/// none like this.
async fn replaced(refusal: Door) -> (Fake, Arc<AtomicBool>) {
    let replaced = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&replaced);
    let fake = Fake::always(move |seen| {
        let modern = !flag.load(Ordering::SeqCst);
        let stateless =
            !seen.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null();
        match (seen.what(), modern) {
            ("server/discover", true) => result(
                seen,
                r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#,
            ),
            ("GET", _) => http("405 Method Not Allowed", "text/plain", ""),
            (_, true) => result(seen, r#"{"content":[],"tools":[]}"#),
            (_, false) if stateless => refusal(seen),
            ("initialize", false) => result(
                seen,
                r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{}}"#,
            ),
            ("ping" | "tools/call" | "tools/list", false) => {
                result(seen, r#"{"content":[],"tools":[]}"#)
            }
            _ => http("202 Accepted", "text/plain", ""),
        }
    })
    .await;
    (fake, replaced)
}

/// How a server refuses what belongs to no session.
type Door = fn(&Seen) -> String;

/// Whether a call that was refused so is sent again is beside each.
const DOORS: [(Door, bool); 6] = [
    // TypeScript v1.
    (
        |_| {
            let text = r#"{"code":-32000,"message":"Bad Request: Server not initialized"}"#;
            error("400 Bad Request", "null", text)
        },
        true,
    ),
    // Python v1.
    (
        |_| {
            let text = r#"{"code":-32600,"message":"Bad Request: Missing session ID"}"#;
            error("400 Bad Request", "\"server-error\"", text)
        },
        true,
    ),
    (|_| http("404 Not Found", "text/plain", "no"), true),
    (|_| http("405 Method Not Allowed", "text/plain", "no"), true),
    // These may be about what was read.
    (|_| http("400 Bad Request", "text/plain", "Invalid"), false),
    (
        |seen| error("200 OK", &seen.id(), r#"{"code":-32601,"message":"m"}"#),
        false,
    ),
];

#[tokio::test]
async fn r72_a_stateless_server_that_comes_back_with_sessions_is_asked_anew() {
    for (index, (door, again)) in DOORS.into_iter().enumerate() {
        let (fake, flag) = replaced(door).await;
        let upstream = upstream(&format!("url: '{}', isolation: shared", fake.url()));
        in_time(upstream.discover(None)).await.unwrap();
        complete(&*upstream, by("p", "t")).await;
        flag.store(true, Ordering::SeqCst);
        let first = end_of(&*upstream, by("p", "t")).await;
        let done = matches!(first, Ok(End::Complete(_)));
        assert_eq!(done, again, "{index}: {first:?}");
        complete(&*upstream, by("p", "t")).await;
        // And whoever looks after it is told.
        in_time(upstream.lost()).await;
        let facts = in_time(upstream.discover(Some("2026-07-28")))
            .await
            .unwrap();
        assert_eq!(facts.protocol, "2025-06-18", "{index}");
    }
}

#[tokio::test]
async fn r72_a_list_finds_out_too_and_is_read_in_the_session() {
    for (door, _) in DOORS {
        let (fake, flag) = replaced(door).await;
        let upstream = upstream(&format!("url: '{}', isolation: shared", fake.url()));
        in_time(upstream.discover(None)).await.unwrap();
        flag.store(true, Ordering::SeqCst);
        complete(&*upstream, Call::own("tools/list", object("{}"))).await;
    }
}

#[tokio::test]
async fn r73_a_stateless_server_without_a_route_is_asked_once_and_stays_one() {
    let up = Arc::new(AtomicBool::new(true));
    let route = Arc::clone(&up);
    let fake = Fake::always(move |seen| match seen.what() {
        _ if !route.load(Ordering::SeqCst) => http("404 Not Found", "text/plain", "no"),
        "server/discover" => result(seen, r#"{"supportedVersions":["2026-07-28"]}"#),
        _ => result(seen, r#"{"content":[]}"#),
    })
    .await;
    let upstream = upstream(&format!("url: '{}'", fake.url()));
    in_time(upstream.discover(None)).await.unwrap();
    up.store(false, Ordering::SeqCst);
    let calls = (0..10).map(|_| end_of(&*upstream, by("p", "t")));
    for answered in in_time(join_all(calls)).await {
        assert!(answered.is_err(), "{answered:?}");
    }
    let asked = fake.requests();
    let asked = asked.iter().filter(|seen| seen.what() == "server/discover");
    assert_eq!(asked.count(), 2, "when it was met, and once in doubt");
    up.store(true, Ordering::SeqCst);
    complete(&*upstream, by("p", "t")).await;
}

#[tokio::test]
async fn a_child_of_another_era_turns_the_server_although_the_first_one_lives() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("replaced");
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    let script = format!(
        "if [ -e {} ]; then exec python3 {here}/child.py; else exec python3 {here}/legacy_child.py; fi",
        flag.display()
    );
    let upstream = upstream(&format!("command: sh, args: ['-c', '{script}']"));
    let facts = in_time(upstream.discover(None)).await.unwrap();
    assert_eq!(facts.protocol, "2025-06-18");
    let token = CancellationToken::new();
    complete(&*upstream, in_session("a", &token, "echo")).await;

    std::fs::write(&flag, "").unwrap();
    let got = complete(&*upstream, in_session("b", &token, "echo")).await;
    assert!(got.contains("echo"), "{got:?}");
    is_told_to_look(&*upstream).await;
    complete(&*upstream, in_session("a", &token, "echo")).await;
}

#[tokio::test]
async fn the_first_calls_of_a_child_that_comes_back_with_sessions_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("replaced");
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    let script = format!(
        "if [ -e {} ]; then exec python3 {here}/legacy_child.py strict; else exec python3 {here}/child.py; fi",
        flag.display()
    );
    let upstream = upstream(&format!("command: sh, args: ['-c', '{script}']"));
    let facts = in_time(upstream.discover(None)).await.unwrap();
    assert_eq!(facts.protocol, "2026-07-28");
    complete(&*upstream, by("p", "echo")).await;

    std::fs::write(&flag, "").unwrap();
    let lost = upstream.lost();
    assert!(in_time(upstream.call(by("p", "kill"))).await.is_err());
    in_time(lost).await;
    let calls = (0..20).map(|_| complete(&*upstream, by("p", "echo")));
    in_time(join_all(calls)).await;
    in_time(upstream.lost()).await;
    let facts = in_time(upstream.discover(Some("2026-07-28")))
        .await
        .unwrap();
    assert_eq!(facts.protocol, "2025-06-18");
}
