//! Search mode: a handful of tools in place of all others.

use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;
use waypost_hub::call::{Call, View};
use waypost_hub::error::{CallError, Kind as ErrorKind};
use waypost_hub::hub::Hub;

use crate::fake::{Fake, call, declaring, echo, hub, names, reply, result, upstreams};

const TRIO: [&str; 3] = ["find_tools", "describe_tool", "call_tool"];

fn searching(names: &[&str]) -> String {
    format!("{}discovery: search\n", upstreams(names))
}

fn tools(all: &[(&str, &str)]) -> Value {
    let tools = all.iter().map(|(name, description)| {
        json!({ "name": name, "description": description,
            "inputSchema": { "type": "object", "properties": { "path": { "type": "string" } } },
            "outputSchema": { "type": "object" }, "icons": [] })
    });
    json!({ "tools": tools.collect::<Vec<_>>() })
}

fn server(name: &str, all: &[(&str, &str)]) -> Arc<Fake> {
    let lists = [("tools/list", tools(all))];
    Fake::new(name, json!({ "tools": {} }), &lists, |call| Ok(echo(call)))
}

fn files() -> Arc<Fake> {
    let all = [
        ("read_it", "Answers what a document holds."),
        ("drop_it", "Deletes a document for ever."),
    ];
    server("files", &all)
}

fn tool(name: &str, arguments: &Value) -> Call {
    call(
        "tools/call",
        &json!({ "name": name, "arguments": arguments }),
    )
}

fn at(endpoint: &str, mut call: Call) -> Call {
    call.view = View::Endpoint(endpoint.into());
    call
}

async fn structured(hub: &Arc<Hub>, call: Call) -> Value {
    let result = result(hub.call(call).await).await;
    let text = result["content"][0]["text"].as_str().unwrap();
    let text: Value = serde_json::from_str(text).unwrap();
    assert_eq!(text, result["structuredContent"]);
    text
}

async fn found(hub: &Arc<Hub>, call: Call) -> Vec<String> {
    let found = structured(hub, call).await;
    let tools = found["tools"].as_array().unwrap().iter();
    let names = tools.map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.collect()
}

/// What a model is told that it did wrong.
async fn told(hub: &Arc<Hub>, call: Call) -> String {
    let result = result(hub.call(call).await).await;
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

async fn unknown(hub: &Arc<Hub>, call: Call) -> String {
    let error = hub.call(call).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownTarget);
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn r06_a_searched_view_lists_a_handful_and_finds_the_others() {
    let (files, code) = (
        files(),
        server("code", &[("grep", "Looks into documents.")]),
    );
    let hub = hub(&searching(&["files", "code"]), &[&files, &code]).await;
    assert_eq!(names(&hub).await, TRIO);
    let find = |arguments: Value| tool("find_tools", &arguments);
    let best = structured(&hub, find(json!({ "query": "delete a document" }))).await;
    assert_eq!(best["tools"][0]["name"], "files_drop_it");
    assert!(best["tools"][0]["inputSchema"]["properties"]["path"].is_object());
    assert!(
        best["tools"][0]["outputSchema"].is_null(),
        "it helps nobody to choose"
    );
    let all = found(&hub, find(json!({ "query": "documents" }))).await;
    assert_eq!(all.len(), 3);
    let one = found(&hub, find(json!({ "query": "documents", "limit": 1 }))).await;
    assert_eq!(one, all[..1]);
    let of = found(
        &hub,
        find(json!({ "query": "documents", "upstream": "code" })),
    )
    .await;
    assert_eq!(of, ["code_grep"]);
    let nothing = structured(&hub, find(json!({ "query": "zebra" }))).await;
    assert!(nothing["tools"].as_array().unwrap().is_empty() && nothing["hint"].is_string());
    let described = structured(&hub, tool("describe_tool", &json!({ "name": "code_grep" }))).await;
    assert!(described["outputSchema"].is_object());
    assert!(files.seen().is_empty() && code.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_through_call_tool_reaches_its_server_as_a_direct_one_does() {
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" } } });
    let lists = [(
        "tools/list",
        json!({ "tools": [{ "name": "x", "inputSchema": schema }] }),
    )];
    let a = Fake::new("a", json!({ "tools": {} }), &lists, |call| Ok(echo(call)));
    let yaml = format!(
        "{}endpoints: {{ all: {{ discovery: direct }} }}\n",
        searching(&["a"])
    );
    let hub = hub(&yaml, &[&a]).await;
    let arguments = json!({ "region": "eu", "n": 12345678901234567890_u64 });
    let more = json!({ "inputResponses": { "q": {} }, "requestState": "theirs" });
    let with = |name: &str, arguments: &Value| {
        let mut params = more.clone();
        params["name"] = name.into();
        params["arguments"] = arguments.clone();
        call("tools/call", &params)
    };
    let mut direct = at("all", with("a_x", &arguments));
    direct.headers.params = vec![("mcp-param-region".into(), "eu".into())];
    let expected = result(hub.call(direct).await).await;
    let through = with(
        "call_tool",
        &json!({ "name": "a_x", "arguments": arguments }),
    );
    assert_eq!(result(hub.call(through).await).await, expected);
    let [direct, through] = &a.seen()[..] else {
        panic!("two calls")
    };
    assert_eq!(through.headers.params, direct.headers.params);
    assert_eq!(
        through.params.get("arguments"),
        direct.params.get("arguments")
    );
    assert_eq!(through.method, "tools/call");
    let none = tool("call_tool", &json!({ "name": "a_x" }));
    result(hub.call(none).await).await;
    assert!(!a.seen()[2].params.contains("arguments"));
}

#[tokio::test(start_paused = true)]
async fn a_hidden_tool_is_called_through_call_tool_only() {
    let files = files();
    let yaml = format!(
        "{}endpoints:\n  some: {{ discovery: search, tools: {{ deny: [drop_it] }} }}\n",
        upstreams(&["files"])
    );
    let hub = hub(&yaml, &[&files]).await;
    assert_eq!(names(&hub).await, ["files_drop_it", "files_read_it"]);
    let through = |name: &str| at("some", tool("call_tool", &json!({ "name": name })));
    let never = unknown(&hub, through("files_never")).await;
    let denied = unknown(&hub, through("files_drop_it")).await;
    assert_eq!(denied.replace("drop_it", "never"), never);
    for name in ["files_read_it", "files_drop_it"] {
        let direct = unknown(&hub, at("some", tool(name, &json!({})))).await;
        assert!(direct.contains("`call_tool`"), "{direct}");
    }
    let described = |name: &str| at("some", tool("describe_tool", &json!({ "name": name })));
    let denied = told(&hub, described("files_drop_it")).await;
    let never = told(&hub, described("files_never")).await;
    assert_eq!(denied.replace("drop_it", "never"), never);
    let query = json!({ "query": "delete a document for ever" });
    let all = found(&hub, at("some", tool("find_tools", &query))).await;
    assert_eq!(all, ["files_read_it"]);
    assert!(files.seen().is_empty());
    result(hub.call(through("files_read_it")).await).await;
    assert_eq!(files.seen().len(), 1);
    // Where nothing is searched these are names as any other.
    unknown(&hub, tool("call_tool", &json!({ "name": "files_read_it" }))).await;
    let mut own = tool("call_tool", &json!({ "name": "files_read_it" }));
    own.view = View::Upstream("files".into());
    unknown(&hub, own).await;
}

#[tokio::test(start_paused = true)]
async fn a_model_is_told_what_is_wrong_with_its_arguments() {
    let files = files();
    let hub = hub(&searching(&["files"]), &[&files]).await;
    for (name, arguments, expected) in [
        ("find_tools", json!({}), "`query` is missing"),
        (
            "find_tools",
            json!({ "query": "a", "limit": "2" }),
            "`limit` must be",
        ),
        (
            "find_tools",
            json!({ "query": "a", "upstream": "x" }),
            "give one of `files`",
        ),
        ("describe_tool", json!({ "name": 1 }), "`name` is missing"),
        ("call_tool", json!({ "tool": "x" }), "`name` is missing"),
        ("call_tool", json!("x"), "`arguments`"),
    ] {
        let told = told(&hub, tool(name, &arguments)).await;
        assert!(told.contains(expected), "{told}");
    }
    let params = json!({ "name": "describe_tool", "arguments": { "name": "never" } });
    assert!(
        told(&hub, call("tools/call", &params))
            .await
            .contains("`never`")
    );
}

#[tokio::test(start_paused = true)]
async fn what_changes_behind_it_is_found_and_not_announced() {
    let files = files();
    let yaml = format!(
        "{}endpoints: {{ all: {{ discovery: direct }} }}\n",
        searching(&["files"])
    );
    let hub = hub(&yaml, &[&files]).await;
    let query = tool("find_tools", &json!({ "query": "zebra" }));
    assert!(found(&hub, query.clone()).await.is_empty());
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let listen = async |call: Call| {
        let mut events = hub.call(call).await.unwrap().into_stream();
        events.next().await.unwrap().unwrap();
        events
    };
    let mut searched = listen(call("subscriptions/listen", &filter)).await;
    let mut direct = listen(at("all", call("subscriptions/listen", &filter))).await;
    let all = tools(&[("paint", "Paints a zebra.")]);
    files
        .lists
        .lock()
        .unwrap()
        .insert("tools/list".to_owned(), all);
    hub.members()[0].wake.notify_one();
    let soon = std::time::Duration::from_secs(60);
    let heard = timeout(soon, direct.next()).await;
    heard.expect("the change is announced where it is seen");
    assert_eq!(found(&hub, query).await, ["files_paint"]);
    let heard = timeout(soon, searched.next()).await;
    assert!(heard.is_err(), "nothing that it lists changed");
}

/// A server with a prompt that asks, a resource and a template.
fn prompting() -> Arc<Fake> {
    let lists = [
        ("tools/list", tools(&[("read_it", "Reads.")])),
        (
            "prompts/list",
            json!({ "prompts": [{ "name": "review", "description": "Looks at a patch.", "icons": [] }] }),
        ),
        (
            "resources/list",
            json!({ "resources": [{ "uri": "f:///a", "name": "Handbook" }] }),
        ),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [{ "uriTemplate": "f:///{page}", "name": "Pages of the handbook" }] }),
        ),
    ];
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {} });
    Fake::new("a", capabilities, &lists, |call| {
        let block = json!({ "type": "text", "text": "hi" });
        Ok(reply(&match call.method.as_str() {
            "prompts/get" if call.params.contains("inputResponses") => json!({
                "description": "d", "messages": [{ "role": "user", "content": block }], "_meta": { "k": 1 } }),
            "prompts/get" => json!({ "resultType": "input_required", "requestState": "s",
                "inputRequests": { "q": { "method": "roots/list" } } }),
            "resources/read" => {
                json!({ "contents": [{ "uri": "f:///a", "text": "hi" }], "ttlMs": 1 })
            }
            _ => return Err(CallError::unknown_task()),
        }))
    })
}

#[tokio::test(start_paused = true)]
async fn prompts_and_resources_have_tools_where_there_are_any() {
    let a = prompting();
    let hub = hub(&searching(&["a"]), &[&a]).await;
    assert_eq!(names(&hub).await.len(), 9);
    let best = structured(&hub, tool("find_prompts", &json!({ "query": "patch" }))).await;
    assert_eq!(
        best["prompts"],
        json!([{ "name": "a_review", "description": "Looks at a patch." }])
    );
    let best = structured(
        &hub,
        tool("find_resources", &json!({ "query": "handbook" })),
    )
    .await;
    assert_eq!(best["resources"][0]["uri"], "f:///a");
    assert_eq!(best["resourceTemplates"][0]["uriTemplate"], "f:///{page}");
    for (name, arguments, key) in [
        ("describe_prompt", json!({ "name": "a_review" }), "icons"),
        ("describe_resource", json!({ "uri": "f:///a" }), "uri"),
        (
            "describe_resource",
            json!({ "uri": "f:///{page}" }),
            "uriTemplate",
        ),
    ] {
        assert!(
            structured(&hub, tool(name, &arguments))
                .await
                .get(key)
                .is_some()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn prompts_and_resources_become_results_of_tools() {
    let a = prompting();
    let hub = hub(&searching(&["a"]), &[&a]).await;
    // A prompt asks, and goes on with the answer.
    let get = json!({ "name": "get_prompt", "arguments": { "name": "a_review", "arguments": { "n": "1" } } });
    let roots = |params: &Value| declaring(call("tools/call", params), &json!({ "roots": {} }));
    let asked = result(hub.call(roots(&get)).await).await;
    assert_eq!(asked["requestState"], "s");
    let mut again = get.clone();
    again["inputResponses"] = json!({ "q": { "roots": [] } });
    let got = result(hub.call(roots(&again)).await).await;
    assert_eq!(got["content"], json!([{ "type": "text", "text": "hi" }]));
    assert_eq!(got["structuredContent"]["messages"][0]["role"], "user");
    assert_eq!(got["_meta"]["k"], 1);
    let sent = a
        .seen()
        .last()
        .unwrap()
        .params
        .get("arguments")
        .unwrap()
        .to_string();
    assert_eq!(sent, r#"{"n":"1"}"#);
    let read = result(
        hub.call(tool("read_resource", &json!({ "uri": "f:///a" })))
            .await,
    )
    .await;
    let expected = json!([{ "type": "resource", "resource": { "uri": "f:///a", "text": "hi" } }]);
    assert_eq!(read["content"], expected);
}
