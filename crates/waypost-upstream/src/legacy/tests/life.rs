//! How sessions begin and end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use waypost_config::config::Isolation;
use waypost_hub::call::{Call, Carrier, Principal, Session};
use waypost_hub::error::Kind;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::{End, Event};
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::kit::{PANIC, Played, WELCOME, call, end, object, question, result, settings, state};
use crate::fault::Fault;
use crate::legacy::pool::Pool;

/// Answers the next call on the session with this number.
async fn answer(server: &Played, at: usize) {
    while server.dialled() <= at {
        sleep(Duration::from_millis(1)).await;
    }
    let line = server.line(at);
    let request = line.request("tools/call").await;
    line.says(&result(&request));
}

#[tokio::test(start_paused = true)]
async fn r19_a_call_waits_for_a_server_that_is_slow_to_start() {
    let server = Played::new();
    server.welcomes(Duration::from_secs(45), WELCOME);
    let legacy = server.legacy(Isolation::Shared, 9);
    let (end, ()) = join(end(&legacy, call()), answer(&server, 0)).await;
    assert!(matches!(end, End::Complete(_)));
    assert_eq!(server.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_when_its_time_is_over() {
    let server = Played::new();
    server.welcomes(Duration::from_secs(61), WELCOME);
    let legacy = server.legacy(Isolation::Shared, 9);
    let started = Instant::now();
    let error = legacy
        .call(call())
        .await
        .unwrap_err()
        .into_call(&"u".into());
    assert_eq!(error.kind, Kind::Timeout);
    assert_eq!(started.elapsed(), Duration::from_secs(60));
    sleep(Duration::from_millis(1)).await;
    assert!(server.line(0).is_closed(), "what was opened is closed");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_known_session_is_refused() {
    for (answer, expected) in [
        (
            r#"{"result":{"protocolVersion":"1999-01-01"}}"#,
            "a protocol version that is not known",
        ),
        (
            r#"{"error":{"code":-32022,"message":"m"}}"#,
            "2026-07-28 after all",
        ),
        (
            r#"{"error":{"code":-32000,"message":"m"}}"#,
            "refused `initialize` with error -32000",
        ),
    ] {
        let server = Played::new();
        server.welcomes(Duration::ZERO, answer);
        let fault = server
            .legacy(Isolation::Shared, 9)
            .discover()
            .await
            .unwrap_err();
        assert!(fault.to_string().contains(expected), "{fault}");
        sleep(Duration::from_millis(1)).await;
        assert!(server.line(0).is_closed());
    }
}

#[tokio::test(start_paused = true)]
async fn r09_a_list_that_changes_is_heard_of_though_nobody_announced_that() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let answered = async {
        let line = server.first().await;
        let ping = line.request("ping").await;
        line.says(&result(&ping));
    };
    let (facts, ()) = join(legacy.discover(), answered).await;
    let facts = facts.unwrap();
    assert!(facts.announces_list("tools") && !facts.announces_list("prompts"));
    let wanted = json!({ "notifications": {
        "toolsListChanged": true, "promptsListChanged": true } });
    let listen = Call::own("subscriptions/listen", object(&wanted));
    let mut events = legacy.call(listen).await.unwrap().into_stream();
    let mut next = async || match events.next().await {
        Some(Ok(Event::Notification(notification))) => notification,
        other => panic!("{other:?}"),
    };
    let honoured = next().await.params.get("notifications").cloned().unwrap();
    assert_eq!(honoured.text(), r#"{"toolsListChanged":true}"#);
    let changed = "notifications/tools/list_changed";
    server.line(0).says(&json!({ "method": changed }));
    assert_eq!(next().await.method, changed);
}

#[tokio::test(start_paused = true)]
async fn a_call_notes_the_session_that_answers_it() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Principal, 9);
    server.fails(Fault::SessionLost);
    let mut first = call();
    first.carrier = Carrier::watched();
    let plays = async {
        while server.dialled() < 2 {
            tokio::task::yield_now().await;
        }
        let line = server.line(1);
        let request = line.request("tools/call").await;
        line.says(&question("a"));
        (line, request)
    };
    let (asked, (line, request)) = join(end(&legacy, first.clone()), plays).await;
    let carrier = first.carrier.instance();
    let answers = legacy.instance(&first.principal, None);
    assert!(carrier.is_some() && carrier == answers);
    let mut again = call();
    again.carrier = Carrier::watched();
    again.params.set("requestState", Raw::string(&state(asked)));
    line.says(&result(&request));
    end(&legacy, again.clone()).await;
    assert_eq!(again.carrier.instance(), carrier);
}

#[tokio::test(start_paused = true)]
async fn r02_a_call_is_repeated_once_in_a_new_session_and_not_again() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    server.fails(Fault::SessionLost);
    let (end, ()) = join(end(&legacy, call()), answer(&server, 1)).await;
    assert!(matches!(end, End::Complete(_)));
    for _ in 0..2 {
        server.fails(Fault::SessionLost);
    }
    let error = legacy
        .call(call())
        .await
        .unwrap_err()
        .into_call(&"u".into());
    assert!(error.retryable && error.kind == Kind::Unavailable);
    assert_eq!(server.dialled(), 3);
}

#[tokio::test(start_paused = true)]
async fn r59_what_runs_in_a_forgotten_session_has_its_answer_and_others_have_a_new_one() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let plays = async {
        while server.dialled() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let old = server.line(0);
        let request = old.request("tools/call").await;
        old.is_forgotten();
        let (other, ()) = join(end(&legacy, call()), answer(&server, 1)).await;
        assert!(matches!(other, End::Complete(_)));
        old.says(&result(&request));
    };
    let (end, ()) = Box::pin(join(end(&legacy, call()), plays)).await;
    assert!(matches!(end, End::Complete(_)));
    sleep(Duration::from_millis(1)).await;
    assert!(server.line(0).is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_work_failed_inside_ends_its_listeners_and_is_replaced() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let listen = || Call::own("subscriptions/listen", object(&wanted));
    let mut events = legacy.call(listen()).await.unwrap().into_stream();
    assert!(matches!(events.next().await, Some(Ok(_))));
    server
        .line(0)
        .says(&json!({ "id": PANIC, "method": "ping" }));
    let error = events.next().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("internal error"), "{error}");
    let (end, ()) = join(end(&legacy, call()), answer(&server, 1)).await;
    assert!(matches!(end, End::Complete(_)));
    assert!(server.line(0).is_closed());
}

#[tokio::test(start_paused = true)]
async fn r16_a_session_ends_when_it_was_not_used_for_long_but_not_during_a_call() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Principal, 9);
    let plays = async {
        while server.dialled() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let request = server.line(0).request("tools/call").await;
        sleep(Duration::from_secs(200)).await;
        assert!(!server.line(0).is_closed());
        server.line(0).says(&result(&request));
    };
    let (_, ()) = join(end(&legacy, call()), plays).await;
    sleep(Duration::from_secs(59)).await;
    assert!(!server.line(0).is_closed());
    sleep(Duration::from_secs(2)).await;
    assert!(server.line(0).is_closed());
    let (end, ()) = join(end(&legacy, call()), answer(&server, 1)).await;
    assert!(matches!(end, End::Complete(_)));
}

#[tokio::test(start_paused = true)]
async fn failing_to_open_is_shared_and_not_repeated_at_once() {
    let server = Played::new();
    server.welcomes(
        Duration::from_secs(1),
        r#"{"error":{"code":-32000,"message":"m"}}"#,
    );
    let legacy = server.legacy(Isolation::Shared, 9);
    let (one, two) = Box::pin(join(legacy.call(call()), legacy.call(call()))).await;
    assert!(one.is_err() && two.is_err());
    assert_eq!(server.dialled(), 1);
    assert!(legacy.call(call()).await.is_err());
    assert_eq!(server.dialled(), 1, "too early");
    sleep(Duration::from_secs(1)).await;
    server.welcomes(Duration::ZERO, WELCOME);
    let (end, ()) = join(end(&legacy, call()), answer(&server, 1)).await;
    assert!(matches!(end, End::Complete(_)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_opened_after_the_end() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    legacy.discover().await.ok();
    legacy.close().await;
    assert!(server.line(0).is_closed());
    assert!(legacy.call(call()).await.is_err());
    assert_eq!(server.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn r16_a_session_that_failed_to_open_takes_no_place_when_its_caller_has_gone() {
    let server = Played::new();
    let refusal = r#"{"error":{"code":-32000,"message":"m"}}"#;
    server.welcomes(Duration::from_secs(5), refusal);
    let legacy = server.legacy(Isolation::Principal, 9);
    let by = |name| {
        let mut call = call();
        call.principal = Principal::new(name);
        call
    };
    for name in ["a", "b"] {
        let gone = timeout(Duration::from_secs(1), legacy.call(by(name))).await;
        assert!(gone.is_err());
    }
    sleep(Duration::from_secs(10)).await;
    server.welcomes(Duration::ZERO, WELCOME);
    for (name, at) in [("c", 2), ("d", 3)] {
        let (end, ()) = join(end(&legacy, by(name)), answer(&server, at)).await;
        assert!(matches!(end, End::Complete(_)), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_of_our_own_is_forgotten_with_whoever_asked() {
    let server = Played::new();
    let settings = settings(Isolation::Shared);
    let pool = Pool::new(settings, Arc::new(server), &Tasks::default());
    let session = pool.home().await.unwrap();
    let params = Object::new();
    let asked = session.ask("ping", &params);
    assert!(timeout(Duration::from_millis(1), asked).await.is_err());
    assert_eq!(session.table.plain_open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_no_object_agrees_to_nothing() {
    let server = Played::new();
    let settings = settings(Isolation::Shared);
    let pool = Pool::new(settings, Arc::new(server.clone()), &Tasks::default());
    let session = pool.home().await.unwrap();
    for (result, agrees) in [(json!(17), false), (json!([]), false), (json!({}), true)] {
        let params = Object::new();
        let plays = async {
            let line = server.first().await;
            let request = line.request("resources/subscribe").await;
            line.says(&json!({ "id": request["id"], "result": result.clone() }));
        };
        let (asked, ()) = join(session.ask("resources/subscribe", &params), plays).await;
        assert_eq!(asked.is_ok(), agrees, "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_do_not_wait_for_a_server_that_is_silent_about_its_log() {
    let server = Played::new();
    let logs = WELCOME.replace(r#""tools""#, r#""logging":{},"tools""#);
    server.welcomes(Duration::ZERO, &logs);
    let legacy = server.legacy(Isolation::Shared, 9);
    let logged = || {
        let mut call = call();
        call.meta.log_level = Some(Raw::string("info"));
        end(&legacy, call)
    };
    let before = Instant::now();
    for _ in 0..2 {
        let plays = async {
            for _ in 0..10 {
                answer(&server, 0).await;
            }
        };
        let (ends, ()) = join(join_all((0..10).map(|_| logged())), plays).await;
        assert!(ends.iter().all(|end| matches!(end, End::Complete(_))));
        assert!(before.elapsed() < Duration::from_secs(1));
    }
    let line = server.line(0);
    let told = line.request("logging/setLevel").await;
    assert_eq!(told["params"]["level"], "info");
    let again = timeout(Duration::from_secs(60), line.request("logging/setLevel"));
    assert!(again.await.is_err(), "once is enough");
}

#[tokio::test(start_paused = true)]
async fn a_server_hears_that_the_roots_of_its_client_have_changed() {
    let told = |said: &Value| said["method"] == "notifications/roots/list_changed";
    let caller = |session: &Session| {
        let mut call = call();
        call.session = Some(session.clone());
        call.meta.capabilities = ClientCapabilities::new(object(&json!({ "roots": {} })));
        call
    };
    let tells = Session::with_roots("tells", CancellationToken::new());
    let silent = Session::new("silent", CancellationToken::new());
    for (session, promise) in [(tells, json!({ "listChanged": true })), (silent, json!({}))] {
        let server = Played::new();
        let legacy = server.legacy(Isolation::Session, 9);
        let plays = async {
            let line = server.first().await;
            let begun = line.request("initialize").await;
            assert_eq!(begun["params"]["capabilities"]["roots"], promise);
            let request = line.request("tools/call").await;
            line.says(&result(&request));
            line
        };
        let (_, line) = join(end(&legacy, caller(&session)), plays).await;
        session.roots_changed();
        let heard = timeout(Duration::from_secs(1), line.hears(told)).await;
        assert_eq!(heard.is_ok(), session.roots().is_some());
    }
}
