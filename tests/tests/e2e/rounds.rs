//! Questions before the answer (multi round-trip requests), whichever way the server is reached.

use serde_json::{Value, json};
use waypost_testkit::client::{Client, Reply};

use crate::fake::{self, Fake};
use crate::stage::{Stage, Way, both_ways};
use crate::support::accept;

both_ways! {
    three_questions_at_once_and_their_state_pass_untouched,
    state_leads_through_two_rounds,
    a_prompt_asks,
    a_resource_asks,
    state_that_was_changed_is_for_the_server_to_refuse,
    who_cannot_be_asked_learns_what_is_missing,
}

fn declaring_all(stage: &Stage) -> Client {
    let capabilities = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    stage.client().with_capabilities(capabilities)
}

/// The retry: the same request, with answers and the state as it came.
async fn again(
    client: &Client,
    method: &str,
    params: &Value,
    answers: &Value,
    asked: &Reply,
) -> Reply {
    let mut params = params.clone();
    params["inputResponses"] = answers.clone();
    if let Some(state) = asked.result().get("requestState") {
        params["requestState"] = state.clone();
    }
    client.call(method, params).await.unwrap()
}

async fn three_questions_at_once_and_their_state_pass_untouched(way: Way) {
    let stage = Stage::new(way).await;
    let client = declaring_all(&stage);
    let name = "d_test_input_required_result_multiple_inputs";
    let params = json!({ "name": name, "arguments": { "k": 1 } });
    let asked = client.call("tools/call", params.clone()).await.unwrap();
    assert_eq!(
        asked.result()["resultType"],
        "input_required",
        "{}",
        asked.answer
    );
    let questions = asked.result()["inputRequests"].as_object().unwrap();
    let of = |key: &str| questions[key]["method"].as_str().unwrap();
    assert_eq!(of("user_name"), "elicitation/create");
    assert_eq!(of("greeting"), "sampling/createMessage");
    assert_eq!(of("client_roots"), "roots/list");
    let answers = json!({
        "user_name": accept(json!({ "name": "Ada" })),
        "greeting": { "role": "assistant", "content": { "type": "text", "text": "Good day" }, "model": "m" },
        "client_roots": { "roots": [{ "uri": "file:///r" }] },
    });
    let reply = again(&client, "tools/call", &params, &answers, &asked).await;
    assert_eq!(
        reply.text(),
        "Good day Ada; roots: file:///r",
        "{}",
        reply.answer
    );
    let sent = &stage.sent("tools/call")[1]["params"];
    assert_eq!(sent["requestState"], asked.result()["requestState"]);
    assert_eq!(sent["inputResponses"], answers);
    assert_eq!(sent["arguments"], params["arguments"]);
}

async fn state_leads_through_two_rounds(way: Way) {
    let stage = Stage::new(way).await;
    let client = declaring_all(&stage);
    let params = json!({ "name": "d_test_input_required_result_multi_round", "arguments": {} });
    let first = client.call("tools/call", params.clone()).await.unwrap();
    let answers = json!({ "step1": accept(json!({ "name": "Ada" })) });
    let second = again(&client, "tools/call", &params, &answers, &first).await;
    assert!(
        second.result()["inputRequests"]["step2"].is_object(),
        "{}",
        second.answer
    );
    assert_ne!(
        first.result()["requestState"],
        second.result()["requestState"]
    );
    let answers = json!({ "step2": accept(json!({ "color": "green" })) });
    let last = again(&client, "tools/call", &params, &answers, &second).await;
    assert_eq!(last.text(), "Ada likes green.");
}

async fn a_prompt_asks(way: Way) {
    let stage = Stage::new(way).await;
    let client = declaring_all(&stage);
    let params = json!({ "name": "d_test_input_required_result_prompt" });
    let asked = client.call("prompts/get", params.clone()).await.unwrap();
    assert_eq!(
        asked.result()["resultType"],
        "input_required",
        "{}",
        asked.answer
    );
    let answers = json!({ "user_context": accept(json!({ "context": "tests" })) });
    let reply = again(&client, "prompts/get", &params, &answers, &asked).await;
    let text = &reply.result()["messages"][0]["content"]["text"];
    assert_eq!(*text, "The context is: tests");
}

async fn a_resource_asks(way: Way) {
    let stage = Stage::new(way).await;
    let client = declaring_all(&stage);
    let params = json!({ "uri": "test://input-required" });
    let asked = client.call("resources/read", params.clone()).await.unwrap();
    assert_eq!(
        asked.result()["resultType"],
        "input_required",
        "{}",
        asked.answer
    );
    let answers = json!({ "reader": accept(json!({ "name": "Ada" })) });
    let reply = again(&client, "resources/read", &params, &answers, &asked).await;
    assert_eq!(reply.result()["contents"][0]["text"], "For Ada.");
}

async fn state_that_was_changed_is_for_the_server_to_refuse(way: Way) {
    let stage = Stage::new(way).await;
    let client = declaring_all(&stage);
    let name = "d_test_input_required_result_tampered_state";
    let mut params = json!({ "name": name, "arguments": {} });
    let asked = client.call("tools/call", params.clone()).await.unwrap();
    let state = asked.result()["requestState"].as_str().unwrap();
    params["requestState"] = format!("{state}x").into();
    params["inputResponses"] = json!({ "confirm": accept(json!({ "ok": true })) });
    let reply = client.call("tools/call", params).await.unwrap();
    assert_eq!(reply.code(), -32602, "{}", reply.answer);
    let sent = stage.sent("tools/call");
    assert_eq!(sent[1]["params"]["requestState"], format!("{state}x"));
}

async fn who_cannot_be_asked_learns_what_is_missing(way: Way) {
    let stage = Stage::new(way).await;
    let name = "d_test_input_required_result_sampling";
    let client = stage
        .client()
        .with_capabilities(json!({ "elicitation": {} }));
    let reply = client.tool(name, json!({})).await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.code()), (400, -32021));
    let needed = &reply.answer["error"]["data"]["requiredCapabilities"];
    assert_eq!(*needed, json!({ "sampling": {} }));
    // The server saw what this caller declared, and no more.
    let declared = &stage.sent("tools/call")[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(*declared, json!({ "elicitation": {} }));
}

#[tokio::test]
async fn a_state_that_looks_like_ours_comes_back_to_its_server_as_it_was() {
    let server = Fake::start(|rpc| {
        if rpc.method != "tools/call" {
            return None;
        }
        let answered = rpc.params["inputResponses"].is_object();
        let state = rpc.params["requestState"].as_str().unwrap_or_default();
        Some(rpc.ok(&if answered {
            fake::text(state)
        } else {
            let question = json!({ "method": "elicitation/create", "params": { "message": "?", "requestedSchema": { "type": "object", "properties": {} } } });
            json!({ "resultType": "input_required", "inputRequests": { "q": question }, "requestState": "wp1.of-the-server" })
        }))
    })
    .await;
    let upstreams = format!("u: {{ url: '{}' }}", server.url);
    let gateway = waypost_tests::gateway::Gateway::start(&upstreams)
        .await
        .unwrap();
    let client = Client::new(&gateway.url).with_capabilities(json!({ "elicitation": {} }));
    let params = json!({ "name": "u_work", "arguments": {} });
    let asked = client.call("tools/call", params.clone()).await.unwrap();
    let state = asked.result()["requestState"].as_str().unwrap();
    assert!(
        state.starts_with("wp1.") && state != "wp1.of-the-server",
        "{state}"
    );
    let answers = json!({ "q": accept(json!({})) });
    let reply = again(&client, "tools/call", &params, &answers, &asked).await;
    assert_eq!(reply.text(), "wp1.of-the-server", "{}", reply.answer);
}
