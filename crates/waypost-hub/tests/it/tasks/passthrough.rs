//! Handles: what a caller that knows tasks sees, and what the upstream sees of it.

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_hub::call::{CallHeaders, Principal, View};
use waypost_hub::catalog::Catalog;
use waypost_hub::error::Kind;
use waypost_hub::reply::End;
use waypost_wire::error::ErrorObject;

use super::kit::{
    Act, Setup, World, call, complete, created, done, error, fails, object, result, task, tasks,
};

/// The handle of a task that `ann` made.
async fn handle(world: &World) -> String {
    world.fake.on("tools/call", [task(created())]);
    let end = world.end(tasks()).await.unwrap();
    result(&end)["taskId"].as_str().unwrap().to_owned()
}

fn id(handle: &str) -> Value {
    json!({ "taskId": handle })
}

#[track_caller]
fn is_unknown(answer: Result<End, waypost_hub::error::CallError>, what: &str) {
    let error = answer.expect_err(what);
    assert_eq!(error.kind, Kind::UnknownTarget, "{what}");
    assert_eq!(error.to_string(), "unknown task", "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_created_task_keeps_everything_but_its_id() {
    let world = World::new();
    let mut made = created();
    made["content"] = json!([]);
    world.fake.on("tools/call", [task(made.clone())]);
    let end = world.end(tasks()).await.unwrap();
    let mut got = result(&end);
    let handle = got["taskId"].take();
    made["taskId"] = Value::Null;
    assert_eq!(got, made);
    assert!(handle.as_str().unwrap().starts_with("up~"));
    assert!(matches!(end, End::Task(_)));
}

#[tokio::test(start_paused = true)]
async fn r80_the_id_is_unwrapped_on_each_method_and_wrapped_again() {
    let world = World::new();
    let handle = handle(&world).await;
    let mut running = created();
    running["resultType"] = json!("complete");
    running["inputRequests"] =
        json!({ "t1": { "method": "roots/list", "params": { "taskId": "t1" } } });
    world.fake.on("tasks/get", [complete(running.clone())]);
    let end = world.tasks("tasks/get", "ann", id(&handle)).await.unwrap();
    running["taskId"] = json!(handle);
    assert_eq!(result(&end), running);
    for (method, params) in [
        (
            "tasks/update",
            json!({ "taskId": handle, "inputResponses": { "k": { "ignored": true } } }),
        ),
        ("tasks/cancel", id(&handle)),
    ] {
        let end = world.tasks(method, "ann", params.clone()).await.unwrap();
        assert_eq!(result(&end), json!({ "resultType": "complete" }));
        let sent = &world.fake.seen(method)[0];
        assert_eq!(sent.param("taskId"), json!("t1"));
        assert_eq!(sent.param("inputResponses"), params["inputResponses"]);
        assert!(sent.declares_tasks());
    }
    assert_eq!(world.fake.seen("tasks/get")[0].param("taskId"), json!("t1"));
}

#[tokio::test(start_paused = true)]
async fn the_callers_headers_stay_behind() {
    let world = World::new();
    let handle = handle(&world).await;
    world.fake.on("tasks/get", [done()]);
    let mut get = call(tasks());
    get.method = "tasks/get".to_owned();
    get.params = object(&id(&handle));
    get.headers.params = vec![("mcp-param-x".to_owned(), handle)];
    let (reply, member) = world.serve(get).await.unwrap();
    drop(reply);
    assert_eq!(&*member.unwrap().name, "up");
    assert_eq!(
        world.fake.seen("tasks/get")[0].call.headers,
        CallHeaders::default()
    );
}

#[tokio::test(start_paused = true)]
async fn a_finished_task_is_complete_outside_and_inside() {
    let world = World::new();
    let handle = handle(&world).await;
    let mut finished = created();
    finished["status"] = json!("completed");
    finished["result"] = json!({ "content": [], "isError": true });
    world.fake.on("tasks/get", [task(finished.clone())]);
    let end = world.tasks("tasks/get", "ann", id(&handle)).await.unwrap();
    finished["taskId"] = json!(handle);
    finished["resultType"] = json!("complete");
    finished["result"]["resultType"] = json!("complete");
    assert_eq!(result(&end), finished);
    assert!(matches!(end, End::Complete(_)));
}

#[tokio::test(start_paused = true)]
async fn who_did_not_declare_tasks_is_refused_before_the_id_is_looked_at() {
    let world = World::new();
    let good = handle(&world).await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        for handle in [good.as_str(), "gate-test"] {
            let mut request = call(json!({ "elicitation": {} }));
            request.method = method.to_owned();
            request.params = object(&id(handle));
            let (reply, member) = world.serve(request).await.unwrap();
            let error = error(reply.into_end().await.unwrap());
            assert_eq!(error.code(), -32021);
            let required = waypost_wire::raw::Raw::from(&error.required_capabilities().unwrap());
            assert_eq!(super::kit::value(&required), tasks());
            assert!(member.is_none());
        }
        assert_eq!(world.fake.count(method), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn r80_whatever_is_wrong_with_a_handle_the_answer_is_the_same() {
    let world = World::new();
    let good = handle(&world).await;
    let mut damaged = good.clone();
    let last = damaged.pop().unwrap();
    damaged.push(if last == 'A' { 'B' } else { 'A' });
    let renamed = Setup {
        upstream: "other",
        ..Setup::default()
    };
    for (what, handle) in [
        (
            "not a handle",
            "tasks-conformance-nonexistent-12345".to_owned(),
        ),
        ("the upstream's own id", "t1".to_owned()),
        ("damaged", damaged),
        ("too long", format!("{good}{}", "x".repeat(100_000))),
        ("empty", String::new()),
    ] {
        is_unknown(world.tasks("tasks/get", "ann", id(&handle)).await, what);
    }
    is_unknown(world.tasks("tasks/get", "ann", json!({})).await, "no id");
    is_unknown(
        world
            .tasks("tasks/get", "ann", json!({ "taskId": 1 }))
            .await,
        "a number",
    );
    let elsewhere = renamed.around(&world.fake);
    // Its own caller may know what became of the upstream, and nobody else.
    let elsewhere = async |who| elsewhere.tasks("tasks/get", who, id(&good)).await;
    is_unknown(elsewhere("bob").await, "another caller's");
    let error = elsewhere("ann").await.unwrap_err();
    let removed = "unknown task: upstream `up`, which had it, was removed";
    assert_eq!(
        (error.kind, &*error.to_string()),
        (Kind::UnknownTarget, removed)
    );
    assert_eq!(world.fake.count("tasks/get"), 0);
}

#[tokio::test(start_paused = true)]
async fn two_principals_cannot_use_each_others_handles() {
    let world = World::new();
    let handle = handle(&world).await;
    world.fake.on("tasks/get", [done()]);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        is_unknown(world.tasks(method, "bob", id(&handle)).await, method);
        is_unknown(world.tasks(method, "anonymous", id(&handle)).await, method);
        assert_eq!(world.fake.count(method), 0);
        world.tasks(method, "ann", id(&handle)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn r80_equal_ids_of_two_upstreams_reach_their_own() {
    let a = World::new();
    let b = Setup {
        upstream: "second",
        ..Setup::default()
    }
    .build();
    let of_a = handle(&a).await;
    let of_b = handle(&b).await;
    assert_ne!(of_a, of_b);
    let mut both = Setup::default().around(&a.fake);
    let entries = [&a, &b]
        .map(|world| world.catalog.tools.entries().cloned().collect::<Vec<_>>())
        .concat();
    let members = [&a, &b].map(|world| Arc::clone(&world.member)).to_vec();
    both.catalog = Arc::new(Catalog::of(members, 0).with_tools(&entries));
    a.fake.on("tasks/get", [done()]);
    b.fake.on("tasks/get", [done()]);
    both.tasks("tasks/get", "ann", id(&of_b)).await.unwrap();
    assert_eq!(
        (a.fake.count("tasks/get"), b.fake.count("tasks/get")),
        (0, 1)
    );
    both.tasks("tasks/get", "ann", id(&of_a)).await.unwrap();
    assert_eq!(
        (a.fake.count("tasks/get"), b.fake.count("tasks/get")),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_handle_lives_on_in_another_process_under_a_new_name_and_a_newer_key() {
    let world = World::new();
    let handle = handle(&world).await;
    world.fake.on("tasks/get", [done()]);
    let later = Setup {
        upstream: "renamed",
        more: "aliases: [up]",
        keys: &[9, 1],
        ..Setup::default()
    };
    let later = later.around(&world.fake);
    let end = later.tasks("tasks/get", "ann", id(&handle)).await.unwrap();
    assert_eq!(result(&end)["taskId"], json!(handle));
    let without = Setup {
        keys: &[9],
        ..Setup::default()
    };
    let without = without.around(&world.fake);
    is_unknown(
        without.tasks("tasks/get", "ann", id(&handle)).await,
        "key gone",
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_not_shown_any_more_takes_its_tasks_along() {
    let mut world = World::new();
    let handle = handle(&world).await;
    world.fake.on("tasks/get", [done()]);
    let mut get = call(tasks());
    get.method = "tasks/get".to_owned();
    get.params = object(&id(&handle));
    get.view = View::Upstream("another".into());
    let elsewhere = world.serve(get.clone()).await;
    assert_eq!(elsewhere.unwrap_err().kind, Kind::UnknownTarget);
    get.view = View::Upstream("up".into());
    world.serve(get).await.unwrap();
    world.catalog = Arc::new(Catalog::of(world.catalog.members.clone(), 0));
    is_unknown(
        world.tasks("tasks/get", "ann", id(&handle)).await,
        "tool gone",
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_process_that_is_gone_is_unknown() {
    let world = World::new();
    world.fake.run_as("replica 1 child 1");
    let handle = handle(&world).await;
    assert_eq!(handle.split('~').count(), 5);
    world.fake.on("tasks/get", [done()]);
    world.tasks("tasks/get", "ann", id(&handle)).await.unwrap();
    world.fake.run_as("replica 1 child 2");
    is_unknown(
        world.tasks("tasks/get", "ann", id(&handle)).await,
        "instance gone",
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_about_a_task_is_not_sent_to_the_next_process_which_may_have_the_same_id() {
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let world = World::new();
        world.fake.run_as("child 1");
        let handle = handle(&world).await;
        world.fake.on(method, [done()]);
        // It is there only when the call goes.
        world.fake.opens("child 2");
        is_unknown(world.tasks(method, "ann", id(&handle)).await, method);
        assert_eq!(world.fake.count(method), 0, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_names_the_process_that_the_call_was_sent_to() {
    let world = World::new();
    world.fake.run_as("child 1");
    let Act::End(made) = task(created()) else {
        panic!()
    };
    world.fake.on("tools/call", [Act::Stream(Vec::new(), made)]);
    let reply = world.call(tasks()).await.unwrap();
    // A slow reader sees the task only when its process is gone.
    world.fake.run_as("child 2");
    let end = reply.into_end().await.unwrap();
    let handle = result(&end)["taskId"].as_str().unwrap().to_owned();
    world.fake.on("tasks/get", [done()]);
    let answer = world.tasks("tasks/get", "ann", id(&handle)).await;
    is_unknown(answer, "of a process that is gone");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_the_upstream_forgot_is_as_unknown_as_any_other() {
    let world = World::new();
    let handle = handle(&world).await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let forgot = ErrorObject::new(-32602, "no task `t1`");
        let act = || Act::End(End::Error(forgot.clone()));
        world.fake.on(method, [act()]);
        is_unknown(world.tasks(method, "ann", id(&handle)).await, method);
    }
    world.fake.on("tasks/get", [fails(-32603)]);
    let end = world.tasks("tasks/get", "ann", id(&handle)).await.unwrap();
    assert_eq!(error(end).code(), -32603);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_as_a_stream_is_wrapped_too() {
    let world = World::new();
    let handle = handle(&world).await;
    let Act::End(end) = done() else { panic!() };
    world.fake.on("tasks/get", [Act::Stream(Vec::new(), end)]);
    let end = world.tasks("tasks/get", "ann", id(&handle)).await.unwrap();
    assert_eq!(result(&end)["taskId"], json!(handle));
}

#[tokio::test(start_paused = true)]
async fn a_handle_in_a_subscription_opens_for_its_principal_only() {
    let world = World::new();
    let handle = handle(&world).await;
    let mut listen = call(tasks());
    listen.method = "subscriptions/listen".to_owned();
    let task = world.desk.open(&world.catalog, &listen, &handle).unwrap();
    assert_eq!((&*task.member.name, task.id.as_str()), ("up", "t1"));
    listen.principal = Principal::new("bob");
    assert!(world.desk.open(&world.catalog, &listen, &handle).is_err());
}

#[tokio::test(start_paused = true)]
async fn an_unusable_task_is_the_upstreams_fault() {
    let world = World::new();
    for made in [
        json!({ "resultType": "task", "status": "working" }),
        json!({ "resultType": "task", "taskId": "x".repeat(5000), "status": "working" }),
    ] {
        world.fake.on("tools/call", [task(made)]);
        let error = world.end(tasks()).await.unwrap_err();
        assert_eq!(error.kind, Kind::BadUpstream);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_named_or_understood_is_not_left_running() {
    let long = "x".repeat(5000);
    for (policy, made) in [
        (
            "auto",
            json!({ "resultType": "task", "taskId": long, "status": "working" }),
        ),
        ("collapse", json!({ "resultType": "task", "taskId": "t" })),
    ] {
        let world = World::with(policy);
        world.fake.on("tools/call", [task(made.clone())]);
        world.end(tasks()).await.unwrap_err();
        world.fake.called("tasks/cancel", 1).await;
        let cancelled = world.fake.seen("tasks/cancel")[0].param("taskId");
        assert_eq!(cancelled, made["taskId"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_handle_of_a_callers_first_call_names_what_was_opened_for_it() {
    let world = World::new();
    world.fake.opens("child 1");
    let handle = handle(&world).await;
    assert_eq!(handle.split('~').count(), 5);
    world.fake.on("tasks/get", [done()]);
    world.tasks("tasks/get", "ann", id(&handle)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_handle_of_a_callers_first_task_names_what_was_opened_for_the_call() {
    let world = World::new();
    world.fake.opens("child 1");
    let handle = handle(&world).await;
    assert_eq!(handle.split('~').count(), 5);
    world.fake.on("tasks/get", [done()]);
    world.tasks("tasks/get", "ann", id(&handle)).await.unwrap();
}
