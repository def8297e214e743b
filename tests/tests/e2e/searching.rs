//! Search mode over the daemon, to clients of both eras: what goes through `call_tool` is as if
//! called directly.

use serde_json::{Value, json};
use waypost_testkit::client::{Client, Reply};
use waypost_testkit::kit::legacy::Revision;
use waypost_testkit::peer::{Answers, Kind, Peer, Target};

use crate::stage::{Stage, Way, both_ways};
use crate::support::{accept, created, task_in, tool_names, tool_with_meta};

both_ways! {
    r06_a_searched_gateway_lists_a_handful_and_finds_and_calls_the_rest,
    a_searched_list_is_short,
    a_resource_is_read_by_a_tool,
    a_task_is_created_through_call_tool_and_followed_as_any,
    questions_through_call_tool_go_on_with_their_answers,
    a_task_that_asks_a_client_without_tasks_goes_on_through_call_tool,
    errors_through_call_tool_are_those_of_the_tool,
    progress_through_call_tool_reaches_the_caller,
    session_clients_search_and_call_too,
}

const SEARCH: &str = "discovery: search\nendpoints: { all: { discovery: direct }, \
    some: { tools: { deny: [failing_job] } } }\n";

async fn stage(way: Way) -> Stage {
    Stage::with(way, SEARCH).await
}

fn through(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

async fn call(client: &Client, name: &str, arguments: Value) -> Reply {
    let arguments = through(name, arguments);
    client.tool("call_tool", arguments).await.unwrap()
}

fn direct(stage: &Stage) -> Client {
    Client::new(format!("{}/all", stage.gateway.url))
}

async fn r06_a_searched_gateway_lists_a_handful_and_finds_and_calls_the_rest(way: Way) {
    let stage = stage(way).await;
    let client = stage.client();
    let names = tool_names(&client).await;
    assert_eq!(names[..3], ["find_tools", "describe_tool", "call_tool"]);
    assert_eq!(names.len(), 9, "the demo has prompts and resources");
    let query = json!({ "query": "say hello to a person: greet somebody", "limit": 3 });
    let found = client.tool("find_tools", query).await.unwrap();
    let best = &found.result()["structuredContent"]["tools"][0];
    assert_eq!(best["name"], "d_greet", "{}", found.answer);
    assert_eq!(best["inputSchema"]["required"], json!(["name"]));
    let name = json!({ "name": "d_greet" });
    let described = client.tool("describe_tool", name).await.unwrap();
    assert_eq!(described.result()["structuredContent"]["name"], "d_greet");
    let reply = call(&client, "d_greet", json!({ "name": "Ada" })).await;
    assert_eq!(reply.text(), "Hello, Ada!");
    let direct = direct(&stage);
    let same = direct
        .tool("d_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    assert_eq!(reply.result(), same.result());
    let hidden = client.tool("d_greet", json!({ "name": "Ada" })).await;
    assert_eq!(hidden.unwrap().code(), -32602);
    let sent = stage.sent("tools/call");
    assert_eq!(sent[0]["params"]["name"], "greet");
    assert_eq!(sent[0]["params"]["arguments"], json!({ "name": "Ada" }));
    assert_eq!(sent.len(), 2, "what is hidden reached nobody");
}

async fn a_searched_list_is_short(way: Way) {
    let stage = stage(way).await;
    let size = async |client: &Client| {
        let list = client.call("tools/list", json!({})).await.unwrap();
        list.raw.len()
    };
    assert!(size(&stage.client()).await * 2 < size(&direct(&stage)).await);
}

async fn a_resource_is_read_by_a_tool(way: Way) {
    let stage = stage(way).await;
    let client = stage.client();
    let uri = json!({ "uri": "test://static-text" });
    let read = client.tool("read_resource", uri).await.unwrap();
    let resource = &read.result()["content"][0]["resource"];
    assert_eq!(resource["uri"], "test://static-text", "{}", read.answer);
}

async fn a_task_is_created_through_call_tool_and_followed_as_any(way: Way) {
    let stage = stage(way).await;
    let client = stage.client().with_tasks();
    let arguments = json!({ "seconds": 0.1, "label": "l" });
    let handle = created(&call(&client, "d_slow_compute", arguments).await);
    let ended = task_in(&client, &handle, "completed").await;
    let text = ended["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, "slow_compute \"l\" finished after 0.1 s");
    let arguments = json!({ "seconds": 600 });
    let handle = created(&call(&client, "d_slow_compute", arguments).await);
    let cancel = client.call("tasks/cancel", json!({ "taskId": handle }));
    assert_eq!(cancel.await.unwrap().result()["resultType"], "complete");
    task_in(&client, &handle, "cancelled").await;
}

async fn questions_through_call_tool_go_on_with_their_answers(way: Way) {
    let stage = stage(way).await;
    let asks = json!({ "elicitation": {} });
    let client = stage.client().with_capabilities(asks);
    let name = "d_test_input_required_result_multi_round";
    let mut params = json!({ "name": "call_tool", "arguments": through(name, json!({})) });
    let first = client.call("tools/call", params.clone()).await.unwrap();
    params["requestState"] = first.result()["requestState"].clone();
    params["inputResponses"] = json!({ "step1": accept(json!({ "name": "Ada" })) });
    let second = client.call("tools/call", params.clone()).await.unwrap();
    params["requestState"] = second.result()["requestState"].clone();
    params["inputResponses"] = json!({ "step2": accept(json!({ "color": "green" })) });
    let last = client.call("tools/call", params).await.unwrap();
    assert_eq!(last.text(), "Ada likes green.", "{}", last.answer);
}

async fn a_task_that_asks_a_client_without_tasks_goes_on_through_call_tool(way: Way) {
    let stage = stage(way).await;
    let asks = json!({ "elicitation": {} });
    let client = stage.client().with_capabilities(asks);
    let arguments = through("d_confirm_delete", json!({ "filename": "f" }));
    let mut params = json!({ "name": "call_tool", "arguments": arguments });
    let asked = client.call("tools/call", params.clone()).await.unwrap();
    let state = asked.result()["requestState"].clone();
    assert!(
        state.as_str().unwrap().starts_with("wp1."),
        "{}",
        asked.answer
    );
    params["requestState"] = state.clone();
    params["inputResponses"] = json!({ "confirm-1": accept(json!({ "confirm": true })) });
    // The state is of that tool alone.
    let mut other = params.clone();
    other["arguments"]["name"] = "d_multi_input".into();
    let other = client.call("tools/call", other).await.unwrap();
    assert_eq!(other.code(), -32602, "{}", other.answer);
    let reply = client.call("tools/call", params).await.unwrap();
    assert_eq!(reply.text(), "Deleted f.", "{}", reply.answer);
}

async fn errors_through_call_tool_are_those_of_the_tool(way: Way) {
    let stage = stage(way).await;
    let (client, direct) = (stage.client(), direct(&stage));
    for name in ["d_test_error_handling", "d_failing_job"] {
        let reply = call(&client, name, json!({})).await;
        assert_eq!(reply.result()["isError"], true, "{}", reply.answer);
    }
    for name in [
        "d_protocol_error_job",
        "d_test_missing_capability",
        "d_never",
        "call_tool",
    ] {
        let reply = call(&client, name, json!({})).await;
        let same = direct.tool(name, json!({})).await.unwrap();
        assert!(reply.answer["error"].is_object(), "{}", reply.answer);
        assert_eq!(reply.answer["error"], same.answer["error"], "{name}");
        assert_eq!(reply.status, same.status, "{name}");
    }
    // What the endpoint's filters hide is unknown through it too.
    let some = Client::new(format!("{}/some", stage.gateway.url));
    let sent = stage.sent("tools/call").len();
    let denied = call(&some, "d_failing_job", json!({})).await;
    let never = call(&some, "d_never_was_it", json!({})).await;
    let text = |reply: &Reply| reply.answer["error"].to_string();
    let expected = text(&never).replace("d_never_was_it", "d_failing_job");
    assert_eq!(text(&denied), expected);
    assert_eq!(stage.sent("tools/call").len(), sent);
}

async fn progress_through_call_tool_reaches_the_caller(way: Way) {
    let stage = stage(way).await;
    let client = stage.client();
    let arguments = through("d_test_tool_with_progress", json!({}));
    let meta = json!({ "progressToken": "p" });
    let post = tool_with_meta(&client, "call_tool", arguments, meta);
    let mut stream = client.send(post).await.unwrap();
    let mut progress = Vec::new();
    let last = loop {
        let message = stream.next().await.unwrap().unwrap();
        if message["method"] != "notifications/progress" {
            break message;
        }
        assert_eq!(message["params"]["progressToken"], "p");
        progress.push(message["params"]["progress"].as_f64().unwrap());
    };
    assert_eq!(progress, [0.0, 50.0, 100.0]);
    let text = &last["result"]["content"][0]["text"];
    assert_eq!(*text, "reported progress three times");
}

async fn session_clients_search_and_call_too(way: Way) {
    let stage = stage(way).await;
    for revision in [Revision::Nov2025, Revision::Mar2025] {
        let target = Target::Url(stage.gateway.url.clone());
        let peer = Peer::connect(Kind::Http(revision), &target).await.unwrap();
        let listed = peer.list("tools").await.unwrap();
        assert_eq!(
            (listed.len(), &listed[0]["name"]),
            (9, &json!("find_tools"))
        );
        let query = json!({ "query": "report progress" });
        let found = peer.tool("find_tools", query).await.unwrap();
        let found: Value = serde_json::from_str(found.text()).unwrap();
        assert_eq!(found["tools"][0]["name"], "d_test_tool_with_progress");
        let call = async |name: &str, arguments: Value| {
            let arguments = through(name, arguments);
            let answers = Answers::usual();
            peer.call("call_tool", arguments, &answers).await.unwrap()
        };
        let reported = call("d_test_tool_with_progress", json!({})).await;
        assert_eq!(reported.progress().len(), 3, "{reported:?}");
        assert_eq!(call("d_never", json!({})).await.code(), -32602);
        // A task that such a client cannot follow is waited for.
        let done = call("d_slow_compute", json!({ "seconds": 0.1, "label": "l" })).await;
        assert!(done.text().contains("finished"), "{done:?}");
        if revision == Revision::Nov2025 {
            let asked = call("d_confirm_delete", json!({ "filename": "f" })).await;
            assert_eq!((asked.asked.len(), asked.code()), (1, 0), "{asked:?}");
        }
        assert_eq!(
            peer.tool("d_greet", json!({})).await.unwrap().code(),
            -32602
        );
    }
}
