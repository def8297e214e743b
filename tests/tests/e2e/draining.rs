//! What a daemon that was told to end still serves, and what it waits for.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use waypost_testkit::client::{Client, Reply};
use waypost_testkit::demo::demo_tasks;
use waypost_testkit::run::{ANY_PORT, Running};

use crate::process::{Home, Served};
use crate::stage::quick;
use crate::support::{accept, created, task};

const DELETE: &str = "t_confirm_delete";

/// The demo server of tasks, and Waypost in front of it.
async fn in_front_of_tasks(grace: &str) -> (Running, Served) {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let home = Home::new(&format!(
        "drain_grace: {grace}\nupstreams: {{ t: {{ url: '{}', required: true }} }}",
        demo.url
    ));
    let waypost = Served::start(&home).await;
    (demo, waypost)
}

/// A client that can be asked and knows no tasks.
pub(crate) fn asking(waypost: &Served) -> Client {
    let capabilities = json!({ "elicitation": {} });
    waypost.client().with_capabilities(capabilities)
}

/// A call that has asked its caller.
pub(crate) async fn ask(client: &Client, name: &str, arguments: &Value) -> Reply {
    let asked = client.tool(name, arguments.clone()).await.unwrap();
    let kind = &asked.result()["resultType"];
    assert_eq!(kind, "input_required", "{}", asked.answer);
    asked
}

/// The retry that says yes to every question.
pub(crate) async fn answer(client: &Client, name: &str, arguments: &Value, asked: &Reply) -> Reply {
    let questions = asked.result()["inputRequests"].as_object().unwrap();
    let yes = accept(json!({ "confirm": true, "name": "Ada" }));
    let answers: serde_json::Map<_, _> = questions
        .keys()
        .map(|key| (key.clone(), yes.clone()))
        .collect();
    let params = json!({ "name": name, "arguments": arguments, "inputResponses": answers,
        "requestState": asked.result()["requestState"] });
    client.call("tools/call", params).await.unwrap()
}

#[tokio::test]
async fn r42_what_goes_on_with_accepted_work_is_served_and_nothing_else() {
    let (_demo, mut waypost) = in_front_of_tasks("1m").await;
    let (client, tasks) = (asking(&waypost), waypost.client().with_tasks());
    let seconds = json!({ "seconds": 60, "label": "a" });
    let id = created(&tasks.tool("t_slow_compute", seconds).await.unwrap());
    let file = json!({ "filename": "a" });
    let asked = ask(&client, DELETE, &file).await;
    waypost.signal("TERM").await;
    waypost.wait_for_log("draining").await;

    let post = client.post("tools/call", json!({ "name": DELETE, "arguments": file }));
    let new = post.message["id"].clone();
    let refused = client.ask(post).await.unwrap();
    assert_eq!((refused.status.as_u16(), refused.code()), (503, -32603));
    assert_eq!(refused.answer["id"], new);
    assert_eq!(refused.answer["error"]["data"]["kind"], "unavailable");
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.headers["connection"], "close");
    let list = client.call("tools/list", json!({})).await.unwrap();
    assert_eq!(list.status, 503);

    let working = task(&tasks, &id).await;
    assert_eq!(working.result()["status"], "working", "{}", working.answer);
    let params = json!({ "taskId": id, "inputResponses": {} });
    let updated = tasks.call("tasks/update", params).await.unwrap();
    assert_eq!(updated.status, 200, "{}", updated.answer);
    let cancel = tasks.call("tasks/cancel", json!({ "taskId": id })).await;
    assert_eq!(cancel.unwrap().status, 200);

    let done = answer(&client, DELETE, &file, &asked).await;
    assert_eq!(done.result()["resultType"], "complete", "{}", done.answer);
    assert_eq!(waypost.code().await, Some(0), "{}", waypost.log());
}

#[tokio::test]
async fn r42_a_call_parked_at_a_session_server_is_waited_for() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/script.py");
    let home = Home::new(&format!(
        "drain_grace: 1m\nupstreams: {{ u: {{ command: python3, args: ['{script}'], required: true }} }}"
    ));
    let mut waypost = Served::start(&home).await;
    let client = asking(&waypost);
    let steps = json!({ "steps": [{ "ask": "elicitation/create" }, { "answer": 1 }] });
    let asked = ask(&client, "u_run", &steps).await;
    waypost.signal("TERM").await;
    waypost.wait_for_log("draining").await;
    let refused = client.call("tools/list", json!({})).await.unwrap();
    assert_eq!(refused.status, 503);
    let done = answer(&client, "u_run", &steps, &asked).await;
    assert!(done.text().contains("accept"), "{}", done.answer);
    assert_eq!(waypost.code().await, Some(0), "{}", waypost.log());
}

#[tokio::test]
async fn r42_who_never_comes_back_is_waited_for_no_longer_than_the_grace() {
    for times in [
        "drain_grace: 500ms",
        "drain_grace: 5m\ntasks: { input_wait: 500ms }",
    ] {
        let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
        let home = Home::new(&format!(
            "{times}\nupstreams: {{ t: {{ url: '{}', required: true }} }}",
            demo.url
        ));
        let mut waypost = Served::start(&home).await;
        ask(&asking(&waypost), DELETE, &json!({ "filename": "a" })).await;
        waypost.signal("TERM").await;
        assert_eq!(waypost.code().await, Some(0), "{}", waypost.log());
    }
}

#[tokio::test]
async fn r42_a_body_that_does_not_come_is_not_waited_for() {
    let (_demo, mut waypost) = in_front_of_tasks("5m").await;
    let address = waypost.url.strip_prefix("http://").unwrap();
    let mut silent = TcpStream::connect(address.strip_suffix("/mcp").unwrap())
        .await
        .unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: 100\r\n\
         mcp-method: tools/call\r\nmcp-protocol-version: 2026-07-28\r\n\r\n{{"
    );
    silent
        .write_all(head.replace("/mcp\r\n", "\r\n").as_bytes())
        .await
        .unwrap();
    // Served after it.
    waypost
        .client()
        .call("tools/list", json!({}))
        .await
        .unwrap();
    let asked = Instant::now();
    waypost.signal("TERM").await;
    let mut answer = String::new();
    silent.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(waypost.code().await, Some(0), "{}", waypost.log());
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}
