//! Callers that leave before a call at an HTTP server has become a task.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Semaphore;
use waypost_hub::aftermath::LINGER;
use waypost_testkit::misbehave::late_tasks::{Words, late_tasks};
use waypost_testkit::run::Running;

use crate::support::{Waypost, tool_names, until};

/// More than one only where the machine is so busy that the wait is over before it is looked at.
const ATTEMPTS: usize = 5;

/// The server in these words, each permit of which lets one call become a task, and what is before
/// it under its name.
async fn begin(words: Words) -> (Running, Arc<Semaphore>, Waypost, String) {
    let go = Arc::new(Semaphore::new(0));
    let late = late_tasks(words, Arc::clone(&go)).await.unwrap();
    let name = format!("{words:?}").to_lowercase();
    let yaml = format!(
        "upstreams: {{ {name}: {{ url: '{}' }} }}\ndrain_grace: 10s",
        late.url
    );
    (late, go, Waypost::start(&yaml).await, name)
}

#[tokio::test]
async fn a_task_that_is_made_after_its_caller_has_left_is_cancelled() {
    for words in [Words::Whole, Words::Stream, Words::Sessions] {
        let (late, go, waypost, name) = begin(words).await;
        for attempt in 1..=ATTEMPTS {
            leave(&waypost, &late, &name, attempt).await;
            if late.seen().aborted("tools/call") == attempt {
                continue;
            }
            go.add_permits(1);
            let told = late.seen().wait_for(|seen| {
                seen.count("tasks/cancel") == 1 || seen.aborted("tools/call") == attempt
            });
            assert!(told.await, "{words:?}");
            if late.seen().count("tasks/cancel") == 1 {
                break;
            }
            go.forget_permits(1);
        }
        assert_eq!(late.seen().count("tasks/cancel"), 1, "{words:?}");
        late.stop().await;
    }
}

#[tokio::test]
async fn a_session_server_is_told_to_cancel_such_a_task_before_the_end() {
    let (late, go, waypost, name) = begin(Words::Busy).await;
    leave(&waypost, &late, &name, 1).await;
    go.add_permits(1);
    let made = late.seen().wait_for(|seen| seen.count("tasks/cancel") == 1);
    assert!(made.await, "it is not taken the first time");
    assert!(waypost.daemon.stop().await);
    assert_eq!(late.seen().count("tasks/cancel"), 2);
    late.stop().await;
}

#[tokio::test]
async fn an_answer_that_stays_out_is_not_waited_for_by_nobody() {
    for words in [Words::Whole, Words::Stream, Words::Sessions] {
        let (late, _go, waypost, name) = begin(words).await;
        leave(&waypost, &late, &name, 1).await;
        let closed = late.seen().wait_for(|seen| seen.aborted("tools/call") == 1);
        assert!(closed.await, "{words:?}");
        late.stop().await;
    }
}

#[tokio::test]
async fn an_answer_that_can_be_no_task_is_not_waited_for() {
    let (late, _go, waypost, name) = begin(Words::Plain).await;
    leave(&waypost, &late, &name, 1).await;
    let closed = late.seen().wait_for(|seen| seen.aborted("tools/call") == 1);
    let closed = tokio::time::timeout(LINGER * 3 / 4, closed).await;
    assert_eq!(closed, Ok(true));
    late.stop().await;
}

/// A caller that knows tasks calls the tool of `server`, as the `count`th, and leaves before the
/// answer; Waypost knows when this is over.
async fn leave(waypost: &Waypost, server: &Running, name: &str, count: usize) {
    let client = waypost.client().with_tasks();
    let tool = format!("{name}_work");
    assert!(tool_names(&client).await.contains(&tool));
    let seen = server.seen();
    let asked = seen.wait_for(|seen| seen.count("tools/call") == count);
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
        let counts = text.lines().filter(given_up);
        let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        counts.sum::<usize>() == count
    })
    .await;
}
