//! Servers of both eras as child processes, honest and not.

use serde_json::json;
use waypost_testkit::kit::legacy::Revision;
use waypost_testkit::peer::{Answers, Kind, Peer, Target};

const LEGACY: Kind = Kind::LegacyPipe(Revision::Nov2025);

fn command(arguments: &str) -> Target {
    let program = env!("CARGO_BIN_EXE_demo_server").to_owned();
    let arguments = arguments.split(' ').map(str::to_owned);
    Target::Command(std::iter::once(program).chain(arguments).collect())
}

#[tokio::test]
async fn a_child_speaks_its_era_until_its_input_ends() {
    for (kind, arguments) in [
        (Kind::ModernPipe, "all --stdio"),
        (LEGACY, "all --stdio --era legacy"),
        (Kind::ModernPipe, "all --stdio --era both"),
        (LEGACY, "all --stdio --era both"),
    ] {
        let peer = Peer::connect(kind, &command(arguments)).await.unwrap();
        let answers = Answers::usual();
        let asked = peer.call("test_sampling", json!({ "prompt": "?" }), &answers);
        assert_eq!(asked.await.unwrap().text(), "LLM response: sampled text");
        assert!(
            peer.close().await.unwrap().unwrap().success(),
            "{arguments}"
        );
    }
}

#[tokio::test]
async fn the_other_era_is_refused() {
    let modern = Peer::connect(Kind::ModernPipe, &command("all --stdio --era legacy")).await;
    assert!(modern.unwrap_err().to_string().contains("-32601"));
    let legacy = Peer::connect(LEGACY, &command("all --stdio")).await;
    assert!(legacy.unwrap_err().to_string().contains("-32022"));
}

#[tokio::test]
async fn the_newest_revision_can_be_an_older_one() {
    let old = command("all --stdio --era legacy --protocol 2025-06-18");
    let peer = Peer::connect(LEGACY, &old).await.unwrap();
    assert_eq!(peer.agreed(), Some(Revision::Jun2025));
}

#[tokio::test]
async fn a_crash_ends_every_call_and_says_three() {
    let peer = Peer::connect(LEGACY, &command("everything --stdio --fault crash"))
        .await
        .unwrap();
    let mut slow = peer
        .begin("test_slow", json!({ "seconds": 60 }))
        .await
        .unwrap();
    assert!(slow.notification().await.unwrap().is_some());
    let crashed = peer.tool("echo", json!({})).await.unwrap();
    assert!(crashed.answer.is_null());
    assert!(
        peer.finish(slow, &Answers::usual())
            .await
            .unwrap()
            .answer
            .is_null()
    );
    assert_eq!(peer.close().await.unwrap().unwrap().code(), Some(3));
}

#[tokio::test]
async fn stray_lines_come_between_the_messages() {
    let stray = command("everything --stdio --fault stray-lines");
    let peer = Peer::connect(LEGACY, &stray).await.unwrap();
    assert_eq!(peer.tool("echo", json!({})).await.unwrap().text(), "{}");
    let inbox = peer.inbox();
    assert!(inbox.contains(&json!("Server v1.0 running")));
    assert!(inbox.iter().any(|line| line["level"] == "info"));
}

#[tokio::test]
async fn a_silent_server_leaves_the_probe_unanswered() {
    let silent = command("everything --stdio --fault silent-probe");
    let connect = Peer::connect(Kind::ModernPipe, &silent);
    let waited = tokio::time::timeout(std::time::Duration::from_millis(300), connect).await;
    assert!(waited.is_err());
    assert!(Peer::connect(LEGACY, &silent).await.is_ok());
}

#[tokio::test]
async fn a_child_may_go_on_when_its_input_ends() {
    let lingers = command("everything --stdio --fault lingers");
    let peer = Peer::connect(LEGACY, &lingers).await.unwrap();
    let closing = peer.close();
    let waited = tokio::time::timeout(std::time::Duration::from_millis(300), closing).await;
    assert!(waited.is_err());
}
