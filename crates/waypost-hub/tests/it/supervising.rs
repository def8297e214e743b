//! Upstreams come, go, change and come back; clients of the others notice nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_hub::error::{CallError, Kind};
use waypost_hub::hub::Hub;
use waypost_hub::member::Member;
use waypost_hub::registry::{Catalogue, Learned};
use waypost_hub::status::State;
use waypost_hub::store::{Store, StoreError};
use waypost_hub::upstream::{BoxFuture, Facts, Upstream};

use crate::fake::{Fake, Memory, call, echo, hub, hub_with, names, result, upstreams};

/// Waits, in paused time, until the condition holds; fails when it never does.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "never: {what}"
        );
        sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn state(hub: &Hub, name: &str) -> State {
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
async fn an_upstream_is_looked_after_again_when_that_failed_inside() {
    let (fragile, count) = (
        json!({ "tools": {} }),
        std::sync::atomic::AtomicUsize::new(0),
    );
    let fragile = Fake::new("a", fragile, &[], move |_| {
        assert!(count.fetch_add(1, Ordering::SeqCst) > 0, "told so");
        let list = json!({ "tools": [{ "name": "x", "inputSchema": { "type": "object" } }] });
        Ok(waypost_hub::reply::Reply::complete(crate::fake::object(
            &list,
        )))
    });
    let hub = hub(&upstreams(&["a"]), &[&fragile]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    assert_eq!(names(&hub).await, ["a_x"]);
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
    assert_eq!(other.to_string(), "unknown tool `other_y`");
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
async fn r73_an_upstream_whose_proxy_answers_404_keeps_what_is_known() {
    let store = Arc::new(Memory::default());
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub_with(&upstreams(&["a"]), &[&a], Arc::clone(&store) as _).await;
    until("saved", || !store.0.lock().unwrap().is_empty()).await;
    let known = store.0.lock().unwrap().clone();
    *a.confused.lock().unwrap() = Some("answered HTTP 404".to_owned());
    a.lost.notify_one();
    let error = || hub.members()[0].status.report().last_error;
    let text = "upstream `a`: answered HTTP 404";
    until("looked at", || error().as_deref() == Some(text)).await;
    assert_eq!(state(&hub, "a"), State::Down);
    assert_eq!(names(&hub).await, ["a_x"]);
    assert_eq!(*store.0.lock().unwrap(), known);
    // It may be back already, so calls are not refused.
    result(
        hub.call(call("tools/call", &json!({ "name": "a_x" })))
            .await,
    )
    .await;
    *a.confused.lock().unwrap() = None;
    let started = Instant::now();
    until("up", || state(&hub, "a") == State::Up).await;
    assert!(started.elapsed() <= Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_for_other_reasons_do_not_make_it_be_asked_anew() {
    for kind in [Kind::Throttled, Kind::Timeout, Kind::BadUpstream] {
        let lists = [("tools/list", json!({ "tools": [{ "name": "x" }] }))];
        let a = Fake::new("a", json!({ "tools": {} }), &lists, move |_| {
            Err(CallError::upstream(kind, &"a".into()))
        });
        let hub = hub(&upstreams(&["a"]), &[&a]).await;
        until("up", || state(&hub, "a") == State::Up).await;
        for _ in 0..7 {
            let failed = hub.call(call("tools/call", &json!({ "name": "a_x" })));
            assert!(failed.await.is_err());
            sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(a.looks.load(Ordering::SeqCst), 1, "{kind}");
        assert_eq!(a.count("tools/list"), 1, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_asks_for_time_gets_it() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    assert_eq!(names(&hub).await, ["a_x"]);
    a.down.store(true, Ordering::SeqCst);
    *a.retry_after.lock().unwrap() = Some(Duration::from_secs(90));
    let wanted = || hub.call(call("tools/call", &json!({ "name": "a_x" })));
    assert!(wanted().await.is_err());
    sleep(Duration::from_secs(20)).await;
    let looks = || a.looks.load(Ordering::SeqCst);
    assert_eq!(looks(), 1, "the call was told to come later");
    a.lost.notify_one();
    until("looked at", || {
        state(&hub, "a") == State::Down && looks() == 2
    })
    .await;
    for _ in 0..8 {
        assert!(wanted().await.is_err());
        sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(looks(), 2);
    a.down.store(false, Ordering::SeqCst);
    until("up", || state(&hub, "a") == State::Up).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_upstream_is_noticed_without_any_call() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    a.down.store(true, Ordering::SeqCst);
    until("down", || state(&hub, "a") == State::Down).await;
    assert_eq!(names(&hub).await, ["a_x"]);
    a.down.store(false, Ordering::SeqCst);
    until("up", || state(&hub, "a") == State::Up).await;
}

#[tokio::test(start_paused = true)]
async fn r23_all_lists_of_an_upstream_share_one_budget() {
    let page = |member: &str| json!({ member: [] });
    let lists = [
        ("tools/list", page("tools")),
        ("prompts/list", page("prompts")),
        ("resources/list", page("resources")),
        ("resources/templates/list", page("resourceTemplates")),
    ];
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {} });
    let a = Fake::new("a", capabilities, &lists, |call| Ok(echo(call)));
    *a.lists_take.lock().unwrap() = Duration::from_secs(4);
    let started = Instant::now();
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    assert!(started.elapsed() < Duration::from_secs(5));
    let learned = hub.members()[0].learned().unwrap();
    assert_eq!(learned.last_error, None);
    let read = &learned.catalogue;
    assert!(read.tools.is_some() && read.prompts.is_some());
    assert!(read.resources.is_some() && read.templates.is_some());
}

#[tokio::test(start_paused = true)]
async fn lists_that_were_only_read_again_are_not_remembered_anew() {
    let store = Arc::new(Memory::default());
    let a = Fake::with_tools("a", &["x"]);
    let _hub = hub_with(&upstreams(&["a"]), &[&a], Arc::clone(&store) as _).await;
    until("read again", || a.count("tools/list") == 4).await;
    assert_eq!(store.1.load(Ordering::SeqCst), 1);
}

#[test]
fn what_several_learn_at_once_is_not_lost() {
    let config = waypost_config::parse_str(&upstreams(&["a"]))
        .unwrap()
        .config;
    let fake = Fake::with_tools("a", &["x"]);
    let member = Member::new(config.upstreams[0].clone(), fake as Arc<dyn Upstream>);
    let learn = |tool: Option<String>| {
        member.update(|known| {
            let mut learned = known.cloned().unwrap_or_else(|| Learned {
                upstream: "a".to_owned(),
                fingerprint: String::new(),
                facts: Facts::default(),
                catalogue: Catalogue::default(),
                task_only: BTreeSet::new(),
                claims: BTreeSet::new(),
                learned_at: 0,
                last_error: None,
            });
            learned.task_only.extend(tool.clone());
            Some(learned)
        })
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let learn = &learn;
            scope.spawn(move || (0..100).for_each(|n| drop(learn(Some(format!("{thread}-{n}"))))));
        }
    });
    assert_eq!(member.learned().unwrap().task_only.len(), 400);
    member.update(|_| None);
    assert_eq!(member.learned().unwrap().task_only.len(), 400);
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
async fn what_could_not_be_stored_is_stored_when_it_can() {
    let fake = Fake::with_tools("a", &["x"]);
    let store = Arc::new(Locked::default());
    store.1.store(true, Ordering::SeqCst);
    let hub = hub_with(&upstreams(&["a"]), &[&fake], Arc::clone(&store) as _).await;
    until("it to be up", || state(&hub, "a") == State::Up).await;
    sleep(Duration::from_secs(300)).await;
    assert!(store.0.0.lock().unwrap().is_empty());
    store.1.store(false, Ordering::SeqCst);
    until("it to be stored", || !store.0.0.lock().unwrap().is_empty()).await;
}

/// A store that takes nothing for now.
#[derive(Debug, Default)]
struct Locked(Memory, AtomicBool);

impl Store for Locked {
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>> {
        self.0.load()
    }

    fn save(&self, learned: Learned) -> BoxFuture<'_, Result<(), StoreError>> {
        if self.1.load(Ordering::SeqCst) {
            let (action, source) = ("save", "database is locked".into());
            return Box::pin(async move { Err(StoreError { action, source }) });
        }
        self.0.save(learned)
    }

    fn forget(&self, upstream: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.forget(upstream)
    }
}

#[tokio::test(start_paused = true)]
async fn r17_a_tool_of_an_upstream_that_was_never_reached_says_so() {
    let (good, down) = (
        Fake::with_tools("good", &["x"]),
        Fake::with_tools("bad", &["y"]),
    );
    down.down.store(true, Ordering::SeqCst);
    let hub = hub(&upstreams(&["good", "bad"]), &[&good, &down]).await;
    until("it to be down", || state(&hub, "bad") == State::Down).await;
    let error = hub
        .call(call("tools/call", &json!({ "name": "bad_y" })))
        .await;
    let error = error.err().unwrap();
    assert_eq!(error.kind, Kind::Unavailable);
    let text = error.to_string();
    assert!(
        text.contains("bad") && text.contains("connection refused"),
        "{text}"
    );
    let error = hub
        .call(call("tools/call", &json!({ "name": "good_y" })))
        .await;
    assert_eq!(error.err().unwrap().kind, Kind::UnknownTarget);
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
async fn r78_an_upstream_that_is_switched_off_is_not_missing() {
    let a = Fake::with_tools("a", &["x"]);
    let yaml = "upstreams:\n  a: { url: \"http://127.0.0.1:9\", required: true, disabled: true }\n";
    let hub = hub(yaml, &[&a]).await;
    assert_eq!(hub.readiness().missing, Vec::<Arc<str>>::new());
    assert!(hub.readiness().ready);
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
        let list = hub.catalog().tools.listed().rendered;
        seen.push(list.to_string());
    }
    assert!(seen.iter().all(|list| *list == seen[0]), "{seen:?}");
    assert!(
        seen[0].find("c_y") < seen[0].find("a_y"),
        "upstreams in file order"
    );
}

#[tokio::test(start_paused = true)]
async fn r35_calls_do_not_make_a_server_that_keeps_failing_start_all_the_time() {
    // It starts, says what it is, and dies with the first call.
    let lists = [("tools/list", json!({ "tools": [{ "name": "x" }] }))];
    let died = Arc::new(tokio::sync::Notify::new());
    let dies = Arc::clone(&died);
    let a = Fake::new("a", json!({ "tools": {} }), &lists, move |_| {
        dies.notify_one();
        let error = CallError::upstream(Kind::Unavailable, &"a".into());
        Err(error.disconnected())
    });
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(120) {
        let wanted = hub.call(call("tools/call", &json!({ "name": "a_x" })));
        assert!(wanted.await.is_err());
        a.lost.notify_one();
        sleep(Duration::from_millis(100)).await;
    }
    let looks = a.looks.load(Ordering::SeqCst);
    assert!((10..25).contains(&looks), "{looks} starts in two minutes");
}

#[tokio::test(start_paused = true)]
async fn r35_calls_do_not_shorten_the_wait_of_a_server_that_cannot_be_reached() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    a.down.store(true, Ordering::SeqCst);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(120) {
        let wanted = hub.call(call("tools/call", &json!({ "name": "a_x" })));
        assert!(wanted.await.is_err());
        sleep(Duration::from_millis(100)).await;
    }
    let looks = a.looks.load(Ordering::SeqCst);
    assert!((10..25).contains(&looks), "{looks} looks in two minutes");
}

#[tokio::test(start_paused = true)]
async fn r13_a_list_without_end_is_given_up_before_it_fills_the_memory() {
    let page = |next: &str| {
        let tools: Vec<Value> = (0..30_000).map(|_| json!(1)).collect();
        json!({ "tools": tools, "nextCursor": next })
    };
    let pages = ["1", "2", "3", "4", "5", "6"];
    let further: Vec<_> = pages.map(|this| format!("tools/list#{this}")).into();
    let mut lists = vec![("tools/list", page("1"))];
    let further = further.iter().zip(&pages[1..]);
    lists.extend(further.map(|(this, next)| (this.as_str(), page(next))));
    let a = Fake::new("a", json!({ "tools": {} }), &lists, |call| Ok(echo(call)));
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    until("degraded", || state(&hub, "a") == State::Degraded).await;
    let learned = hub.members()[0].learned().unwrap();
    let error = learned.last_error.as_deref();
    let text = "upstream `a`: `tools/list` has more than 100000 items or 64 MiB";
    assert_eq!(error, Some(text));
    assert_eq!(a.count("tools/list"), 4);
}
