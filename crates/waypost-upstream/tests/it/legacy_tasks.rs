//! The experimental tasks of 2025-11-25, as those of the extension.

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_hub::call::{Call, Carrier, Principal};
use waypost_hub::reply::End;
use waypost_hub::upstream::Upstream;
use waypost_testkit::demo::{legacy_tasks, tasks};
use waypost_testkit::kit::legacy::Options;
use waypost_testkit::run::Running;
use waypost_wire::capability::{ClientCapabilities, TASKS};
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::kit::{complete, end_of, in_time, object, upstream};

async fn server() -> (Running, Arc<dyn Upstream>) {
    let address = "127.0.0.1:0".parse().unwrap();
    let running = legacy_tasks(address, tasks::Options::default(), Options::default());
    let running = running.await.unwrap();
    let upstream = upstream(&format!("url: '{}'", running.url));
    in_time(upstream.discover(None)).await.unwrap();
    (running, upstream)
}

fn caller(method: &str, params: &Value) -> Call {
    let mut call = Call::own(method, object(&params.to_string()));
    call.principal = Principal::new("p");
    let all = json!({ "elicitation": {}, "sampling": {}, "extensions": { TASKS: {} } });
    call.meta.capabilities = ClientCapabilities::new(object(&all.to_string()));
    call
}

fn tool(name: &str, arguments: &Value) -> Call {
    caller(
        "tools/call",
        &json!({ "name": name, "arguments": arguments }),
    )
}

fn value(object: &Object) -> Value {
    Raw::from(object).decode().unwrap()
}

async fn created(upstream: &dyn Upstream, call: Call) -> Value {
    match end_of(upstream, call).await {
        Ok(End::Task(task)) => value(&task),
        other => panic!("{other:?}"),
    }
}

/// Asks how the task is until it is so.
async fn until(upstream: &dyn Upstream, id: &Value, status: &str) -> Value {
    in_time(async {
        loop {
            let get = caller("tasks/get", &json!({ "taskId": id }));
            let task = value(&complete(upstream, get).await);
            assert_eq!(task["resultType"], "complete");
            if task["status"] == status {
                return task;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn a_server_with_tasks_of_its_own_has_the_extension() {
    let (_running, upstream) = server().await;
    let facts = in_time(upstream.discover(None)).await.unwrap();
    let capabilities = value(&facts.capabilities);
    assert_eq!(capabilities["extensions"], json!({ TASKS: {} }));
    assert!(capabilities.get("tasks").is_none());
}

#[tokio::test]
async fn a_tool_that_needs_a_task_is_one_whether_that_is_known_or_not() {
    let (_running, upstream) = server().await;
    for known in [false, true] {
        if known {
            complete(&*upstream, caller("tools/list", &json!({}))).await;
        }
        let call = tool("failing_job", &json!({}));
        let task = created(&*upstream, call).await;
        assert_eq!(task["resultType"], "task");
        assert!(
            task.get("ttlMs").is_some() && task.get("createdAt").is_some(),
            "{task}"
        );
        let task = until(&*upstream, &task["taskId"], "completed").await;
        assert_eq!(task["result"]["isError"], true, "{task}");
        assert_eq!(task["result"]["resultType"], "complete");
        assert!(task["result"].get("_meta").is_none(), "{task}");
    }
}

#[tokio::test]
async fn a_tool_that_only_may_be_a_task_is_called_plainly() {
    let (running, upstream) = server().await;
    complete(&*upstream, caller("tools/list", &json!({}))).await;
    let call = tool("slow_compute", &json!({ "seconds": 0.1, "label": "x" }));
    let result = value(&complete(&*upstream, call).await);
    assert_eq!(result["resultType"], "complete");
    let sent = running.seen().of("tools/call")[0].json();
    assert!(sent["params"].get("task").is_none(), "{sent}");
}

#[tokio::test]
async fn a_caller_that_knows_no_tasks_is_told_what_the_tool_needs() {
    let (_running, upstream) = server().await;
    let mut call = tool("failing_job", &json!({}));
    call.meta.capabilities = ClientCapabilities::default();
    let end = end_of(&*upstream, call).await.unwrap();
    let End::Error(error) = end else {
        panic!("{end:?}")
    };
    assert_eq!(error.code(), -32021);
    let required = value(&error.required_capabilities().unwrap());
    assert_eq!(required["extensions"], json!({ TASKS: {} }));
}

#[tokio::test]
async fn a_task_that_asks_shows_its_questions_and_takes_the_answers() {
    let (_running, upstream) = server().await;
    let call = tool("confirm_delete", &json!({ "filename": "x" }));
    let task = created(&*upstream, call).await;
    let id = task["taskId"].clone();
    let asking = until(&*upstream, &id, "input_required").await;
    let questions = asking["inputRequests"].as_object().unwrap();
    let (key, question) = questions.iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    assert!(question["params"].get("_meta").is_none(), "{question}");
    let answer = json!({ "action": "accept", "content": { "confirm": true } });
    let answers = json!({ "taskId": id, "inputResponses": { key: answer } });
    complete(&*upstream, caller("tasks/update", &answers)).await;
    let task = until(&*upstream, &id, "completed").await;
    assert!(task["result"]["content"].is_array(), "{task}");
}

#[tokio::test]
async fn a_task_can_be_cancelled_also_when_it_has_ended() {
    let (_running, upstream) = server().await;
    let call = tool("confirm_delete", &json!({ "filename": "x" }));
    let task = created(&*upstream, call).await;
    for _ in 0..2 {
        let cancel = caller("tasks/cancel", &json!({ "taskId": task["taskId"] }));
        complete(&*upstream, cancel).await;
        until(&*upstream, &task["taskId"], "cancelled").await;
    }
}

#[tokio::test]
async fn a_task_of_nobody_is_unknown() {
    let (_running, upstream) = server().await;
    let get = caller("tasks/get", &json!({ "taskId": "none" }));
    let end = end_of(&*upstream, get).await.unwrap();
    assert!(matches!(end, End::Error(error) if error.code() == -32602));
}

#[tokio::test]
async fn a_call_about_a_task_of_a_session_that_is_gone_is_not_sent() {
    let (running, upstream) = server().await;
    let call = tool("confirm_delete", &json!({ "filename": "x" }));
    let task = created(&*upstream, call).await;
    let id = json!({ "taskId": task["taskId"] });
    let gone = Some("gone".into());
    for method in [
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "subscriptions/listen",
    ] {
        let mut call = caller(method, &id);
        call.carrier = Carrier::only(gone.as_ref());
        let end = end_of(&*upstream, call.clone()).await.unwrap();
        assert!(
            matches!(end, End::Error(error) if error.code() == -32602),
            "{method}"
        );
        assert!(call.carrier.is_astray());
    }
    for method in ["tasks/get", "tasks/cancel"] {
        assert!(running.seen().of(method).is_empty(), "{method}");
    }
    let mut call = caller("tasks/cancel", &id);
    let now = upstream.instance(&call.principal, None);
    call.carrier = Carrier::only(now.as_ref());
    complete(&*upstream, call.clone()).await;
    assert!(!call.carrier.is_astray());
}
