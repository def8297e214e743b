//! `subscriptions/listen`.

use serde_json::{Value, json};
use waypost_testkit::client::{Arriving, Client};
use waypost_testkit::demo::tasks::Options;
use waypost_testkit::demo::{demo_all, demo_tasks};
use waypost_testkit::run::{ANY_PORT, Running};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

async fn server() -> (Running, Client) {
    let running = demo_all(ANY_PORT, Options::default()).await.unwrap();
    let client = Client::new(&running.url).with_tasks();
    (running, client)
}

/// A listener under the id `listen:0`, and what it was acknowledged.
async fn listen(client: &Client, notifications: Value) -> (Arriving, Value) {
    let mut post = client.post(
        "subscriptions/listen",
        json!({ "notifications": notifications }),
    );
    post.message["id"] = "listen:0".into();
    let mut stream = client.send(post).await.unwrap();
    let first = next(&mut stream).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    (stream, first["params"]["notifications"].clone())
}

async fn next(stream: &mut Arriving) -> Value {
    let message = stream.next().await.unwrap().unwrap();
    if let Some(params) = message.get("params") {
        assert_eq!(params["_meta"][SUBSCRIPTION], "listen:0", "{message}");
    }
    message
}

#[tokio::test]
async fn only_what_is_offered_and_asked_for_is_acknowledged() {
    let (_running, client) = server().await;
    let wanted = json!({
        "toolsListChanged": true,
        "promptsListChanged": false,
        "resourceSubscriptions": ["test://watched-resource"],
        "taskIds": ["unknown"],
        "futureListChanged": true,
    });
    let (_stream, honoured) = listen(&client, wanted).await;
    let expected = json!({
        "toolsListChanged": true,
        "resourceSubscriptions": ["test://watched-resource"],
    });
    assert_eq!(honoured, expected);
}

#[tokio::test]
async fn a_server_without_list_changes_acknowledges_none() {
    let running = demo_tasks(ANY_PORT, Options::default()).await.unwrap();
    let client = Client::new(&running.url);
    let (_stream, honoured) = listen(&client, json!({ "toolsListChanged": true })).await;
    assert_eq!(honoured, json!({}));
}

#[tokio::test]
async fn changes_reach_those_who_asked_and_the_lists_did_change() {
    let (_running, client) = server().await;
    let (mut tools, _) = listen(&client, json!({ "toolsListChanged": true })).await;
    let watched = json!({ "resourceSubscriptions": ["test://watched-resource"] });
    let (mut updates, _) = listen(&client, watched).await;
    let before = client.call("tools/list", json!({})).await.unwrap();
    for tool in [
        "prompt_change",
        "resource_change",
        "resource_update",
        "tool_change",
    ] {
        client
            .tool(&format!("test_trigger_{tool}"), json!({}))
            .await
            .unwrap();
    }
    // Each stream's first event is its own kind: the others were not sent to it.
    assert_eq!(
        next(&mut tools).await["method"],
        "notifications/tools/list_changed"
    );
    let update = next(&mut updates).await;
    assert_eq!(update["method"], "notifications/resources/updated");
    assert_eq!(update["params"]["uri"], "test://watched-resource");
    let after = client.call("tools/list", json!({})).await.unwrap();
    assert_ne!(before.result()["tools"], after.result()["tools"]);
}

#[tokio::test]
async fn a_named_task_is_followed_to_its_end() {
    let (_running, client) = server().await;
    let named = client.tool("failing_job", json!({})).await.unwrap();
    let id = named.result()["taskId"].clone();
    let (mut stream, honoured) = listen(&client, json!({ "taskIds": [id, "unknown"] })).await;
    assert_eq!(honoured, json!({ "taskIds": [id] }));
    let other = client.tool("failing_job", json!({})).await.unwrap();
    assert_ne!(other.result()["taskId"], id);
    let told = next(&mut stream).await;
    assert_eq!(told["method"], "notifications/tasks");
    let mut task = told["params"].clone();
    task.as_object_mut().unwrap().remove("_meta");
    let got = client
        .call("tasks/get", json!({ "taskId": id }))
        .await
        .unwrap();
    let mut expected = got.result().clone();
    for key in ["_meta", "resultType"] {
        expected.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(task, expected);
    assert_eq!(task["status"], "completed");
}

#[tokio::test]
async fn a_task_that_ended_before_is_told_at_once() {
    let (_running, client) = server().await;
    let created = client
        .tool("slow_compute", json!({ "seconds": 60 }))
        .await
        .unwrap();
    let id = created.result()["taskId"].clone();
    client
        .call("tasks/cancel", json!({ "taskId": id }))
        .await
        .unwrap();
    let (mut stream, _) = listen(&client, json!({ "taskIds": [id] })).await;
    assert_eq!(next(&mut stream).await["params"]["status"], "cancelled");
}

#[tokio::test]
async fn task_ids_need_the_extension() {
    let (running, _) = server().await;
    let client = Client::new(&running.url);
    let params = json!({ "notifications": { "taskIds": [] } });
    let reply = client.call("subscriptions/listen", params).await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.code()), (400, -32021));
}

#[tokio::test]
async fn a_stopping_server_ends_subscriptions_with_their_result() {
    let (running, client) = server().await;
    let (mut stream, _) = listen(&client, json!({ "toolsListChanged": true })).await;
    let (end, ()) = tokio::join!(stream.next(), running.stop());
    let end = end.unwrap().unwrap();
    assert_eq!(end["id"], "listen:0");
    assert_eq!(end["result"]["resultType"], "complete");
    assert_eq!(end["result"]["_meta"][SUBSCRIPTION], "listen:0");
    assert!(stream.next().await.unwrap().is_none());
}

#[tokio::test]
async fn closing_the_stream_ends_the_subscription() {
    let (running, client) = server().await;
    let (stream, _) = listen(&client, json!({ "toolsListChanged": true })).await;
    drop(stream);
    assert!(
        running
            .seen()
            .wait_for(|seen| seen.aborted("subscriptions/listen") == 1)
            .await
    );
}
