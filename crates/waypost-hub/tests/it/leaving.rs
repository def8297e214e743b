//! What goes on at upstreams that are not in the file any more, or not under the same names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use waypost_hub::call::View;
use waypost_hub::error::CallError;
use waypost_hub::hub::Hub;
use waypost_hub::reply::Reply;
use waypost_hub::status::State;

use crate::fake::{Fake, call, declaring, hub, reply, result, upstreams, value};
use crate::listening::{next, nothing};
use crate::reloading::{closed, is_closed, one, reload, tools};
use crate::supervising::{state, until};

/// Asks the callers of its tool and its prompt before it answers with its label.
fn asking(label: &'static str) -> Arc<Fake> {
    let lists = [
        ("tools/list", tools()),
        ("prompts/list", json!({ "prompts": [{ "name": "x" }] })),
    ];
    let capabilities = json!({ "tools": {}, "prompts": {} });
    Fake::new("a", capabilities, &lists, move |call| {
        let asks = json!({ "k": { "method": "elicitation/create", "params": {} } });
        if call.params.contains("inputResponses") {
            return Ok(reply(
                &json!({ "done": label, "params": value(&call.params) }),
            ));
        }
        let mut result = json!({ "resultType": "input_required", "inputRequests": asks });
        if !call.params.contains("arguments") {
            result["requestState"] = json!(format!("of {label}"));
        }
        Ok(reply(&result))
    })
}

async fn ask(hub: &Arc<Hub>, method: &str, params: Value) -> Result<Reply, CallError> {
    let declared = json!({ "elicitation": {} });
    hub.call(declaring(call(method, &params), &declared)).await
}

fn answered(state: &Value) -> Value {
    json!({ "name": "a_x", "requestState": state, "inputResponses": { "k": {} } })
}

async fn is_asked(hub: &Arc<Hub>, method: &str) -> Value {
    let asked = result(ask(hub, method, json!({ "name": "a_x" })).await).await;
    assert_eq!(asked["resultType"], "input_required");
    asked["requestState"].clone()
}

#[tokio::test(start_paused = true)]
async fn r18_who_was_asked_can_answer_when_the_name_is_gone() {
    let set = |more: &str| one("a", 1, more);
    let files = [
        (set(", prefix: p_"), false),
        (
            set(", tools: { rename: { x: y } }, prompts: { deny: [x] }"),
            false,
        ),
        (set(", tools: { deny: [x] }, prompts: { deny: [x] }"), false),
        (
            format!("discovery: search\n{}", set(", prompts: { deny: [x] }")),
            false,
        ),
        ("upstreams: {}".to_owned(), true),
        (set(", disabled: true"), true),
        (one("b", 1, ", aliases: [a]"), true),
    ];
    for (file, leaves) in files {
        let a = asking("first");
        let hub = hub(&one("a", 1, ""), &[&a]).await;
        until("up", || state(&hub, "a") == State::Up).await;
        let next = Fake::with_tools("a", &["z"]);
        let state = is_asked(&hub, "tools/call").await;
        let of_prompt = is_asked(&hub, "prompts/get").await;
        let about = json!({ "name": "a_x", "arguments": { "n": 1 } });
        let stateless = result(ask(&hub, "tools/call", about.clone()).await).await;
        assert_eq!(stateless["resultType"], "input_required");
        reload(&hub, &file, &[("a", &next), ("b", &next)]);
        sleep(Duration::from_secs(2)).await;
        assert!(!is_closed(&a), "{file}: it waits for answers");
        for forged in [json!("forged"), json!(7)] {
            let refused = ask(&hub, "tools/call", answered(&forged)).await;
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("unknown tool `a_x`"), "{file}: {refused}");
        }
        assert!(
            ask(&hub, "tools/call", json!({ "name": "a_x" }))
                .await
                .is_err()
        );
        // A question without a state is about its arguments, and answered once.
        let mut about = about;
        about["inputResponses"] = json!({ "k": {} });
        let mut other = about.clone();
        other["arguments"]["n"] = json!(2);
        assert!(ask(&hub, "tools/call", other).await.is_err());
        let done = result(ask(&hub, "tools/call", about.clone()).await).await;
        assert_eq!(done["done"], "first", "{file}");
        assert!(ask(&hub, "tools/call", about).await.is_err());
        for (method, state) in [("tools/call", state), ("prompts/get", of_prompt)] {
            let done = result(ask(&hub, method, answered(&state)).await).await;
            assert_eq!(done["done"], "first", "{file}");
            assert_eq!(done["params"]["name"], "x");
            assert_eq!(done["params"]["requestState"], state);
        }
        if leaves {
            closed(&a).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_goes_to_the_server_that_asked_and_only_within_the_grace() {
    let (a, other) = (asking("first"), asking("second"));
    let hub = hub(&one("a", 1, ""), &[&a]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    let of_first = is_asked(&hub, "tools/call").await;
    reload(&hub, &one("a", 2, ""), &[("a", &other)]);
    until("replaced", || hub.replacements().is_empty()).await;
    let of_second = is_asked(&hub, "tools/call").await;
    for (state, who) in [(&of_second, "second"), (&of_first, "first")] {
        let done = ask(&hub, "tools/call", answered(state)).await;
        assert_eq!(result(done).await["done"], who);
    }
    closed(&a).await;
    let never_answered = is_asked(&hub, "tools/call").await;
    reload(&hub, "{ drain_grace: 5s, upstreams: {} }", &[]);
    sleep(Duration::from_secs(4)).await;
    assert!(!is_closed(&other));
    sleep(Duration::from_secs(2)).await;
    assert!(is_closed(&other), "the grace is over");
    let late = ask(&hub, "tools/call", answered(&never_answered)).await;
    assert!(late.unwrap_err().to_string().contains("unknown tool"));
}

/// Makes a task of every call, of its process where it has one.
fn tasking(child: Option<&str>) -> Arc<Fake> {
    tasking_as("a", child)
}

fn tasking_as(name: &str, child: Option<&str>) -> Arc<Fake> {
    let caps = json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let fake = Fake::new(name, caps, &[("tools/list", tools())], |call| {
        let kind = if call.method == "tools/call" {
            "task"
        } else {
            "complete"
        };
        Ok(reply(
            &json!({ "resultType": kind, "taskId": "t1", "status": "working",
            "pollIntervalMs": 500 }),
        ))
    });
    *fake.instance.lock().unwrap() = child.map(Into::into);
    fake
}

#[tokio::test(start_paused = true)]
async fn r80_a_task_of_an_upstream_that_was_removed_is_served_for_the_grace() {
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let files = ["upstreams: {}".to_owned(), one("a", 1, ", disabled: true")];
    for (file, child) in files.iter().flat_map(|f| [(f, None), (f, Some("child"))]) {
        let (a, off) = (tasking(child), tasking(None));
        let endpoints = "endpoints: { e: {}, shut: { tools: { deny: [x] } } }";
        let with = |upstreams: &str| format!("drain_grace: 9s\n{endpoints}\n{upstreams}");
        let hub = hub(&with(&one("a", 1, "")), &[&a]).await;
        until("up", || state(&hub, "a") == State::Up).await;
        let ask = async |method: &str, params: Value, view: &str| {
            let mut call = declaring(call(method, &params), &tasks);
            if !view.is_empty() {
                call.view = View::Endpoint(view.into());
            }
            hub.call(call).await
        };
        let made = result(ask("tools/call", json!({ "name": "a_x" }), "").await).await;
        let handle = made["taskId"].clone();
        let of_task = json!({ "taskId": handle });
        let listen = json!({ "notifications": { "taskIds": [handle] } });
        let mut events = ask("subscriptions/listen", listen, "")
            .await
            .unwrap()
            .into_stream();
        assert_eq!(
            next(&mut events).await.1["notifications"]["taskIds"],
            json!([handle])
        );
        nothing(&mut events).await;
        reload(&hub, &with(file), &[("a", &off)]);
        sleep(Duration::from_secs(4)).await;
        assert!(!is_closed(&a));
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let served = result(ask(method, of_task.clone(), "").await).await;
            assert_eq!(served["taskId"], handle);
        }
        assert_eq!(a.count("tasks/cancel"), 1);
        result(ask("tasks/get", of_task.clone(), "e").await).await;
        assert!(ask("tasks/get", of_task.clone(), "shut").await.is_err());
        let got = a.count("tasks/get");
        nothing(&mut events).await;
        assert!(a.count("tasks/get") > got, "who listens is told of it");
        closed(&a).await;
        let got = a.count("tasks/get");
        let error = ask("tasks/get", of_task.clone(), "").await.unwrap_err();
        let removed = "unknown task: upstream `a`, which had it, was removed";
        assert_eq!(error.to_string(), removed);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(a.count("tasks/get"), got, "nobody is asked any more");
        let forged = json!({ "taskId": "a~AAAAAAAA~t1~AAAAAAAAAAAAAAAAAAAAAA" });
        let error = ask("tasks/get", forged, "").await.unwrap_err();
        assert_eq!(error.to_string(), "unknown task");
    }
}

#[tokio::test(start_paused = true)]
async fn r80_a_task_of_one_of_a_family_is_served_for_the_grace_when_that_one_was_removed() {
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let own =
        |name: &str| format!("{name}: {{ url: 'http://h', family: {{ name: k, argument: at }} }}");
    let endpoints = "endpoints: { e: {}, shut: { tools: { deny: [x] } } }";
    let with =
        |upstreams: &str| format!("drain_grace: 9s\n{endpoints}\nupstreams: {{ {upstreams} }}");
    for removed in ["a", "b"] {
        let fakes = ["a", "b"].map(|name| tasking_as(name, None));
        let both = format!("{}, {}", own("a"), own("b"));
        let hub = hub(&with(&both), &[&fakes[0], &fakes[1]]).await;
        until("up", || {
            ["a", "b"].iter().all(|name| state(&hub, name) == State::Up)
        })
        .await;
        let ask = async |method: &str, params: &Value, view: View| {
            let mut call = declaring(call(method, params), &tasks);
            call.view = view;
            hub.call(call).await
        };
        let wanted = json!({ "name": "k_x", "arguments": { "at": removed } });
        let made = result(ask("tools/call", &wanted, View::All).await).await;
        let of_task = json!({ "taskId": made["taskId"] });
        let rest = own(if removed == "a" { "b" } else { "a" });
        reload(&hub, &with(&rest), &[]);
        for view in [View::All, View::Endpoint("e".into())] {
            let served = result(ask("tasks/get", &of_task, view).await).await;
            assert_eq!(served["taskId"], made["taskId"], "{removed}");
        }
        let shut = View::Endpoint("shut".into());
        assert!(ask("tasks/get", &of_task, shut).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn calls_parked_at_one_that_leaves_count_as_waiting() {
    let (a, b) = (asking("first"), Fake::with_tools("b", &["x"]));
    let hub = hub(&one("a", 1, ""), &[&a]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    a.parked.store(2, Ordering::SeqCst);
    assert_eq!(hub.parked(), 2);
    reload(&hub, &one("a", 1, ", prefix: p_"), &[]);
    assert_eq!(hub.parked(), 2, "of one connection they are counted once");
    reload(&hub, &upstreams(&["b"]), &[("b", &b)]);
    assert_eq!(hub.parked(), 2);
    a.parked.store(0, Ordering::SeqCst);
    closed(&a).await;
    assert_eq!(hub.parked(), 0);
}

/// Makes a task of each call that asks, and is over with the answer.
fn asking_in_tasks(child: &str) -> Arc<Fake> {
    let caps = json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let answered = AtomicBool::new(false);
    let fake = Fake::new("a", caps, &[("tools/list", tools())], move |call| {
        let asks = json!({ "k": { "method": "elicitation/create", "params": {} } });
        let task = json!({ "resultType": "complete", "taskId": "t1", "status": "working" });
        Ok(reply(&match call.method.as_str() {
            "tools/call" => json!({ "resultType": "task", "taskId": "t1", "status": "working" }),
            "tasks/update" => {
                answered.store(true, Ordering::SeqCst);
                task
            }
            _ if answered.load(Ordering::SeqCst) => json!({ "resultType": "complete",
                "taskId": "t1", "status": "completed", "result": { "content": [] } }),
            _ => json!({ "resultType": "complete", "taskId": "t1",
                "status": "input_required", "inputRequests": asks }),
        }))
    });
    *fake.instance.lock().unwrap() = Some(child.into());
    fake
}

#[tokio::test(start_paused = true)]
async fn a_collapsed_tasks_question_is_answered_at_the_process_that_has_it() {
    let file = |token: &str| {
        one(
            "a",
            1,
            &format!(", tasks: collapse, headers: {{ X: {token} }}"),
        )
    };
    let [old, new] = ["child 1", "child 2"].map(asking_in_tasks);
    let hub = hub(&file("one"), &[&old]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    let state = is_asked(&hub, "tools/call").await;
    // The same server to the file, with another secret.
    reload(&hub, &file("two"), &[("a", &new)]);
    until("replaced", || hub.replacements().is_empty()).await;
    let done = result(ask(&hub, "tools/call", answered(&state)).await).await;
    assert_eq!(done["resultType"], "complete");
    assert_eq!([&old, &new].map(|fake| fake.count("tasks/update")), [1, 0]);
    closed(&old).await;
}
