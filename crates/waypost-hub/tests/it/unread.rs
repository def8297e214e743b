//! Lists that cannot be read: the operator sees it, and they are tried again soon.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};
use waypost_hub::error::{CallError, Kind};
use waypost_hub::status::State;

use crate::fake::{Fake, call, echo, hub, names, result, upstreams};
use crate::supervising::{state, until};

const REQUIRED: &str = "upstreams: { a: { url: 'http://127.0.0.1:9', required: true } }";

/// A server that answers calls, and its lists only by this failure, until there are some.
fn without_lists(kind: Kind) -> Arc<Fake> {
    let capabilities = json!({ "tools": {}, "prompts": {} });
    Fake::new("a", capabilities, &[], move |call| {
        if call.method.ends_with("/list") {
            return Err(CallError::upstream(kind, &"a".into()));
        }
        Ok(echo(call))
    })
}

fn give_lists(fake: &Fake) {
    fake.lists.lock().unwrap().extend([
        (
            "tools/list".to_owned(),
            json!({ "tools": [{ "name": "x" }], "ttlMs": 3_600_000 }),
        ),
        (
            "prompts/list".to_owned(),
            json!({ "prompts": [], "ttlMs": 3_600_000 }),
        ),
    ]);
}

#[tokio::test(start_paused = true)]
async fn r72_a_list_that_was_never_read_is_tried_again_soon() {
    for kind in [Kind::BadUpstream, Kind::Timeout, Kind::Unavailable] {
        let a = without_lists(kind);
        let hub = hub(REQUIRED, &[&a]).await;
        until("degraded", || state(&hub, "a") == State::Degraded).await;
        let member = &hub.members()[0];
        let report = member.status.report();
        assert_eq!(report.last_error, Some(format!("upstream `a`: {kind}")));
        assert_eq!(hub.readiness().missing, ["a".into()], "{kind}");
        give_lists(&a);
        let started = Instant::now();
        until("ready", || hub.readiness().ready).await;
        assert!(started.elapsed() < Duration::from_secs(3), "{kind}");
        assert_eq!(state(&hub, "a"), State::Up);
        assert_eq!(member.learned().unwrap().last_error, None);
        assert_eq!(names(&hub).await, ["a_x"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_keeps_failing_is_tried_less_and_less() {
    let a = without_lists(Kind::BadUpstream);
    let hub = hub(REQUIRED, &[&a]).await;
    sleep(Duration::from_secs(600)).await;
    let tries = a.count("tools/list");
    assert!((12..20).contains(&tries), "{tries} in ten minutes");
    assert_eq!(state(&hub, "a"), State::Degraded);
    assert_eq!(a.looks.load(Ordering::SeqCst), 1);
    give_lists(&a);
    let started = Instant::now();
    until("up", || state(&hub, "a") == State::Up).await;
    assert!(started.elapsed() <= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn calls_that_work_do_not_hide_a_list_that_does_not() {
    let a = without_lists(Kind::BadUpstream);
    give_lists(&a);
    let hub = hub(REQUIRED, &[&a]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    a.lists.lock().unwrap().clear();
    a.lost.notify_one();
    until("degraded", || state(&hub, "a") == State::Degraded).await;
    // What was read once is still served, and nobody is sent away for it.
    assert!(hub.readiness().ready);
    assert_eq!(names(&hub).await, ["a_x"]);
    let wanted = || hub.call(call("tools/call", &json!({ "name": "a_x" })));
    hub.members()[0].status.failed("once");
    result(wanted().await).await;
    assert_eq!(state(&hub, "a"), State::Degraded);
    give_lists(&a);
    until("up", || state(&hub, "a") == State::Up).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_tool_whose_list_was_never_read_may_be_tried_again() {
    let a = without_lists(Kind::BadUpstream);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    until("degraded", || state(&hub, "a") == State::Degraded).await;
    assert!(hub.readiness().ready, "it is not required");
    let wanted = |name| hub.call(call("tools/call", &json!({ "name": name })));
    let error = wanted("a_x").await.unwrap_err();
    let text = "upstream `a`: its list of tools could not be read yet";
    assert_eq!(
        (error.to_string(), error.retryable),
        (text.to_owned(), true)
    );
    let other = wanted("b_x").await.unwrap_err();
    assert_eq!(other.to_string(), "unknown tool `b_x`");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_time_before_the_next_list_gets_it() {
    let a = Fake::new("a", json!({ "tools": {} }), &[], |_| {
        let error = CallError::upstream(Kind::Throttled, &"a".into());
        Err(error.retry_after(Some(Duration::from_secs(90))))
    });
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    until("degraded", || state(&hub, "a") == State::Degraded).await;
    sleep(Duration::from_secs(85)).await;
    assert_eq!(a.count("tools/list"), 1);
    until("tried again", || a.count("tools/list") == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_method_the_server_does_not_know_is_no_failure() {
    let lists = [("resources/list", json!({ "resources": [] }))];
    let a = Fake::new("a", json!({ "resources": {} }), &lists, |_| {
        let code = waypost_wire::code::METHOD_NOT_FOUND;
        let error = waypost_wire::error::ErrorObject::new(code, "no templates");
        Ok(waypost_hub::reply::Reply::error(error))
    });
    let hub = hub(REQUIRED, &[&a]).await;
    until("ready", || hub.readiness().ready).await;
    assert_eq!(state(&hub, "a"), State::Up);
}

#[tokio::test(start_paused = true)]
async fn one_list_that_is_always_late_does_not_make_the_server_be_asked_anew() {
    let a = without_lists(Kind::Timeout);
    give_lists(&a);
    a.lists.lock().unwrap().remove("prompts/list");
    let hub = hub(REQUIRED, &[&a]).await;
    sleep(Duration::from_secs(300)).await;
    assert!(a.count("prompts/list") > 5);
    assert_eq!(a.count("tools/list"), 1);
    assert_eq!(a.looks.load(Ordering::SeqCst), 1);
    assert_eq!(state(&hub, "a"), State::Degraded);
    assert_eq!(names(&hub).await, ["a_x"]);
}

#[tokio::test(start_paused = true)]
async fn r72_a_server_that_knows_a_list_no_more_is_asked_what_it_is_before_the_list_is_emptied() {
    let lists = [(
        "tools/list",
        json!({ "tools": [{ "name": "x" }], "ttlMs": 1_000 }),
    )];
    let a = Fake::new("a", json!({ "tools": {} }), &lists, |_| {
        let code = waypost_wire::code::METHOD_NOT_FOUND;
        let error = waypost_wire::error::ErrorObject::new(code, "no");
        Ok(waypost_hub::reply::Reply::error(error))
    });
    let hub = hub(REQUIRED, &[&a]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    let list = a.lists.lock().unwrap().remove("tools/list").unwrap();
    *a.confused.lock().unwrap() = Some("is another".to_owned());
    until("asked anew", || a.looks.load(Ordering::SeqCst) > 2).await;
    assert_eq!(state(&hub, "a"), State::Down);
    assert_eq!(names(&hub).await, ["a_x"]);
    a.lists
        .lock()
        .unwrap()
        .insert("tools/list".to_owned(), list);
    *a.confused.lock().unwrap() = None;
    until("up", || state(&hub, "a") == State::Up).await;
    // One that says itself what it has is believed.
    a.lists.lock().unwrap().clear();
    a.lost.notify_one();
    until("emptied", || {
        let learned = hub.members()[0].learned().unwrap();
        waypost_hub::catalog::entry::Kind::Tool
            .listing(&learned.catalogue)
            .is_none()
    })
    .await;
}
