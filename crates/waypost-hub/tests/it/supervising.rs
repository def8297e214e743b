//! Upstreams come, go, change and come back; clients of the others notice nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_hub::hub::Hub;
use waypost_hub::status::State;

use crate::fake::{Fake, Memory, call, hub, hub_with, result, upstreams};

async fn names(hub: &Arc<Hub>) -> Vec<String> {
    let list = result(hub.call(call("tools/list", &json!({}))).await).await;
    let tools = list["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|t| t["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits, in paused time, until the condition holds; fails when it never does.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "never: {what}"
        );
        sleep(Duration::from_millis(10)).await;
    }
}

fn state(hub: &Hub, name: &str) -> State {
    hub.members()
        .iter()
        .find(|m| *m.name == *name)
        .unwrap()
        .status
        .state()
}

#[tokio::test(start_paused = true)]
async fn r17_one_bad_upstream_does_not_touch_the_others() {
    let (good, bad) = (
        Fake::with_tools("good", &["x"]),
        Fake::with_tools("bad", &["y"]),
    );
    bad.down.store(true, Ordering::SeqCst);
    let started = Instant::now();
    let hub = hub(&upstreams(&["bad", "good"]), &[&good, &bad]).await;
    assert_eq!(names(&hub).await, ["good_x"]);
    assert!(started.elapsed() < Duration::from_secs(1));
    until("down", || state(&hub, "bad") == State::Down).await;
    let report = hub.members()[0].status.report();
    assert_eq!(
        report.last_error.as_deref(),
        Some("upstream `bad`: connection refused")
    );
}

#[tokio::test(start_paused = true)]
async fn r23_a_slow_upstream_does_not_hold_up_lists() {
    let (good, slow) = (
        Fake::with_tools("good", &["x"]),
        Fake::with_tools("slow", &["y"]),
    );
    slow.slow.store(true, Ordering::SeqCst);
    let hub = hub(&upstreams(&["slow", "good"]), &[&good, &slow]).await;
    let started = Instant::now();
    assert_eq!(names(&hub).await, ["good_x"]);
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn r19_a_call_waits_for_an_upstream_that_is_starting() {
    let slow = Fake::with_tools("slow", &["y"]);
    slow.slow.store(true, Ordering::SeqCst);
    let yaml =
        "upstreams:\n  slow: { url: \"http://127.0.0.1:9\", timeout: 20s, startup_timeout: 60s }\n";
    let hub = hub(yaml, &[&slow]).await;
    let error = hub
        .call(call("tools/call", &json!({ "name": "slow_y" })))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "upstream `slow`: still starting");
    assert!(error.retryable);
    let started = Instant::now();
    let other = hub
        .call(call("tools/call", &json!({ "name": "other_y" })))
        .await
        .unwrap_err();
    assert_eq!(other.to_string(), "the request: unknown tool `other_y`");
    assert_eq!(
        started.elapsed(),
        Duration::ZERO,
        "no upstream could have it"
    );
}

#[tokio::test(start_paused = true)]
async fn r77_an_upstream_that_starts_later_is_picked_up_soon() {
    let late = Fake::with_tools("late", &["x"]);
    late.down.store(true, Ordering::SeqCst);
    let hub = hub(&upstreams(&["late"]), &[&late]).await;
    until("down", || state(&hub, "late") == State::Down).await;
    sleep(Duration::from_secs(600)).await;
    late.down.store(false, Ordering::SeqCst);
    let started = Instant::now();
    until("up", || state(&hub, "late") == State::Up).await;
    assert!(
        started.elapsed() <= Duration::from_secs(11),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(names(&hub).await, ["late_x"]);
}

#[tokio::test(start_paused = true)]
async fn r57_failing_calls_make_the_upstream_looked_at_again() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    a.down.store(true, Ordering::SeqCst);
    let wanted = || hub.call(call("tools/call", &json!({ "name": "a_x" })));
    assert!(wanted().await.is_err());
    until("down", || state(&hub, "a") == State::Down).await;
    a.down.store(false, Ordering::SeqCst);
    until("up again", || state(&hub, "a") == State::Up).await;
    result(wanted().await).await;
}

#[tokio::test(start_paused = true)]
async fn r35_a_lost_connection_is_opened_again() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    a.lists
        .lock()
        .unwrap()
        .insert("tools/list".into(), json!({ "tools": [{ "name": "z" }] }));
    a.lost.notify_one();
    until("connected again", || {
        hub.table().iter().any(|e| *e.name == *"a_z")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn r13_every_page_is_read() {
    let page = |names: &[String], next: Option<&str>| {
        let tools: Vec<Value> = names.iter().map(|n| json!({ "name": n })).collect();
        match next {
            Some(next) => json!({ "tools": tools, "nextCursor": next }),
            None => json!({ "tools": tools }),
        }
    };
    let all: Vec<String> = (0..130).map(|i| format!("t{i:03}")).collect();
    let lists = [
        ("tools/list", page(&all[..50], Some("p2"))),
        ("tools/list#p2", page(&all[50..100], Some("p3"))),
        ("tools/list#p3", page(&all[100..], None)),
    ];
    let a = Fake::new("a", json!({ "tools": {} }), &lists, |_| unreachable!());
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    let expected: Vec<String> = all.iter().map(|n| format!("a_{n}")).collect();
    assert_eq!(names(&hub).await, expected);
}

#[tokio::test(start_paused = true)]
async fn r72_a_list_that_fails_keeps_the_last_one() {
    let endless = json!({ "tools": [{ "name": "y" }], "nextCursor": "same" });
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    assert_eq!(names(&hub).await, ["a_x"]);
    a.lists.lock().unwrap().extend([
        ("tools/list".to_owned(), endless.clone()),
        ("tools/list#same".to_owned(), endless),
    ]);
    a.lost.notify_one();
    let member = Arc::clone(&hub.members()[0]);
    until("tried", || {
        member.learned().is_some_and(|l| l.last_error.is_some())
    })
    .await;
    let learned = member.learned().unwrap();
    let error = learned.last_error.as_deref();
    assert_eq!(error, Some("upstream `a`: `tools/list` repeats a cursor"));
    assert_eq!(names(&hub).await, ["a_x"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_learned_is_served_after_a_restart_without_the_upstream() {
    let store = Arc::new(Memory::default());
    let a = Fake::with_tools("a", &["x"]);
    let extensions =
        json!({ "io.modelcontextprotocol/tasks": {}, "com.example/odd": { "v": 1.0 } });
    *a.capabilities.lock().unwrap() = json!({ "tools": {}, "extensions": extensions });
    let first = hub_with(&upstreams(&["a"]), &[&a], Arc::clone(&store) as _).await;
    until("saved", || !store.0.lock().unwrap().is_empty()).await;
    let before = result(first.call(call("tools/list", &json!({}))).await).await;

    a.down.store(true, Ordering::SeqCst);
    let second = hub_with(&upstreams(&["a"]), &[&a], Arc::clone(&store) as _).await;
    let after = result(second.call(call("tools/list", &json!({}))).await).await;
    assert_eq!(after["tools"], before["tools"]);
    let discovered = result(second.call(call("server/discover", &json!({}))).await).await;
    let advertised = &discovered["capabilities"]["extensions"];
    assert_eq!(advertised, &json!({ "io.modelcontextprotocol/tasks": {} }));
    let member = Arc::clone(&second.members()[0]);
    let kept = waypost_wire::raw::Raw::from(member.learned().unwrap().extensions());
    assert_eq!(kept.decode::<Value>().unwrap(), extensions);

    let moved = "upstreams:\n  a: { url: \"http://127.0.0.1:10/mcp\" }\n";
    let third = hub_with(moved, &[&a], Arc::clone(&store) as _).await;
    until("down", || state(&third, "a") == State::Down).await;
    assert_eq!(
        names(&third).await,
        [""; 0],
        "another address may be another server"
    );
}

#[tokio::test(start_paused = true)]
async fn r78_readiness_waits_for_first_attempts_and_required_upstreams() {
    let (a, b) = (Fake::with_tools("a", &["x"]), Fake::with_tools("b", &["y"]));
    b.down.store(true, Ordering::SeqCst);
    let yaml = |required: bool| {
        format!(
            "upstreams:\n  a: {{ url: \"http://127.0.0.1:9\" }}\n  \
            b: {{ url: \"http://127.0.0.1:9\", required: {required} }}\n"
        )
    };
    let lenient = hub(&yaml(false), &[&a, &b]).await;
    assert!(!lenient.readiness().ready);
    until("ready", || lenient.readiness().ready).await;
    let strict = hub(&yaml(true), &[&a, &b]).await;
    until("first attempts", || strict.readiness().starting.is_empty()).await;
    assert_eq!(strict.readiness().missing, ["b".into()]);
    b.down.store(false, Ordering::SeqCst);
    until("ready", || strict.readiness().ready).await;
}

#[tokio::test(start_paused = true)]
async fn r18_lists_are_byte_identical_whoever_answers_first() {
    let names = ["c", "a", "b"];
    let mut seen = Vec::new();
    for slow in names {
        let fakes: Vec<_> = names
            .iter()
            .map(|n| Fake::with_tools(n, &["z", "y"]))
            .collect();
        let late = fakes.iter().zip(names).find(|(_, n)| *n == slow).unwrap().0;
        late.down.store(true, Ordering::SeqCst);
        let hub = hub(&upstreams(&names), &fakes.iter().collect::<Vec<_>>()).await;
        until("down", || state(&hub, slow) == State::Down).await;
        late.down.store(false, Ordering::SeqCst);
        until("up", || state(&hub, slow) == State::Up).await;
        let list = hub.catalog().tools.rendered(&waypost_hub::call::View::All);
        seen.push(list.to_string());
    }
    assert!(seen.iter().all(|list| *list == seen[0]), "{seen:?}");
    assert!(
        seen[0].find("c_y") < seen[0].find("a_y"),
        "upstreams in file order"
    );
}
