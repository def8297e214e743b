//! Listeners that take their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tokio::time::sleep;
use waypost_hub::call::View;
use waypost_hub::reply::Reply;

use crate::fake::{Fake, echo, hub, upstreams, value};
use crate::heard::task_of;
use crate::listening::{listen, listening, next, nothing, notification, say, settled, tasking};

#[tokio::test(start_paused = true)]
async fn a_listener_that_does_not_read_is_told_once_of_a_list_that_changed_often() {
    let tools = |count: usize| {
        let tools: Vec<_> = (0..count)
            .map(|n| json!({ "name": format!("x{n}") }))
            .collect();
        json!({ "tools": tools })
    };
    let capabilities = json!({ "tools": { "listChanged": true } });
    let (a, voices) = listening("a", capabilities, &[("tools/list", tools(1))]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    sleep(Duration::from_secs(1)).await;
    let mut slow = listen(&hub, &json!({ "toolsListChanged": true })).await;
    let mut quick = listen(&hub, &json!({ "toolsListChanged": true })).await;
    next(&mut slow).await;
    next(&mut quick).await;
    let changed = notification("notifications/tools/list_changed", &json!({}));
    for count in 2..7 {
        let list = ("tools/list".to_owned(), tools(count));
        a.lists.lock().unwrap().extend([list]);
        say(&voices, &changed);
        let (method, _) = next(&mut quick).await;
        assert_eq!(method, "notifications/tools/list_changed");
    }
    let (method, _) = next(&mut slow).await;
    assert_eq!(method, "notifications/tools/list_changed");
    nothing(&mut slow).await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_does_not_read_is_told_once_of_a_resource_that_changed_often() {
    let capabilities = json!({ "resources": { "subscribe": true } });
    let lists = [
        ("resources/list", json!({ "resources": [] })),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [] }),
        ),
    ];
    let (a, voices) = listening("a", capabilities, &lists);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    sleep(Duration::from_secs(1)).await;
    let filter = json!({ "resourceSubscriptions": ["file:///x", "file:///y"] });
    let mut slow = listen(&hub, &filter).await;
    next(&mut slow).await;
    let say_of = |uri: &str| {
        let params = json!({ "uri": uri });
        say(
            &voices,
            &notification("notifications/resources/updated", &params),
        );
    };
    for uri in [
        "file:///x",
        "file:///y",
        "file:///x",
        "file:///x",
        "file:///y/1",
        "file:///y",
    ] {
        say_of(uri);
    }
    for uri in ["file:///x", "file:///y", "file:///y/1"] {
        let (_, params) = next(&mut slow).await;
        assert_eq!(params["uri"], uri);
    }
    nothing(&mut slow).await;
    say_of("file:///x");
    let (_, params) = next(&mut slow).await;
    assert_eq!(params["uri"], "file:///x", "it changed again");
}

#[tokio::test(start_paused = true)]
async fn what_a_server_says_of_ever_new_resources_waits_for_a_listener_at_the_server() {
    let capabilities = json!({ "resources": { "subscribe": true } });
    let lists = [
        ("resources/list", json!({ "resources": [] })),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [] }),
        ),
    ];
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let a = Fake::new("a", capabilities, &lists, move |call| {
        if call.method != "subscriptions/listen" {
            return Ok(echo(call));
        }
        let acknowledged = notification(
            "notifications/subscriptions/acknowledged",
            &json!({ "notifications": value(&call.params)["notifications"] }),
        );
        let counted = Arc::clone(&counted);
        let updates = (0..).map(move |number| {
            counted.fetch_add(1, Ordering::SeqCst);
            let params = json!({ "uri": format!("file:///x/{number}") });
            Ok(notification("notifications/resources/updated", &params))
        });
        let events = stream::iter([Ok(acknowledged)]).chain(stream::iter(updates));
        Ok(Reply::Stream(events.boxed()))
    });
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let filter = json!({ "resourceSubscriptions": ["file:///x"] });
    let mut slow = listen(&hub, &filter).await;
    next(&mut slow).await;
    for number in 0..20 {
        let (_, params) = next(&mut slow).await;
        assert_eq!(params["uri"], format!("file:///x/{number}"));
    }
    let taken = taken.load(Ordering::SeqCst);
    assert!(taken < 300, "{taken} for 20");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_does_not_read_is_told_how_a_task_is_by_then() {
    let (a, voices) = tasking("a");
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let (mut slow, handle) = task_of(&hub, &View::All, &tasks).await;
    for message in ["a", "b", "c", "d"] {
        let status = json!({ "taskId": "t", "status": "working", "statusMessage": message });
        say(&voices, &notification("notifications/tasks", &status));
    }
    let (_, params) = next(&mut slow).await;
    assert_eq!(
        (&params["taskId"], &params["statusMessage"]),
        (&json!(handle), &json!("d"))
    );
    nothing(&mut slow).await;
}
