//! `subscriptions/listen` through the gateway.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Call, Principal, Session, View};
use waypost_hub::catalog::Missing;
use waypost_hub::error::{CallError, Kind};
use waypost_hub::hub::Hub;
use waypost_hub::reply::{End, Event, EventStream, Reply};
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Notification;

use crate::fake::{
    Fake, call, declaring, echo, error, hub, object, reply, result, upstreams, value,
};

/// Speaks on the subscriptions that were opened at a fake.
pub(crate) type Voices = Arc<Mutex<Vec<mpsc::Sender<Event>>>>;

/// A fake whose subscriptions acknowledge what they are asked for and then say what the test
/// makes them say.
pub(crate) fn listening(
    name: &str,
    capabilities: Value,
    lists: &[(&str, Value)],
) -> (Arc<Fake>, Voices) {
    let voices = Voices::default();
    let heard = Arc::clone(&voices);
    let fake = Fake::new(name, capabilities, lists, move |call: &Call| {
        if call.method != "subscriptions/listen" {
            return Ok(echo(call));
        }
        Ok(acknowledges(&heard, call))
    });
    (fake, voices)
}

/// A subscription that stands, with one more voice.
pub(crate) fn acknowledges(voices: &Voices, call: &Call) -> Reply {
    let (sender, receiver) = mpsc::channel(8);
    let acknowledged = notification(
        "notifications/subscriptions/acknowledged",
        &json!({ "notifications": value(&call.params)["notifications"] }),
    );
    sender.try_send(acknowledged).unwrap();
    voices.lock().unwrap().push(sender);
    let events = stream::unfold(receiver, |mut receiver| async move {
        let event = receiver.recv().await?;
        Some((Ok::<_, CallError>(event), receiver))
    });
    Reply::Stream(events.boxed())
}

pub(crate) fn notification(method: &str, params: &Value) -> Event {
    Event::Notification(Notification {
        method: method.to_owned(),
        params: object(params),
    })
}

pub(crate) fn say(voices: &Voices, event: &Event) {
    for voice in voices.lock().unwrap().iter() {
        // A subscription that is over hears nothing.
        drop(voice.try_send(event.clone()));
    }
}

/// A hub whose upstreams have been read and are being followed.
pub(crate) async fn settled(yaml: &str, fakes: &[&Arc<Fake>]) -> Arc<Hub> {
    let hub = hub(yaml, fakes).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(hub.readiness().ready);
    hub
}

pub(crate) async fn listen(hub: &Arc<Hub>, filter: &Value) -> EventStream {
    listen_at(hub, View::All, filter).await
}

pub(crate) async fn listen_at(hub: &Arc<Hub>, view: View, filter: &Value) -> EventStream {
    let mut wanted = call("subscriptions/listen", &json!({ "notifications": filter }));
    wanted.view = view;
    hub.call(wanted).await.unwrap().into_stream()
}

/// The next message: method and params, or `end` and the result.
pub(crate) async fn next(events: &mut EventStream) -> (String, Value) {
    let event = timeout(Duration::from_secs(5), events.next())
        .await
        .expect("a message in time");
    match event.unwrap().unwrap() {
        Event::Notification(n) => (n.method, value(&n.params)),
        Event::End(End::Complete(result)) => ("end".to_owned(), value(&result)),
        Event::End(other) => panic!("{other:?}"),
    }
}

pub(crate) async fn nothing(events: &mut EventStream) {
    let heard = timeout(Duration::from_millis(1_400), events.next()).await;
    assert!(heard.is_err(), "{heard:?}");
}

const ID: &str = "io.modelcontextprotocol/subscriptionId";

#[tokio::test(start_paused = true)]
async fn r09_a_changed_list_is_told_within_a_second_and_only_if_it_changed() {
    let tools = json!({ "tools": [{ "name": "x" }] });
    let capabilities = json!({ "tools": { "listChanged": true } });
    let (a, voices) = listening("a", capabilities, &[("tools/list", tools)]);
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let mut tools = listen(&hub, &json!({ "toolsListChanged": true })).await;
    let mut prompts = listen(&hub, &json!({ "promptsListChanged": true })).await;
    let (method, params) = next(&mut tools).await;
    assert_eq!(method, "notifications/subscriptions/acknowledged");
    assert_eq!(params["notifications"], json!({ "toolsListChanged": true }));
    assert_eq!(params["_meta"][ID], "c1");
    next(&mut prompts).await;

    let changed = notification("notifications/tools/list_changed", &json!({}));
    say(&voices, &changed);
    nothing(&mut tools).await;

    a.lists
        .lock()
        .unwrap()
        .insert("tools/list".into(), json!({ "tools": [{ "name": "y" }] }));
    say(&voices, &changed);
    say(&voices, &changed);
    let (method, params) = timeout(Duration::from_secs(1), next(&mut tools))
        .await
        .unwrap();
    assert_eq!(method, "notifications/tools/list_changed");
    assert_eq!(params["_meta"][ID], "c1");
    nothing(&mut tools).await;
    nothing(&mut prompts).await;
}

#[tokio::test(start_paused = true)]
async fn lists_are_read_once_per_connection_where_changes_are_announced() {
    let tools = json!({ "tools": [{ "name": "x" }] });
    let capabilities = json!({ "tools": { "listChanged": true } });
    let (a, voices) = listening("a", capabilities, &[("tools/list", tools)]);
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    assert_eq!(a.count("tools/list"), 1);
    assert!(hub.members()[0].is_followed());
    let order = |calls: &[Call]| calls.iter().map(|c| c.method.clone()).collect::<Vec<_>>();
    let calls = order(&a.calls.lock().unwrap());
    assert_eq!(calls, ["subscriptions/listen", "tools/list"]);
    // A subscription that was lost is another matter.
    voices.lock().unwrap().clear();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(a.count("subscriptions/listen"), 2);
    assert_eq!(a.count("tools/list"), 2);
}

#[tokio::test(start_paused = true)]
async fn many_changes_are_read_about_twice_a_second_and_no_list_starves() {
    let capabilities = json!({ "tools": { "listChanged": true }, "prompts": {} });
    let lists = [
        ("tools/list", json!({ "tools": [] })),
        ("prompts/list", json!({ "prompts": [] })),
    ];
    let (a, voices) = listening("a", capabilities, &lists);
    let _hub = settled(&upstreams(&["a"]), &[&a]).await;
    let changed = notification("notifications/tools/list_changed", &json!({}));
    for _ in 0..400 {
        say(&voices, &changed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let reads = a.count("tools/list");
    assert!((75..=90).contains(&reads), "{reads} in 40 s");
    assert_eq!(a.count("prompts/list"), 2, "after the end of its life");
}

#[tokio::test(start_paused = true)]
async fn a_view_hears_only_its_own_changes() {
    let tools = json!({ "tools": [{ "name": "x" }] });
    let capabilities = json!({ "tools": { "listChanged": true } });
    let (a, voices) = listening("a", capabilities, &[("tools/list", tools)]);
    let b = Fake::with_tools("b", &["z"]);
    let hub = settled(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let filter = json!({ "toolsListChanged": true });
    let mut of_a = listen_at(&hub, View::Upstream("a".into()), &filter).await;
    let mut of_b = listen_at(&hub, View::Upstream("b".into()), &filter).await;
    next(&mut of_a).await;
    next(&mut of_b).await;
    a.lists
        .lock()
        .unwrap()
        .insert("tools/list".into(), json!({ "tools": [] }));
    say(
        &voices,
        &notification("notifications/tools/list_changed", &json!({})),
    );
    assert_eq!(next(&mut of_a).await.0, "notifications/tools/list_changed");
    nothing(&mut of_b).await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_hears_of_nothing_that_it_hides() {
    let tools = |names: &[&str]| {
        let tools: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        json!({ "tools": tools })
    };
    let capabilities =
        json!({ "tools": { "listChanged": true }, "resources": { "subscribe": true } });
    let lists = [
        ("tools/list", tools(&["read", "write"])),
        (
            "resources/list",
            json!({ "resources": [{ "uri": "file:///x", "name": "x" }, { "uri": "file:///y", "name": "y" }] }),
        ),
    ];
    let (a, voices) = listening("a", capabilities, &lists);
    let yaml = format!(
        "{}endpoints:\n  e: {{ tools: {{ allow: [\"read*\"] }}, resources: {{ deny: [\"*/y\"] }} }}\n",
        upstreams(&["a"])
    );
    let hub = settled(&yaml, &[&a]).await;
    let filter = json!({ "toolsListChanged": true,
        "resourceSubscriptions": ["file:///x", "file:///y", "a+file:///y", "file:///x/../y"] });
    let mut events = listen_at(&hub, View::Endpoint("e".into()), &filter).await;
    let (_, acknowledged) = next(&mut events).await;
    assert_eq!(
        acknowledged["notifications"],
        json!({ "toolsListChanged": true, "resourceSubscriptions": ["file:///x"] })
    );
    let changed = notification("notifications/tools/list_changed", &json!({}));
    let turn_into = |names: &[&str]| {
        let mut lists = a.lists.lock().unwrap();
        lists.insert("tools/list".into(), tools(names));
        drop(lists);
        say(&voices, &changed);
    };
    let mut of_all = listen(&hub, &json!({ "toolsListChanged": true })).await;
    next(&mut of_all).await;
    turn_into(&["read", "rewrite"]);
    assert_eq!(
        next(&mut of_all).await.0,
        "notifications/tools/list_changed"
    );
    nothing(&mut events).await;
    turn_into(&["read", "read_more"]);
    assert_eq!(
        next(&mut events).await.0,
        "notifications/tools/list_changed"
    );
    let updated =
        |uri: &str| notification("notifications/resources/updated", &json!({ "uri": uri }));
    say(&voices, &updated("file:///y"));
    say(&voices, &updated("file:///x/y"));
    nothing(&mut events).await;
    say(&voices, &updated("file:///x"));
    assert_eq!(next(&mut events).await.1["uri"], "file:///x");
}

#[tokio::test(start_paused = true)]
async fn updates_of_a_resource_come_under_the_name_that_was_subscribed() {
    let lists = [(
        "resources/list",
        json!({ "resources": [{ "uri": "file:///x", "name": "x" }] }),
    )];
    let (a, _) = listening("a", json!({ "resources": { "subscribe": true } }), &lists);
    let (b, voices) = listening("b", json!({ "resources": { "subscribe": true } }), &lists);
    let hub = settled(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let filter = json!({ "resourceSubscriptions": ["b+file:///x", "nowhere://y"] });
    let mut events = listen(&hub, &filter).await;
    let (_, params) = next(&mut events).await;
    assert_eq!(
        params["notifications"],
        json!({ "resourceSubscriptions": ["b+file:///x"] })
    );
    say(
        &voices,
        &notification(
            "notifications/resources/updated",
            &json!({ "uri": "file:///x" }),
        ),
    );
    let (method, params) = next(&mut events).await;
    assert_eq!(method, "notifications/resources/updated");
    assert_eq!(
        (params["uri"].clone(), params["_meta"][ID].clone()),
        (json!("b+file:///x"), json!("c1"))
    );
    assert_eq!(
        a.count("subscriptions/listen"),
        0,
        "nobody asked for anything of it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_subscription_is_opened_again_and_what_was_missed_is_reported() {
    let lists = [(
        "resources/list",
        json!({ "resources": [{ "uri": "file:///x", "name": "x" }] }),
    )];
    let (a, voices) = listening("a", json!({ "resources": { "subscribe": true } }), &lists);
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let mut events = listen(&hub, &json!({ "resourceSubscriptions": ["file:///x"] })).await;
    next(&mut events).await;
    voices.lock().unwrap().clear();
    let (method, params) = next(&mut events).await;
    assert_eq!(
        (method.as_str(), &params["uri"]),
        ("notifications/resources/updated", &json!("file:///x"))
    );
}

/// A fake with one tool that answers with the task `t`, which is done when asked about, and with
/// subscriptions.
pub(crate) fn tasking(name: &str) -> (Arc<Fake>, Voices) {
    let capabilities =
        json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let lists = [("tools/list", json!({ "tools": [{ "name": "x" }] }))];
    let (fake, voices) = listening(name, capabilities, &lists);
    let answer = |status: &str| json!({ "taskId": "t", "status": status, "ttlMs": null });
    fake.lists.lock().unwrap().extend([
        ("tasks/get".to_owned(), {
            let mut task = answer("completed");
            task["resultType"] = json!("complete");
            task["result"] = json!({ "content": [] });
            task
        }),
        ("tools/call".to_owned(), {
            let mut task = answer("working");
            task["resultType"] = json!("task");
            task
        }),
    ]);
    (fake, voices)
}

#[tokio::test(start_paused = true)]
async fn a_task_is_asked_about_after_its_subscription_was_lost() {
    let (a, voices) = tasking("a");
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let wanted = call("tools/call", &json!({ "name": "a_x" }));
    let created = result(hub.call(declaring(wanted, &tasks)).await).await;
    let handle = &created["taskId"];
    let filter = json!({ "notifications": { "taskIds": [handle] } });
    let wanted = declaring(call("subscriptions/listen", &filter), &tasks);
    let mut events = hub.call(wanted).await.unwrap().into_stream();
    let (_, params) = next(&mut events).await;
    assert_eq!(params["notifications"], filter["notifications"]);
    voices.lock().unwrap().clear();
    let (method, params) = next(&mut events).await;
    assert_eq!(method, "notifications/tasks");
    assert_eq!(
        params,
        json!({ "taskId": handle, "status": "completed", "ttlMs": null,
            "result": { "content": [], "resultType": "complete" },
            "_meta": { ID: "c1" } })
    );
}

pub(crate) fn resource(uri: &str) -> [(&'static str, Value); 2] {
    let resource = json!({ "uri": uri, "name": "x" });
    let templates = json!({ "resourceTemplates": [] });
    [
        ("resources/list", json!({ "resources": [resource] })),
        ("resources/templates/list", templates),
    ]
}

pub(crate) fn able() -> Value {
    json!({ "resources": { "subscribe": true } })
}

#[tokio::test(start_paused = true)]
async fn what_is_not_agreed_to_is_not_acknowledged_and_what_is_late_is_carried_on() {
    let (good, voices) = listening("good", able(), &resource("good:///x"));
    // It is silent at first, which must not hold up the others for long.
    let late_voices = Voices::default();
    let asked = AtomicUsize::new(0);
    let heard = Arc::clone(&late_voices);
    let mute = Fake::new("mute", able(), &resource("mute:///x"), move |call| {
        if call.method == "subscriptions/listen" && asked.fetch_add(1, Ordering::SeqCst) > 0 {
            return Ok(acknowledges(&heard, call));
        }
        Ok(Reply::Stream(stream::pending().boxed()))
    });
    let (down, _down_voices) = listening("down", able(), &resource("down:///x"));
    let refuses = |_: &Call| {
        let error = ErrorObject::new(-32602, "not that one");
        Ok(Reply::error(error))
    };
    let proud = Fake::new("proud", able(), &resource("proud:///x"), refuses);
    // It does not say that it tells of single resources.
    let unable = Fake::new(
        "unable",
        json!({ "resources": {} }),
        &resource("unable:///x"),
        |_| Ok(Reply::Stream(stream::pending().boxed())),
    );
    let names = ["good", "mute", "down", "proud", "unable"];
    let fakes = [&good, &mute, &down, &proud, &unable];
    let hub = settled(&upstreams(&names), &fakes).await;
    down.down.store(true, Ordering::SeqCst);
    let uris: Vec<String> = names.iter().map(|name| format!("{name}:///x")).collect();
    let mut events = listen(&hub, &json!({ "resourceSubscriptions": uris })).await;
    let (_, params) = next(&mut events).await;
    let heard = json!({ "resourceSubscriptions": ["good:///x", "mute:///x", "down:///x"] });
    assert_eq!(params["notifications"], heard);
    let updated = json!({ "uri": "good:///x" });
    say(
        &voices,
        &notification("notifications/resources/updated", &updated),
    );
    assert_eq!(next(&mut events).await.1["uri"], "good:///x");
    // What may have changed before these could be heard is told.
    down.down.store(false, Ordering::SeqCst);
    let mut told = Vec::new();
    for _ in 0..2 {
        let event = timeout(Duration::from_secs(60), events.next()).await;
        let Ok(Some(Ok(Event::Notification(one)))) = event else {
            panic!("{event:?}")
        };
        told.push(one.params.string("uri").unwrap());
    }
    told.sort();
    assert_eq!(told, ["down:///x", "mute:///x"]);
    let updated = json!({ "uri": "mute:///x" });
    say(
        &late_voices,
        &notification("notifications/resources/updated", &updated),
    );
    assert_eq!(next(&mut events).await.1["uri"], "mute:///x");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_need_not_be_the_last_word_breaks_no_promise() {
    let (voices, asked) = (Voices::default(), Arc::new(AtomicUsize::new(0)));
    let (heard, times) = (Arc::clone(&voices), Arc::clone(&asked));
    let wavers = Fake::new("wavers", able(), &resource("wavers:///x"), move |call| {
        if call.method != "subscriptions/listen" {
            return Ok(echo(call));
        }
        Ok(match times.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::Stream(stream::pending().boxed()),
            1 => Reply::error(ErrorObject::new(-32603, "just now not")),
            2 => Reply::error(ErrorObject::new(-32000, "busy")),
            _ => acknowledges(&heard, call),
        })
    });
    let hub = settled(&upstreams(&["wavers"]), &[&wavers]).await;
    let wanted = json!({ "resourceSubscriptions": ["wavers:///x"] });
    let mut events = listen(&hub, &wanted).await;
    let (_, params) = next(&mut events).await;
    assert_eq!(params["notifications"], wanted);
    let event = timeout(Duration::from_secs(60), events.next()).await;
    let Ok(Some(Ok(Event::Notification(told)))) = event else {
        panic!("{event:?}")
    };
    assert_eq!(told.params.string("uri").as_deref(), Some("wavers:///x"));
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn who_awaits_the_server_gets_its_answer_or_a_timeout_that_names_it() {
    let refuses = |_: &Call| Ok(Reply::error(ErrorObject::new(-32602, "not that one")));
    let proud = Fake::new("proud", able(), &resource("proud:///x"), refuses);
    let mute = Fake::new("mute", able(), &resource("mute:///x"), |_| {
        Ok(Reply::Stream(stream::pending().boxed()))
    });
    let (good, _voices) = listening("good", able(), &resource("good:///x"));
    let hub = settled(
        &upstreams(&["proud", "mute", "good"]),
        &[&proud, &mute, &good],
    )
    .await;
    let ask = async |uri: &str| {
        let wanted = json!({ "notifications": { "resourceSubscriptions": [uri] } });
        let mut call = call("subscriptions/listen", &wanted);
        call.awaits_servers = true;
        hub.call(call).await
    };
    let refused = ask("proud:///x").await.unwrap();
    let Reply::End(End::Error(error)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(error.message(), "not that one");
    let started = Instant::now();
    let error = ask("mute:///x").await.unwrap_err();
    assert_eq!(error.kind, Kind::Timeout);
    assert!(
        error
            .to_string()
            .contains("upstream `mute`: no answer within 300.0 s"),
        "{error}"
    );
    assert_eq!(started.elapsed(), Duration::from_secs(300));
    let mut events = ask("good:///x").await.unwrap().into_stream();
    let heard = json!({ "resourceSubscriptions": ["good:///x"] });
    assert_eq!(next(&mut events).await.1["notifications"], heard);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_switched_off_is_never_asked() {
    let lists = [(
        "resources/list",
        json!({ "resources": [{ "uri": "file:///x", "name": "x" }] }),
    )];
    let able = || json!({ "resources": { "subscribe": true } });
    let (a, _) = listening("a", able(), &lists);
    let off = Fake::new("off", able(), &lists, |_| unreachable!());
    let yaml = "upstreams:\n  a: { url: \"http://127.0.0.1:9\" }\n  \
        off: { url: \"http://127.0.0.1:9\", disabled: true }\n";
    let hub = settled(yaml, &[&a, &off]).await;
    let uris = json!({ "resourceSubscriptions": ["a+file:///x", "off+file:///x"] });
    let mut events = listen(&hub, &uris).await;
    let (_, params) = next(&mut events).await;
    let heard = json!({ "resourceSubscriptions": ["a+file:///x"] });
    assert_eq!(params["notifications"], heard);
    let catalog = hub.catalog();
    let owner = catalog.resource_owner(&View::All, "off+file:///x");
    assert_eq!(owner.unwrap_err(), Missing::Unknown);
    assert!(off.calls.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn opening_a_subscription_again_has_a_deadline() {
    let lists = [(
        "resources/list",
        json!({ "resources": [{ "uri": "file:///x", "name": "x" }] }),
    )];
    let opened = AtomicUsize::new(0);
    let a = Fake::new(
        "a",
        json!({ "resources": { "subscribe": true } }),
        &lists,
        move |call| {
            if call.method != "subscriptions/listen" {
                return Ok(echo(call));
            }
            let acknowledged = stream::iter([Ok(notification(
                "notifications/subscriptions/acknowledged",
                &json!({ "notifications": value(&call.params)["notifications"] }),
            ))]);
            Ok(Reply::Stream(match opened.fetch_add(1, Ordering::SeqCst) {
                0 => acknowledged.boxed(),
                1 => stream::pending().boxed(),
                _ => acknowledged.chain(stream::pending()).boxed(),
            }))
        },
    );
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let mut events = listen(&hub, &json!({ "resourceSubscriptions": ["file:///x"] })).await;
    next(&mut events).await;
    let missed = timeout(Duration::from_secs(20), events.next()).await;
    assert!(
        matches!(missed, Ok(Some(Ok(Event::Notification(_))))),
        "{missed:?}"
    );
    assert_eq!(a.count("subscriptions/listen"), 3);
}

/// A fake whose tasks die with it, a task of it by this caller, and how it speaks.
async fn with_task(lists: &[(&str, Value)]) -> (Arc<Fake>, Voices, Arc<Hub>, String) {
    let voices = Voices::default();
    let heard = Arc::clone(&voices);
    let mut all = vec![("tools/list", json!({ "tools": [{ "name": "x" }] }))];
    all.extend_from_slice(lists);
    let capabilities = json!({
        "tools": {}, "resources": { "subscribe": true },
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    });
    let fake = Fake::new("a", capabilities, &all, move |call: &Call| {
        match &*call.method {
            "subscriptions/listen" => Ok(acknowledges(&heard, call)),
            "tools/call" => Ok(reply(
                &json!({ "resultType": "task", "taskId": "t1", "status": "working" }),
            )),
            _ => Ok(reply(&json!({ "taskId": "t1", "status": "completed" }))),
        }
    });
    *fake.instance.lock().unwrap() = Some("child 1".into());
    let hub = settled(&upstreams(&["a"]), &[&fake]).await;
    let create = declaring(call("tools/call", &json!({ "name": "a_x" })), &tasks());
    let created = result(hub.call(create).await).await;
    let handle = created["taskId"].as_str().unwrap().to_owned();
    (fake, voices, hub, handle)
}

fn tasks() -> Value {
    json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } })
}

async fn listen_with_tasks(hub: &Arc<Hub>, filter: &Value) -> EventStream {
    let wanted = call("subscriptions/listen", &json!({ "notifications": filter }));
    let wanted = declaring(wanted, &tasks());
    hub.call(wanted).await.unwrap().into_stream()
}

#[tokio::test(start_paused = true)]
async fn a_listener_of_a_task_hears_nothing_of_the_next_process_with_the_same_id() {
    let (a, voices, hub, handle) = with_task(&[]).await;
    let mut events = listen_with_tasks(&hub, &json!({ "taskIds": [handle] })).await;
    let (_, params) = next(&mut events).await;
    assert_eq!(params["notifications"], json!({ "taskIds": [handle] }));
    let told = notification(
        "notifications/tasks",
        &json!({ "taskId": "t1", "status": "working" }),
    );
    say(&voices, &told);
    assert_eq!(next(&mut events).await.1["taskId"], *handle);

    let before = (a.count("subscriptions/listen"), a.count("tasks/get"));
    *a.instance.lock().unwrap() = Some("child 2".into());
    voices.lock().unwrap().clear();
    nothing(&mut events).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    say(&voices, &told);
    nothing(&mut events).await;
    let after = (a.count("subscriptions/listen"), a.count("tasks/get"));
    assert_eq!(before, after, "it was not even asked");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_loses_its_task_still_hears_of_resources() {
    let listed = json!({ "resources": [{ "uri": "file:///x", "name": "x" }] });
    let (a, voices, hub, handle) = with_task(&[("resources/list", listed)]).await;
    let filter = json!({ "resourceSubscriptions": ["file:///x"], "taskIds": [handle] });
    let mut events = listen_with_tasks(&hub, &filter).await;
    assert_eq!(next(&mut events).await.1["notifications"], filter);
    *a.instance.lock().unwrap() = Some("child 2".into());
    voices.lock().unwrap().clear();
    let (method, params) = next(&mut events).await;
    assert_eq!(method, "notifications/resources/updated");
    assert_eq!(params["uri"], "file:///x");
    let calls = a.calls.lock().unwrap();
    let last = calls.iter().rfind(|c| c.method == "subscriptions/listen");
    let asked = &value(&last.unwrap().params)["notifications"];
    assert_eq!(*asked, json!({ "resourceSubscriptions": ["file:///x"] }));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_to_a_resource_goes_where_the_callers_own_calls_go() {
    let listed = json!({ "resources": [{ "uri": "file:///x", "name": "x" }] });
    let able = json!({ "resources": { "subscribe": true } });
    let (a, _voices) = listening("a", able, &[("resources/list", listed)]);
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let filter = json!({ "resourceSubscriptions": ["file:///x"] });
    let wanted = call("subscriptions/listen", &json!({ "notifications": filter }));
    let mut wanted = declaring(wanted, &json!({ "elicitation": {} }));
    wanted.principal = Principal::new("ann");
    wanted.session = Some(Session::new("s1", CancellationToken::new()));
    let mut events = hub.call(wanted).await.unwrap().into_stream();
    next(&mut events).await;
    let calls = a.calls.lock().unwrap();
    let sent = calls.iter().rfind(|c| c.method == "subscriptions/listen");
    let sent = sent.unwrap();
    assert_eq!(sent.principal, Principal::new("ann"));
    assert_eq!(&**sent.session.as_ref().unwrap().id(), "s1");
    // A session that is opened for it is opened for this client.
    assert!(sent.meta.capabilities.object().contains("elicitation"));
}

#[tokio::test(start_paused = true)]
async fn draining_ends_the_stream_gracefully() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let mut events = listen(&hub, &json!({ "toolsListChanged": true })).await;
    next(&mut events).await;
    hub.begin_drain();
    let last = next(&mut events).await;
    assert_eq!(last.0, "end");
    assert_eq!(
        (last.1["resultType"].clone(), last.1["_meta"][ID].clone()),
        (json!("complete"), json!("c1"))
    );
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn task_ids_need_the_extension() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let wanted = call(
        "subscriptions/listen",
        &json!({ "notifications": { "taskIds": ["t"] } }),
    );
    let refused = error(hub.call(wanted).await).await;
    assert_eq!(refused["code"], -32021);
    let required = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    assert_eq!(refused["data"]["requiredCapabilities"], required);
    let bad = error(hub.call(call("subscriptions/listen", &json!({}))).await).await;
    assert_eq!(bad["code"], -32602);
}

#[tokio::test(start_paused = true)]
async fn r58_a_server_that_acknowledges_and_hangs_up_is_asked_less_and_less() {
    let tools = json!({ "tools": [{ "name": "x" }] });
    let capabilities = json!({ "tools": { "listChanged": true } });
    let lists = [("tools/list", tools)];
    let a = Fake::new("a", capabilities, &lists, |call| {
        let acknowledged = notification(
            "notifications/subscriptions/acknowledged",
            &json!({ "notifications": value(&call.params)["notifications"] }),
        );
        Ok(Reply::Stream(stream::iter([Ok(acknowledged)]).boxed()))
    });
    let _hub = settled(&upstreams(&["a"]), &[&a]).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let (opened, read) = (a.count("subscriptions/listen"), a.count("tools/list"));
    assert!((10..30).contains(&opened), "{opened} in ten minutes");
    assert!(read < 60, "{read} in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn r58_a_subscription_that_stood_is_opened_again_at_once() {
    let tools = json!({ "tools": [{ "name": "x" }] });
    let capabilities = json!({ "tools": { "listChanged": true } });
    let (a, voices) = listening("a", capabilities, &[("tools/list", tools)]);
    let _hub = settled(&upstreams(&["a"]), &[&a]).await;
    for opened in 2..8 {
        tokio::time::sleep(Duration::from_secs(40)).await;
        voices.lock().unwrap().clear();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(a.count("subscriptions/listen"), opened);
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_too_many_is_told_to_come_back() {
    let a = Fake::with_tools("a", &["x"]);
    let yaml = format!("limits: {{ listeners: 2 }}\n{}", upstreams(&["a"]));
    let hub = settled(&yaml, &[&a]).await;
    let filter = json!({ "toolsListChanged": true });
    let (first, _second) = (listen(&hub, &filter).await, listen(&hub, &filter).await);
    let third = || call("subscriptions/listen", &json!({ "notifications": filter }));
    let refused = hub.call(third()).await.unwrap_err();
    assert_eq!((refused.kind, refused.retryable), (Kind::Throttled, true));
    drop(first);
    let mut events = hub.call(third()).await.unwrap().into_stream();
    let (method, _) = next(&mut events).await;
    assert_eq!(method, "notifications/subscriptions/acknowledged");
}
