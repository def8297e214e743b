//! The file becomes another one: who stays, who comes, who goes, and what becomes of calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use waypost_hub::call::{Principal, View};
use waypost_hub::catalog::table::Shelf;
use waypost_hub::hub::Hub;
use waypost_hub::member::Member;
use waypost_hub::reload::Difference;
use waypost_hub::reply::Reply;
use waypost_hub::status::State;
use waypost_hub::upstream::Upstream;

use crate::fake::{Fake, Memory, call, declaring, hub, hub_with, names, reply, result, upstreams};
use crate::listening::{listen, listen_at, listening, next, nothing, notification, say};
use crate::supervising::{state, until};

/// Takes over another file, in which upstreams get these connections.
pub(crate) fn reload(hub: &Arc<Hub>, yaml: &str, fakes: &[(&str, &Arc<Fake>)]) -> Difference {
    let config = waypost_config::parse_str(yaml).unwrap().config;
    hub.reload(&config, |settings| {
        let of_name = fakes.iter().find(|(name, _)| *name == settings.name);
        let (_, fake) = of_name.expect("only what is new gets a connection");
        let upstream = Arc::clone(*fake) as Arc<dyn Upstream>;
        Arc::new(Member::new(settings.clone(), upstream))
    })
}

/// An upstream with a port and more settings.
pub(crate) fn one(name: &str, port: u16, more: &str) -> String {
    format!("upstreams: {{ {name}: {{ url: 'http://127.0.0.1:{port}/mcp'{more} }} }}")
}

pub(crate) fn is_closed(fake: &Fake) -> bool {
    fake.closed.load(Ordering::SeqCst)
}

pub(crate) async fn closed(fake: &Fake) {
    until("closed", || is_closed(fake)).await;
}

/// A moment in which nothing that could happen is still to come.
async fn a_moment() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn tool(hub: &Arc<Hub>, name: &str) -> Value {
    result(hub.call(call("tools/call", &json!({ "name": name }))).await).await
}

fn shelf(hub: &Hub, name: &str) -> Arc<Shelf> {
    Arc::clone(hub.catalog().tools.shelf(name).unwrap())
}

#[tokio::test(start_paused = true)]
async fn r18_what_comes_and_goes_leaves_the_bytes_of_the_others_alone() {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| Fake::with_tools(name, &["x"]));
    let hub = hub(&upstreams(&["b", "d"]), &[&b, &d]).await;
    until("up", || state(&hub, "d") == State::Up).await;
    let (of_b, of_d) = (shelf(&hub, "b"), shelf(&hub, "d"));
    let new = [("a", &a), ("c", &c)];
    let difference = reload(&hub, &upstreams(&["a", "b", "c", "d"]), &new);
    assert_eq!(difference.added, ["a".into(), "c".into()]);
    assert_eq!(difference.kept, 2);
    assert!(
        hub.readiness().ready,
        "readiness waits for nobody who came later"
    );
    until("up", || state(&hub, "c") == State::Up).await;
    assert_eq!(names(&hub).await, ["a_x", "b_x", "c_x", "d_x"]);
    assert!(Arc::ptr_eq(&of_b, &shelf(&hub, "b")) && Arc::ptr_eq(&of_d, &shelf(&hub, "d")));
    let looks = b.looks.load(Ordering::SeqCst);
    let difference = reload(&hub, &upstreams(&["d", "b"]), &[]);
    assert_eq!(difference.removed, ["a".into(), "c".into()]);
    assert_eq!(names(&hub).await, ["d_x", "b_x"], "the order is the file's");
    assert!(Arc::ptr_eq(&of_b, &shelf(&hub, "b")) && Arc::ptr_eq(&of_d, &shelf(&hub, "d")));
    closed(&a).await;
    closed(&c).await;
    assert!(!is_closed(&b) && !is_closed(&d));
    assert_eq!(b.looks.load(Ordering::SeqCst), looks);
}

#[tokio::test(start_paused = true)]
async fn a_changed_one_serves_until_the_next_is_known() {
    let (old, new) = (Fake::with_tools("a", &["x"]), Fake::with_tools("a", &["y"]));
    let hub = hub(&one("a", 1, ""), &[&old]).await;
    assert_eq!(names(&hub).await, ["a_x"]);
    new.slow.store(true, Ordering::SeqCst);
    let difference = reload(&hub, &one("a", 2, ""), &[("a", &new)]);
    assert_eq!(difference.changed, ["a".into()]);
    a_moment().await;
    assert_eq!(names(&hub).await, ["a_x"]);
    tool(&hub, "a_x").await;
    assert_eq!((old.count("tools/call"), new.count("tools/call")), (1, 0));
    // Now it answers: its first look is tried again when it takes too long.
    new.slow.store(false, Ordering::SeqCst);
    until("replaced", || hub.catalog().tools.get("a_y").is_some()).await;
    assert_eq!(names(&hub).await, ["a_y"]);
    closed(&old).await;
    tool(&hub, "a_y").await;
    assert_eq!((old.count("tools/call"), new.count("tools/call")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_changed_one_that_cannot_be_reached_counts_all_the_same() {
    let (old, new) = (Fake::with_tools("a", &["x"]), Fake::with_tools("a", &["y"]));
    let hub = hub(&one("a", 1, ""), &[&old]).await;
    assert_eq!(names(&hub).await, ["a_x"]);
    new.down.store(true, Ordering::SeqCst);
    reload(&hub, &one("a", 2, ""), &[("a", &new)]);
    until("down", || state(&hub, "a") == State::Down).await;
    assert_eq!(names(&hub).await, [""; 0]);
    closed(&old).await;
    new.down.store(false, Ordering::SeqCst);
    until("up", || state(&hub, "a") == State::Up).await;
    assert_eq!(names(&hub).await, ["a_y"]);
}

#[tokio::test(start_paused = true)]
async fn r69_another_secret_is_another_connection_and_keeps_what_is_known() {
    let (old, new) = (Fake::with_tools("a", &["x"]), Fake::with_tools("a", &["x"]));
    let with = |key: &str| one("a", 1, &format!(", headers: {{ x-key: {key} }}"));
    let hub = hub(&with("one"), &[&old]).await;
    assert_eq!(names(&hub).await, ["a_x"]);
    let mut changes = listen(&hub, &json!({ "toolsListChanged": true })).await;
    next(&mut changes).await;
    new.down.store(true, Ordering::SeqCst);
    reload(&hub, &with("two"), &[("a", &new)]);
    closed(&old).await;
    assert_eq!(names(&hub).await, ["a_x"], "it is the same server");
    new.down.store(false, Ordering::SeqCst);
    until("up", || state(&hub, "a") == State::Up).await;
    nothing(&mut changes).await;
}

#[tokio::test(start_paused = true)]
async fn going_back_before_the_next_came_keeps_the_connection() {
    let [old, next, last] = [(); 3].map(|()| Fake::with_tools("a", &["x"]));
    let hub = hub(&one("a", 1, ""), &[&old]).await;
    assert_eq!(names(&hub).await, ["a_x"]);
    next.slow.store(true, Ordering::SeqCst);
    reload(&hub, &one("a", 2, ""), &[("a", &next)]);
    a_moment().await;
    let same = reload(&hub, &one("a", 2, ""), &[]);
    assert_eq!((same.kept, same.changed.len()), (1, 0));
    // Only a rule is other: whoever is on its way goes on with it.
    reload(&hub, &one("a", 2, ", prefix: p_"), &[]);
    assert_eq!(names(&hub).await, ["p_x"]);
    reload(&hub, &one("a", 1, ""), &[]);
    closed(&next).await;
    a_moment().await;
    assert_eq!(names(&hub).await, ["a_x"]);
    assert!(!is_closed(&old));
    reload(&hub, &one("a", 3, ""), &[("a", &last)]);
    closed(&old).await;
    assert!(!is_closed(&last));
}

#[tokio::test(start_paused = true)]
async fn rules_count_at_once_also_while_another_connection_is_made() {
    let (old, new) = (
        Fake::with_tools("a", &["x", "y"]),
        Fake::with_tools("a", &["x", "y"]),
    );
    let hub = hub(&one("a", 1, ""), &[&old]).await;
    assert_eq!(names(&hub).await, ["a_x", "a_y"]);
    new.slow.store(true, Ordering::SeqCst);
    let denied = ", tools: { deny: [y] }";
    reload(&hub, &one("a", 2, denied), &[("a", &new)]);
    assert_eq!(names(&hub).await, ["a_x"]);
    assert!(
        hub.call(call("tools/call", &json!({ "name": "a_y" })))
            .await
            .is_err()
    );
    // Nobody is closed for a rule alone.
    reload(&hub, &one("a", 2, ", timeout: 7s"), &[]);
    assert_eq!(names(&hub).await, ["a_x", "a_y"]);
    a_moment().await;
    assert!(!is_closed(&old) && !is_closed(&new));
    assert_eq!(state(&hub, "a"), State::Up);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_is_waited_for_and_no_longer_than_the_grace() {
    for stays in [false, true] {
        let a = Fake::new(
            "a",
            json!({ "tools": {} }),
            &[("tools/list", tools())],
            |_| {
                let never = futures_util::stream::pending();
                Ok(Reply::Stream(Box::pin(never)))
            },
        );
        let hub = hub(&one("a", 1, ""), &[&a]).await;
        until("up", || state(&hub, "a") == State::Up).await;
        let asked = hub
            .call(call("tools/call", &json!({ "name": "a_x" })))
            .await;
        let asked = asked.unwrap();
        reload(&hub, "{ drain_grace: 20s, upstreams: {} }", &[]);
        assert_eq!(names(&hub).await, [""; 0]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(!is_closed(&a), "a call is at it");
        if stays {
            tokio::time::sleep(Duration::from_secs(11)).await;
            assert!(is_closed(&a), "the grace is over");
        }
        drop(asked);
        closed(&a).await;
    }
}

pub(crate) fn tools() -> Value {
    json!({ "tools": [{ "name": "x" }] })
}

#[tokio::test(start_paused = true)]
async fn a_listener_goes_on_at_the_one_that_took_the_place() {
    let resources = json!({ "resources": { "subscribe": true } });
    let lists = [
        (
            "resources/list",
            json!({ "resources": [{ "uri": "r://1", "name": "r" }] }),
        ),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [] }),
        ),
    ];
    let (old, before) = listening("a", resources.clone(), &lists);
    let (new, after) = listening("a", resources, &lists);
    let hub = hub(&one("a", 1, ""), &[&old]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    let filter = json!({ "resourceSubscriptions": ["r://1"] });
    let mut events = listen(&hub, &filter).await;
    assert_eq!(next(&mut events).await.1["notifications"], filter);
    let updated = notification(
        "notifications/resources/updated",
        &json!({ "uri": "r://1" }),
    );
    say(&before, &updated);
    assert_eq!(next(&mut events).await.1["uri"], "r://1");
    reload(&hub, &one("a", 2, ""), &[("a", &new)]);
    // What may have been missed in between.
    assert_eq!(next(&mut events).await.1["uri"], "r://1");
    closed(&old).await;
    say(&after, &updated);
    assert_eq!(next(&mut events).await.1["uri"], "r://1");
    reload(&hub, "upstreams: {}", &[]);
    closed(&new).await;
    assert!(events_end_only_at_the_end(&mut events));
}

/// Changes of lists may still come.
fn events_end_only_at_the_end(events: &mut waypost_hub::reply::EventStream) -> bool {
    futures_util::StreamExt::next(events)
        .now_or_never()
        .is_none()
}

#[tokio::test(start_paused = true)]
async fn who_listens_to_what_is_not_there_any_more_gets_a_graceful_end() {
    let (a, b) = (Fake::with_tools("a", &["x"]), Fake::with_tools("b", &["x"]));
    let hub = hub(&upstreams(&["a", "b"]), &[&a, &b]).await;
    until("up", || {
        ["a", "b"].iter().all(|name| state(&hub, name) == State::Up)
    })
    .await;
    let filter = json!({ "toolsListChanged": true });
    let mut at_all = listen(&hub, &filter).await;
    let mut at_a = listen_at(&hub, View::Upstream("a".into()), &filter).await;
    let mut at_b = listen_at(&hub, View::Upstream("b".into()), &filter).await;
    for events in [&mut at_all, &mut at_a, &mut at_b] {
        next(events).await;
    }
    let difference = reload(&hub, &upstreams(&["a"]), &[]);
    assert_eq!(difference.gone, [View::Upstream("b".into())]);
    assert_eq!(next(&mut at_b).await.0, "end");
    assert_eq!(
        next(&mut at_all).await.0,
        "notifications/tools/list_changed"
    );
    nothing(&mut at_a).await;
    hub.shut_out(&[Principal::anonymous()], &[]);
    assert_eq!(next(&mut at_a).await.0, "end");
}

#[tokio::test(start_paused = true)]
async fn a_task_is_found_as_long_as_what_made_it_is_there() {
    let caps = json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let fake = |child: &str| {
        let fake = Fake::new("a", caps.clone(), &[("tools/list", tools())], |call| {
            let status = match call.method.as_str() {
                "tools/call" => {
                    json!({ "resultType": "task", "taskId": "t1", "status": "working" })
                }
                _ => json!({ "resultType": "complete", "taskId": "t1", "status": "working" }),
            };
            Ok(reply(&status))
        });
        *fake.instance.lock().unwrap() = Some(child.into());
        fake
    };
    let (old, new) = (fake("child 1"), fake("child 2"));
    let other = Fake::with_tools("b", &["x"]);
    let hub = hub(&one("a", 1, ""), &[&old]).await;
    until("up", || state(&hub, "a") == State::Up).await;
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let ask = async |method: &str, params: Value| {
        hub.call(declaring(call(method, &params), &tasks)).await
    };
    let made = result(ask("tools/call", json!({ "name": "a_x" })).await).await;
    let handle = made["taskId"].as_str().unwrap().to_owned();
    let get = async || ask("tasks/get", json!({ "taskId": handle })).await;
    // Its process stays when others come and when only a rule is another.
    let two = "upstreams: { a: { url: 'http://127.0.0.1:1/mcp', timeout: 7s }, \
        b: { url: 'http://h' } }";
    reload(&hub, two, &[("b", &other)]);
    assert_eq!(result(get().await).await["status"], "working");
    // The one that leaves keeps them for as long as the grace lets it.
    reload(&hub, &one("a", 2, ""), &[("a", &new)]);
    until("replaced", || new.looks.load(Ordering::SeqCst) > 0).await;
    a_moment().await;
    assert!(!is_closed(&old));
    assert_eq!(result(get().await).await["status"], "working");
    // Also when the next one is followed by another over its connection.
    reload(&hub, &one("a", 2, ", timeout: 8s"), &[]);
    a_moment().await;
    assert!(!is_closed(&old));
    assert_eq!(result(get().await).await["status"], "working");
    assert_eq!(new.count("tasks/get"), 0);
    closed(&old).await;
    reload(&hub, "upstreams: {}", &[]);
    let error = get().await.unwrap_err();
    assert!(error.to_string().contains("task"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_is_removed_is_forgotten_and_what_is_switched_off_only_hidden() {
    let store = Arc::new(Memory::default());
    let (a, b) = (Fake::with_tools("a", &["x"]), Fake::with_tools("b", &["x"]));
    let yaml = upstreams(&["a", "b"]);
    let hub = hub_with(&yaml, &[&a, &b], Arc::<Memory>::clone(&store)).await;
    assert_eq!(names(&hub).await, ["a_x", "b_x"]);
    let stored = || {
        let all = store.0.lock().unwrap();
        all.iter().map(|l| l.upstream.clone()).collect::<Vec<_>>()
    };
    until("stored", || stored().len() == 2).await;
    let off = yaml.replacen("/mcp\"", "/mcp\", disabled: true", 1);
    let again = Fake::with_tools("a", &["x"]);
    reload(&hub, &off, &[("a", &again)]);
    assert_eq!(names(&hub).await, ["b_x"]);
    closed(&a).await;
    reload(&hub, &yaml, &[("a", &again)]);
    until("up", || state(&hub, "a") == State::Up).await;
    assert_eq!(names(&hub).await, ["a_x", "b_x"]);
    reload(&hub, &upstreams(&["b"]), &[]);
    until("forgotten", || stored() == ["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_for_all_counts_at_once() {
    let a = Fake::with_tools("a", &["some_long_name_of_a_tool"]);
    let file = |more: &str| format!("{more}\n{}", upstreams(&["a"]));
    let hub = hub(&file(""), &[&a]).await;
    assert_eq!(names(&hub).await, ["a_some_long_name_of_a_tool"]);
    let mut changes = listen(&hub, &json!({ "toolsListChanged": true })).await;
    next(&mut changes).await;
    reload(&hub, &file("naming: { max_length: 16 }"), &[]);
    assert_eq!(
        next(&mut changes).await.0,
        "notifications/tools/list_changed"
    );
    assert!(names(&hub).await[0].len() <= 16);
    reload(&hub, &file("discovery: search"), &[]);
    assert_eq!(
        next(&mut changes).await.0,
        "notifications/tools/list_changed"
    );
    assert!(names(&hub).await.contains(&"find_tools".to_owned()));
    let view = View::Endpoint("e".into());
    assert!(!hub.shows_view(&view));
    reload(
        &hub,
        &file("endpoints: { e: { tools: { deny: ['*'] } } }"),
        &[],
    );
    assert!(hub.shows_view(&view));
    reload(&hub, &file("limits: { listeners: 1 }"), &[]);
    let more = json!({ "notifications": { "toolsListChanged": true } });
    assert!(hub.call(call("subscriptions/listen", &more)).await.is_err());
    drop(changes);
    let same = reload(&hub, &file("limits: { listeners: 1 }"), &[]);
    assert_eq!((same.kept, same.changed.len()), (1, 0));
}
