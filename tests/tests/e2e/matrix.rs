//! What a modern client sees, whichever way its server is reached.

use serde_json::{Value, json};

use crate::stage::{Stage, Way, both_ways};
use crate::support::tool_with_meta;

both_ways! {
    a_tool_is_called_under_its_exposed_name,
    progress_carries_the_callers_own_token,
    logs_come_from_the_level_asked_for_and_without_one_not_at_all,
    completions_find_prompts_and_templates,
    templates_are_listed_and_read,
    a_prompt_is_read_under_its_exposed_name,
    r25_r75_closing_the_stream_cancels_the_call_at_the_server,
    errors_of_the_server_are_passed_on_and_tool_errors_are_results,
    methods_nobody_has_are_not_found,
    one_upstream_alone_has_a_path_of_its_own,
}

async fn a_tool_is_called_under_its_exposed_name(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client();
    let reply = client
        .tool("d_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.text(), "Hello, Ada!");
    let result = reply.result();
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["_meta"]["dev.waypost/upstream"], "d");
    let server = &result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
    assert_eq!(server, "waypost");
    assert_eq!(stage.sent("tools/call")[0]["params"]["name"], "greet");
}

async fn progress_carries_the_callers_own_token(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client();
    for token in [json!("t"), json!(7), json!("7")] {
        let meta = json!({ "progressToken": token });
        let post = tool_with_meta(&client, "d_test_tool_with_progress", json!({}), meta);
        let reply = client.ask(post).await.unwrap();
        let mut steps = Vec::new();
        for told in &reply.notifications {
            assert_eq!(told["method"], "notifications/progress");
            assert_eq!(told["params"]["progressToken"], token);
            steps.push(told["params"]["progress"].as_u64().unwrap());
        }
        assert_eq!(steps, [0, 50, 100]);
        assert_eq!(reply.text(), "reported progress three times");
    }
}

async fn logs_come_from_the_level_asked_for_and_without_one_not_at_all(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client();
    let levels = async |meta: Value| {
        let post = tool_with_meta(&client, "d_test_logging_tool", json!({}), meta);
        let reply = client.ask(post).await.unwrap();
        assert_eq!(reply.text(), "logged at every level");
        let told = reply.notifications.iter().map(|told| {
            assert_eq!(told["method"], "notifications/message");
            told["params"]["level"].as_str().unwrap().to_owned()
        });
        told.collect::<Vec<_>>()
    };
    let meta = json!({ "io.modelcontextprotocol/logLevel": "error" });
    let severe = ["error", "critical", "alert", "emergency"];
    assert_eq!(levels(meta).await, severe);
    assert_eq!(levels(json!({})).await, [""; 0]);
}

async fn completions_find_prompts_and_templates(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client();
    let prompt = json!({ "type": "ref/prompt", "name": "d_test_prompt_with_arguments" });
    let template = json!({ "type": "ref/resource", "uri": "test://template/{id}/data" });
    for reference in [prompt, template] {
        let argument = json!({ "name": "arg1", "value": "par" });
        let params = json!({ "ref": reference, "argument": argument });
        let reply = client.call("completion/complete", params).await.unwrap();
        let values = &reply.result()["completion"]["values"];
        assert_eq!(
            *values,
            json!(["paris", "park", "party"]),
            "{}",
            reply.answer
        );
    }
    let sent = stage.sent("completion/complete");
    assert_eq!(
        sent[0]["params"]["ref"]["name"],
        "test_prompt_with_arguments"
    );
}

async fn templates_are_listed_and_read(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client();
    let list = client.call("resources/templates/list", json!({})).await;
    let list = list.unwrap();
    let uri = &list.result()["resourceTemplates"][0]["uriTemplate"];
    assert_eq!(*uri, "test://template/{id}/data");
    assert!(list.result()["ttlMs"].is_u64() && list.result()["cacheScope"].is_string());
    let params = json!({ "uri": "test://template/42/data" });
    let read = client.call("resources/read", params).await.unwrap();
    let contents = &read.result()["contents"][0];
    assert_eq!(contents["uri"], "test://template/42/data");
    assert!(
        contents["text"]
            .as_str()
            .unwrap()
            .contains("Data for ID: 42")
    );
    assert!(read.result()["ttlMs"].is_u64() && read.result()["cacheScope"].is_string());
    let params = json!({ "uri": "test://no-such-resource" });
    let missing = client.call("resources/read", params).await.unwrap();
    assert_eq!(missing.code(), -32602, "{}", missing.answer);
}

async fn a_prompt_is_read_under_its_exposed_name(way: Way) {
    let stage = Stage::new(way).await;
    let arguments = json!({ "arg1": "a", "arg2": "b" });
    let params = json!({ "name": "d_test_prompt_with_arguments", "arguments": arguments });
    let reply = stage.client().call("prompts/get", params).await.unwrap();
    let text = &reply.result()["messages"][0]["content"]["text"];
    assert_eq!(*text, "Prompt with arguments: arg1='a', arg2='b'");
}

async fn r25_r75_closing_the_stream_cancels_the_call_at_the_server(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client();
    let arguments = json!({ "seconds": 600, "label": "long" });
    let meta = json!({ "progressToken": 1 });
    let post = tool_with_meta(&client, "d_slow_compute", arguments, meta);
    let mut stream = client.send(post).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first["method"], "notifications/progress");
    drop(stream);
    stage.wait_for_cancel("tools/call").await;
    let reply = client
        .tool("d_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    assert_eq!(reply.text(), "Hello, Ada!");
}

async fn errors_of_the_server_are_passed_on_and_tool_errors_are_results(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client();
    let reply = client
        .tool("d_test_error_handling", json!({}))
        .await
        .unwrap();
    assert_eq!(reply.result()["isError"], true);
    let reply = client
        .tool("d_test_missing_capability", json!({}))
        .await
        .unwrap();
    assert_eq!((reply.status.as_u16(), reply.code()), (400, -32021));
    let needed = &reply.answer["error"]["data"]["requiredCapabilities"];
    assert_eq!(*needed, json!({ "sampling": {} }));
    let params = json!({ "name": "d_test_prompt_with_arguments", "arguments": {} });
    let reply = client.call("prompts/get", params).await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.code()), (200, -32602));
    assert_eq!(reply.answer["error"]["message"], "the prompt needs `arg1`");
}

async fn methods_nobody_has_are_not_found(way: Way) {
    let stage = Stage::new(way).await;
    for method in ["ping", "tasks/list", "logging/setLevel", "no/such"] {
        let reply = stage.client().call(method, json!({})).await.unwrap();
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (404, -32601),
            "{method}"
        );
        assert_eq!(stage.sent(method), [Value::Null; 0]);
    }
    let reply = stage.client().tool("greet", json!({})).await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.code()), (200, -32602));
}

async fn one_upstream_alone_has_a_path_of_its_own(way: Way) {
    let stage = Stage::new(way).await;
    let alone = waypost_testkit::client::Client::new(format!("{}/d", stage.gateway.url));
    let reply = alone
        .tool("d_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    assert_eq!(reply.text(), "Hello, Ada!");
    let nobody = waypost_testkit::client::Client::new(format!("{}/other", stage.gateway.url));
    let reply = nobody.call("server/discover", json!({})).await.unwrap();
    assert_eq!(reply.status, 404);
    assert!(reply.answer["error"].is_string(), "{:?}", reply.raw);
}
