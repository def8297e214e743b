//! The policy table, each cell by what the upstream gets and what the caller gets.

use serde_json::{Value, json};
use waypost_hub::error::{CallError, Kind};
use waypost_hub::reply::End;
use waypost_wire::message::Notification;

use super::kit::{Act, Setup, World, complete, created, demand, done, error, result, task, tasks};

/// What the caller got, in a word.
fn word(end: &Result<End, CallError>) -> &'static str {
    match end {
        Ok(End::Task(_)) => "handle",
        Ok(End::Complete(_)) => "result",
        Ok(End::Error(error)) if error.required_capabilities().is_some() => "demand",
        Ok(End::Error(_)) => "error",
        Ok(End::InputRequired(_)) => "question",
        Err(error) if error.kind == Kind::BadUpstream => "refused",
        Err(_) => "failure",
    }
}

struct Row {
    policy: &'static str,
    declared: bool,
    /// Whether tasks are declared upstream, send by send, and what the caller gets, when the
    /// upstream answers with a task, and when it demands tasks.
    on_task: (&'static [bool], &'static str),
    on_demand: (&'static [bool], &'static str),
}

const fn row(
    policy: &'static str,
    declared: bool,
    on_task: (&'static [bool], &'static str),
    on_demand: (&'static [bool], &'static str),
) -> Row {
    Row {
        policy,
        declared,
        on_task,
        on_demand,
    }
}

const ROWS: [Row; 8] = [
    row("auto", true, (&[true], "handle"), (&[true], "demand")),
    row(
        "auto",
        false,
        (&[false], "result"),
        (&[false, true], "result"),
    ),
    row(
        "passthrough",
        true,
        (&[true], "handle"),
        (&[true], "demand"),
    ),
    row(
        "passthrough",
        false,
        (&[false], "result"),
        (&[false], "demand"),
    ),
    row("collapse", true, (&[true], "result"), (&[true], "demand")),
    row("collapse", false, (&[true], "result"), (&[true], "demand")),
    row("refuse", true, (&[false], "refused"), (&[false], "demand")),
    row("refuse", false, (&[false], "refused"), (&[false], "demand")),
];

#[track_caller]
fn declared(world: &World) -> Vec<bool> {
    let sent = world.fake.seen("tools/call");
    sent.iter().map(|seen| seen.declares_tasks()).collect()
}

fn capabilities(declared: bool) -> Value {
    if declared { tasks() } else { json!({}) }
}

#[tokio::test(start_paused = true)]
async fn every_row_for_an_upstream_that_answers_with_a_task() {
    for row in ROWS {
        let world = World::with(row.policy);
        world.fake.on("tools/call", [task(created())]);
        world.fake.on("tasks/get", [done()]);
        let end = world.end(capabilities(row.declared)).await;
        let (sends, gets) = row.on_task;
        let what = format!("{} {}", row.policy, row.declared);
        assert_eq!(declared(&world), sends, "{what}");
        assert_eq!(word(&end), gets, "{what}");
        if gets == "refused" {
            world.fake.called("tasks/cancel", 1).await;
            assert!(end.unwrap_err().to_string().contains("upstream `up`"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_row_for_an_upstream_that_demands_tasks() {
    for code in [-32021, -32003] {
        for row in ROWS {
            let world = World::with(row.policy);
            world.fake.on("tools/call", [demand(code), task(created())]);
            world.fake.on("tasks/get", [done()]);
            let end = world.end(capabilities(row.declared)).await;
            let (sends, gets) = row.on_demand;
            let what = format!("{} {} {code}", row.policy, row.declared);
            assert_eq!(declared(&world), sends, "{what}");
            assert_eq!(word(&end), gets, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_stays_plain_under_every_policy() {
    for row in ROWS {
        let world = World::with(row.policy);
        world
            .fake
            .on("tools/call", [complete(json!({ "content": [] }))]);
        let end = world.end(capabilities(row.declared)).await.unwrap();
        assert_eq!(result(&end), json!({ "content": [] }));
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_without_the_extension_never_gets_the_declaration() {
    for policy in ["auto", "passthrough", "collapse", "refuse"] {
        let setup = Setup {
            policy,
            extension: false,
            ..Setup::default()
        };
        let world = setup.build();
        world.fake.on("tools/call", [demand(-32021)]);
        for capabilities in [json!({}), tasks()] {
            let end = world.end(capabilities).await.unwrap();
            assert_eq!(error(end).code(), -32021);
        }
        assert_eq!(declared(&world), [false, false], "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_assumed_extension_counts_as_advertised() {
    let setup = Setup {
        extension: false,
        more: "assume_extensions: [io.modelcontextprotocol/tasks]",
        ..Setup::default()
    };
    let world = setup.build();
    world.fake.on("tools/call", [task(created())]);
    let end = world.end(tasks()).await;
    assert_eq!((word(&end), declared(&world)), ("handle", vec![true]));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_demanded_tasks_is_declared_to_at_once_from_then_on() {
    let world = World::new();
    let reported = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let report = std::sync::Arc::clone(&reported);
    world.desk.on_task_only(move |member| {
        let tools = member.learned().unwrap().task_only.clone();
        report
            .lock()
            .unwrap()
            .push((member.name.to_string(), tools));
    });
    world
        .fake
        .on("tools/call", [demand(-32021), task(created())]);
    world.fake.on("tasks/get", [done()]);
    for _ in 0..2 {
        assert_eq!(word(&world.end(json!({})).await), "result");
    }
    assert_eq!(declared(&world), [false, true, true]);
    let tools = ["build".to_owned()].into();
    assert_eq!(*reported.lock().unwrap(), [("up".to_owned(), tools)]);
}

#[tokio::test(start_paused = true)]
async fn a_demand_at_the_end_of_a_stream_is_met_too() {
    let world = World::new();
    let Act::End(demanded) = demand(-32021) else {
        panic!()
    };
    let acts = [Act::Stream(Vec::new(), demanded), task(created())];
    world.fake.on("tools/call", acts);
    world.fake.on("tasks/get", [done()]);
    assert_eq!(word(&world.end(json!({})).await), "result");
    assert_eq!(declared(&world), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_told_something_is_not_sent_again() {
    let world = World::new();
    let Act::End(demanded) = demand(-32021) else {
        panic!()
    };
    let progress = Notification {
        method: "notifications/progress".to_owned(),
        params: super::kit::object(&json!({ "progressToken": "t", "progress": 1 })),
    };
    let acts = [Act::Stream(vec![progress], demanded), task(created())];
    world.fake.on("tools/call", acts);
    let mut call = super::kit::call(json!({}));
    call.meta.progress_token = Some(waypost_wire::raw::Raw::string("t"));
    let end = world.send(call).await.unwrap().into_end().await.unwrap();
    assert!(
        matches!(&end, End::Error(error) if error.code() == -32021),
        "{end:?}"
    );
    assert_eq!(declared(&world), [false]);
}

#[tokio::test(start_paused = true)]
async fn what_else_the_caller_declared_goes_out_untouched() {
    let world = World::with("collapse");
    world.fake.on("tools/call", [complete(json!({}))]);
    let other = json!({ "elicitation": { "url": {} }, "extensions": { "x/y": { "a": 1 } } });
    world.end(other).await.unwrap();
    let sent = &world.fake.seen("tools/call")[0].call.meta.capabilities;
    let expected = r#"{"elicitation":{"url":{}},"extensions":{"x/y":{"a":1},"io.modelcontextprotocol/tasks":{}}}"#;
    let got: Value = super::kit::value(&sent.object().into());
    assert_eq!(got, serde_json::from_str::<Value>(expected).unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_old_opt_in_is_dropped() {
    let world = World::new();
    world.fake.on("tools/call", [complete(json!({}))]);
    let mut call = super::kit::call(json!({}));
    call.params
        .set("task", waypost_wire::raw::Raw::empty_object());
    world.send(call).await.unwrap();
    let sent = &world.fake.seen("tools/call")[0];
    assert_eq!(sent.param("task"), Value::Null);
    assert_eq!(sent.param("arguments"), json!({ "n": 1 }));
}

#[tokio::test(start_paused = true)]
async fn r79_only_who_declared_tasks_on_this_request_gets_a_handle() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    world.fake.on("tasks/get", [done()]);
    let old = json!({ "tasks": { "requests": { "tools": { "call": {} } } } });
    for (capabilities, gets) in [
        (json!({}), "result"),
        (old, "result"),
        (
            json!({ "extensions": { "io.modelcontextprotocol/tasks": true } }),
            "result",
        ),
        (tasks(), "handle"),
        (
            json!({ "extensions": { "io.modelcontextprotocol/tasks": { "x": 1 } } }),
            "handle",
        ),
        (json!({}), "result"),
    ] {
        let end = world.end(capabilities.clone()).await;
        assert_eq!(word(&end), gets, "{capabilities}");
    }
}
