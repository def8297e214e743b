//! What becomes of calls when sessions end, and of those that come then.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use waypost_config::config::Isolation;
use waypost_hub::error::{CallError, Kind};
use waypost_hub::reply::End;
use waypost_wire::raw::Raw;

use super::kit::{Line, Played, WELCOME, by, call, end, result};
use crate::fault::{Exit, Fault, How};
use crate::legacy::Legacy;

fn exited() -> Fault {
    let (how, tail, told) = (How::Code(1), String::new(), false);
    Fault::exited(&Arc::new(Exit { how, tail, told }))
}

/// The session with this number, once there is one.
async fn line(server: &Played, at: usize) -> Arc<Line> {
    while server.dialled() <= at {
        sleep(Duration::from_millis(1)).await;
    }
    server.line(at)
}

async fn answer(server: &Played, at: usize) {
    let line = line(server, at).await;
    line.says(&result(&line.request("tools/call").await));
}

async fn failure(legacy: &Legacy, name: &str) -> CallError {
    match legacy.call(by(name)).await {
        Ok(reply) => reply.into_end().await.unwrap_err(),
        Err(unanswered) => unanswered.into_call(&"u".into()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_written_when_its_process_died_goes_to_the_next() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    server.holds(true);
    let plays = async {
        let line = line(&server, 0).await;
        sleep(Duration::from_millis(10)).await;
        server.holds(false);
        line.dies(&exited());
        answer(&server, 1).await;
    };
    let (end, ()) = join(end(&legacy, call()), plays).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_twice_not_written_fails_and_may_be_tried_again() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    server.holds(true);
    let plays = async {
        for at in 0..2 {
            let line = line(&server, at).await;
            sleep(Duration::from_millis(10)).await;
            line.dies(&exited());
        }
    };
    let (error, ()) = join(failure(&legacy, "p"), plays).await;
    assert!(error.retryable && error.kind == Kind::Unavailable);
    assert!(error.to_string().contains("code 1"), "{error}");
    assert_eq!(server.dialled(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_written_when_its_process_died_may_have_run() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let plays = async {
        let line = line(&server, 0).await;
        line.request("tools/call").await;
        line.dies(&exited());
    };
    let (error, ()) = join(failure(&legacy, "p"), plays).await;
    assert!(!error.retryable && error.kind == Kind::Unavailable);
    assert_eq!(server.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_meets_the_end_of_an_unused_session_goes_to_another() {
    let server = Played::new();
    let logs = WELCOME.replace(r#""tools""#, r#""logging":{},"tools""#);
    server.welcomes(Duration::ZERO, &logs);
    server.closes_within(Duration::from_secs(5));
    let legacy = server.legacy(Isolation::Principal, 9);
    join(end(&legacy, call()), answer(&server, 0)).await;
    sleep(Duration::from_millis(59_800)).await;
    // Its server is silent about its log: half a second passes before it is sent.
    let mut late = call();
    late.meta.log_level = Some(Raw::string("info"));
    let began = Instant::now();
    let (end, ()) = join(end(&legacy, late), answer(&server, 1)).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn r35_a_server_that_does_not_open_is_not_tried_for_every_caller() {
    let server = Played::new();
    let refusal = r#"{"error":{"code":-32000,"message":"m"}}"#;
    server.welcomes(Duration::ZERO, refusal);
    let legacy = server.legacy(Isolation::Principal, 9);
    for name in ["a", "b", "c", "d"] {
        let error = failure(&legacy, name).await;
        assert!(error.to_string().contains("-32000"), "{error}");
    }
    assert_eq!(server.dialled(), 1);
    sleep(Duration::from_millis(501)).await;
    failure(&legacy, "e").await;
    failure(&legacy, "f").await;
    assert_eq!(server.dialled(), 2);
    sleep(Duration::from_millis(501)).await;
    failure(&legacy, "g").await;
    assert_eq!(server.dialled(), 2, "longer each time");
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_s_calls_break_keeps_no_other_from_starting_its_own() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Principal, 9);
    for at in 0..5 {
        let dies = async {
            let line = line(&server, at).await;
            line.request("tools/call").await;
            line.dies(&exited());
        };
        join(failure(&legacy, "a"), dies).await;
        sleep(Duration::from_millis(1)).await;
    }
    let began = Instant::now();
    let (end, ()) = join(end(&legacy, by("b")), answer(&server, 5)).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
    assert!(began.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn who_finds_a_session_being_opened_is_told_that_it_is_not_over_its_own_connection() {
    let server = Played::new();
    server.welcomes(Duration::from_secs(1), WELCOME);
    let legacy = server.legacy(Isolation::Shared, 9);
    let ours = Played::new();
    let begins = async {
        line(&server, 0).await;
        legacy.begin(Arc::new(ours.clone())).await.unwrap().1
    };
    let (_, instance) = join(join(end(&legacy, call()), answer(&server, 0)), begins).await;
    let caller = call();
    assert_eq!(legacy.instance(&caller.principal, None), Some(instance));
    assert_eq!(ours.dialled(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_what_the_server_has_is_cancelled() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    server.holds(true);
    let leaves = timeout(Duration::from_secs(1), legacy.call(call()));
    assert!(leaves.await.is_err());
    let is_cancel = |said: &Value| said["method"] == "notifications/cancelled";
    let line = server.line(0);
    let heard = timeout(Duration::from_secs(60), line.hears(is_cancel)).await;
    assert!(heard.is_err(), "{heard:?}");
}
