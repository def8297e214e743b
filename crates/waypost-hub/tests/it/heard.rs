//! What who listens already hears after a reload.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use waypost_hub::call::View;
use waypost_hub::hub::Hub;
use waypost_hub::reply::EventStream;
use waypost_hub::status::State;
use waypost_wire::error::ErrorObject;

use crate::fake::{Fake, call, declaring, reply, result, upstreams};
use crate::listening::{
    Voices, able, acknowledges, listen, listen_at, listening, next, nothing, notification,
    resource, say, settled, tasking,
};
use crate::reloading::reload;
use crate::supervising::{state, until};

const UPDATED: &str = "notifications/resources/updated";

fn updated(voices: &Voices, uri: &str) {
    say(voices, &notification(UPDATED, &json!({ "uri": uri })));
}

/// An upstream with two resources.
fn two(name: &str) -> (Arc<Fake>, Voices) {
    let lists = [
        (
            "resources/list",
            json!({ "resources": [{ "uri": "x://a" }, { "uri": "x://b" }] }),
        ),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [] }),
        ),
    ];
    listening(name, able(), &lists)
}

/// The URIs that are told of, in any order; nothing comes after them.
async fn told(events: &mut EventStream, count: usize) -> Vec<String> {
    let mut uris = Vec::new();
    for _ in 0..count {
        let (method, params) = next(events).await;
        assert_eq!(method, UPDATED);
        uris.push(params["uri"].as_str().unwrap().to_owned());
    }
    nothing(events).await;
    uris.sort();
    uris
}

#[tokio::test(start_paused = true)]
async fn nobody_who_listens_starts_an_upstream_that_is_switched_off() {
    let file = |more: &str| format!("upstreams: {{ a: {{ url: 'http://h'{more} }} }}");
    let ((a, _), (off, _), (on, voices)) = (two("a"), two("a"), two("a"));
    let hub = settled(&file(""), &[&a]).await;
    let mut events = listen(&hub, &json!({ "resourceSubscriptions": ["x://a"] })).await;
    next(&mut events).await;
    reload(&hub, &file(", disabled: true"), &[("a", &off)]);
    nothing(&mut events).await;
    assert_eq!(off.looks.load(Ordering::SeqCst), 0);
    assert!(off.seen().is_empty(), "nothing is asked of it");
    reload(&hub, &file(""), &[("a", &on)]);
    assert_eq!(
        told(&mut events, 1).await,
        ["x://a"],
        "it may have been missed"
    );
    updated(&voices, "x://a");
    assert_eq!(told(&mut events, 1).await, ["x://a"]);
}

#[tokio::test(start_paused = true)]
async fn r05_who_listens_hears_no_more_of_a_resource_that_is_denied_since() {
    let of_upstream = |deny: &str| {
        format!(
            "upstreams: {{ a: {{ url: 'http://h', resources: {{ deny: [{deny}] }} }} }}\nendpoints: {{ e: {{}} }}"
        )
    };
    let of_endpoint = |deny: &str| {
        format!(
            "upstreams: {{ a: {{ url: 'http://h' }} }}\nendpoints: {{ e: {{ resources: {{ deny: [{deny}] }} }} }}"
        )
    };
    let files: [&dyn Fn(&str) -> String; 2] = [&of_upstream, &of_endpoint];
    for file in files {
        let (a, voices) = two("a");
        let hub = settled(&file(""), &[&a]).await;
        let filter = json!({ "resourceSubscriptions": ["x://a", "x://b"] });
        let mut events = listen_at(&hub, View::Endpoint("e".into()), &filter).await;
        assert_eq!(next(&mut events).await.1["notifications"], filter);
        // Said before the reload, and told only after it.
        updated(&voices, "x://a");
        updated(&voices, "x://a/part");
        reload(&hub, &file("'x://a', 'x://a/*'"), &[]);
        // What may have been missed in between.
        assert_eq!(told(&mut events, 1).await, ["x://b"]);
        for uri in ["x://a", "x://a/part", "x://b"] {
            updated(&voices, uri);
        }
        assert_eq!(told(&mut events, 1).await, ["x://b"]);
        reload(&hub, &file("'x://a/*'"), &[]);
        assert_eq!(told(&mut events, 2).await, ["x://a", "x://b"]);
        voices.lock().unwrap().retain(|voice| !voice.is_closed());
        for uri in ["x://a", "x://a/part", "x://b"] {
            updated(&voices, uri);
        }
        assert_eq!(told(&mut events, 2).await, ["x://a", "x://b"]);
    }
}

/// A listener to a task of the tool `a_x`, and the task's handle.
pub(crate) async fn task_of(
    hub: &Arc<Hub>,
    view: &View,
    declared: &Value,
) -> (EventStream, String) {
    let mut wanted = declaring(call("tools/call", &json!({ "name": "a_x" })), declared);
    wanted.view = view.clone();
    let made = result(hub.call(wanted).await).await;
    let handle = made["taskId"].as_str().unwrap().to_owned();
    let filter = json!({ "notifications": { "taskIds": [handle] } });
    let mut wanted = declaring(call("subscriptions/listen", &filter), declared);
    wanted.view = view.clone();
    let mut events = hub.call(wanted).await.unwrap().into_stream();
    assert_eq!(
        next(&mut events).await.1["notifications"],
        filter["notifications"]
    );
    (events, handle)
}

#[tokio::test(start_paused = true)]
async fn r80_who_listens_hears_no_more_of_a_task_whose_tool_is_denied_since() {
    let of_upstream = |deny: &str| {
        format!(
            "upstreams: {{ a: {{ url: 'http://h', tools: {{ deny: [{deny}] }} }} }}\nendpoints: {{ e: {{}} }}"
        )
    };
    let of_endpoint = |deny: &str| {
        format!(
            "upstreams: {{ a: {{ url: 'http://h' }} }}\nendpoints: {{ e: {{ tools: {{ deny: [{deny}] }} }} }}"
        )
    };
    let files: [&dyn Fn(&str) -> String; 2] = [&of_upstream, &of_endpoint];
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    for (file, tells) in files.into_iter().flat_map(|f| [(f, true), (f, false)]) {
        let (a, voices) = tasking("a");
        let set = |status: &str| {
            let mut lists = a.lists.lock().unwrap();
            lists.get_mut("tasks/get").unwrap()["status"] = json!(status);
        };
        set("working");
        if !tells {
            // A server that answers this to every subscription.
            let error = ErrorObject::new(-32601, "unknown method");
            *a.refuses.lock().unwrap() = Some(("subscriptions/listen".to_owned(), error));
        }
        let hub = settled(&file(""), &[&a]).await;
        let view = View::Endpoint("e".into());
        let (mut events, handle) = task_of(&hub, &view, &tasks).await;
        reload(&hub, &file("x"), &[]);
        set("completed");
        let done = json!({ "taskId": "t", "status": "completed", "result": { "content": [] } });
        say(&voices, &notification("notifications/tasks", &done));
        nothing(&mut events).await;
        nothing(&mut events).await;
        // What is let in again is as it became meanwhile.
        reload(&hub, &file(""), &[]);
        let (method, params) = next(&mut events).await;
        assert_eq!(method, "notifications/tasks");
        assert_eq!(
            (&params["taskId"], &params["status"]),
            (&json!(handle), &json!("completed"))
        );
        nothing(&mut events).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_listens_hears_again_of_what_came_back() {
    let (a, before) = listening("a", able(), &resource("x://a"));
    let (again, after) = listening("a", able(), &resource("x://a"));
    let b = Fake::with_tools("b", &["x"]);
    let hub = settled(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let filter = json!({ "resourceSubscriptions": ["x://a"] });
    let mut events = listen(&hub, &filter).await;
    assert_eq!(next(&mut events).await.1["notifications"], filter);
    reload(&hub, &upstreams(&["b"]), &[]);
    updated(&before, "x://a");
    nothing(&mut events).await;
    reload(&hub, &upstreams(&["a", "b"]), &[("a", &again)]);
    // What may have been missed.
    assert_eq!(told(&mut events, 1).await, ["x://a"]);
    updated(&after, "x://a");
    assert_eq!(told(&mut events, 1).await, ["x://a"]);
    // Gone and back before anybody looks.
    let (third, last) = listening("a", able(), &resource("x://a"));
    reload(&hub, &upstreams(&["b"]), &[]);
    reload(&hub, &upstreams(&["a", "b"]), &[("a", &third)]);
    until("up", || state(&hub, "a") == State::Up).await;
    assert_eq!(told(&mut events, 1).await, ["x://a"]);
    updated(&last, "x://a");
    assert_eq!(told(&mut events, 1).await, ["x://a"]);
}

#[tokio::test(start_paused = true)]
async fn who_listens_hears_of_a_resource_from_who_has_it_now() {
    let (a, at_a) = listening("a", able(), &resource("x://a"));
    let (b, at_b) = listening("b", able(), &resource("x://a"));
    let hub = settled(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let mut events = listen(&hub, &json!({ "resourceSubscriptions": ["x://a"] })).await;
    next(&mut events).await;
    updated(&at_b, "x://a");
    nothing(&mut events).await;
    reload(&hub, &upstreams(&["b"]), &[]);
    assert_eq!(told(&mut events, 1).await, ["x://a"]);
    updated(&at_b, "x://a");
    assert_eq!(told(&mut events, 1).await, ["x://a"]);
    updated(&at_a, "x://a");
    nothing(&mut events).await;
    // Who has it keeps it when the first in the file comes back.
    let (again, at_a) = listening("a", able(), &resource("x://a"));
    reload(&hub, &upstreams(&["a", "b"]), &[("a", &again)]);
    nothing(&mut events).await;
    let catalog = hub.catalog();
    let (owner, _) = catalog.resource_owner(&View::All, "x://a").unwrap();
    assert_eq!(&*owner.name, "b");
    updated(&at_a, "x://a");
    nothing(&mut events).await;
    updated(&at_b, "x://a");
    assert_eq!(told(&mut events, 1).await, ["x://a"]);
}

#[tokio::test(start_paused = true)]
async fn a_reload_makes_nobody_ask_about_more_tasks_than_one_listener_may_have() {
    let (voices, made) = (Voices::default(), AtomicUsize::new(0));
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let capabilities = json!({ "tools": {}, "extensions": tasks["extensions"] });
    let lists = [("tools/list", json!({ "tools": [{ "name": "x" }] }))];
    let a = Fake::new("a", capabilities, &lists, move |call| {
        let (kind, id) = match call.method.as_str() {
            "subscriptions/listen" => return Ok(acknowledges(&voices, call)),
            "tools/call" => ("task", made.fetch_add(1, Ordering::SeqCst).to_string()),
            _ => ("complete", call.params.string("taskId").unwrap()),
        };
        let task = json!({ "resultType": kind, "taskId": id, "status": "working" });
        Ok(reply(&task))
    });
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let mut handles = Vec::new();
    for _ in 0..150 {
        let wanted = call("tools/call", &json!({ "name": "a_x" }));
        let made = result(hub.call(declaring(wanted, &tasks)).await).await;
        handles.push(made["taskId"].clone());
    }
    let filter = json!({ "notifications": { "taskIds": handles } });
    let wanted = declaring(call("subscriptions/listen", &filter), &tasks);
    let mut events = hub.call(wanted).await.unwrap().into_stream();
    let (_, acknowledged) = next(&mut events).await;
    assert_eq!(acknowledged["notifications"], filter["notifications"]);
    reload(&hub, "{ drain_grace: 1h, upstreams: {} }", &[]);
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    while tokio::time::Instant::now() < until {
        nothing(&mut events).await;
    }
    let asked = a.seen().into_iter().filter(|c| c.method == "tasks/get");
    let asked: HashSet<_> = asked.map(|c| c.params.string("taskId")).collect();
    assert_eq!(asked.len(), 100);
}
