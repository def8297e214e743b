//! What is heard of a task while its caller has its questions.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_hub::call::{Call, Comeback};
use waypost_hub::error::Kind;
use waypost_hub::reply::{End, Event, EventStream};
use waypost_wire::raw::Raw;

use super::kit::{Act, World, created, done, got, result, retry, task, value};

fn elicits() -> Value {
    json!({ "elicitation": {} })
}

fn question() -> Value {
    json!({ "method": "elicitation/create", "params": { "message": "sure?" } })
}

fn asks(requests: &Value) -> Act {
    got("input_required", json!({ "inputRequests": requests }))
}

fn yes() -> Value {
    json!({ "action": "accept", "content": {} })
}

/// A call whose task asks `q` and then goes through `looks`; the request state.
async fn asking(looks: impl IntoIterator<Item = Act>) -> (World, Value) {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    let first = asks(&json!({ "q": question() }));
    world.fake.on("tasks/get", [first].into_iter().chain(looks));
    world.fake.run_as("child 1");
    let end = world.end(elicits()).await.unwrap();
    let state = result(&end)["requestState"].clone();
    (world, state)
}

fn listening(state: &Value) -> Call {
    let mut call = retry(elicits(), state, json!({}));
    call.params.remove("inputResponses");
    call.comeback = Comeback::Listens;
    call
}

async fn listen(world: &World, state: &Value) -> EventStream {
    let reply = world.send(listening(state)).await.unwrap();
    reply.into_stream()
}

async fn end(mut events: EventStream) -> Result<End, waypost_hub::error::CallError> {
    while let Some(event) = events.next().await {
        if let Event::End(end) = event? {
            return Ok(end);
        }
    }
    panic!("no end")
}

#[track_caller]
fn is_nothing_to_hear(end: End) {
    assert!(
        matches!(&end, End::InputRequired(result) if !result.contains("requestState")),
        "{end:?}"
    );
}

async fn answer(world: &World, state: &Value, responses: Value) -> End {
    let reply = world.retry(elicits(), state, responses).await.unwrap();
    reply.into_end().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn that_the_task_completes_is_heard_and_is_what_a_late_answer_gets() {
    let same = || asks(&json!({ "q": question() }));
    let (world, state) = asking([same(), same(), done()]).await;
    let heard = end(listen(&world, &state).await).await.unwrap();
    assert_eq!(result(&heard)["n"], json!(1));
    assert_eq!(answer(&world, &state, json!({ "q": yes() })).await, heard);
    is_nothing_to_hear(end(listen(&world, &state).await).await.unwrap());
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.fake.count("tasks/update"), 0);
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn that_the_process_with_the_task_is_gone_is_heard() {
    let (world, state) = asking([]).await;
    let heard = listen(&world, &state).await;
    world.fake.run_as("child 2");
    let error = end(heard).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.to_string().contains("has ended"), "{error}");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn that_the_process_is_gone_is_heard_before_the_question_gives_up_its_place() {
    let seldom = json!({ "inputRequests": { "q": question() }, "pollIntervalMs": 60_000 });
    let (world, state) = asking([got("input_required", seldom)]).await;
    let mut heard = listen(&world, &state).await;
    // The waits between its looks have become long by then.
    tokio::select! {
        event = heard.next() => panic!("{event:?}"),
        () = sleep(Duration::from_secs(200)) => {}
    }
    world.fake.run_as("child 2");
    let gone = Instant::now();
    let error = end(heard).await.unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
    let took = gone.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn another_question_is_heard_beside_the_first_and_all_states_stay_good() {
    let both = json!({ "q": question(), "r": question() });
    let (world, state) = asking([asks(&both)]).await;
    let heard = end(listen(&world, &state).await).await.unwrap();
    let heard = result(&heard);
    assert_eq!(heard["inputRequests"], both);
    // What the caller has already is no news.
    let mut again = listen(&world, &state).await;
    let waits = tokio::time::timeout(Duration::from_secs(500), async {
        while let Some(Ok(Event::Notification(_))) = again.next().await {}
    });
    assert!(waits.await.is_err());
    drop(again);
    // The patience began anew with the second.
    sleep(Duration::from_secs(90)).await;
    world.fake.on("tasks/get", [done()]);
    let responses = json!({ "q": yes(), "r": yes() });
    let ended = answer(&world, &heard["requestState"], responses.clone()).await;
    assert_eq!(result(&ended)["n"], json!(1));
    assert_eq!(
        world.fake.seen("tasks/update")[0].param("inputResponses"),
        responses
    );
    assert_eq!(answer(&world, &state, json!({})).await, ended);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_not_asked_any_more_is_heard_of_when_seen_twice() {
    let both = json!({ "q": question(), "r": question() });
    let behind = json!({ "r": question() });
    let working = || got("working", json!({}));
    let looks = [
        asks(&both),
        asks(&behind),
        asks(&both),
        working(),
        working(),
        done(),
    ];
    let (world, state) = asking(looks).await;
    let heard = end(listen(&world, &state).await).await.unwrap();
    assert_eq!(result(&heard)["inputRequests"], both);
    let heard = end(listen(&world, &state).await).await.unwrap();
    assert_eq!(result(&heard)["inputRequests"], json!({}));
    assert_eq!(world.fake.count("tasks/get"), 6);
    // Nobody has anything to answer, so the call just goes on.
    let ended = answer(&world, &result(&heard)["requestState"], json!({})).await;
    assert_eq!(result(&ended)["n"], json!(1));
    assert_eq!(world.fake.count("tasks/update"), 0);
}

#[tokio::test(start_paused = true)]
async fn who_listens_makes_way_for_the_answer() {
    let (world, state) = asking([]).await;
    let mut heard = listen(&world, &state).await;
    assert!(heard.next().now_or_never().is_none());
    world.fake.on("tasks/get", [done()]);
    let ended = answer(&world, &state, json!({ "q": yes() })).await;
    assert_eq!(result(&ended)["n"], json!(1));
    is_nothing_to_hear(end(heard).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn who_stops_listening_leaves_task_and_round_alone() {
    let (world, state) = asking([]).await;
    let mut heard = listen(&world, &state).await;
    tokio::select! {
        event = heard.next() => panic!("{event:?}"),
        () = sleep(Duration::from_secs(60)) => {}
    }
    assert!(world.fake.count("tasks/get") > 2);
    drop(heard);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.fake.count("tasks/cancel"), 0);
    world.fake.on("tasks/get", [done()]);
    let ended = answer(&world, &state, json!({ "q": yes() })).await;
    assert_eq!(result(&ended)["n"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_task_are_heard_as_progress_that_only_rises() {
    let saying = |message: &str| {
        let requests = json!({ "q": question() });
        let more = json!({ "inputRequests": requests, "statusMessage": message });
        got("input_required", more)
    };
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    world.fake.on(
        "tasks/get",
        [saying("one"), saying("one"), saying("two"), done()],
    );
    let mut call = super::kit::call(elicits());
    call.meta.progress_token = Some(Raw::string("first"));
    let asked = world.send(call).await.unwrap().into_end().await.unwrap();
    let mut call = listening(&result(&asked)["requestState"]);
    call.meta.progress_token = Some(Raw::string("listens"));
    let mut events = world.send(call).await.unwrap().into_stream();
    let mut told = Vec::new();
    while let Event::Notification(notification) = events.next().await.unwrap().unwrap() {
        let params = value(&Raw::from(notification.params));
        assert_eq!(params["progressToken"], "listens");
        told.push((params["progress"].clone(), params["message"].clone()));
    }
    let expected = [(json!(3), json!("two")), (json!(4), json!("completed"))];
    assert_eq!(told, expected);
}
