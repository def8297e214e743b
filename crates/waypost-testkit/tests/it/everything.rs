//! *demo-everything*, apart from what the official suite already asks.

use serde_json::{Value, json};
use waypost_testkit::client::{Client, Reply};
use waypost_testkit::demo::demo_everything;
use waypost_testkit::run::{ANY_PORT, Running};

async fn server() -> (Running, Client) {
    let running = demo_everything(ANY_PORT).await.unwrap();
    let all = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    let client = Client::new(&running.url).with_capabilities(all);
    (running, client)
}

fn accept(content: &Value) -> Value {
    json!({ "action": "accept", "content": content })
}

async fn retry(client: &Client, tool: &str, responses: &Value, state: &Value) -> Reply {
    let mut params = json!({ "name": tool, "inputResponses": responses });
    if !state.is_null() {
        params["requestState"] = state.clone();
    }
    client.call("tools/call", params).await.unwrap()
}

#[tokio::test]
async fn lists_say_how_long_and_for_whom_they_hold() {
    let (_running, client) = server().await;
    let lists = [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ];
    for method in lists.into_iter().chain(["server/discover"]) {
        let reply = client.call(method, json!({})).await.unwrap();
        let result = reply.result();
        assert_eq!(result["resultType"], "complete", "{method}");
        assert_eq!(result["cacheScope"], "public", "{method}");
        assert!(result["ttlMs"].is_u64(), "{method}");
        let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(info["name"], "demo-everything", "{method}");
        assert_eq!(
            reply.answer,
            client_again(&client, method, &reply).await,
            "{method}"
        );
    }
}

/// The same list once more, with the id of the first.
async fn client_again(client: &Client, method: &str, first: &Reply) -> Value {
    let mut again = client.call(method, json!({})).await.unwrap().answer;
    again["id"] = first.answer["id"].clone();
    again
}

#[tokio::test]
async fn an_unknown_cursor_is_refused() {
    let (_running, client) = server().await;
    let reply = client
        .call("tools/list", json!({ "cursor": "made-up" }))
        .await
        .unwrap();
    assert_eq!(reply.code(), -32602);
}

#[tokio::test]
async fn an_unknown_resource_is_32602_with_its_uri() {
    let (_running, client) = server().await;
    let reply = client
        .call("resources/read", json!({ "uri": "test://nothing" }))
        .await
        .unwrap();
    assert_eq!(reply.code(), -32602);
    assert_eq!(reply.answer["error"]["data"]["uri"], "test://nothing");
}

#[tokio::test]
async fn links_of_a_tool_lead_to_resources() {
    let (_running, client) = server().await;
    let reply = client.tool("test_resource_link", json!({})).await.unwrap();
    for link in reply.result()["content"].as_array().unwrap() {
        let read = client
            .call("resources/read", json!({ "uri": link["uri"] }))
            .await
            .unwrap();
        assert_eq!(read.code(), 0, "{link}");
    }
}

#[tokio::test]
async fn logs_come_only_from_the_level_asked_for() {
    let (_running, client) = server().await;
    let levels = |reply: &Reply| -> Vec<Value> {
        reply
            .notifications
            .iter()
            .map(|seen| seen["params"]["level"].clone())
            .collect()
    };
    let silent = client.tool("test_logging_tool", json!({})).await.unwrap();
    assert!(silent.notifications.is_empty());
    let meta = json!({ "io.modelcontextprotocol/logLevel": "error" });
    let params = json!({ "name": "test_logging_tool", "_meta": meta });
    let loud = client.call("tools/call", params).await.unwrap();
    assert_eq!(levels(&loud), ["error", "critical", "alert", "emergency"]);
    assert_eq!(loud.text(), "logged at every level");
}

#[tokio::test]
async fn progress_carries_the_token_as_it_came() {
    let (_running, client) = server().await;
    let meta = json!({ "progressToken": 7 });
    let params = json!({ "name": "test_tool_with_progress", "_meta": meta });
    let reply = client.call("tools/call", params).await.unwrap();
    let steps: Vec<_> = reply
        .notifications
        .iter()
        .map(|seen| &seen["params"])
        .collect();
    assert_eq!(steps.len(), 3);
    assert!(steps.iter().all(|step| step["progressToken"] == 7));
    assert_eq!(reply.headers["x-accel-buffering"], "no");
}

#[tokio::test]
async fn nothing_is_asked_that_was_not_declared() {
    let (running, _) = server().await;
    let client = Client::new(&running.url);
    let cases = [
        ("test_input_required_result_elicitation", "elicitation"),
        ("test_input_required_result_sampling", "sampling"),
        ("test_input_required_result_list_roots", "roots"),
        ("test_missing_capability", "sampling"),
    ];
    for (tool, capability) in cases {
        let reply = client.tool(tool, json!({})).await.unwrap();
        assert_eq!(reply.code(), -32021, "{tool}");
        let required = &reply.answer["error"]["data"]["requiredCapabilities"];
        assert!(required[capability].is_object(), "{tool}");
    }
    let only_urls =
        Client::new(&running.url).with_capabilities(json!({ "elicitation": { "url": {} } }));
    let reply = only_urls
        .tool("test_input_required_result_elicitation", json!({}))
        .await
        .unwrap();
    assert_eq!(reply.code(), -32021);
}

#[tokio::test]
async fn state_is_bound_to_its_tool_and_cannot_be_changed() {
    let (_running, client) = server().await;
    let tool = "test_input_required_result_request_state";
    let first = client.tool(tool, json!({})).await.unwrap();
    let state = first.result()["requestState"].clone();
    let yes = json!({ "confirm": accept(&json!({ "ok": true })) });
    assert!(
        retry(&client, tool, &yes, &state)
            .await
            .text()
            .starts_with("state-ok")
    );
    let changed = format!("{}x", state.as_str().unwrap()).into();
    assert_eq!(retry(&client, tool, &yes, &changed).await.code(), -32602);
    let other = "test_input_required_result_multi_round";
    assert_eq!(retry(&client, other, &yes, &state).await.code(), -32602);
}

#[tokio::test]
async fn rounds_build_on_each_other_through_the_state_alone() {
    let (_running, client) = server().await;
    let tool = "test_input_required_result_multi_round";
    let first = client.tool(tool, json!({})).await.unwrap();
    let answer = json!({ "step1": accept(&json!({ "name": "Ada" })) });
    let second = retry(&client, tool, &answer, &first.result()["requestState"]).await;
    assert!(second.result()["inputRequests"]["step2"].is_object());
    let answer = json!({ "step2": accept(&json!({ "color": "blue" })) });
    let third = retry(&client, tool, &answer, &second.result()["requestState"]).await;
    assert_eq!(third.text(), "Ada likes blue.");
}

#[tokio::test]
async fn prompts_and_resources_ask_as_well() {
    let (_running, client) = server().await;
    let prompt = json!({ "name": "test_input_required_result_prompt" });
    let reply = client.call("prompts/get", prompt).await.unwrap();
    assert_eq!(reply.result()["resultType"], "input_required");
    let uri = json!({ "uri": "test://input-required" });
    let reply = client.call("resources/read", uri).await.unwrap();
    assert!(reply.result()["inputRequests"]["reader"].is_object());
    let answered = json!({
        "uri": "test://input-required",
        "inputResponses": { "reader": accept(&json!({ "name": "Ada" })) },
    });
    let reply = client.call("resources/read", answered).await.unwrap();
    assert_eq!(reply.result()["contents"][0]["text"], "For Ada.");
    assert_eq!(reply.result()["cacheScope"], "private");
}

#[tokio::test]
async fn completions_start_with_what_was_typed() {
    let (_running, client) = server().await;
    let ask = |kind: &str, value: &str| {
        json!({
            "ref": { "type": kind, "name": "test_prompt_with_arguments" },
            "argument": { "name": "arg1", "value": value },
        })
    };
    let reply = client
        .call("completion/complete", ask("ref/prompt", "par"))
        .await
        .unwrap();
    assert_eq!(
        reply.result()["completion"]["values"],
        json!(["paris", "park", "party"])
    );
    let reply = client
        .call("completion/complete", ask("ref/unknown", "par"))
        .await
        .unwrap();
    assert_eq!(reply.code(), -32602);
}
