//! Servers of the session era over HTTP, called without sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Call, Principal, Session};
use waypost_hub::error::Kind;
use waypost_hub::reply::End;
use waypost_hub::upstream::Upstream;
use waypost_testkit::demo::legacy_everything;
use waypost_testkit::kit::legacy::{
    GetStream, LineEnd, Lost, Options, Quirks, Revision, Sdk, Transport,
};
use waypost_testkit::run::Running;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::fake::{Fake, error, http, result};
use crate::kit::{complete, end_of, in_time, object, tool, upstream};

async fn server(options: Options) -> Running {
    let address = "127.0.0.1:0".parse().unwrap();
    legacy_everything(address, options).await.unwrap()
}

async fn with_quirks(quirks: Quirks) -> Running {
    server(Options {
        quirks,
        ..Options::default()
    })
    .await
}

async fn reach(running: &Running, more: &str) -> Arc<dyn Upstream> {
    let upstream = upstream(&format!("url: '{}', {more}", running.url));
    in_time(upstream.discover(None)).await.unwrap();
    upstream
}

fn asked(name: &str) -> Call {
    let mut call = tool(name);
    call.principal = Principal::new("p");
    let all = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} });
    call.meta.capabilities = ClientCapabilities::new(object(&all.to_string()));
    call
}

fn in_session(id: &str, released: &CancellationToken) -> Call {
    let mut call = asked("test_count");
    call.session = Some(Session::new(id, released.clone()));
    call
}

fn value(object: &Object) -> Value {
    Raw::from(object).decode().unwrap()
}

fn text(result: &Object) -> String {
    value(result)["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Calls a tool that asks once, and answers with `answer`.
async fn answered(upstream: &dyn Upstream, name: &str, answer: &Value) -> Object {
    let end = end_of(upstream, asked(name)).await.unwrap();
    let End::InputRequired(asked_for) = end else {
        panic!("{end:?}");
    };
    let asked_for = value(&asked_for);
    let keys = asked_for["inputRequests"].as_object().unwrap().keys();
    let answers: serde_json::Map<_, _> = keys.map(|k| (k.clone(), answer.clone())).collect();
    let mut again = asked(name);
    again
        .params
        .set("inputResponses", Raw::from(&Value::Object(answers)));
    again
        .params
        .set("requestState", Raw::from(&asked_for["requestState"]));
    complete(upstream, again).await
}

#[tokio::test]
async fn every_transport_carries_calls_and_questions() {
    let accept = json!({ "action": "accept", "content": { "username": "a", "email": "b@c.de" } });
    let quirk = |change: fn(&mut Quirks)| {
        let mut quirks = Quirks::default();
        change(&mut quirks);
        Options {
            quirks,
            ..Options::default()
        }
    };
    for options in [
        Options::default(),
        Options {
            transport: Transport::Sse,
            ..Options::default()
        },
        Options {
            newest: Revision::Mar2025,
            ..Options::default()
        },
        quirk(|quirks| quirks.always_streams = true),
        quirk(|quirks| quirks.line_end = LineEnd::CrLf),
        quirk(|quirks| quirks.sdk = Sdk::Python),
        quirk(|quirks| quirks.get = GetStream::Refused(405)),
    ] {
        let shown = format!("{options:?}");
        let running = server(options).await;
        let upstream = reach(&running, "").await;
        let got = complete(&*upstream, asked("test_simple_text")).await;
        assert_eq!(
            got.string("resultType").as_deref(),
            Some("complete"),
            "{shown}"
        );
        let got = answered(&*upstream, "test_elicitation", &accept).await;
        assert!(text(&got).contains("accept"), "{shown}: {got:?}");
        in_time(upstream.close()).await;
    }
}

#[tokio::test]
async fn a_question_on_the_general_stream_finds_the_only_call() {
    let accept = json!({ "action": "accept", "content": { "username": "a", "email": "b@c.de" } });
    let running = with_quirks(Quirks {
        questions_on_get: true,
        ..Quirks::default()
    })
    .await;
    for isolation in ["session", "shared"] {
        let upstream = reach(&running, &format!("isolation: {isolation}")).await;
        let got = answered(&*upstream, "test_elicitation", &accept).await;
        assert!(text(&got).contains("accept"), "{got:?}");
    }
}

#[tokio::test]
async fn a_server_without_sessions_is_called_without() {
    let running = server(Options {
        sessions: false,
        ..Options::default()
    })
    .await;
    let upstream = reach(&running, "").await;
    complete(&*upstream, asked("test_simple_text")).await;
    let facts = in_time(upstream.discover(Some("2025-11-25")))
        .await
        .unwrap();
    assert_eq!(facts.protocol, "2025-11-25");
}

#[tokio::test]
async fn a_server_of_both_eras_needs_no_session() {
    let running = server(Options {
        modern: true,
        ..Options::default()
    })
    .await;
    let one = upstream(&format!("url: '{}'", running.url));
    let facts = in_time(one.discover(None)).await.unwrap();
    assert_eq!(facts.protocol, "2026-07-28");
    assert_eq!(running.sessions().opened(), 0);
    let other = upstream(&format!("url: '{}', era: legacy", running.url));
    let facts = in_time(other.discover(None)).await.unwrap();
    assert_eq!(facts.protocol, "2025-11-25");
}

#[tokio::test]
async fn r02_a_session_that_is_lost_is_opened_anew_once_and_no_call_notices() {
    for lost in [
        Lost::NotFound,
        Lost::PlainText,
        Lost::BadRequest,
        Lost::ServerError,
        Lost::JsonRpc,
    ] {
        let running = with_quirks(Quirks {
            lost,
            get: GetStream::Refused(405),
            ..Quirks::default()
        })
        .await;
        let upstream = reach(&running, "isolation: shared").await;
        complete(&*upstream, asked("test_count")).await;
        let before = running.sessions().opened();
        running.sessions().forget_all();
        let all = (0..20).map(|_| complete(&*upstream, asked("test_count")));
        let all = in_time(join_all(all)).await;
        let counts: Vec<_> = all.iter().map(text).collect();
        assert_eq!(counts.len(), 20);
        assert_eq!(running.sessions().opened(), before + 1, "{lost:?}");
        in_time(upstream.close()).await;
    }
}

#[tokio::test]
async fn r59_other_upstreams_keep_their_sessions() {
    let (a, b) = (
        server(Options::default()).await,
        server(Options::default()).await,
    );
    let (to_a, to_b) = (reach(&a, "").await, reach(&b, "").await);
    for upstream in [&to_a, &to_b] {
        complete(&**upstream, asked("test_count")).await;
    }
    b.sessions().forget_all();
    let two = text(&complete(&*to_a, asked("test_count")).await);
    let one = text(&complete(&*to_b, asked("test_count")).await);
    assert!(two.contains('2') && one.contains('1'), "{two} {one}");
}

#[tokio::test]
async fn r70_nothing_is_sent_before_the_session_is_accepted() {
    let running = with_quirks(Quirks {
        initialized_takes: Some(Duration::from_millis(200)),
        ..Quirks::default()
    })
    .await;
    let upstream = upstream(&format!("url: '{}', isolation: shared", running.url));
    let all = (0..10).map(|_| complete(&*upstream, asked("test_simple_text")));
    in_time(join_all(all)).await;
    assert_eq!(running.sessions().early(), 0);
    assert_eq!(running.sessions().opened(), 1);
}

#[tokio::test]
async fn r22_r64_sessions_are_kept_for_their_clients_and_deleted_with_them() {
    let running = server(Options::default()).await;
    let upstream = reach(&running, "").await;
    let (one, two) = (CancellationToken::new(), CancellationToken::new());
    for n in 1..=5 {
        for call in [in_session("a", &one), in_session("b", &two)] {
            let got = text(&complete(&*upstream, call).await);
            assert!(got.contains(&n.to_string()), "{got}");
        }
    }
    assert_eq!(running.sessions().opened(), 3, "two and the gateway's own");
    one.cancel();
    assert!(in_time(running.sessions().wait_for(|s| s.deleted() == 1)).await);
    let again = text(&complete(&*upstream, in_session("a", &CancellationToken::new())).await);
    assert!(again.contains('1'), "{again}");
    in_time(upstream.close()).await;
    assert_eq!(running.sessions().live(), 0);
    assert_eq!(running.sessions().deleted(), 4);
}

#[tokio::test]
async fn r63_looks_at_a_server_open_one_session() {
    let running = server(Options::default()).await;
    let upstream = reach(&running, "isolation: shared").await;
    for _ in 0..50 {
        in_time(upstream.discover(None)).await.unwrap();
        complete(&*upstream, Call::own("tools/list", Object::new())).await;
    }
    assert_eq!(running.sessions().opened(), 1);
    in_time(upstream.close()).await;
    assert_eq!(running.sessions().deleted(), 1);
}

#[tokio::test]
async fn r16_a_session_that_nobody_uses_is_ended() {
    let running = server(Options::default()).await;
    let upstream = reach(&running, "idle_timeout: 100ms").await;
    let never = CancellationToken::new();
    complete(&*upstream, in_session("a", &never)).await;
    assert!(in_time(running.sessions().wait_for(|s| s.live() == 1)).await);
    let again = text(&complete(&*upstream, in_session("a", &never)).await);
    assert!(again.contains('1'), "{again}");
}

#[tokio::test]
async fn a_server_from_before_the_first_version_is_spoken_to() {
    let fake = Fake::always(|seen| match seen.what() {
        "initialize" => result(
            seen,
            r#"{"protocolVersion":"2024-10-07","capabilities":{"tools":{}},"serverInfo":{}}"#,
        ),
        "server/discover" => http("400 Bad Request", "text/plain", "no"),
        "GET" => http("405 Method Not Allowed", "text/plain", ""),
        "ping" => result(seen, "{}"),
        // Numbers come back as strings here too.
        "tools/call" => {
            let text = format!(r#"{{"jsonrpc":"2.0","id":"{}","result":{{}}}}"#, seen.id());
            http("200 OK", "application/json", &text)
        }
        _ => http("202 Accepted", "text/plain", ""),
    })
    .await;
    let upstream = upstream(&format!("url: '{}'", fake.url()));
    let facts = in_time(upstream.discover(None)).await.unwrap();
    assert_eq!(facts.protocol, "2024-10-07");
    complete(&*upstream, asked("t")).await;
}

#[tokio::test]
async fn r73_a_brief_absence_is_not_for_ever() {
    let gone = Arc::new(AtomicBool::new(true));
    let away = Arc::clone(&gone);
    let fake = Fake::always(move |seen| {
        if away.load(Ordering::SeqCst) {
            return http("404 Not Found", "text/plain", "no route");
        }
        match seen.body["method"].as_str().unwrap_or_default() {
            "server/discover" => {
                let refused = r#"{"code":-32601,"message":"m"}"#;
                error("200 OK", &seen.id(), refused)
            }
            "initialize" => result(
                seen,
                r#"{"protocolVersion":"2025-03-26","capabilities":{"tools":{}}}"#,
            ),
            "notifications/initialized" => {
                "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            _ if seen.line.starts_with("GET") => http("405 No", "text/plain", ""),
            _ => result(seen, r#"{"content":[]}"#),
        }
    })
    .await;
    let upstream = upstream(&format!("url: '{}'", fake.url()));
    let error = end_of(&*upstream, asked("t")).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadUpstream);
    assert!(error.to_string().contains("HTTP 404"), "{error}");
    gone.store(false, Ordering::SeqCst);
    in_time(upstream.discover(None)).await.unwrap();
    complete(&*upstream, asked("t")).await;
}
