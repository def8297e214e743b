//! Request states: single use, unforgeable, and those of upstreams left as they are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::sleep;
use waypost_hub::call::Principal;
use waypost_hub::error::{CallError, Kind};
use waypost_hub::reply::{End, Event, Reply};
use waypost_hub::store::Store;

use super::kit::{
    Act, Setup, World, call, complete, created, done, got, object, result, retry, stream, task,
};
use waypost_wire::raw::Raw;

use crate::fake::Memory;

const UNKNOWN: &str = "unknown or expired request state";

fn elicits() -> Value {
    json!({ "elicitation": {} })
}

fn responses() -> Value {
    json!({ "q": { "action": "accept" } })
}

/// A world in which a call was asked, and its state.
async fn asked() -> (World, Value) {
    asked_of(Setup::default()).await
}

async fn asked_of(setup: Setup) -> (World, Value) {
    let world = setup.build();
    world.fake.on("tools/call", [task(created())]);
    let question = json!({ "q": { "method": "elicitation/create", "params": {} } });
    let asks = got("input_required", json!({ "inputRequests": question }));
    world.fake.on("tasks/get", [asks, done()]);
    let end = world.end(elicits()).await.unwrap();
    let state = result(&end)["requestState"].clone();
    (world, state)
}

async fn answer(world: &World, state: &Value) -> Result<End, CallError> {
    world
        .retry(elicits(), state, responses())
        .await?
        .into_end()
        .await
}

#[tokio::test(start_paused = true)]
async fn a_repeat_within_a_minute_gets_the_stored_answer_and_a_later_one_none() {
    let (world, state) = asked().await;
    let first = answer(&world, &state).await.unwrap();
    sleep(Duration::from_secs(59)).await;
    assert_eq!(answer(&world, &state).await.unwrap(), first);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(
        answer(&world, &state).await.unwrap_err().to_string(),
        UNKNOWN
    );
    assert_eq!(world.fake.count("tasks/update"), 1);
    assert_eq!(world.fake.count("tools/call"), 1);
}

/// What a process that remembers this in its store is made with.
fn with_store(store: &Arc<Memory>) -> Setup {
    Setup {
        store: Arc::clone(store) as Arc<dyn Store>,
        ..Setup::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_that_was_used_before_a_restart_sends_no_answers_again() {
    let store = Arc::new(Memory::default());
    let (before, state) = asked_of(with_store(&store)).await;
    answer(&before, &state).await.unwrap();
    let after = with_store(&store).around(&before.fake);
    after.fake.on("tasks/get", [done()]);
    let end = answer(&after, &state).await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    assert_eq!(after.fake.count("tasks/update"), 1);
    // One that remembers nothing cannot know.
    let forgetful = Setup::default().around(&before.fake);
    answer(&forgetful, &state).await.unwrap();
    assert_eq!(after.fake.count("tasks/update"), 2);
}

#[tokio::test(start_paused = true)]
async fn answers_that_were_remembered_and_never_arrived_are_asked_for_again() {
    let store = Arc::new(Memory::default());
    let (before, state) = asked_of(with_store(&store)).await;
    before.fake.on("tasks/update", [Act::Hang]);
    let mut killed = stream(before.retry(elicits(), &state, responses()).await.unwrap());
    assert!(killed.next().now_or_never().is_none());
    let after = with_store(&store).around(&before.fake);
    let question = json!({ "q": { "method": "elicitation/create", "params": {} } });
    let asks = got("input_required", json!({ "inputRequests": question }));
    after.fake.on("tasks/get", [asks]);
    let end = answer(&after, &state).await.unwrap();
    assert_eq!(result(&end)["inputRequests"], question);
    assert_eq!(after.fake.count("tasks/update"), 1);
    let state = result(&end)["requestState"].clone();
    after.fake.on("tasks/update", [complete(json!({}))]);
    after.fake.on("tasks/get", [done()]);
    let end = answer(&after, &state).await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    assert_eq!(after.fake.count("tasks/update"), 2);
}

#[tokio::test(start_paused = true)]
async fn two_states_that_ask_the_same_bring_one_answer() {
    let ask = |keys: &[&str]| {
        let question = json!({ "method": "elicitation/create", "params": {} });
        let all: serde_json::Map<String, Value> = keys
            .iter()
            .map(|key| ((*key).to_owned(), question.clone()))
            .collect();
        got("input_required", json!({ "inputRequests": all }))
    };
    let state = |end: &End| result(end)["requestState"].clone();
    let accept = |keys: &[&str]| {
        let accept = json!({ "action": "accept" });
        Value::Object(
            keys.iter()
                .map(|key| ((*key).to_owned(), accept.clone()))
                .collect(),
        )
    };
    let store = Arc::new(Memory::default());
    let (before, first) = asked_of(with_store(&store)).await;
    before.fake.on("tasks/get", [ask(&["r"])]);
    let second = state(&answer(&before, &first).await.unwrap());
    let after = with_store(&store).around(&before.fake);
    after.fake.on("tasks/get", [ask(&["r", "s"])]);
    let third = state(&answer(&after, &first).await.unwrap());
    assert_eq!(after.fake.count("tasks/update"), 1);
    after.fake.on("tasks/get", [done()]);
    let end = after
        .retry(elicits(), &second, accept(&["r"]))
        .await
        .unwrap();
    end.into_end().await.unwrap();
    assert_eq!(after.fake.count("tasks/update"), 2);
    // What is left of it goes out.
    let end = after
        .retry(elicits(), &third, accept(&["r", "s"]))
        .await
        .unwrap();
    end.into_end().await.unwrap();
    assert_eq!(after.fake.count("tasks/update"), 3);
    let told = after.fake.seen("tasks/update").pop().unwrap();
    assert_eq!(told.param("inputResponses"), accept(&["s"]));
}

/// Each question gets one answer, also where a state brings more of them than before.
#[tokio::test(start_paused = true)]
async fn a_used_state_that_brings_more_answers_sends_what_was_not_sent_before() {
    let store = Arc::new(Memory::default());
    let question = json!({ "method": "elicitation/create", "params": {} });
    let asks = |keys: &[&str]| {
        let all = keys.iter().map(|key| ((*key).to_owned(), question.clone()));
        let all: serde_json::Map<String, Value> = all.collect();
        got("input_required", json!({ "inputRequests": all }))
    };
    let before = with_store(&store).build();
    before.fake.on("tools/call", [task(created())]);
    before.fake.on("tasks/get", [asks(&["q", "r"])]);
    let end = before.end(elicits()).await.unwrap();
    let first = result(&end)["requestState"].clone();
    before.fake.on("tasks/get", [asks(&["r"])]);
    let end = answer(&before, &first).await.unwrap();
    let second = result(&end)["requestState"].clone();

    let after = with_store(&store).around(&before.fake);
    after.fake.on("tasks/get", [asks(&["r"])]);
    let both = json!({ "q": { "action": "decline" }, "r": { "action": "accept" } });
    let reply = after.retry(elicits(), &first, both).await.unwrap();
    let third = result(&reply.into_end().await.unwrap())["requestState"].clone();
    let told = after.fake.seen("tasks/update").pop().unwrap();
    let accepted = json!({ "r": { "action": "accept" } });
    assert_eq!(told.param("inputResponses"), accepted);
    assert_eq!(after.fake.count("tasks/update"), 2);
    // The other state that asked the same has nothing left to send.
    after.fake.on("tasks/get", [done()]);
    let reply = after.retry(elicits(), &second, accepted.clone()).await;
    reply.unwrap().into_end().await.unwrap();
    assert_eq!(after.fake.count("tasks/update"), 2);
    // What the task still asks after all that is another question.
    let reply = after.retry(elicits(), &third, accepted).await.unwrap();
    reply.into_end().await.unwrap();
    assert_eq!(after.fake.count("tasks/update"), 3);
}

#[tokio::test(start_paused = true)]
async fn answers_whose_use_cannot_be_remembered_are_not_sent_and_can_be_given_again() {
    let store = Arc::new(Memory::default());
    let (world, state) = asked_of(with_store(&store)).await;
    store.3.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let error = answer(&world, &state).await.unwrap_err();
        assert_eq!((error.kind, error.retryable), (Kind::Unavailable, true));
        assert_eq!(world.fake.count("tasks/update"), 0);
    }
    store.3.store(false, Ordering::SeqCst);
    let end = answer(&world, &state).await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    assert_eq!(world.fake.count("tasks/update"), 1);
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn answers_whose_use_was_remembered_too_late_are_sent_when_they_come_again() {
    let store = Arc::new(Memory::default());
    let (world, state) = asked_of(with_store(&store)).await;
    store.5.store(true, Ordering::SeqCst);
    let error = answer(&world, &state).await.unwrap_err();
    assert_eq!((error.kind, error.retryable), (Kind::Unavailable, true));
    assert_eq!(world.fake.count("tasks/update"), 0);
    store.5.store(false, Ordering::SeqCst);
    let end = answer(&world, &state).await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    assert_eq!(world.fake.count("tasks/update"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_gets_a_failure_again_as_well() {
    let (world, state) = asked().await;
    world.fake.on("tasks/get", [super::kit::fails(-32602)]);
    let first = answer(&world, &state).await.unwrap_err();
    let again = answer(&world, &state).await.unwrap_err();
    assert_eq!(
        (again.kind, again.to_string()),
        (first.kind, first.to_string())
    );
    assert_eq!(world.fake.count("tasks/update"), 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_repeats_wait_for_the_one_answer() {
    let (world, state) = asked().await;
    let (a, b, c) = tokio::join!(
        answer(&world, &state),
        answer(&world, &state),
        answer(&world, &state)
    );
    let a = a.unwrap();
    assert_eq!(result(&a)["n"], json!(1));
    assert_eq!((b.unwrap(), c.unwrap()), (a.clone(), a));
    assert_eq!(world.fake.count("tasks/update"), 1);
    assert_eq!(world.fake.count("tasks/get"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_takes_the_wait_over_from_a_caller_that_left() {
    let (world, state) = asked().await;
    world.fake.on("tasks/update", [Act::Hang]);
    let with_token = |token: &str| {
        let mut call = retry(elicits(), &state, responses());
        call.meta.progress_token = Some(Raw::string(token));
        call
    };
    let mut first = stream(world.send(with_token("first")).await.unwrap());
    assert!(first.next().now_or_never().is_none());
    assert_eq!(world.fake.count("tasks/update"), 1);
    let mut second = stream(world.send(with_token("second")).await.unwrap());
    assert!(second.next().now_or_never().is_none());
    // The update is given up after 30 s and may have arrived; nobody sends it again.
    drop(first);
    let Some(Ok(Event::Notification(progress))) = second.next().await else {
        panic!("no progress");
    };
    let token = progress.params.string("progressToken");
    assert_eq!(token.as_deref(), Some("second"));
    let Some(Ok(Event::End(end))) = second.next().await else {
        panic!("no end");
    };
    assert_eq!(result(&end)["n"], json!(1));
    assert_eq!(world.fake.count("tasks/update"), 1);
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn only_when_nobody_waits_any_more_the_task_is_cancelled() {
    let (world, state) = asked().await;
    world.fake.on("tasks/get", [got("working", json!({}))]);
    let first = world.retry(elicits(), &state, responses()).await.unwrap();
    let mut second = stream(world.retry(elicits(), &state, responses()).await.unwrap());
    drop(first);
    assert!(second.next().now_or_never().is_none());
    let polls = world.fake.count("tasks/get");
    let polled = world.fake.called("tasks/get", polls + 1);
    tokio::select! {
        _ = second.next() => panic!("no answer can have come"),
        () = polled => {}
    }
    assert_eq!(world.fake.count("tasks/cancel"), 0);
    drop(second);
    world.fake.called("tasks/cancel", 1).await;
    let late = answer(&world, &state).await.unwrap_err();
    assert_eq!(late.to_string(), UNKNOWN);
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_is_told_as_well_what_may_be_tried_again() {
    let (world, state) = asked().await;
    world
        .fake
        .on("tasks/update", [Act::Refuse(Kind::Unavailable)]);
    let first = world.retry(elicits(), &state, responses()).await.unwrap();
    let second = world.retry(elicits(), &state, responses()).await.unwrap();
    for reply in [first, second] {
        let error = reply.into_end().await.unwrap_err();
        assert_eq!((error.kind, error.retryable), (Kind::Unavailable, true));
    }
    assert_eq!(world.fake.count("tasks/update"), 1);
    world.fake.on("tasks/update", [complete(json!({}))]);
    answer(&world, &state).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_state_is_good_only_for_its_principal_method_and_tool() {
    let (world, state) = asked().await;
    let mut other = retry(elicits(), &state, responses());
    other.principal = Principal::new("bob");
    assert_eq!(world.send(other).await.unwrap_err().to_string(), UNKNOWN);
    let mut other = retry(elicits(), &state, responses());
    other.params.set("name", Raw::string("other"));
    assert_eq!(world.send(other).await.unwrap_err().to_string(), UNKNOWN);
    let mut other = retry(elicits(), &state, responses());
    other.method = "prompts/get".to_owned();
    let sent = world
        .desk
        .stateful(&world.member, other, |_| async { panic!("sent") })
        .await;
    assert_eq!(sent.unwrap_err().to_string(), UNKNOWN);
    let elsewhere = Setup {
        upstream: "elsewhere",
        ..Setup::default()
    };
    let elsewhere = elsewhere.around(&world.fake);
    assert_eq!(
        answer(&elsewhere, &state).await.unwrap_err().to_string(),
        UNKNOWN
    );
    // None of them used it up.
    answer(&world, &state).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_forged_state_is_never_passed_on() {
    let (world, state) = asked().await;
    let calls = world.fake.count("tools/call");
    let text = state.as_str().unwrap();
    for forged in [
        "wp1.".to_owned(),
        "wp1.AAAA".to_owned(),
        format!("{text}A"),
        text.split_at(text.len() - 4).0.to_owned(),
    ] {
        let error = answer(&world, &json!(forged)).await.unwrap_err();
        assert_eq!(error.to_string(), UNKNOWN, "{forged}");
    }
    assert_eq!(world.fake.count("tools/call"), calls);
}

#[tokio::test(start_paused = true)]
async fn a_state_of_older_keys_still_opens() {
    let (world, state) = asked().await;
    let rotated = Setup {
        keys: &[7, 1],
        ..Setup::default()
    };
    let rotated = rotated.around(&world.fake);
    answer(&rotated, &state).await.unwrap();
}

fn asks_with(state: &str) -> End {
    End::InputRequired(object(&json!({
        "resultType": "input_required",
        "inputRequests": {},
        "requestState": state,
    })))
}

#[tokio::test(start_paused = true)]
async fn an_upstreams_own_state_passes_as_it_is() {
    let world = World::new();
    world
        .fake
        .on("tools/call", [Act::End(asks_with("v1.ab\"c"))]);
    let end = world.end(elicits()).await.unwrap();
    assert_eq!(end, asks_with("v1.ab\"c"));
    let state = result(&end)["requestState"].clone();
    world.retry(elicits(), &state, responses()).await.unwrap();
    let sent = &world.fake.seen("tools/call")[1];
    assert_eq!(sent.param("requestState"), state);
    assert_eq!(sent.param("inputResponses"), responses());
}

#[tokio::test(start_paused = true)]
async fn an_upstreams_state_that_looks_like_ours_is_wrapped_and_comes_back() {
    for streamed in [false, true] {
        let world = World::new();
        let theirs = asks_with("wp1.of another Waypost \u{e9}");
        let act = if streamed {
            Act::Stream(Vec::new(), theirs.clone())
        } else {
            Act::End(theirs.clone())
        };
        world.fake.on("tools/call", [act]);
        let end = world.end(elicits()).await.unwrap();
        let state = result(&end)["requestState"].clone();
        assert_ne!(state, result(&theirs)["requestState"]);
        // Theirs is not single-use for us: that is for them to say.
        for round in 1..3 {
            world
                .retry(elicits(), &state, responses())
                .await
                .unwrap()
                .into_end()
                .await
                .unwrap();
            let sent = &world.fake.seen("tools/call")[round];
            assert_eq!(sent.param("requestState"), result(&theirs)["requestState"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn states_of_calls_that_cannot_be_tasks_are_wrapped_too() {
    let world = World::new();
    let prompt = |state: Option<&Value>| {
        let mut call = call(elicits());
        call.method = "prompts/get".to_owned();
        if let Some(state) = state {
            call.params.set("requestState", state.into());
        }
        call
    };
    let theirs = asks_with("wp1.theirs");
    let answer = theirs.clone();
    let sent = world.desk.stateful(&world.member, prompt(None), |_| async {
        let events = futures_util::stream::iter([Ok(Event::End(answer))]);
        Ok(Reply::Stream(events.boxed()))
    });
    let end = sent.await.unwrap().into_end().await.unwrap();
    let state = result(&end)["requestState"].clone();
    assert_ne!(state, json!("wp1.theirs"));
    let back = world
        .desk
        .stateful(&world.member, prompt(Some(&state)), |call| async move {
            assert_eq!(
                call.params.string("requestState").as_deref(),
                Some("wp1.theirs")
            );
            Ok(Reply::End(theirs))
        });
    back.await.unwrap();
}
