//! Answers that a method may not have, and what they have to say.

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_hub::error::Kind;
use waypost_hub::reply::Reply;

use crate::fake::{Fake, call, declaring, hub, reply, result, upstreams};
use crate::supervising::until;

/// A server with everything, which answers everything but `tasks/cancel` with this.
fn server(answer: Value) -> Arc<Fake> {
    let has = json!({ "prompts": {}, "resources": {}, "completions": {} });
    let lists = [
        ("prompts/list", json!({ "prompts": [{ "name": "p" }] })),
        (
            "resources/list",
            json!({ "resources": [{ "uri": "x:1", "name": "r" }] }),
        ),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [] }),
        ),
    ];
    Fake::new("a", has, &lists, move |call| {
        let cancel = call.method == "tasks/cancel";
        Ok(if cancel {
            reply(&json!({}))
        } else {
            reply(&answer)
        })
    })
}

fn calls() -> [(&'static str, Value); 3] {
    let reference = json!({ "type": "ref/prompt", "name": "a_p" });
    let argument = json!({ "name": "n", "value": "v" });
    [
        ("prompts/get", json!({ "name": "a_p" })),
        ("resources/read", json!({ "uri": "x:1" })),
        (
            "completion/complete",
            json!({ "ref": reference, "argument": argument }),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn r79_what_is_no_tool_call_becomes_no_task_and_the_task_is_cancelled() {
    let task = json!({ "resultType": "task", "taskId": "t1", "status": "working" });
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    for (method, params) in calls() {
        for declared in [json!({}), tasks.clone()] {
            let fake = server(task.clone());
            let hub = hub(&upstreams(&["a"]), &[&fake]).await;
            let call = declaring(call(method, &params), &declared);
            let error = match hub.call(call).await {
                Err(error) => error,
                Ok(Reply::End(end)) => panic!("{method}: {end:?}"),
                Ok(Reply::Stream(_)) => panic!("{method}"),
            };
            assert_eq!(error.kind, Kind::BadUpstream);
            assert!(error.to_string().contains(method), "{error}");
            until("the task to be cancelled", || {
                fake.count("tasks/cancel") == 1
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_asks_nothing() {
    let asks = json!({ "resultType": "input_required", "requestState": "s" });
    let fake = server(asks);
    let hub = hub(&upstreams(&["a"]), &[&fake]).await;
    for (method, params) in calls() {
        let refused = hub.call(call(method, &params)).await.is_err();
        assert_eq!(refused, method == "completion/complete", "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_read_says_how_long_it_is_good_and_for_whom() {
    let odd = [
        (json!({}), json!([0, "private"])),
        (
            json!({ "ttlMs": -1, "cacheScope": "weird" }),
            json!([0, "private"]),
        ),
        (
            json!({ "ttlMs": "5", "cacheScope": "public" }),
            json!([0, "public"]),
        ),
        (
            json!({ "ttlMs": 7, "cacheScope": "private" }),
            json!([7, "private"]),
        ),
    ];
    for (mut answer, expected) in odd {
        answer["contents"] = json!([]);
        let fake = server(answer);
        let hub = hub(&upstreams(&["a"]), &[&fake]).await;
        let read = hub.call(call("resources/read", &json!({ "uri": "x:1" })));
        let read = result(read.await).await;
        assert_eq!(json!([read["ttlMs"], read["cacheScope"]]), expected);
    }
}
