//! What becomes of answers that the server does not take, and of calls whose session goes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join3};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use waypost_config::config::Isolation;
use waypost_hub::error::{CallError, Kind};
use waypost_hub::reply::End;
use waypost_wire::raw::Raw;

use super::kit::{Played, WELCOME, call, end, question, result, state};
use crate::fault::Fault;
use crate::legacy::Legacy;

/// A call that was asked this; its state, and its request.
async fn asked(server: &Played, legacy: &Legacy, id: &str) -> (String, Value) {
    let asks = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says_on(Some(&request), &question(id));
        request
    };
    let (end, request) = join(end(legacy, call()), asks).await;
    (state(end), request)
}

/// Brings the answer.
async fn comes_back(legacy: &Legacy, state: &str) -> Result<End, CallError> {
    let mut back = call();
    back.params.set("requestState", Raw::string(state));
    let answers = Raw::from(&json!({ "q1": { "action": "accept" } }));
    back.params.set("inputResponses", answers);
    match legacy.call(back).await {
        Ok(reply) => reply.into_end().await,
        Err(unanswered) => Err(unanswered.into_call(&"u".into())),
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_server_is_slow_to_take_holds_up_only_its_own_call() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let (slow, request) = asked(&server, &legacy, "slow").await;
    let (fast, other) = asked(&server, &legacy, "fast").await;
    server.refuses("slow", None);
    let started = Instant::now();
    let plays = async {
        let line = server.line(0);
        line.hears(|said| said["id"] == "slow").await;
        line.hears(|said| said["id"] == "fast").await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        line.says(&result(&other));
        // What is not known to have been refused may have been taken.
        sleep(Duration::from_secs(40)).await;
        line.says(&result(&request));
    };
    let fast = async {
        sleep(Duration::ZERO).await;
        comes_back(&legacy, &fast).await
    };
    let both = join3(comes_back(&legacy, &slow), fast, plays);
    let (slow, fast, ()) = Box::pin(both).await;
    assert!(matches!(fast, Ok(End::Complete(_))), "{fast:?}");
    assert!(matches!(slow, Ok(End::Complete(_))), "{slow:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_the_server_refuses_fails_and_is_cancelled() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let (state, request) = asked(&server, &legacy, "a").await;
    assert_eq!(legacy.parked(), 1);
    let status = 400;
    let retry_after = None;
    server.refuses(
        "a",
        Some(Fault::Status {
            status,
            retry_after,
        }),
    );
    let error = comes_back(&legacy, &state).await.unwrap_err();
    let expected = "did not take the answer to its question: answered HTTP 400";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(!error.retryable);
    assert_eq!(legacy.parked(), 0);
    let is_cancel = |said: &Value| said["method"] == "notifications/cancelled";
    let cancelled = server.line(0).hears(is_cancel).await;
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_sent_again_when_its_connection_breaks() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let (state, _) = asked(&server, &legacy, "a").await;
    server.refuses("a", Some(Fault::Closed));
    let error = comes_back(&legacy, &state).await.unwrap_err();
    assert!(error.to_string().contains("did not take"), "{error}");
    for _ in 0..3 {
        server.line(0).hears(|said| said["id"] == "a").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_an_answer_finds_lost_is_renewed_and_its_calls_have_failed() {
    let server = Played::new();
    let legacy = Arc::new(server.legacy(Isolation::Shared, 9));
    let (answered, _) = asked(&server, &legacy, "a").await;
    let (parked, _) = asked(&server, &legacy, "b").await;
    server.refuses("a", Some(Fault::SessionLost));
    let started = Instant::now();
    for state in [answered, parked] {
        let error = comes_back(&legacy, &state).await.unwrap_err();
        let expected = "lost the session while the call was open; it may have run";
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!error.retryable, "it may have run");
        assert_eq!(error.kind, Kind::Unavailable);
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
    let plays = async {
        while server.dialled() < 2 {
            sleep(Duration::from_millis(1)).await;
        }
        let line = server.line(1);
        line.says(&result(&line.request("tools/call").await));
    };
    let (end, ()) = join(end(&legacy, call()), plays).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_have_run_when_all_ends_is_not_said_to_be_worth_another_try() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let (state, _) = asked(&server, &legacy, "a").await;
    legacy.close().await;
    let error = comes_back(&legacy, &state).await.unwrap_err();
    assert!(error.to_string().contains("it may have run"), "{error}");
    assert!(!error.retryable);
}

#[tokio::test(start_paused = true)]
async fn what_is_being_told_when_the_handshake_ends_gets_through() {
    let server = Played::new();
    server.welcomes(Duration::from_secs(1), WELCOME);
    server.is_slow_to_take("early", Duration::from_secs(2));
    let legacy = server.legacy(Isolation::Shared, 9);
    let plays = async {
        let line = server.first().await;
        line.hears(|said| said["method"] == "initialize").await;
        line.says(&json!({ "id": "early", "method": "ping" }));
        let request = line.request("tools/call").await;
        assert!(!line.has_taken("early"), "the handshake is over before");
        sleep(Duration::from_secs(5)).await;
        assert!(line.has_taken("early"));
        line.says(&result(&request));
    };
    let (end, ()) = join(end(&legacy, call()), plays).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_finds_no_room_fails_its_call_which_is_cancelled_all_the_same() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let (state, request) = asked(&server, &legacy, "a").await;
    let line = server.line(0);
    server.refuses("p", None);
    for _ in 0..2000 {
        line.says(&json!({ "id": "p", "method": "ping" }));
    }
    let started = Instant::now();
    let error = comes_back(&legacy, &state).await.unwrap_err();
    assert!(error.to_string().contains("too slowly"), "{error}");
    assert!(!error.retryable);
    let is_cancel = |said: &Value| said["method"] == "notifications/cancelled";
    let cancelled = line.hears(is_cancel).await;
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_certainly_not_taken_in_time_fails_its_call() {
    let server = Played::new();
    server.is_sure();
    let legacy = server.legacy(Isolation::Shared, 9);
    let (state, _) = asked(&server, &legacy, "a").await;
    server.refuses("a", None);
    let started = Instant::now();
    let error = comes_back(&legacy, &state).await.unwrap_err();
    let expected = "did not take the answer to its question";
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(started.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_was_certainly_not_taken_is_told_again() {
    let server = Played::new();
    server.is_sure();
    let legacy = server.legacy(Isolation::Shared, 9);
    server.refuses("notifications/cancelled", None);
    let leaves = timeout(Duration::from_secs(1), legacy.call(call())).await;
    assert!(leaves.is_err());
    let line = server.line(0);
    let is_cancel = |said: &Value| said["method"] == "notifications/cancelled";
    for _ in 0..3 {
        let told = timeout(Duration::from_secs(31), line.hears(is_cancel)).await;
        assert!(told.is_ok());
    }
}
