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
