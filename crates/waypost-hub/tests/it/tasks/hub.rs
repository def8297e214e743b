//! Tasks seen through the whole hub: before an upstream is known, and when it refuses our hop.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_hub::call::Call;
use waypost_hub::error::Kind;
use waypost_hub::hub::Hub;
use waypost_hub::reply::{Event, Reply};
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Notification;
use waypost_wire::raw::Raw;

use super::kit::{self, created, tasks, value};
use crate::fake::{Fake, call, declaring, error, hub, reply, result};

const YAML: &str =
    "upstreams:\n  ci: { url: \"http://127.0.0.1:9\", timeout: 20s, startup_timeout: 60s }\n";

/// Answers to `tasks/*` that come before the good one.
type Refusals = Arc<Mutex<VecDeque<ErrorObject>>>;

/// An upstream whose `build` becomes the task `t1`.
fn ci() -> (Arc<Fake>, Refusals) {
    let refusals = Refusals::default();
    let capabilities = json!({ "tools": {}, "extensions": tasks()["extensions"] });
    let tools = json!({ "tools": [{ "name": "build" }] });
    let first = Arc::clone(&refusals);
    let fake = Fake::new("ci", capabilities, &[("tools/list", tools)], move |call| {
        let made = created();
        if call.method == "tools/call" {
            return Ok(reply(&made));
        }
        if call.method == "subscriptions/listen" {
            return Ok(heard(call));
        }
        if let Some(refusal) = first.lock().unwrap().pop_front() {
            return Ok(Reply::error(refusal));
        }
        let mut task = made;
        task["resultType"] = json!("complete");
        Ok(reply(&task))
    });
    (fake, refusals)
}

/// A subscription in which everything is honoured and nothing happens.
fn heard(call: &Call) -> Reply {
    let acknowledged = Event::Notification(Notification {
        method: "notifications/subscriptions/acknowledged".to_owned(),
        params: call.params.clone(),
    });
    Reply::Stream(
        stream::iter([Ok(acknowledged)])
            .chain(stream::pending())
            .boxed(),
    )
}

async fn handle(hub: &Arc<Hub>) -> String {
    let call = call("tools/call", &json!({ "name": "ci_build" }));
    let made = result(hub.call(declaring(call, &tasks())).await).await;
    made["taskId"].as_str().unwrap().to_owned()
}

fn get(handle: &str) -> Call {
    declaring(call("tasks/get", &json!({ "taskId": handle })), &tasks())
}

#[tokio::test(start_paused = true)]
async fn a_task_is_found_while_its_upstream_is_still_starting() {
    let (fake, _) = ci();
    let handle = handle(&hub(YAML, &[&fake]).await).await;
    // Restarted, with nothing remembered.
    let later = hub(YAML, &[&fake]).await;
    let task = result(later.call(get(&handle)).await).await;
    assert_eq!(task["taskId"], json!(handle));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_hears_of_a_task_whose_upstream_is_still_starting() {
    let (fake, _) = ci();
    let handle = handle(&hub(YAML, &[&fake]).await).await;
    let later = hub(YAML, &[&fake]).await;
    let wanted = json!({ "notifications": { "taskIds": [handle] } });
    let listen = declaring(call("subscriptions/listen", &wanted), &tasks());
    let mut events = kit::stream(later.call(listen).await.unwrap());
    let first = events.next().await.unwrap().unwrap();
    let Event::Notification(acknowledged) = first else {
        panic!("{first:?}")
    };
    let honoured: Value = value(&Raw::from(acknowledged.params));
    assert_eq!(honoured["notifications"], json!({ "taskIds": [handle] }));
}

#[tokio::test(start_paused = true)]
async fn a_task_of_an_upstream_that_does_not_come_up_is_unavailable_and_not_unknown() {
    let (fake, _) = ci();
    let handle = handle(&hub(YAML, &[&fake]).await).await;

    fake.slow.store(true, Ordering::SeqCst);
    let later = hub(YAML, &[&fake]).await;
    let started = Instant::now();
    let slow = later.call(get(&handle)).await.unwrap_err();
    assert_eq!(
        started.elapsed(),
        Duration::from_secs(20),
        "as long as a call may take"
    );
    assert_eq!(slow.to_string(), "upstream `ci`: still starting");
    assert_eq!((slow.kind, slow.retryable), (Kind::Unavailable, true));
    // What was never sealed for this caller has nothing to wait for.
    let forged = later
        .call(get("ci~AAAAAAAA~t1~AAAAAAAAAAAAAAAAAAAAAA"))
        .await;
    assert_eq!(forged.unwrap_err().to_string(), "unknown task");
    assert_eq!(started.elapsed(), Duration::from_secs(20));

    fake.slow.store(false, Ordering::SeqCst);
    fake.down.store(true, Ordering::SeqCst);
    let later = hub(YAML, &[&fake]).await;
    sleep(Duration::from_secs(1)).await;
    let down = later.call(get(&handle)).await.unwrap_err();
    assert_eq!((down.kind, down.retryable), (Kind::Unavailable, true));
    assert!(down.to_string().contains("connection refused"), "{down}");
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_tool_that_is_gone_for_good_is_unknown() {
    let (fake, _) = ci();
    let handle = handle(&hub(YAML, &[&fake]).await).await;
    let tools = json!({ "tools": [{ "name": "other" }] });
    fake.lists
        .lock()
        .unwrap()
        .insert("tools/list".to_owned(), tools);
    let later = hub(YAML, &[&fake]).await;
    let gone = later.call(get(&handle)).await.unwrap_err();
    assert_eq!(gone.to_string(), "unknown task");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_our_own_hop_is_repaired_or_ours_and_never_the_callers() {
    let (fake, refusals) = ci();
    let hub = hub(YAML, &[&fake]).await;
    let handle = handle(&hub).await;
    for code in [-32020, -32022] {
        let refusal = ErrorObject::new(code, "your headers are wrong");
        refusals.lock().unwrap().push_back(refusal.clone());
        let task = result(hub.call(get(&handle)).await).await;
        assert_eq!(task["taskId"], json!(handle), "the second try counts");

        refusals.lock().unwrap().extend([refusal.clone(), refusal]);
        let refused = hub.call(get(&handle)).await.unwrap_err();
        assert_eq!(refused.kind, Kind::BadUpstream);
        assert!(
            refused.to_string().starts_with("upstream `ci`"),
            "{refused}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r81_the_drafts_code_for_a_missing_capability_is_never_emitted() {
    let (fake, refusals) = ci();
    let hub = hub(YAML, &[&fake]).await;
    let handle = handle(&hub).await;
    let data = json!({ "requiredCapabilities": tasks() });
    let draft = ErrorObject::with_data(-32003, "tasks please", &data);
    let own = ErrorObject::new(-32003, "something of the server's own");
    refusals.lock().unwrap().extend([draft, own]);
    let answer = error(hub.call(get(&handle)).await).await;
    assert_eq!(
        answer,
        json!({ "code": -32021, "message": "tasks please", "data": data })
    );
    let answer = error(hub.call(get(&handle)).await).await;
    assert_eq!(answer["code"], json!(-32003));
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_a_task_asks_nothing_that_cannot_be_declared() {
    let capabilities = json!({ "tools": {}, "extensions": tasks()["extensions"] });
    let tools = json!({ "tools": [{ "name": "build" }] });
    for id in [json!({ "taskId": "t1" }), json!({})] {
        let lists = [("tools/list", tools.clone())];
        let ci = Fake::new("ci", capabilities.clone(), &lists, move |call| {
            let mut asks = match call.method.as_str() {
                "tools/call" => return Ok(reply(&created())),
                _ => id.clone(),
            };
            asks["status"] = json!("input_required");
            asks["inputRequests"] = json!({ "q": { "method": "secrets/read" } });
            Ok(reply(&asks))
        });
        let hub = hub(YAML, &[&ci]).await;
        let build = call("tools/call", &json!({ "name": "ci_build" }));
        let made = result(hub.call(declaring(build, &tasks())).await).await;
        let get = call("tasks/get", &json!({ "taskId": made["taskId"] }));
        let refused = error(hub.call(declaring(get, &tasks())).await).await;
        assert_eq!(refused["code"], -32603);
        let text = "upstream `ci`: its `inputRequests` cannot be read";
        assert_eq!(refused["message"], text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_made_without_questions_for_who_cannot_be_asked() {
    let asks = json!({ "q": { "method": "elicitation/create", "params": { "message": "?" } } });
    let capabilities = json!({ "tools": {}, "extensions": tasks()["extensions"] });
    let tools = json!({ "tools": [{ "name": "build" }] });
    let mut made = created();
    made["inputRequests"] = asks.clone();
    let fake = Fake::new("ci", capabilities, &[("tools/list", tools)], move |_| {
        Ok(reply(&made))
    });
    let hub = hub(YAML, &[&fake]).await;
    let build = || call("tools/call", &json!({ "name": "ci_build" }));
    let told = result(hub.call(declaring(build(), &tasks())).await).await;
    assert_eq!(told["status"], "working");
    assert!(told.get("inputRequests").is_none(), "{told}");
    let mut able = tasks();
    able["elicitation"] = json!({});
    let told = result(hub.call(declaring(build(), &able)).await).await;
    assert_eq!(told["inputRequests"], asks);
}

#[tokio::test(start_paused = true)]
async fn what_a_finished_task_was_asked_before_does_not_cost_a_caller_its_result() {
    let asks = json!({ "q": { "method": "elicitation/create", "params": { "message": "?" } } });
    let statuses = [
        "completed",
        "failed",
        "cancelled",
        "working",
        "input_required",
    ];
    for status in statuses {
        let capabilities = json!({ "tools": {}, "extensions": tasks()["extensions"] });
        let tools = json!({ "tools": [{ "name": "build" }] });
        let mut task = created();
        task["resultType"] = json!("complete");
        task["status"] = json!(status);
        task["inputRequests"] = asks.clone();
        let fake = Fake::new("ci", capabilities, &[("tools/list", tools)], move |call| {
            Ok(reply(&match call.method.as_str() {
                "tools/call" => created(),
                _ => task.clone(),
            }))
        });
        let hub = hub(YAML, &[&fake]).await;
        let handle = handle(&hub).await;
        let able = call("tasks/get", &json!({ "taskId": handle }));
        let mut declared = tasks();
        declared["elicitation"] = json!({});
        let told = result(hub.call(declaring(able, &declared)).await).await;
        assert_eq!(told["inputRequests"], asks, "{status}");
        let unable = hub.call(get(&handle)).await;
        if status == "input_required" {
            assert_eq!(error(unable).await["code"], -32021);
        } else {
            let told = result(unable).await;
            assert_eq!(told["status"], status);
            assert!(told.get("inputRequests").is_none(), "{told}");
        }
    }
}
