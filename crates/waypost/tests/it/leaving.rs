//! Callers that leave before a call at an HTTP server has become a task.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Semaphore;
use waypost_testkit::misbehave::late_tasks::{Words, late_tasks};
use waypost_testkit::run::Running;

use crate::support::{Waypost, tool_names, until};

#[tokio::test]
async fn a_task_that_is_made_after_its_caller_has_left_is_cancelled() {
    for words in [Words::Whole, Words::Stream, Words::Sessions] {
        let go = Arc::new(Semaphore::new(0));
        let late = late_tasks(words, Arc::clone(&go)).await.unwrap();
        let name = format!("{words:?}").to_lowercase();
        let waypost = Waypost::start(&format!(
            "upstreams: {{ {name}: {{ url: '{}' }} }}",
            late.url
        ))
        .await;
        leave(&waypost, &late, &name).await;
        assert_eq!(late.seen().aborted("tools/call"), 0, "{words:?}");
        go.add_permits(1);
        let told = late.seen().wait_for(|seen| seen.count("tasks/cancel") == 1);
        assert!(told.await, "{words:?}");
        late.stop().await;
    }
}

#[tokio::test]
async fn an_answer_that_stays_out_is_not_waited_for_by_nobody() {
    for words in [Words::Whole, Words::Stream, Words::Sessions] {
        let late = late_tasks(words, Arc::new(Semaphore::new(0)))
            .await
            .unwrap();
        let name = format!("{words:?}").to_lowercase();
        let waypost = Waypost::start(&format!(
            "upstreams: {{ {name}: {{ url: '{}' }} }}",
            late.url
        ))
        .await;
        leave(&waypost, &late, &name).await;
        let closed = late.seen().wait_for(|seen| seen.aborted("tools/call") == 1);
        assert!(closed.await, "{words:?}");
        late.stop().await;
    }
}

/// A caller that knows tasks calls the tool of `server` and leaves before the answer; Waypost
/// knows when this is over.
async fn leave(waypost: &Waypost, server: &Running, name: &str) {
    let client = waypost.client().with_tasks();
    let tool = format!("{name}_work");
    assert!(tool_names(&client).await.contains(&tool));
    let asked = server.seen().wait_for(|seen| seen.count("tools/call") == 1);
    tokio::select! {
        answer = client.tool(&tool, json!({})) => panic!("{answer:?}"),
        asked = asked => assert!(asked),
    }
    drop(client);
    until("the call to be given up", async || {
        let metrics = waypost.admin("/metrics").await;
        let text = String::from_utf8(metrics.raw.to_vec()).unwrap();
        let given_up = |line: &&str| {
            line.contains("waypost_upstream_calls_total")
                && line.contains(&format!("upstream=\"{name}\""))
                && line.contains("outcome=\"cancelled\"")
        };
        text.lines().any(|line| given_up(&line))
    })
    .await;
}
