//! What several tests need.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_testkit::client::{Client, Post, Reply};

/// Long enough on a busy machine; what is waited for usually takes milliseconds.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Waits for a condition.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// `GET`, without anything MCP asks for.
pub(crate) async fn get(url: &str) -> Reply {
    let client = Client::new(url);
    let mut post = client.post("", Value::Null).raw("");
    post.http_method = Method::GET;
    post.headers.clear();
    client.ask(post).await.unwrap()
}

/// The body of a `GET` as text.
pub(crate) async fn page(url: &str) -> String {
    String::from_utf8(get(url).await.raw.to_vec()).unwrap()
}

/// The entry of one upstream in `/api/v1/upstreams`.
pub(crate) async fn upstream(admin: &str, name: &str) -> Value {
    let reply = get(&format!("{admin}/api/v1/upstreams")).await;
    let all = reply.answer["upstreams"].as_array().unwrap().clone();
    all.into_iter().find(|one| one["name"] == name).unwrap()
}

/// Waits until an upstream is in this state.
pub(crate) async fn wait_for_state(admin: &str, name: &str, state: &str) {
    let is = async || upstream(admin, name).await["state"] == state;
    until(&format!("`{name}` to be {state}"), is).await;
}

/// Names of a `tools/list`.
pub(crate) async fn tool_names(client: &Client) -> Vec<String> {
    let reply = client.call("tools/list", json!({})).await.unwrap();
    let tools = reply.result()["tools"].as_array().unwrap();
    let names = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.collect()
}

/// A `tools/call` with more in `_meta`.
pub(crate) fn tool_with_meta(client: &Client, name: &str, arguments: Value, meta: Value) -> Post {
    let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
    client.post("tools/call", params)
}

/// An accepted elicitation.
pub(crate) fn accept(content: Value) -> Value {
    json!({ "action": "accept", "content": content })
}

/// Asks for a task.
pub(crate) async fn task(client: &Client, id: &str) -> Reply {
    client
        .call("tasks/get", json!({ "taskId": id }))
        .await
        .unwrap()
}

/// Polls a task until it has this status.
pub(crate) async fn task_in(client: &Client, id: &str, status: &str) -> Value {
    let is = async || {
        let reply = task(client, id).await;
        assert!(reply.result().is_object(), "{}", reply.answer);
        reply.result()["status"] == status
    };
    until(&format!("the task to be {status}"), is).await;
    task(client, id).await.result().clone()
}

/// The `taskId` of a task that was just created.
pub(crate) fn created(reply: &Reply) -> String {
    assert_eq!(reply.result()["resultType"], "task", "{}", reply.answer);
    reply.result()["taskId"].as_str().unwrap().to_owned()
}
