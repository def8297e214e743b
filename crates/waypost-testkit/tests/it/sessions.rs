//! Sessions of the session era, honest and not.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use waypost_testkit::client::{Client, Post, Reply};
use waypost_testkit::demo::legacy_everything;
use waypost_testkit::kit::legacy::{Endpoint, GetStream, LineEnd, Lost, Options, Revision};
use waypost_testkit::misbehave::sessions::{
    asks_on_get, forgets_sessions, no_get_stream, python_like, slow_initialize, sse,
    strict_initialized,
};
use waypost_testkit::peer::{Answers, Kind, Manners, Peer, Target};
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_testkit::seen::{Outcome, Seen};

const NOVEMBER: Kind = Kind::Http(Revision::Nov2025);

fn target(running: &Running) -> Target {
    Target::Url(running.url.clone())
}

async fn peer(running: &Running) -> Peer {
    Peer::connect(NOVEMBER, &target(running)).await.unwrap()
}

async fn honest() -> Running {
    legacy_everything(ANY_PORT, Options::default())
        .await
        .unwrap()
}

/// A POST in the session `id` (or none), with the header of `version` (or none).
async fn post(running: &Running, message: Value, id: Option<&str>, version: Option<&str>) -> Reply {
    let client = Client::new(&running.url);
    let mut post = bare(&client, message);
    for (name, value) in [("mcp-session-id", id), ("mcp-protocol-version", version)] {
        if let Some(value) = value {
            post = post.header(name, value);
        }
    }
    client.ask(post).await.unwrap()
}

fn bare(client: &Client, message: Value) -> Post {
    let mut post = client
        .post("ping", json!({}))
        .without("mcp-method")
        .without("mcp-protocol-version");
    post.message = message;
    post
}

fn ping() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })
}

#[tokio::test]
async fn a_session_is_demanded_known_and_over_after_delete() {
    let running = honest().await;
    let first = peer(&running).await;
    let id = first.session_id().unwrap().to_owned();
    assert_eq!(first.get_status(), Some(StatusCode::OK));
    let status = async |id: Option<&str>, version: Option<&str>| {
        post(&running, ping(), id, version).await.status
    };
    assert_eq!(status(Some(&id), None).await, 200);
    assert_eq!(status(Some(&id), Some("2025-11-25")).await, 200);
    assert_eq!(status(Some(&id), Some("1999-01-01")).await, 400);
    assert_eq!(status(None, None).await, 400);
    assert_eq!(status(Some("foreign"), None).await, 404);
    assert_eq!(running.sessions().live(), 1);
    assert_eq!(first.delete().await.unwrap(), Some(StatusCode::OK));
    assert_eq!(first.delete().await.unwrap(), Some(StatusCode::NOT_FOUND));
    assert_eq!(status(Some(&id), None).await, 404);
    let sessions = running.sessions();
    assert_eq!(
        (sessions.opened(), sessions.deleted(), sessions.live()),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn an_unknown_or_newer_revision_gets_the_newest_spoken() {
    let options = Options {
        newest: Revision::Jun2025,
        ..Options::default()
    };
    let running = legacy_everything(ANY_PORT, options).await.unwrap();
    for (offered, agreed) in [
        ("2026-07-28", Revision::Jun2025),
        ("2025-11-25", Revision::Jun2025),
        ("2025-03-26", Revision::Mar2025),
        ("2024-11-05", Revision::Nov2024),
    ] {
        let manners = Manners {
            offers: Some(offered.to_owned()),
            ..Manners::default()
        };
        let peer = Peer::with(NOVEMBER, &target(&running), manners)
            .await
            .unwrap();
        assert_eq!(peer.agreed(), Some(agreed), "{offered}");
    }
}

#[tokio::test]
async fn without_sessions_there_is_no_id_no_get_and_no_delete() {
    let options = Options {
        sessions: false,
        ..Options::default()
    };
    let running = legacy_everything(ANY_PORT, options).await.unwrap();
    let peer = peer(&running).await;
    assert_eq!(peer.session_id(), None);
    assert_eq!(peer.get_status(), Some(StatusCode::METHOD_NOT_ALLOWED));
    assert_eq!(
        peer.delete().await.unwrap(),
        Some(StatusCode::METHOD_NOT_ALLOWED)
    );
    assert_eq!(
        peer.call("echo", json!({}), &Answers::usual())
            .await
            .unwrap()
            .text(),
        "{}"
    );
    assert_eq!(running.sessions().opened(), 0);
}

#[tokio::test]
async fn a_legacy_only_server_does_not_know_discover() {
    let running = honest().await;
    let probe = Client::new(&running.url)
        .call("server/discover", json!({}))
        .await
        .unwrap();
    assert_eq!((probe.status.as_u16(), probe.code()), (400, -32000));
    let options = Options {
        sessions: false,
        ..Options::default()
    };
    let running = legacy_everything(ANY_PORT, options).await.unwrap();
    let probe = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover" });
    assert_eq!(post(&running, probe, None, None).await.code(), -32601);
}

#[tokio::test]
async fn a_stream_that_closes_in_mid_call_is_resumed() {
    let running = honest().await;
    let peer = peer(&running).await;
    let gets = running.sessions().gets();
    let call = peer.tool("test_reconnection", json!({})).await.unwrap();
    assert_eq!(call.text(), "the stream was closed and resumed");
    assert_eq!(running.sessions().gets(), gets + 1);
}

#[tokio::test]
async fn every_session_counts_for_itself() {
    let running = honest().await;
    let (one, two) = (peer(&running).await, peer(&running).await);
    for expected in ["1", "2"] {
        assert_eq!(
            one.tool("test_count", json!({})).await.unwrap().text(),
            expected
        );
    }
    assert_eq!(two.tool("test_count", json!({})).await.unwrap().text(), "1");
}

#[tokio::test]
async fn a_question_outside_of_any_call_goes_out_on_the_get_stream() {
    let running = honest().await;
    let peer = peer(&running).await;
    peer.tool("test_ask_outside", json!({})).await.unwrap();
    let asked = peer.told("elicitation/create").await.unwrap();
    assert_eq!(asked["params"]["message"], "Outside of any call");
    let sessions = running.sessions();
    assert!(
        sessions
            .wait_for(|sessions| !sessions.outside().is_empty())
            .await
    );
    assert_eq!(
        sessions.outside()[0]["error"]["message"],
        "no call is in flight"
    );
}

#[tokio::test]
async fn urls_are_asked_for_or_demanded() {
    let running = honest().await;
    let peer = peer(&running).await;
    let asked = peer
        .call("test_elicitation_url", json!({}), &Answers::usual())
        .await
        .unwrap();
    assert_eq!(asked.text(), "URL elicitation: accept");
    assert_eq!(asked.asked[0].params["mode"], "url");
    let done = asked.told("notifications/elicitation/complete");
    assert_eq!(
        done[0]["elicitationId"],
        asked.asked[0].params["elicitationId"]
    );
    let demanded = peer.tool("test_url_required", json!({})).await.unwrap();
    assert_eq!(demanded.code(), -32042);
    let url = &demanded.answer["error"]["data"]["elicitations"][0]["url"];
    assert!(url.is_string());
    let again = peer.tool("test_url_required", json!({})).await.unwrap();
    assert_eq!(again.text(), "the URL was opened");
}

#[tokio::test]
async fn lost_sessions_are_told_in_many_ways() {
    let ways = [
        (Lost::NotFound, 404, -32001),
        (Lost::PlainText, 404, 0),
        (Lost::BadRequest, 400, -32000),
        (Lost::ServerError, 400, -32600),
        (Lost::JsonRpc, 200, -32001),
    ];
    for (lost, status, code) in ways {
        let running = forgets_sessions(lost).await.unwrap();
        let old = peer(&running).await;
        assert_eq!(old.tool("echo", json!({})).await.unwrap().text(), "{}");
        running.sessions().forget_all();
        let refused = old.tool("echo", json!({})).await.unwrap();
        assert_eq!(
            refused.status.map(|status| status.as_u16()),
            Some(status),
            "{lost:?}"
        );
        assert_eq!(refused.code(), code, "{lost:?}");
        let new = peer(&running).await;
        assert_eq!(new.tool("echo", json!({})).await.unwrap().text(), "{}");
        assert_eq!(running.sessions().opened(), 2);
    }
}

#[tokio::test]
async fn strict_servers_refuse_what_comes_before_initialized() {
    let running = strict_initialized(Duration::from_millis(100))
        .await
        .unwrap();
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {} },
    });
    let opened = post(&running, initialize, None, None).await;
    let id = opened.headers["mcp-session-id"].to_str().unwrap();
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    assert_eq!(
        post(&running, list.clone(), Some(id), None).await.code(),
        -32602
    );
    assert_eq!(running.sessions().early(), 1);
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(
        post(&running, initialized, Some(id), None).await.status,
        202
    );
    assert_eq!(post(&running, list, Some(id), None).await.code(), 0);
    assert_eq!(running.sessions().early(), 1);
}

#[tokio::test]
async fn a_get_is_refused_or_ends_at_once_and_calls_go_on() {
    for (get, status) in [
        (GetStream::Refused(405), 405),
        (GetStream::Refused(404), 404),
        (GetStream::Refused(501), 501),
        (GetStream::Closes, 200),
    ] {
        let running = no_get_stream(get).await.unwrap();
        let peer = peer(&running).await;
        assert_eq!(
            peer.get_status().map(|status| status.as_u16()),
            Some(status)
        );
        assert_eq!(peer.tool("echo", json!({})).await.unwrap().text(), "{}");
        assert_eq!(running.sessions().gets(), 1);
    }
}

#[tokio::test]
async fn questions_may_come_on_the_get_stream() {
    let running = asks_on_get().await.unwrap();
    let peer = peer(&running).await;
    let answers = Answers::usual();
    let call = peer.call("test_sampling", json!({ "prompt": "?" }), &answers);
    assert_eq!(call.await.unwrap().text(), "LLM response: sampled text");
}

#[tokio::test]
async fn python_like_servers_stream_everything_with_crlf() {
    let running = python_like().await.unwrap();
    let peer = peer(&running).await;
    assert_eq!(peer.tool("echo", json!({})).await.unwrap().text(), "{}");
    let refused = post(&running, ping(), None, None).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (400, -32600));
    assert_eq!(refused.answer["id"], "server-error");
    let named = refused.headers["mcp-session-id"].to_str().unwrap();
    assert_eq!(post(&running, ping(), Some(named), None).await.status, 400);
}

#[tokio::test]
async fn a_slow_initialize_is_answered_late() {
    let running = slow_initialize(Duration::from_millis(50)).await.unwrap();
    let start = tokio::time::Instant::now();
    peer(&running).await;
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn the_endpoint_is_named_in_four_ways_and_three_line_ends() {
    let other = honest().await;
    let origin = format!("http://{}", other.address);
    for (endpoint, line_end, reachable) in [
        (Endpoint::AbsolutePath, LineEnd::Lf, true),
        (Endpoint::Relative, LineEnd::CrLf, true),
        (Endpoint::FullUrl, LineEnd::Cr, true),
        (Endpoint::OtherOrigin(origin), LineEnd::Lf, false),
    ] {
        let running = sse(endpoint, line_end).await.unwrap();
        let target = target(&running);
        let connect = Peer::connect(Kind::Sse(Revision::Nov2024), &target);
        if !reachable {
            // This client posts there all the same, and never hears of it on its stream.
            let waited = tokio::time::timeout(Duration::from_millis(300), connect).await;
            assert!(waited.is_err());
            continue;
        }
        let peer = connect.await.unwrap();
        assert_eq!(peer.tool("echo", json!({})).await.unwrap().text(), "{}");
        peer.close().await.unwrap();
        assert!(running.sessions().wait_for(|all| all.live() == 0).await);
    }
    assert!(!other.seen().all().is_empty());
}

#[tokio::test]
async fn a_client_can_go_on_in_a_session_it_did_not_open() {
    let running = honest().await;
    let first = peer(&running).await;
    first.tool("test_count", json!({})).await.unwrap();
    let id = first.session_id().unwrap();
    let second = Peer::rejoin(NOVEMBER, &running.url, id, &Manners::default()).unwrap();
    assert_eq!(
        second.tool("test_count", json!({})).await.unwrap().text(),
        "2"
    );
    assert_eq!(running.sessions().opened(), 1);
}

#[tokio::test]
async fn a_stream_lost_and_opened_again_misses_nothing() {
    let running = honest().await;
    let peer = peer(&running).await;
    peer.close_streams();
    let gone = |seen: &Seen| {
        let mut gets = seen
            .all()
            .into_iter()
            .filter(|seen| seen.http_method == Method::GET);
        gets.any(|get| get.outcome == Outcome::Aborted)
    };
    assert!(running.seen().wait_for(gone).await);
    peer.tool("test_trigger_prompt_change", json!({}))
        .await
        .unwrap();
    assert_eq!(peer.open_stream().await.unwrap(), Some(StatusCode::OK));
    let told = peer.told("notifications/prompts/list_changed").await;
    assert!(told.is_some());
    assert_eq!(peer.open_stream().await.unwrap(), Some(StatusCode::OK));
    peer.tool("test_trigger_tool_change", json!({}))
        .await
        .unwrap();
    assert!(
        peer.told("notifications/tools/list_changed")
            .await
            .is_some()
    );
    assert!(peer.inbox().is_empty(), "each message comes once");
}

#[tokio::test]
async fn headers_of_ones_own_and_of_the_revision_are_sent() {
    let running = honest().await;
    for (revision, version_header, sent) in [
        (Revision::Nov2025, true, Some("2025-11-25")),
        (Revision::Jun2025, false, None),
        (Revision::Mar2025, true, None),
    ] {
        let manners = Manners {
            version_header,
            headers: vec![("x-own".to_owned(), revision.as_str().to_owned())],
            ..Manners::default()
        };
        let peer = Peer::with(Kind::Http(revision), &target(&running), manners)
            .await
            .unwrap();
        peer.tool("echo", json!({})).await.unwrap();
        let seen = running.seen().of("tools/call").pop().unwrap();
        assert_eq!(seen.header("x-own"), Some(revision.as_str()));
        assert_eq!(seen.header("mcp-protocol-version"), sent);
        assert_eq!(seen.header("mcp-session-id"), peer.session_id());
    }
}
