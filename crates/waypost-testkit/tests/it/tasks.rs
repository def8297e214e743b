//! *demo-tasks*, apart from what the official suite already asks.

use std::time::Duration;

use serde_json::{Value, json};
use waypost_testkit::client::Client;
use waypost_testkit::demo::demo_tasks;
use waypost_testkit::demo::tasks::Options;
use waypost_testkit::run::{ANY_PORT, Running};

const TASKS: &str = "io.modelcontextprotocol/tasks";

pub(crate) async fn server(options: Options) -> (Running, Client) {
    let running = demo_tasks(ANY_PORT, options).await.unwrap();
    let client = Client::new(&running.url).with_tasks();
    (running, client)
}

pub(crate) async fn create(client: &Client, tool: &str, arguments: Value) -> Value {
    let reply = client.tool(tool, arguments).await.unwrap();
    assert_eq!(reply.result()["resultType"], "task", "{:?}", reply.answer);
    json!({ "taskId": reply.result()["taskId"] })
}

pub(crate) async fn get(client: &Client, task: &Value) -> Value {
    client
        .call("tasks/get", task.clone())
        .await
        .unwrap()
        .result()
        .clone()
}

/// Polls until the task has this status.
pub(crate) async fn until(client: &Client, task: &Value, status: &str) -> Value {
    let wait = async {
        loop {
            let now = get(client, task).await;
            if now["status"] == status {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), wait)
        .await
        .unwrap()
}

async fn update(client: &Client, task: &Value, responses: Value) -> Value {
    let params = json!({ "taskId": task["taskId"], "inputResponses": responses });
    client.call("tasks/update", params).await.unwrap().answer
}

fn accept(content: &Value) -> Value {
    json!({ "action": "accept", "content": content })
}

#[tokio::test]
async fn the_extension_is_advertised_as_an_empty_object() {
    let (_running, client) = server(Options::default()).await;
    let reply = client.call("server/discover", json!({})).await.unwrap();
    let capabilities = &reply.result()["capabilities"];
    assert_eq!(capabilities["extensions"], json!({ TASKS: {} }));
    assert!(capabilities.get("tasks").is_none());
}

#[tokio::test]
async fn a_created_task_is_flat_and_can_be_read_at_once() {
    let (_running, client) = server(Options::default()).await;
    let reply = client
        .tool("slow_compute", json!({ "seconds": 60 }))
        .await
        .unwrap();
    let task = reply.result();
    assert_eq!(
        (&task["status"], &task["ttlMs"]),
        (&json!("working"), &json!(3_600_000))
    );
    assert_eq!(task["pollIntervalMs"], 500);
    assert_eq!(task["statusMessage"], "computing \"unnamed\"");
    for absent in ["task", "result", "error", "inputRequests", "requestState"] {
        assert!(task.get(absent).is_none(), "{absent}");
    }
    let read = get(&client, &json!({ "taskId": task["taskId"] })).await;
    assert_eq!(read["resultType"], "complete");
    assert_eq!(read["createdAt"], task["createdAt"]);
}

#[tokio::test]
async fn slow_compute_is_plain_with_progress_for_others() {
    let (running, _) = server(Options::default()).await;
    let client = Client::new(&running.url);
    let arguments = json!({ "seconds": 0.1, "label": "sum" });
    let meta = json!({ "progressToken": "p" });
    let params = json!({ "name": "slow_compute", "arguments": arguments, "_meta": meta });
    let reply = client.call("tools/call", params).await.unwrap();
    assert_eq!(reply.result()["resultType"], "complete");
    assert_eq!(reply.text(), "slow_compute \"sum\" finished after 0.1 s");
    let steps = reply
        .notifications
        .iter()
        .map(|seen| seen["params"]["progress"].clone());
    assert_eq!(steps.collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_task_ends_with_what_the_plain_call_says() {
    let (running, client) = server(Options::default()).await;
    let arguments = json!({ "seconds": 0.05, "label": "sum" });
    let plain = Client::new(&running.url)
        .tool("slow_compute", arguments.clone())
        .await
        .unwrap();
    let task = create(&client, "slow_compute", arguments).await;
    let ended = until(&client, &task, "completed").await;
    assert_eq!(ended["result"]["content"], plain.result()["content"]);
    assert_eq!(ended["result"]["resultType"], "complete");
}

#[tokio::test]
async fn tools_that_need_a_task_name_what_is_missing() {
    let (running, _) = server(Options::default()).await;
    let client = Client::new(&running.url);
    for tool in [
        "failing_job",
        "protocol_error_job",
        "external_job",
        "confirm_delete",
    ] {
        let reply = client.tool(tool, json!({ "filename": "f" })).await.unwrap();
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (400, -32021),
            "{tool}"
        );
        let required = &reply.answer["error"]["data"]["requiredCapabilities"];
        assert_eq!(required["extensions"], json!({ TASKS: {} }), "{tool}");
    }
    let asks_nobody = json!({ "extensions": { TASKS: {} } });
    let client = Client::new(&running.url).with_capabilities(asks_nobody);
    let reply = client.tool("multi_input", json!({})).await.unwrap();
    assert_eq!(reply.code(), -32021);
    let required = &reply.answer["error"]["data"]["requiredCapabilities"];
    assert_eq!(required, &json!({ "elicitation": { "form": {} } }));
}

#[tokio::test]
async fn the_extension_is_checked_before_the_id() {
    let (running, _) = server(Options::default()).await;
    let client = Client::new(&running.url);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let reply = client
            .call(method, json!({ "taskId": "unknown" }))
            .await
            .unwrap();
        assert_eq!(reply.code(), -32021, "{method}");
    }
}

#[tokio::test]
async fn an_unknown_task_is_32602_on_every_method() {
    let (_running, client) = server(Options::default()).await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({ "taskId": "unknown", "inputResponses": {} });
        let reply = client.call(method, params).await.unwrap();
        assert_eq!(reply.code(), -32602, "{method}");
    }
}

#[tokio::test]
async fn a_tool_error_completes_and_a_protocol_error_fails() {
    let (_running, client) = server(Options::default()).await;
    let tool_error = create(&client, "failing_job", json!({})).await;
    let protocol_error = create(&client, "protocol_error_job", json!({})).await;
    let ended = until(&client, &tool_error, "completed").await;
    assert_eq!(ended["result"]["isError"], true);
    assert!(ended.get("error").is_none());
    let ended = until(&client, &protocol_error, "failed").await;
    assert_eq!(ended["error"]["code"], -32603);
    assert_eq!(ended["statusMessage"], ended["error"]["message"]);
    assert!(ended.get("result").is_none());
}

#[tokio::test]
async fn cancelling_is_acknowledged_emptily_again_and_again() {
    let (_running, client) = server(Options::default()).await;
    let task = create(&client, "slow_compute", json!({ "seconds": 60 })).await;
    let mut ended = Value::Null;
    for round in 0..2 {
        let ack = client.call("tasks/cancel", task.clone()).await.unwrap();
        let mut ack = ack.result().clone();
        ack.as_object_mut().unwrap().remove("_meta");
        assert_eq!(ack, json!({ "resultType": "complete" }));
        let now = get(&client, &task).await;
        assert_eq!(now["status"], "cancelled");
        assert!(round == 0 || now == ended, "a terminal state changed");
        ended = now;
    }
}

#[tokio::test]
async fn an_answer_decides_what_a_task_does() {
    let (_running, client) = server(Options::default()).await;
    let cases = [
        (accept(&json!({ "confirm": true })), "Deleted notes.txt."),
        (accept(&json!({ "confirm": false })), "Kept notes.txt."),
        (json!({ "action": "decline" }), "Kept notes.txt."),
    ];
    for (answer, text) in cases {
        let task = create(
            &client,
            "confirm_delete",
            json!({ "filename": "notes.txt" }),
        )
        .await;
        let asking = until(&client, &task, "input_required").await;
        let question = &asking["inputRequests"]["confirm-1"];
        assert_eq!(question["method"], "elicitation/create");
        update(&client, &task, json!({ "confirm-1": answer })).await;
        let ended = until(&client, &task, "completed").await;
        assert_eq!(ended["result"]["content"][0]["text"], text);
    }
}

#[tokio::test]
async fn two_questions_are_answered_in_parts() {
    let (_running, client) = server(Options::default()).await;
    let task = create(&client, "multi_input", json!({})).await;
    let asking = until(&client, &task, "input_required").await;
    assert_eq!(asking["inputRequests"].as_object().unwrap().len(), 2);
    let name = json!({ "name-1": accept(&json!({ "name": "Ada" })), "unknown": { "x": 1 } });
    update(&client, &task, name).await;
    let asking = get(&client, &task).await;
    assert_eq!(asking["status"], "input_required");
    assert!(asking["inputRequests"].get("name-1").is_none());
    // An answered key is ignored from then on.
    update(
        &client,
        &task,
        json!({ "name-1": accept(&json!({ "name": "Bob" })) }),
    )
    .await;
    update(
        &client,
        &task,
        json!({ "color-2": accept(&json!({ "color": "blue" })) }),
    )
    .await;
    let ended = until(&client, &task, "completed").await;
    assert_eq!(ended["result"]["content"][0]["text"], "Ada likes blue.");
}

#[tokio::test]
async fn a_malformed_answer_to_an_open_question_is_refused() {
    let (_running, client) = server(Options::default()).await;
    let task = create(&client, "confirm_delete", json!({ "filename": "f" })).await;
    until(&client, &task, "input_required").await;
    let answer = update(&client, &task, json!({ "confirm-1": { "confirm": true } })).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert_eq!(get(&client, &task).await["status"], "input_required");
}

#[tokio::test]
async fn an_expired_task_is_unknown_and_off_the_disk() {
    let state = tempfile::tempdir().unwrap();
    let ttl = Some(Duration::from_secs(1));
    let options = Options {
        state: Some(state.path().into()),
        ttl,
        ..Options::default()
    };
    let (_running, client) = server(options).await;
    let task = create(&client, "slow_compute", json!({ "seconds": 60 })).await;
    let file = state
        .path()
        .join(format!("tasks/{}.json", task["taskId"].as_str().unwrap()));
    assert!(file.exists());
    let wait = async {
        while client.call("tasks/get", task.clone()).await.unwrap().code() != -32602 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait)
        .await
        .unwrap();
    assert!(!file.exists());
}

#[tokio::test]
async fn an_unlimited_task_says_null() {
    let (_running, client) = server(Options {
        ttl: None,
        ..Options::default()
    })
    .await;
    let reply = client
        .tool("slow_compute", json!({ "seconds": 60 }))
        .await
        .unwrap();
    assert_eq!(reply.result().get("ttlMs"), Some(&Value::Null));
}

#[tokio::test]
async fn a_question_outlives_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let options = Options {
        state: Some(state.path().into()),
        ..Options::default()
    };
    let (running, client) = server(options.clone()).await;
    let task = create(&client, "confirm_delete", json!({ "filename": "f" })).await;
    let before = until(&client, &task, "input_required").await;
    running.kill().await;
    let (_running, client) = server(options).await;
    let after = until(&client, &task, "input_required").await;
    assert_eq!(after, before);
    update(
        &client,
        &task,
        json!({ "confirm-1": accept(&json!({ "confirm": true })) }),
    )
    .await;
    until(&client, &task, "completed").await;
}
