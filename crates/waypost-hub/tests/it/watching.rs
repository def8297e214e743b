//! Tasks that are listened to and whose servers tell nothing of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_hub::call::{Call, Principal};
use waypost_hub::hub::Hub;
use waypost_hub::reply::{EventStream, Reply};
use waypost_wire::error::ErrorObject;

use crate::fake::{Fake, call, declaring, error, hub, reply, result, upstreams, value};
use crate::listening::{next, nothing};

const SECOND: Duration = Duration::from_secs(1);

/// Makes a task of every call; knows no subscriptions.
fn silent(name: &str) -> Arc<Fake> {
    let capabilities =
        json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let lists = [("tools/list", json!({ "tools": [{ "name": "x" }] }))];
    let fake = Fake::new(name, capabilities, &lists, |call: &Call| {
        let error = match &*call.method {
            "tools/call" => {
                let id = value(&call.params)["arguments"]["id"].clone();
                let mut task = task(&json!({ "status": "working" }));
                task["resultType"] = json!("task");
                task["taskId"] = if id.is_string() { id } else { json!("t") };
                return Ok(reply(&task));
            }
            "tasks/get" => ErrorObject::new(-32602, "unknown task"),
            _ => ErrorObject::new(-32601, "unknown method"),
        };
        Ok(Reply::error(error))
    });
    is(&fake, &json!({ "status": "working" }));
    fake
}

/// The task `t`, which asks to be looked at every second.
fn task(members: &Value) -> Value {
    let mut task = json!({ "resultType": "complete", "taskId": "t", "pollIntervalMs": 1_000 });
    for (name, member) in members.as_object().unwrap() {
        task[name] = member.clone();
    }
    task
}

fn is(fake: &Fake, members: &Value) {
    let mut lists = fake.lists.lock().unwrap();
    lists.insert("tasks/get".to_owned(), task(members));
}

fn tasks() -> Value {
    json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } })
}

fn of(mut call: Call, who: &str) -> Call {
    call.principal = Principal::new(who);
    call
}

async fn settled(fake: &Arc<Fake>) -> Arc<Hub> {
    let hub = hub(&upstreams(&["a"]), &[fake]).await;
    sleep(SECOND).await;
    hub
}

async fn created(hub: &Arc<Hub>, who: &str, id: &str) -> String {
    let wanted = json!({ "name": "a_x", "arguments": { "id": id } });
    let wanted = declaring(call("tools/call", &wanted), &tasks());
    let made = result(hub.call(of(wanted, who)).await).await;
    made["taskId"].as_str().unwrap().to_owned()
}

/// A stream, and the tasks that it will tell of.
async fn listen(
    hub: &Arc<Hub>,
    who: &str,
    handles: &[String],
    declared: &Value,
) -> (EventStream, Value) {
    let wanted = json!({ "notifications": { "taskIds": handles } });
    let wanted = declaring(call("subscriptions/listen", &wanted), declared);
    let mut events = hub.call(of(wanted, who)).await.unwrap().into_stream();
    let (method, params) = next(&mut events).await;
    assert_eq!(method, "notifications/subscriptions/acknowledged");
    (events, params["notifications"].clone())
}

#[tokio::test(start_paused = true)]
async fn a_listener_hears_of_a_task_whose_server_tells_nothing_and_only_of_changes() {
    let a = silent("a");
    let hub = settled(&a).await;
    let handle = created(&hub, "ann", "t").await;
    let (mut events, heard) = listen(&hub, "ann", std::slice::from_ref(&handle), &tasks()).await;
    assert_eq!(heard, json!({ "taskIds": [handle] }));
    nothing(&mut events).await;
    is(
        &a,
        &json!({ "status": "working", "lastUpdatedAt": "2026-11-30T00:00:00Z" }),
    );
    nothing(&mut events).await;

    is(&a, &json!({ "status": "working", "statusMessage": "half" }));
    let (method, params) = next(&mut events).await;
    assert_eq!(method, "notifications/tasks");
    let mut wanted = json!({ "taskId": handle, "status": "working", "statusMessage": "half",
        "pollIntervalMs": 1_000, "_meta": { "io.modelcontextprotocol/subscriptionId": "c1" } });
    assert_eq!(params, wanted);
    let result = json!({ "content": [] });
    is(&a, &json!({ "status": "completed", "result": result }));
    let (_, params) = next(&mut events).await;
    wanted["status"] = json!("completed");
    wanted.as_object_mut().unwrap().remove("statusMessage");
    wanted["result"] = json!({ "content": [], "resultType": "complete" });
    assert_eq!(params, wanted);

    let asked = a.count("tasks/get");
    sleep(600 * SECOND).await;
    nothing(&mut events).await;
    assert_eq!(a.count("tasks/get"), asked, "it is over");
}

#[tokio::test(start_paused = true)]
async fn what_a_task_asked_or_brought_before_it_was_listened_to_is_told_at_once() {
    for status in ["input_required", "completed", "failed", "cancelled"] {
        let a = silent("a");
        let hub = settled(&a).await;
        let handle = created(&hub, "ann", "t").await;
        is(&a, &json!({ "status": status }));
        let (mut events, _) = listen(&hub, "ann", &[handle], &tasks()).await;
        let before = Instant::now();
        assert_eq!(next(&mut events).await.1["status"], status);
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn one_asks_for_all_listeners_of_a_caller_and_none_when_nobody_listens() {
    let a = silent("a");
    let hub = settled(&a).await;
    let handles = [created(&hub, "ann", "t").await];
    let (mut one, _) = listen(&hub, "ann", &handles, &tasks()).await;
    let (mut two, _) = listen(&hub, "ann", &handles, &tasks()).await;
    let before = a.count("tasks/get");
    sleep(100 * SECOND).await;
    let asked = a.count("tasks/get") - before;
    assert!((90..=115).contains(&asked), "{asked}");
    is(&a, &json!({ "status": "working", "statusMessage": "half" }));
    assert_eq!(next(&mut one).await.1["statusMessage"], "half");
    assert_eq!(next(&mut two).await.1["statusMessage"], "half");

    drop(one);
    is(&a, &json!({ "status": "working", "statusMessage": "more" }));
    assert_eq!(next(&mut two).await.1["statusMessage"], "more");
    drop(two);
    sleep(SECOND / 100).await;
    let asked = a.count("tasks/get");
    sleep(600 * SECOND).await;
    assert_eq!(a.count("tasks/get"), asked, "nobody listens");
    // Who comes later begins anew.
    is(&a, &json!({ "status": "completed" }));
    let (mut late, _) = listen(&hub, "ann", &handles, &tasks()).await;
    assert_eq!(next(&mut late).await.1["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn callers_with_the_same_id_hear_each_of_their_own_task() {
    let a = silent("a");
    let hub = settled(&a).await;
    let ann = [created(&hub, "ann", "t").await];
    let bob = [created(&hub, "bob", "t").await];
    let (_one, _) = listen(&hub, "ann", &ann, &tasks()).await;
    let (_two, _) = listen(&hub, "bob", &bob, &tasks()).await;
    sleep(2 * SECOND).await;
    let asked = a.seen();
    for who in ["ann", "bob"] {
        let by = |c: &&Call| c.method == "tasks/get" && c.principal == Principal::new(who);
        assert!(asked.iter().filter(by).count() >= 2, "{who}");
    }
    let (_, heard) = listen(&hub, "bob", &ann, &tasks()).await;
    assert_eq!(heard, json!({}), "another caller's");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_could_not_answer_a_question_is_told_only_that_there_is_one() {
    let a = silent("a");
    let hub = settled(&a).await;
    let handles = [created(&hub, "ann", "t").await];
    let mut able = tasks();
    able["elicitation"] = json!({});
    let (mut able, _) = listen(&hub, "ann", &handles, &able).await;
    let (mut unable, _) = listen(&hub, "ann", &handles, &tasks()).await;
    let asks = json!({ "k": { "method": "elicitation/create" } });
    is(
        &a,
        &json!({ "status": "input_required", "inputRequests": asks }),
    );
    assert_eq!(next(&mut able).await.1["inputRequests"], asks);
    let (_, told) = next(&mut unable).await;
    assert_eq!(told["status"], "input_required");
    assert!(told.get("inputRequests").is_none(), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_its_server_does_not_know_is_not_acknowledged() {
    let a = silent("a");
    let hub = settled(&a).await;
    let handles = [created(&hub, "ann", "t").await];
    a.lists.lock().unwrap().remove("tasks/get");
    let (mut events, heard) = listen(&hub, "ann", &handles, &tasks()).await;
    assert_eq!(heard, json!({}));
    let asked = a.count("tasks/get");
    nothing(&mut events).await;
    assert_eq!((asked, a.count("tasks/get")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_is_asked_less_and_less_and_its_task_told_of_when_it_is_back() {
    let a = silent("a");
    let hub = settled(&a).await;
    let handles = [created(&hub, "ann", "t").await];
    let (mut events, _) = listen(&hub, "ann", &handles, &tasks()).await;
    a.down.store(true, Ordering::SeqCst);
    let before = a.count("tasks/get");
    sleep(3_600 * SECOND).await;
    let asked = a.count("tasks/get") - before;
    assert!((50..=80).contains(&asked), "{asked}");
    is(&a, &json!({ "status": "completed" }));
    a.down.store(false, Ordering::SeqCst);
    sleep(61 * SECOND).await;
    assert_eq!(next(&mut events).await.1["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_task_is_not_asked_of_the_next_process() {
    let a = silent("a");
    *a.instance.lock().unwrap() = Some("child 1".into());
    let hub = settled(&a).await;
    let handles = [created(&hub, "ann", "t").await];
    let (mut events, heard) = listen(&hub, "ann", &handles, &tasks()).await;
    assert_eq!(heard, json!({ "taskIds": handles }));
    *a.instance.lock().unwrap() = Some("child 2".into());
    is(&a, &json!({ "status": "completed" }));
    let asked = a.count("tasks/get");
    nothing(&mut events).await;
    assert_eq!(a.count("tasks/get"), asked);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_tasks_are_asked_about_for_one_listener() {
    let a = silent("a");
    let hub = settled(&a).await;
    let mut handles = Vec::new();
    for number in 0..101 {
        handles.push(created(&hub, "ann", &format!("t{number}")).await);
    }
    // What is slow is not unknown.
    *a.lists_take.lock().unwrap() = 60 * SECOND;
    let (_events, heard) = listen(&hub, "ann", &handles, &tasks()).await;
    assert_eq!(heard["taskIds"].as_array().unwrap().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn draining_ends_a_stream_whose_tasks_are_asked_about() {
    let a = silent("a");
    let hub = settled(&a).await;
    let handles = [created(&hub, "ann", "t").await];
    let (mut events, _) = listen(&hub, "ann", &handles, &tasks()).await;
    hub.begin_drain();
    assert_eq!(next(&mut events).await.0, "end");
    let without = json!({ "notifications": { "taskIds": handles } });
    let without = hub.call(of(call("subscriptions/listen", &without), "ann"));
    assert_eq!(error(without.await).await["code"], -32021);
}
