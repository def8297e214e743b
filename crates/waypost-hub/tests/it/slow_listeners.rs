//! Listeners that take their time.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::fake::{hub, upstreams};
use crate::listening::{listen, listening, next, nothing, notification, say};

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
