//! Names and URIs that several upstreams want: who gets them, and that it stays so.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_hub::hub::Hub;
use waypost_hub::status::State;

use crate::fake::{Fake, Memory, call, echo, hub, hub_with, names, result, upstreams};
use crate::reloading::reload;

const BARE: &str = "upstreams:\n  \
    a: { url: \"http://127.0.0.1:9\", prefix: \"\" }\n  \
    b: { url: \"http://127.0.0.1:9\", prefix: \"\" }\n";

/// A server with the tool `search` and the resource `file:///a`, as the other one.
fn server(name: &str) -> Arc<Fake> {
    let lists = [
        ("tools/list", json!({ "tools": [{ "name": "search" }] })),
        ("resources/list", resources(&["file:///a"])),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [] }),
        ),
    ];
    let capabilities = json!({ "tools": {}, "resources": {} });
    Fake::new(name, capabilities, &lists, |call| Ok(echo(call)))
}

fn resources(uris: &[&str]) -> Value {
    let each: Vec<_> = uris
        .iter()
        .map(|uri| json!({ "uri": uri, "name": "r" }))
        .collect();
    json!({ "resources": each })
}

/// Waits, in paused time, until all are in this state.
async fn until(hub: &Hub, states: &[State]) {
    let started = Instant::now();
    let now = || {
        let members = hub.members().into_iter();
        members.map(|m| m.status.state()).collect::<Vec<_>>()
    };
    while now() != states {
        assert!(started.elapsed() < Duration::from_secs(120), "{:?}", now());
        sleep(Duration::from_millis(10)).await;
    }
}

/// Both lists, as text.
async fn lists(hub: &Arc<Hub>) -> String {
    let mut all = String::new();
    for method in ["tools/list", "resources/list"] {
        let list = result(hub.call(call(method, &json!({}))).await).await;
        all += &list.to_string();
    }
    all
}

async fn uris(hub: &Arc<Hub>, method: &str, member: &str, uri: &str) -> Vec<String> {
    let list = result(hub.call(call(method, &json!({}))).await).await;
    let list = list[member].as_array().unwrap().iter();
    list.map(|r| r[uri].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn r66_a_name_does_not_depend_on_who_answers_first() {
    let mut seen = Vec::new();
    for late in ["a", "b"] {
        let (a, b) = (server("a"), server("b"));
        let slow = if late == "a" { &a } else { &b };
        *slow.lists_take.lock().unwrap() = Duration::from_secs(3);
        let hub = hub(BARE, &[&a, &b]).await;
        let half = match late {
            "a" => [State::Starting, State::Up],
            _ => [State::Up, State::Starting],
        };
        until(&hub, &half).await;
        assert_eq!(names(&hub).await, ["search"], "{late} is late");
        until(&hub, &[State::Up, State::Up]).await;
        assert_eq!(names(&hub).await, ["search", "b_search"], "{late} is late");
        seen.push(lists(&hub).await);
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test(start_paused = true)]
async fn r66_a_name_stays_where_it_is_when_an_earlier_upstream_comes_late_and_over_restarts() {
    let (a, b) = (server("a"), server("b"));
    a.down.store(true, Ordering::SeqCst);
    let store = Arc::new(Memory::default());
    let hub = hub_with(BARE, &[&a, &b], Arc::clone(&store) as _).await;
    until(&hub, &[State::Down, State::Up]).await;
    assert_eq!(names(&hub).await, ["search"]);
    a.down.store(false, Ordering::SeqCst);
    until(&hub, &[State::Up, State::Up]).await;
    assert_eq!(names(&hub).await, ["a_search", "search"]);
    let before = lists(&hub).await;
    assert!(before.contains("a+file:///a"), "{before}");

    // Served from memory at once, and again when both have answered, whoever is first.
    for late in [&a, &b] {
        let hub = hub_with(BARE, &[&a, &b], Arc::clone(&store) as _).await;
        assert_eq!(lists(&hub).await, before);
        *late.lists_take.lock().unwrap() = Duration::from_secs(3);
        until(&hub, &[State::Up, State::Up]).await;
        assert_eq!(lists(&hub).await, before);
        *late.lists_take.lock().unwrap() = Duration::ZERO;
    }

    // What it does not offer any more is anybody's.
    let none = json!({ "tools": [] });
    b.lists
        .lock()
        .unwrap()
        .insert("tools/list".to_owned(), none);
    let hub = hub_with(BARE, &[&a, &b], Arc::clone(&store) as _).await;
    until(&hub, &[State::Up, State::Up]).await;
    assert_eq!(names(&hub).await, ["search"]);
    sleep(Duration::from_secs(1)).await;
    let stored = store.0.lock().unwrap();
    let claims: Vec<_> = stored.iter().flat_map(|l| l.claims.iter()).collect();
    assert_eq!(claims, ["resources file:///a"]);
}

#[tokio::test(start_paused = true)]
async fn r30_a_uri_that_looks_like_another_upstreams_does_not_shadow_it() {
    let server = |name: &str, listed: &[&str], template: &str| {
        let templates = json!({ "resourceTemplates": [{ "uriTemplate": template, "name": "t" }] });
        let lists = [
            ("resources/list", resources(listed)),
            ("resources/templates/list", templates),
        ];
        Fake::new(name, json!({ "resources": {} }), &lists, |call| {
            Ok(echo(call))
        })
    };
    let shared = ["file:///a", "ui://v"];
    let odd = [
        "h+file:///a",
        "no+file:///a",
        "ui://h+v",
        "ui://v",
        "x+file:///b",
    ];
    let x = server("x", &odd, "h+db://{id}");
    let (g, h) = (
        server("g", &shared, "db://{id}"),
        server("h", &shared, "db://{id}"),
    );
    let hub = hub(&upstreams(&["x", "g", "h"]), &[&x, &g, &h]).await;
    until(&hub, &[State::Up; 3]).await;
    let listed = uris(&hub, "resources/list", "resources", "uri").await;
    let templates = uris(
        &hub,
        "resources/templates/list",
        "resourceTemplates",
        "uriTemplate",
    );
    assert_eq!(
        templates.await,
        ["x+h+db://{id}", "db://{id}", "h+db://{id}"]
    );
    let expected = [
        ("x+h+file:///a", &x, "h+file:///a"),
        ("no+file:///a", &x, "no+file:///a"),
        ("ui://x+h+v", &x, "ui://h+v"),
        ("ui://v", &x, "ui://v"),
        ("x+x+file:///b", &x, "x+file:///b"),
        ("file:///a", &g, "file:///a"),
        ("ui://g+v", &g, "ui://v"),
        ("h+file:///a", &h, "file:///a"),
        ("ui://h+v", &h, "ui://v"),
    ];
    assert_eq!(listed, expected.map(|(uri, ..)| uri));
    let concrete = [("x+h+db://1", &x, "h+db://1"), ("h+db://1", &h, "db://1")];
    for (uri, fake, original) in expected.into_iter().chain(concrete) {
        let before = fake.seen().len();
        let read = hub.call(call("resources/read", &json!({ "uri": uri })));
        assert_eq!(result(read.await).await["params"]["uri"], original, "{uri}");
        assert_eq!(fake.seen().len(), before + 1, "{uri}");
    }
}

/// Which upstream a tool belongs to, and what it calls it.
async fn calls(hub: &Arc<Hub>, name: &str) -> (String, String) {
    let answer = result(hub.call(call("tools/call", &json!({ "name": name }))).await).await;
    let upstream = answer["_meta"]["dev.waypost/upstream"].as_str().unwrap();
    let original = answer["params"]["name"].as_str().unwrap();
    (upstream.to_owned(), original.to_owned())
}

#[track_caller]
fn is(called: &(String, String), upstream: &str, original: &str) {
    assert_eq!((&*called.0, &*called.1), (upstream, original));
}

#[tokio::test(start_paused = true)]
async fn a_name_in_place_of_another_does_not_take_a_third_ones() {
    let a = Fake::with_tools("a", &["add"]);
    let b = Fake::with_tools("b", &["add", "b_add"]);
    let all = async |hub: &Arc<Hub>| {
        let names = names(hub).await;
        assert_eq!(names.len(), 3, "{names:?}");
        is(&calls(hub, "b_add").await, "b", "b_add");
        let hashed = names.iter().find(|name| name.starts_with("b_add_"));
        hashed.unwrap().clone()
    };
    let together = hub(BARE, &[&a, &b]).await;
    until(&together, &[State::Up, State::Up]).await;
    let hashed = all(&together).await;
    is(&calls(&together, "add").await, "a", "add");
    is(&calls(&together, &hashed).await, "b", "add");

    // The same where `a` comes when the names of `b` are live.
    let yaml = BARE.replacen("prefix: \"\"", "prefix: \"\", tools: { deny: [none] }", 1);
    a.down.store(true, Ordering::SeqCst);
    let late = hub(&yaml, &[&a, &b]).await;
    until(&late, &[State::Down, State::Up]).await;
    a.down.store(false, Ordering::SeqCst);
    until(&late, &[State::Up, State::Up]).await;
    is(&calls(&late, "b_add").await, "b", "b_add");
    is(&calls(&late, "add").await, "b", "add");
    is(&calls(&late, "a_add").await, "a", "add");
}

#[tokio::test(start_paused = true)]
async fn r66_a_name_in_place_of_another_stays_when_somebody_comes_who_wants_it() {
    let a = Fake::with_tools("a", &["add"]);
    let b = Fake::with_tools("b", &["add"]);
    let hub = hub(BARE, &[&a, &b]).await;
    until(&hub, &[State::Up, State::Up]).await;
    is(&calls(&hub, "b_add").await, "b", "add");
    let tools = json!({ "tools": [{ "name": "add" }, { "name": "b_add" }] });
    b.lists
        .lock()
        .unwrap()
        .insert("tools/list".to_owned(), tools);
    b.lost.notify_one();
    while names(&hub).await.len() < 3 {
        sleep(Duration::from_millis(10)).await;
    }
    is(&calls(&hub, "b_add").await, "b", "add");
    is(&calls(&hub, "b_b_add").await, "b", "b_add");
}

#[tokio::test(start_paused = true)]
async fn r05_a_pattern_that_matches_no_tool_is_told_what_it_may_mean() {
    let yaml = "upstreams:\n  time: { url: \"http://127.0.0.1:9\", tools: { \
                allow: [serch, \"s*\"], deny: [\"*delete*\"], timeouts: { search: 1s } } }\n";
    let hub = hub(yaml, &[&server("time")]).await;
    until(&hub, &[State::Up]).await;
    let catalog = hub.catalog();
    let said: Vec<_> = catalog.warnings.iter().map(|w| w.text.as_str()).collect();
    assert_eq!(
        said,
        [
            "pattern `serch` of `tools.allow` matches no tool; did you mean `search`?",
            "pattern `*delete*` of `tools.deny` matches no tool",
        ]
    );
    assert_eq!(&*catalog.warnings[0].upstream, "time");
}

/// Takes over `yaml`, with these as what is new in it, and waits until they are up.
async fn becomes(hub: &Arc<Hub>, yaml: &str, new: &[(&str, &Arc<Fake>)]) {
    reload(hub, yaml, new);
    sleep(Duration::from_secs(5)).await;
    until(hub, &[State::Up, State::Up]).await;
}

#[tokio::test(start_paused = true)]
async fn r66_a_name_stays_where_it_is_when_an_earlier_upstream_is_replaced() {
    let with = |name: &str, tool: &str, uri: &str| {
        let server = server(name);
        let mut lists = server.lists.lock().unwrap();
        let tools = json!({ "tools": [{ "name": tool }, { "name": name }] });
        lists.insert("tools/list".to_owned(), tools);
        lists.insert("resources/list".to_owned(), resources(&[uri]));
        drop(lists);
        server
    };
    let (a, b) = (with("a", "y", "file:///y"), with("b", "x", "file:///x"));
    let hub = hub(BARE, &[&a, &b]).await;
    until(&hub, &[State::Up, State::Up]).await;
    is(&calls(&hub, "x").await, "b", "x");
    let next = with("a", "x", "file:///x");
    let yaml = BARE.replacen("127.0.0.1:9", "127.0.0.1:10", 1);
    becomes(&hub, &yaml, &[("a", &next)]).await;
    assert!(hub.catalog().tools.get("a_x").is_some(), "it is there");
    is(&calls(&hub, "x").await, "b", "x");
    is(&calls(&hub, "a_x").await, "a", "x");
    let read = hub.call(call("resources/read", &json!({ "uri": "file:///x" })));
    assert_eq!(
        result(read.await).await["_meta"]["dev.waypost/upstream"],
        "b"
    );
}

#[tokio::test(start_paused = true)]
async fn r66_a_name_stays_where_it_is_when_another_file_brings_an_earlier_upstream() {
    let only = BARE.lines().filter(|line| !line.contains("a: "));
    let only = only.collect::<Vec<_>>().join("\n");
    let (a, b) = (Fake::with_tools("a", &["x"]), Fake::with_tools("b", &["x"]));
    let hub = hub(&only, &[&b]).await;
    until(&hub, &[State::Up]).await;
    becomes(&hub, BARE, &[("a", &a)]).await;
    is(&calls(&hub, "x").await, "b", "x");
    is(&calls(&hub, "a_x").await, "a", "x");

    // Of two that come together it is the first, whoever answers first.
    let none = "upstreams: {}\n";
    for late in [&a, &b] {
        *late.lists_take.lock().unwrap() = Duration::from_secs(3);
        reload(&hub, none, &[]);
        becomes(&hub, BARE, &[("a", &a), ("b", &b)]).await;
        is(&calls(&hub, "x").await, "a", "x");
        is(&calls(&hub, "b_x").await, "b", "x");
        *late.lists_take.lock().unwrap() = Duration::ZERO;
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_stays_with_its_tool_when_another_is_renamed_to_it() {
    let yaml = "upstreams: { u: { url: 'http://127.0.0.1:9', \
                tools: { rename: { a: send } } } }";
    let u = Fake::with_tools("u", &["send"]);
    let hub = hub(yaml, &[&u]).await;
    is(&calls(&hub, "u_send").await, "u", "send");
    let tools = json!({ "tools": [{ "name": "a" }, { "name": "send" }] });
    u.lists
        .lock()
        .unwrap()
        .insert("tools/list".to_owned(), tools);
    u.lost.notify_one();
    while names(&hub).await.len() < 2 {
        sleep(Duration::from_millis(10)).await;
    }
    is(&calls(&hub, "u_send").await, "u", "send");
    let names = names(&hub).await;
    let other = names.iter().find(|name| name.starts_with("u_send_"));
    is(&calls(&hub, other.unwrap()).await, "u", "a");
}

#[tokio::test(start_paused = true)]
async fn many_uris_that_two_servers_have_take_no_time_and_few_words() {
    let uris: Vec<String> = (0..20_000).map(|n| format!("file:///{n:05}")).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let with = |name: &str| {
        let server = server(name);
        let list = resources(&uris);
        server
            .lists
            .lock()
            .unwrap()
            .insert("resources/list".to_owned(), list);
        server
    };
    let (a, b) = (with("a"), with("b"));
    let hub = hub(BARE, &[&a, &b]).await;
    until(&hub, &[State::Up, State::Up]).await;
    let catalog = hub.catalog();
    assert_eq!(catalog.resources.entries().count(), 40_000);
    let said = catalog.warnings.iter().map(|w| w.text.as_str());
    let said: Vec<_> = said.filter(|text| text.contains("resource")).collect();
    assert_eq!(said.len(), 21);
    assert_eq!(
        said[20],
        "19980 more resources have another name than their own"
    );
    // Names in place of others are looked at anew with each change of any list.
    let started = std::time::Instant::now();
    b.lists
        .lock()
        .unwrap()
        .insert("tools/list".to_owned(), json!({ "tools": [] }));
    b.lost.notify_one();
    while names(&hub).await.len() > 1 {
        sleep(Duration::from_millis(10)).await;
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}
