//! Servers that are replaced by others of today's protocol while sessions with them are open.

use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Call, Principal, Session};
use waypost_hub::upstream::Upstream;
use waypost_testkit::demo::{demo_everything, legacy_everything};
use waypost_testkit::kit::legacy::Options;
use waypost_testkit::run::ANY_PORT;

use crate::fake::{Fake, error, http, result};
use crate::kit::{complete, end_of, in_time, tool, upstream};

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
