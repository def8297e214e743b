//! Upstreams of one kind: their tools are one set, and an argument says which of them is meant.

mod changes;

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_hub::call::{Call, View};
use waypost_hub::hub::Hub;

use crate::fake::{Fake, call, declaring, echo, error, hub, reply, result, value};

const TWO: &str = "upstreams:\n  \
    prod: { url: \"http://127.0.0.1:9\", family: { name: k8s, argument: cluster } }\n  \
    test: { url: \"http://127.0.0.1:9\", family: { name: k8s, argument: cluster, value: EU 1 } }\n";

/// Number spelling, key order and white space have to stay.
fn pods() -> Value {
    json!({
        "name": "pods",
        "description": "Lists pods.",
        "inputSchema": {
            "type": "object",
            "properties": { "zone": { "type": "string", "x-mcp-header": "Zone" } },
            "required": ["zone"],
            "additionalProperties": false,
        },
    })
}

fn plain(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

fn server(name: &str, tools: &[Value]) -> Arc<Fake> {
    let lists = [
        ("tools/list", json!({ "tools": tools })),
        ("prompts/list", json!({ "prompts": [{ "name": "ask" }] })),
    ];
    let capabilities = json!({
        "tools": { "listChanged": true }, "prompts": {},
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    });
    Fake::new(name, capabilities, &lists, |call| {
        Ok(match call.params.string("name").as_deref() {
            Some("job") if call.meta.capabilities.has_tasks() => {
                reply(&json!({ "resultType": "task", "taskId": "t1", "status": "working" }))
            }
            Some("ask") if call.params.get("requestState").is_none() => reply(&json!({
                "resultType": "input_required",
                "inputRequests": { "q": { "method": "elicitation/create", "params": {} } },
                "requestState": "mine",
            })),
            _ => echo(call),
        })
    })
}

fn at(view: View, mut call: Call) -> Call {
    call.view = view;
    call
}

fn endpoint(name: &str) -> View {
    View::Endpoint(name.into())
}

fn upstream(name: &str) -> View {
    View::Upstream(name.into())
}

async fn tools(hub: &Arc<Hub>, view: View) -> Vec<Value> {
    let list = result(hub.call(at(view, call("tools/list", &json!({})))).await).await;
    list["tools"].as_array().unwrap().clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

fn values<'a>(tools: &'a [Value], name: &str) -> Vec<&'a str> {
    let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
    let values = tool["inputSchema"]["properties"]["cluster"]["enum"].as_array();
    values
        .unwrap()
        .iter()
        .map(|value| value.as_str().unwrap())
        .collect()
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`json!` reads better without a borrow"
)]
fn use_of(name: &str, arguments: Value) -> Call {
    call(
        "tools/call",
        &json!({ "name": name, "arguments": arguments }),
    )
}

async fn refused(hub: &Arc<Hub>, call: Call) -> String {
    let answer = result(hub.call(call).await).await;
    assert_eq!(answer["isError"], true, "{answer}");
    answer["content"][0]["text"].as_str().unwrap().to_owned()
}

/// With the extension for tasks.
fn tasking(call: Call) -> Call {
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    declaring(call, &tasks)
}

/// What reached a server of this method.
fn calls(fake: &Fake, method: &str) -> Vec<Call> {
    let mut all = fake.seen();
    all.retain(|call| call.method == method);
    all
}

fn warnings(hub: &Hub) -> Vec<String> {
    let catalog = hub.catalog();
    let all = catalog.warnings.iter();
    all.map(|w| format!("{}: {}", w.upstream, w.text)).collect()
}

async fn two() -> (Arc<Hub>, [Arc<Fake>; 2]) {
    let fakes = [
        server("prod", &[pods(), plain("job"), plain("only_prod")]),
        server("test", &[plain("job"), pods()]),
    ];
    (hub(TWO, &[&fakes[0], &fakes[1]]).await, fakes)
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_several_upstreams_is_one_with_a_required_argument() {
    let (hub, _fakes) = two().await;
    let all = tools(&hub, View::All).await;
    assert_eq!(names(&all), ["k8s_job", "k8s_only_prod", "k8s_pods"]);
    assert_eq!(values(&all, "k8s_pods"), ["prod", "EU 1"]);
    assert_eq!(values(&all, "k8s_only_prod"), ["prod"]);
    let about = json!({ "type": "string", "enum": ["prod", "EU 1"], "description": "Which k8s this is for." });
    let expected = json!({
        "name": "k8s_pods",
        "description": "Lists pods.",
        "inputSchema": {
            "type": "object",
            "properties": { "zone": { "type": "string", "x-mcp-header": "Zone" }, "cluster": about },
            "required": ["zone", "cluster"],
            "additionalProperties": false,
        },
        "_meta": { "dev.waypost/name": "pods" },
    });
    assert_eq!(all[2], expected);
    assert_eq!(all[2].to_string(), expected.to_string(), "in this order");
    // Without any schema members it gets them.
    assert_eq!(all[0]["inputSchema"]["required"], json!(["cluster"]));
    assert_eq!(warnings(&hub), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_argument_leads_to_the_upstream_and_no_further() {
    let (hub, fakes) = two().await;
    let text = r#"{"name":"k8s_pods","arguments":{"zone":1.0,"cluster":"EU 1","n":12345678901234567890123}}"#;
    let mut call = call("tools/call", &json!({}));
    call.params = waypost_wire::object::Object::parse(&text.into()).unwrap();
    let refused = error(hub.call(call.clone()).await).await;
    assert_eq!(refused["code"], -32020, "{refused}");
    call.headers.params = vec![("mcp-param-zone".to_owned(), "1".to_owned())];
    result(hub.call(call).await).await;
    assert!(calls(&fakes[0], "tools/call").is_empty());
    let got = calls(&fakes[1], "tools/call").remove(0);
    assert_eq!(got.params.string("name").unwrap(), "pods");
    let arguments = got.params.get("arguments").unwrap();
    assert_eq!(
        arguments.text(),
        r#"{"zone":1.0,"n":12345678901234567890123}"#
    );
    // What the tool wants in headers is made from what the server gets.
    assert_eq!(
        got.headers.params,
        [("mcp-param-zone".to_owned(), "1".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn who_names_no_upstream_is_told_which_there_are() {
    let (hub, fakes) = two().await;
    let missing = "`cluster` is missing: hint: give one of `prod`, `EU 1`";
    for arguments in [
        json!({}),
        json!({ "cluster": null }),
        json!({ "cluster": 1 }),
    ] {
        assert_eq!(refused(&hub, use_of("k8s_job", arguments)).await, missing);
    }
    let without = call("tools/call", &json!({ "name": "k8s_job" }));
    assert_eq!(refused(&hub, without).await, missing);
    for (wrong, name) in [("test", "k8s_job"), ("", "k8s_job")] {
        let said = refused(&hub, use_of(name, json!({ "cluster": wrong }))).await;
        assert_eq!(
            said,
            format!("`cluster` is none of `prod`, `EU 1`: `{wrong}`")
        );
    }
    // One that is there, and has no such tool.
    let said = refused(&hub, use_of("k8s_only_prod", json!({ "cluster": "EU 1" }))).await;
    assert_eq!(said, "`cluster` is none of `prod`: `EU 1`");
    assert!(
        fakes
            .iter()
            .all(|fake| calls(fake, "tools/call").is_empty())
    );
    // Names that each upstream has at its own endpoint are none here.
    let own = hub.call(use_of("prod_job", json!({}))).await;
    assert!(
        own.unwrap_err()
            .to_string()
            .contains("unknown tool `prod_job`")
    );
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_of_one_upstream_has_its_tools_without_the_argument() {
    let (hub, fakes) = two().await;
    let own = tools(&hub, upstream("test")).await;
    assert_eq!(names(&own), ["test_job", "test_pods"]);
    assert_eq!(own[1]["inputSchema"], pods()["inputSchema"]);
    result(
        hub.call(at(upstream("test"), use_of("test_job", json!({}))))
            .await,
    )
    .await;
    assert_eq!(calls(&fakes[1], "tools/call").len(), 1);
    let all = hub
        .call(at(upstream("test"), use_of("k8s_job", json!({}))))
        .await;
    assert!(all.is_err());
    // Prompts stay apart.
    let list = result(hub.call(call("prompts/list", &json!({}))).await).await;
    assert_eq!(
        names(list["prompts"].as_array().unwrap()),
        ["prod_ask", "test_ask"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_is_followed_at_the_upstream_that_was_meant() {
    let (hub, fakes) = two().await;
    let begin = tasking(use_of("k8s_job", json!({ "cluster": "EU 1" })));
    let task = result(hub.call(begin).await).await;
    let handle = task["taskId"].as_str().unwrap();
    assert!(handle.starts_with("test~"), "{task}");
    let get = tasking(call("tasks/get", &json!({ "taskId": handle })));
    result(hub.call(get).await).await;
    assert_eq!(
        value(&calls(&fakes[1], "tasks/get")[0].params)["taskId"],
        "t1"
    );
    assert!(calls(&fakes[0], "tasks/get").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_answer_comes_back_to_the_upstream_that_asked() {
    let [prod, test] = ["prod", "test"].map(|name| server(name, &[plain("ask")]));
    let hub = hub(TWO, &[&prod, &test]).await;
    let asking = json!({ "elicitation": {} });
    let params = json!({ "name": "k8s_ask", "arguments": { "a": 1, "cluster": "EU 1" } });
    let asked = hub.call(declaring(call("tools/call", &params), &asking));
    let asked = result(asked.await).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let mut again = params;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ "q": { "action": "accept", "content": {} } });
    let again = declaring(call("tools/call", &again), &asking);
    result(hub.call(again).await).await;
    let got = calls(&test, "tools/call").remove(1);
    let got = value(&got.params);
    assert_eq!(
        (&got["requestState"], &got["arguments"]),
        (&json!("mine"), &json!({ "a": 1 }))
    );
    assert!(calls(&prod, "tools/call").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_has_only_the_upstreams_and_tools_that_it_shows() {
    let yaml = format!(
        "{TWO}endpoints:\n  all: {{}}\n  eu: {{ upstreams: [test] }}\n  \
         few: {{ tools: {{ deny: [job] }} }}\n  bare: {{ prefix: '', tools: {{ deny: [only_*] }} }}\n"
    );
    let fakes = [
        server("prod", &[pods(), plain("job"), plain("only_prod")]),
        server("test", &[plain("job"), pods()]),
    ];
    let hub = hub(&yaml, &[&fakes[0], &fakes[1]]).await;
    let whole = tools(&hub, View::All).await;
    assert_eq!(tools(&hub, endpoint("all")).await, whole);
    let eu = tools(&hub, endpoint("eu")).await;
    assert_eq!(names(&eu), ["k8s_job", "k8s_pods"]);
    assert_eq!(values(&eu, "k8s_pods"), ["EU 1"]);
    assert_eq!(
        names(&tools(&hub, endpoint("few")).await),
        ["k8s_only_prod", "k8s_pods"]
    );
    let bare = tools(&hub, endpoint("bare")).await;
    assert_eq!(names(&bare), ["job", "pods"]);
    assert_eq!(values(&bare, "pods"), ["prod", "EU 1"]);

    let elsewhere = at(
        endpoint("eu"),
        use_of("k8s_pods", json!({ "cluster": "prod" })),
    );
    assert_eq!(
        refused(&hub, elsewhere).await,
        "`cluster` is none of `EU 1`: `prod`"
    );
    for (view, name) in [("eu", "k8s_pods"), ("bare", "pods")] {
        let here = at(endpoint(view), use_of(name, json!({ "cluster": "EU 1" })));
        result(hub.call(here).await).await;
    }
    assert_eq!(calls(&fakes[1], "tools/call").len(), 2);
    // A task of one that an endpoint does not show is no task there.
    let begin = tasking(use_of("k8s_job", json!({ "cluster": "prod" })));
    let task = result(hub.call(begin).await).await;
    let get = tasking(call("tasks/get", &json!({ "taskId": task["taskId"] })));
    assert!(hub.call(at(endpoint("eu"), get.clone())).await.is_err());
    assert!(hub.call(at(endpoint("few"), get.clone())).await.is_err());
    result(hub.call(at(endpoint("bare"), get)).await).await;
    // One that shows the same shows the same bytes.
    let catalog = hub.catalog();
    let kind = waypost_hub::catalog::entry::Kind::Tool;
    let [all, whole] = [endpoint("all"), View::All].map(|view| catalog.list(kind, &view).rendered);
    assert_eq!(all.as_bytes().as_ptr(), whole.as_bytes().as_ptr());
    assert_eq!(catalog.counts(kind, &endpoint("few")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_has_the_argument_already_stays_with_each_upstream() {
    let taking = json!({
        "name": "pods",
        "inputSchema": { "type": "object", "properties": { "cluster": {} } },
    });
    let fakes = [
        server("prod", &[pods(), plain("job")]),
        server("test", &[plain("job"), taking]),
    ];
    let hub = hub(TWO, &[&fakes[0], &fakes[1]]).await;
    let all = tools(&hub, View::All).await;
    assert_eq!(names(&all), ["k8s_job", "prod_pods", "test_pods"]);
    assert_eq!(
        warnings(&hub),
        [
            "test: tool `pods` is shown for each upstream of `k8s` by itself: it has a parameter `cluster` of its own"
        ]
    );
    result(
        hub.call(use_of("test_pods", json!({ "cluster": "x" })))
            .await,
    )
    .await;
    let got = calls(&fakes[1], "tools/call").remove(0);
    assert_eq!(value(&got.params)["arguments"], json!({ "cluster": "x" }));
}

#[tokio::test(start_paused = true)]
async fn a_tool_with_no_room_for_the_argument_anywhere_in_its_schema_stays_alone() {
    let own = "it has a parameter `cluster` of its own";
    let closed = "its `inputSchema` cannot be added to";
    for (schema, why) in [
        (
            json!({ "allOf": [{ "properties": { "cluster": {} } }] }),
            own,
        ),
        (json!({ "anyOf": [{ "required": ["cluster"] }] }), own),
        (
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "properties": { "cluster": {} } } } }),
            own,
        ),
        (
            json!({ "allOf": [{ "additionalProperties": false }] }),
            closed,
        ),
        (
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "unevaluatedProperties": false } } }),
            closed,
        ),
        (json!({ "maxProperties": 1 }), closed),
        (json!({ "$ref": "#somewhere" }), closed),
    ] {
        let mut schema = schema;
        schema["type"] = json!("object");
        let tool = json!({ "name": "pods", "inputSchema": schema });
        let fakes = [server("prod", &[pods()]), server("test", &[tool])];
        let hub = hub(TWO, &[&fakes[0], &fakes[1]]).await;
        let all = tools(&hub, View::All).await;
        assert_eq!(names(&all), ["prod_pods", "test_pods"], "{schema}");
        let said = warnings(&hub);
        assert!(
            said.len() == 1 && said[0].ends_with(why),
            "{schema}: {said:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_only_the_first_promises_is_not_said_for_all() {
    let tool = |rest: &Value| {
        let mut tool = plain("job");
        let rest = rest.as_object().unwrap().clone();
        tool.as_object_mut().unwrap().extend(rest);
        tool
    };
    let out = json!({ "type": "object", "required": ["a"] });
    let first = json!({
        "outputSchema": out,
        "annotations": { "title": "Job", "readOnlyHint": true, "openWorldHint": false },
        "execution": { "taskSupport": "optional" },
    });
    for (second, left) in [
        (first.clone(), first.clone()),
        (
            json!({ "annotations": { "openWorldHint": false, "readOnlyHint": false } }),
            json!({ "annotations": { "title": "Job", "openWorldHint": false } }),
        ),
    ] {
        let fakes = [
            server("prod", &[tool(&first)]),
            server("test", &[tool(&second)]),
        ];
        let hub = hub(TWO, &[&fakes[0], &fakes[1]]).await;
        let all = tools(&hub, View::All).await;
        for key in ["outputSchema", "annotations", "execution"] {
            assert_eq!(all[0].get(key), left.get(key), "{}", all[0]);
        }
        let told = "test: has another `outputSchema`, `execution` or hints than `prod`, so they are left out, in `job`";
        let told = if first == second { vec![] } else { vec![told] };
        assert_eq!(warnings(&hub), told);
    }
}

#[tokio::test(start_paused = true)]
async fn an_argument_of_the_same_name_can_be_hidden_and_set() {
    let yaml = TWO.replace(
        "argument: cluster }",
        "argument: cluster }, tools: { set_params: { pods: { cluster: arn } } }",
    );
    let taking = json!({
        "name": "pods",
        "inputSchema": { "type": "object", "properties": { "cluster": {}, "zone": {} } },
    });
    let fakes = [server("prod", &[taking]), server("test", &[pods()])];
    let hub = hub(&yaml, &[&fakes[0], &fakes[1]]).await;
    let use_it = |cluster: &str| use_of("k8s_pods", json!({ "cluster": cluster, "zone": "z" }));
    result(hub.call(use_it("prod")).await).await;
    result(hub.call(use_it("EU 1")).await).await;
    let got = |fake: &Fake| value(&calls(fake, "tools/call")[0].params)["arguments"].clone();
    assert_eq!(got(&fakes[0]), json!({ "zone": "z", "cluster": "arn" }));
    assert_eq!(got(&fakes[1]), json!({ "zone": "z" }));
    assert_eq!(
        warnings(&hub),
        ["test: takes other arguments than `prod`, whose definitions are shown, in `pods`"]
    );
}

#[tokio::test(start_paused = true)]
async fn names_that_are_taken_follow_the_rules_for_collisions() {
    let yaml = format!("{TWO}  other: {{ url: \"http://127.0.0.1:9\", prefix: k8s_ }}\n");
    let fakes = [
        server("prod", &[plain("job")]),
        server("test", &[plain("job")]),
        server("other", &[plain("job")]),
    ];
    let hub = hub(&yaml, &[&fakes[0], &fakes[1], &fakes[2]]).await;
    let all = tools(&hub, View::All).await;
    assert_eq!(names(&all), ["k8s_job", "other_job"]);
    assert_eq!(values(&all, "k8s_job"), ["prod", "EU 1"]);
}

#[tokio::test(start_paused = true)]
async fn search_mode_finds_and_calls_what_is_one() {
    let yaml = format!("{TWO}discovery: search\n");
    let fakes = [
        server("prod", &[pods(), plain("job")]),
        server("test", &[plain("job"), pods()]),
    ];
    let hub = hub(&yaml, &[&fakes[0], &fakes[1]]).await;
    let found = |upstream: Value| {
        let hub = Arc::clone(&hub);
        async move {
            let arguments = json!({ "query": "list pods of a cluster", "upstream": upstream });
            let found = result(hub.call(use_of("find_tools", arguments)).await).await;
            found["structuredContent"]["tools"][0].clone()
        }
    };
    for upstream in [Value::Null, json!("test"), json!("prod")] {
        // `null` is no text, and so left out.
        let hit = found(upstream).await;
        assert_eq!(hit["name"], "k8s_pods");
        assert_eq!(hit["inputSchema"]["required"], json!(["zone", "cluster"]));
    }
    let inner = json!({ "zone": "z", "cluster": "EU 1" });
    let through = json!({ "name": "k8s_pods", "arguments": inner });
    result(hub.call(use_of("call_tool", through)).await).await;
    assert_eq!(
        value(&calls(&fakes[1], "tools/call")[0].params)["arguments"],
        json!({ "zone": "z" })
    );
    let wrong = json!({ "name": "k8s_pods", "arguments": { "zone": "z" } });
    let said = refused(&hub, use_of("call_tool", wrong)).await;
    assert!(said.contains("`prod`, `EU 1`"), "{said}");
}
