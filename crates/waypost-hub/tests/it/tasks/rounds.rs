//! A task that asks, for a caller that knows no tasks: its own call asks, and goes on.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_hub::error::Kind;
use waypost_hub::reply::End;
use waypost_hub::store::Store;
use waypost_wire::raw::Raw;

use crate::fake::Memory;

use super::kit::{
    Act, Setup, World, created, done, error, fails, got, result, stream, task, tasks, value,
};

fn elicits() -> Value {
    json!({ "elicitation": {} })
}

fn question() -> Value {
    json!({ "method": "elicitation/create", "params": { "message": "sure?", "x": 1.0 } })
}

fn asks(requests: &Value) -> Act {
    got("input_required", json!({ "inputRequests": requests }))
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "confirm": true } })
}

/// Calls and gets asked; the request state.
async fn asked(world: &World) -> Value {
    let end = world.end(elicits()).await.unwrap();
    assert!(matches!(end, End::InputRequired(_)), "{end:?}");
    result(&end)["requestState"].clone()
}

/// An upstream whose task asks once and is then done.
fn world() -> World {
    around(Setup::default())
}

fn around(setup: Setup) -> World {
    let world = setup.build();
    world.fake.on("tools/call", [task(created())]);
    world
        .fake
        .on("tasks/get", [asks(&json!({ "q": question() })), done()]);
    world
}

#[tokio::test(start_paused = true)]
async fn a_question_goes_to_the_caller_and_its_answer_to_the_task() {
    let world = world();
    let end = world.end(elicits()).await.unwrap();
    let got = result(&end);
    assert_eq!(got["resultType"], json!("input_required"));
    assert_eq!(got["inputRequests"], json!({ "q": question() }));
    let state = &got["requestState"];
    assert!(state.as_str().unwrap().starts_with("wp1."));
    assert_eq!(got.as_object().unwrap().len(), 3);

    let responses = json!({ "q": yes() });
    let reply = world
        .retry(elicits(), state, responses.clone())
        .await
        .unwrap();
    let end = reply.into_end().await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    let updates = world.fake.seen("tasks/update");
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0].param("taskId"), json!("t1"));
    assert_eq!(updates[0].param("inputResponses"), responses);
    assert!(updates[0].declares_tasks());
    assert_eq!(world.fake.count("tools/call"), 1);
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_parts_is_asked_for_the_rest() {
    let world = around(Setup::default());
    let both = json!({ "a": question(), "b": question() });
    let rest = json!({ "b": question() });
    // The upstream shows the answered question a little longer.
    world
        .fake
        .on("tasks/get", [asks(&both), asks(&both), asks(&rest), done()]);
    let first = asked(&world).await;
    let reply = world
        .retry(elicits(), &first, json!({ "a": yes() }))
        .await
        .unwrap();
    let end = reply.into_end().await.unwrap();
    assert_eq!(result(&end)["inputRequests"], rest);
    let second = result(&end)["requestState"].clone();
    assert_ne!(first, second);
    let reply = world
        .retry(elicits(), &second, json!({ "b": yes() }))
        .await
        .unwrap();
    assert_eq!(result(&reply.into_end().await.unwrap())["n"], json!(1));
    assert_eq!(world.fake.count("tasks/update"), 2);
}

#[tokio::test(start_paused = true)]
async fn only_answers_to_what_was_asked_are_sent_and_remembered() {
    let store = Arc::new(Memory::default());
    let world = around(Setup {
        store: Arc::clone(&store) as Arc<dyn Store>,
        ..Setup::default()
    });
    let state = asked(&world).await;
    let unasked = (0..200).map(|n| (format!("k{n}"), yes()));
    let mut responses: serde_json::Map<String, Value> = unasked.collect();
    responses.insert("q".to_owned(), yes());
    let reply = world.retry(elicits(), &state, responses.into()).await;
    let end = reply.unwrap().into_end().await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    let sent = world.fake.seen("tasks/update")[0].param("inputResponses");
    assert_eq!(sent, json!({ "q": yes() }));
    let used = store.2.lock().unwrap().len();
    assert!(used <= 2, "{used} rows");
}

#[tokio::test(start_paused = true)]
async fn a_state_says_to_any_process_what_it_asks() {
    let store = Arc::new(Memory::default());
    let with_store = || Setup {
        store: Arc::clone(&store) as Arc<dyn Store>,
        ..Setup::default()
    };
    let before = around(with_store());
    let first = asked(&before).await;
    before
        .fake
        .on("tasks/get", [asks(&json!({ "r": question() }))]);
    let reply = before.retry(elicits(), &first, json!({ "q": yes() })).await;
    let end = reply.unwrap().into_end().await.unwrap();
    let second = result(&end)["requestState"].clone();

    // A client that brings all its answers so far, and one that nobody asked for.
    let after = with_store().around(&before.fake);
    after.fake.on("tasks/get", [done()]);
    let all = json!({ "q": yes(), "r": yes(), "x": yes() });
    let reply = after.retry(elicits(), &second, all).await.unwrap();
    assert_eq!(result(&reply.into_end().await.unwrap())["n"], json!(1));
    let updates = after.fake.seen("tasks/update");
    assert_eq!(updates.len(), 2);
    let sent = updates[1].param("inputResponses");
    assert_eq!(sent, json!({ "r": yes() }));
}

#[tokio::test(start_paused = true)]
async fn more_questions_than_anybody_answers_are_refused_with_their_number() {
    let world = world();
    let many = (0..257).map(|n| (format!("k{n}"), question()));
    let many: serde_json::Map<String, Value> = many.collect();
    world.fake.on("tasks/get", [asks(&many.into())]);
    let error = world.end(elicits()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "upstream `up`: its `inputRequests` are 257, more than 256"
    );
}

#[tokio::test(start_paused = true)]
async fn more_answers_than_anybody_asks_for_are_refused_and_the_state_stays_good() {
    let world = world();
    let state = asked(&world).await;
    let many = (0..257).map(|n| (format!("k{n}"), yes()));
    let many: serde_json::Map<String, Value> = many.collect();
    let refused = world.retry(elicits(), &state, many.into()).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "`inputResponses` has more than 256 answers"
    );
    let reply = world.retry(elicits(), &state, json!({ "q": yes() })).await;
    let end = reply.unwrap().into_end().await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_upstream_does_not_take_is_asked_for_again() {
    let world = world();
    world
        .fake
        .on("tasks/get", [asks(&json!({ "q": question() }))]);
    let state = asked(&world).await;
    let start = Instant::now();
    let reply = world
        .retry(elicits(), &state, json!({ "q": {} }))
        .await
        .unwrap();
    let end = reply.into_end().await.unwrap();
    assert!(matches!(end, End::InputRequired(_)));
    assert!(
        start.elapsed() >= Duration::from_secs(5),
        "not before it could have settled"
    );
    assert!(start.elapsed() < Duration::from_secs(8));
}

#[tokio::test(start_paused = true)]
async fn r82_what_the_caller_did_not_declare_is_not_asked_and_cancels_the_task() {
    let url = json!({ "method": "elicitation/create", "params": { "mode": "url", "url": "x" } });
    let sampling = json!({ "method": "sampling/createMessage", "params": {} });
    for (declared, asked, required) in [
        (json!({}), question(), json!({ "elicitation": {} })),
        (elicits(), url, json!({ "elicitation": { "url": {} } })),
        (elicits(), sampling, json!({ "sampling": {} })),
        (
            elicits(),
            json!({ "method": "roots/list" }),
            json!({ "roots": {} }),
        ),
    ] {
        let world = world();
        world.fake.on(
            "tasks/get",
            [asks(&json!({ "ok": question(), "q": asked }))],
        );
        let error = error(world.end(declared).await.unwrap());
        assert_eq!(error.code(), -32021);
        let names = Raw::from(&error.required_capabilities().unwrap());
        assert_eq!(value(&names), required);
        world.fake.called("tasks/cancel", 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_cannot_be_read_is_the_upstreams_fault_and_cancels_the_task() {
    let world = world();
    let twice = r#"{"q":{"method":"roots/list"},"q":{"method":"elicitation/create"}}"#;
    let text = format!(r#"{{"taskId":"t1","status":"input_required","inputRequests":{twice}}}"#);
    let task = Raw::parse(&text.into()).unwrap().as_object().unwrap();
    world.fake.on("tasks/get", [Act::End(End::Complete(task))]);
    let error = world.end(elicits()).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadUpstream);
    world.fake.called("tasks/cancel", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_tasks_are_collapsed_by_the_file_is_asked_too() {
    let world = around(Setup {
        policy: "collapse",
        ..Setup::default()
    });
    let mut declared = tasks();
    declared["elicitation"] = json!({});
    let end = world.end(declared.clone()).await.unwrap();
    let state = result(&end)["requestState"].clone();
    let reply = world
        .retry(declared, &state, json!({ "q": yes() }))
        .await
        .unwrap();
    assert_eq!(result(&reply.into_end().await.unwrap())["n"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn no_answer_within_input_wait_cancels_the_task() {
    let world = around(Setup {
        times: "input_wait: 2m",
        ..Setup::default()
    });
    world
        .fake
        .on("tasks/get", [asks(&json!({ "q": question() }))]);
    let state = asked(&world).await;
    let start = Instant::now();
    world.fake.called("tasks/cancel", 1).await;
    assert_eq!(start.elapsed().as_secs(), 120);
    let late = world.retry(elicits(), &state, json!({ "q": yes() })).await;
    assert_eq!(
        late.unwrap_err().to_string(),
        "unknown or expired request state"
    );
    assert_eq!(world.fake.count("tasks/update"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_answered_elsewhere_is_left_alone() {
    let here = world();
    let state = asked(&here).await;
    here.fake.on("tasks/get", [done()]);
    let elsewhere = Setup::default().around(&here.fake);
    let reply = elsewhere
        .retry(elicits(), &state, json!({ "q": yes() }))
        .await
        .unwrap();
    assert_eq!(result(&reply.into_end().await.unwrap())["n"], json!(1));
    let polls = here.fake.count("tasks/get");
    here.fake.called("tasks/get", polls + 1).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(here.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_state_outlives_the_process_that_made_it_and_stays_single_use() {
    let before = world();
    let state = asked(&before).await;
    let after = Setup::default().around(&before.fake);
    drop(before.desk);
    let responses = || json!({ "q": yes() });
    let reply = after.retry(elicits(), &state, responses()).await.unwrap();
    reply.into_end().await.unwrap();
    sleep(Duration::from_secs(61)).await;
    let again = after.retry(elicits(), &state, responses()).await;
    assert_eq!(again.unwrap_err().kind, Kind::UnknownTarget);
    assert_eq!(after.fake.count("tasks/update"), 1);
}

#[tokio::test(start_paused = true)]
async fn too_many_waiting_rounds_are_refused_and_their_tasks_cancelled() {
    let world = around(Setup {
        parked: 1,
        ..Setup::default()
    });
    world
        .fake
        .on("tasks/get", [asks(&json!({ "q": question() }))]);
    let state = asked(&world).await;
    let error = world.end(elicits()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Throttled);
    world.fake.called("tasks/cancel", 1).await;
    // The one that waits is not harmed, and its answer makes room.
    world.fake.on("tasks/get", [done()]);
    let reply = world
        .retry(elicits(), &state, json!({ "q": yes() }))
        .await
        .unwrap();
    reply.into_end().await.unwrap();
    world
        .fake
        .on("tasks/get", [asks(&json!({ "q": question() }))]);
    asked(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_round_whose_process_is_gone_holds_its_place_no_longer() {
    let world = Setup {
        parked: 1,
        ..Setup::default()
    };
    let world = world.build();
    world.fake.run_as("child 1");
    world.fake.on("tools/call", [task(created())]);
    world
        .fake
        .on("tasks/get", [asks(&json!({ "q": question() }))]);
    let state = asked(&world).await;
    assert_eq!(world.member.parked(), 1);
    world.fake.run_as("child 2");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.member.parked(), 0);
    asked(&world).await;
    let reply = world.retry(elicits(), &state, json!({ "q": yes() })).await;
    assert_eq!(reply.unwrap_err().kind, Kind::UnknownTarget);
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn answers_that_cannot_wait_to_be_sent_again_are_refused_as_what_they_are() {
    let world = around(Setup {
        parked: 1,
        ..Setup::default()
    });
    world
        .fake
        .on("tasks/get", [asks(&json!({ "q": question() }))]);
    let state = asked(&world).await;
    world
        .fake
        .on("tasks/update", [Act::Refuse(Kind::Unavailable)]);
    let reply = world.retry(elicits(), &state, json!({ "q": yes() })).await;
    let reply = reply.unwrap();
    // Another call takes the place meanwhile.
    asked(&world).await;
    let error = reply.into_end().await.unwrap_err();
    assert_eq!((error.kind, error.retryable), (Kind::Throttled, false));
    world.fake.called("tasks/cancel", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_leaves_cancels_the_task() {
    let world = world();
    world.fake.on(
        "tasks/get",
        [asks(&json!({ "q": question() })), got("working", json!({}))],
    );
    let state = asked(&world).await;
    let reply = world
        .retry(elicits(), &state, json!({ "q": yes() }))
        .await
        .unwrap();
    let mut events = stream(reply);
    assert!(events.next().now_or_never().is_none());
    drop(events);
    world.fake.called("tasks/cancel", 1).await;
    let again = world.retry(elicits(), &state, json!({ "q": yes() })).await;
    assert_eq!(again.unwrap_err().kind, Kind::UnknownTarget);
    assert_eq!(world.fake.count("tasks/update"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_leaves_another_process_uses_the_state_up_there() {
    let before = world();
    let state = asked(&before).await;
    let after = Setup::default().around(&before.fake);
    drop(
        after
            .retry(elicits(), &state, json!({ "q": yes() }))
            .await
            .unwrap(),
    );
    after.fake.called("tasks/cancel", 1).await;
    let again = after.retry(elicits(), &state, json!({ "q": yes() })).await;
    assert_eq!(again.unwrap_err().kind, Kind::UnknownTarget);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_certainly_did_not_arrive_may_be_repeated() {
    let world = world();
    let state = asked(&world).await;
    world.fake.on(
        "tasks/update",
        [
            Act::Refuse(Kind::Unavailable),
            super::kit::complete(json!({})),
        ],
    );
    let responses = || json!({ "q": yes() });
    let reply = world.retry(elicits(), &state, responses()).await.unwrap();
    assert_eq!(reply.into_end().await.unwrap_err().kind, Kind::Unavailable);
    let reply = world.retry(elicits(), &state, responses()).await.unwrap();
    assert_eq!(result(&reply.into_end().await.unwrap())["n"], json!(1));
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_repeatable_update_is_repeatable_in_another_process_too_but_used_once() {
    let before = world();
    let state = asked(&before).await;
    let after = Setup::default().around(&before.fake);
    let answered = super::kit::complete(json!({}));
    let acts = [Act::Refuse(Kind::Unavailable), answered];
    after.fake.on("tasks/update", acts);
    let responses = || json!({ "q": yes() });
    let reply = after.retry(elicits(), &state, responses()).await.unwrap();
    reply.into_end().await.unwrap_err();
    let reply = after.retry(elicits(), &state, responses()).await.unwrap();
    reply.into_end().await.unwrap();
    sleep(Duration::from_secs(61)).await;
    let late = after.retry(elicits(), &state, responses()).await;
    assert_eq!(late.unwrap_err().kind, Kind::UnknownTarget);
    assert_eq!(after.fake.count("tasks/update"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_may_have_arrived_is_not_sent_again() {
    let world = world();
    let state = asked(&world).await;
    world
        .fake
        .on("tasks/update", [Act::Fail(Kind::BadUpstream)]);
    let reply = world
        .retry(elicits(), &state, json!({ "q": yes() }))
        .await
        .unwrap();
    assert_eq!(result(&reply.into_end().await.unwrap())["n"], json!(1));
    assert_eq!(world.fake.count("tasks/update"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_the_upstream_refuses_is_its_error() {
    let world = world();
    let state = asked(&world).await;
    world.fake.on("tasks/update", [fails(-32602)]);
    let reply = world
        .retry(elicits(), &state, json!({ "q": yes() }))
        .await
        .unwrap();
    assert_eq!(error(reply.into_end().await.unwrap()).code(), -32602);
    world.fake.called("tasks/cancel", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_without_answers_goes_on_waiting() {
    let world = world();
    let state = asked(&world).await;
    let mut call = super::kit::retry(elicits(), &state, json!({}));
    call.params.remove("inputResponses");
    let end = world.send(call).await.unwrap().into_end().await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    assert_eq!(world.fake.count("tasks/update"), 0);
}

#[tokio::test(start_paused = true)]
async fn answers_of_the_wrong_kind_do_not_use_the_state_up() {
    let world = world();
    let state = asked(&world).await;
    let wrong = world.retry(elicits(), &state, json!([])).await.unwrap_err();
    assert_eq!(wrong.to_string(), "`inputResponses` must be an object");
    let reply = world
        .retry(elicits(), &state, json!({ "q": yes() }))
        .await
        .unwrap();
    reply.into_end().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_round_of_a_process_that_is_gone_is_an_unknown_task() {
    let world = world();
    world.fake.run_as("child 1");
    let state = asked(&world).await;
    world.fake.run_as("child 2");
    let reply = world.retry(elicits(), &state, json!({ "q": yes() })).await;
    assert_eq!(reply.unwrap_err().to_string(), "unknown task");
    assert_eq!(world.fake.count("tasks/update"), 0);
}
