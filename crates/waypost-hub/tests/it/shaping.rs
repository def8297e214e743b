//! What the file makes of an upstream's definitions, and of calls to them.

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_hub::call::{Call, View};
use waypost_hub::catalog::entry::Kind;
use waypost_hub::hub::Hub;

use crate::fake::{Fake, call, declaring, echo, error, hub, names, reply, result, value};
use crate::supervising::until;

/// A server with tools, prompts, resources and templates.
fn server() -> Arc<Fake> {
    let send = json!({
        "name": "send",
        "description": "Sends it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "to": { "type": "string" },
                "token": { "type": "string", "x-mcp-header": "Token" },
                "region": { "type": "string", "x-mcp-header": "Region" },
            },
            "required": ["to", "token"],
        },
    });
    let lists = [
        (
            "tools/list",
            json!({ "tools": [{ "name": "drop" }, { "name": "list" }, send] }),
        ),
        (
            "prompts/list",
            json!({ "prompts": [{ "name": "ask" }, { "name": "beg" }] }),
        ),
        (
            "resources/list",
            json!({ "resources": [
                { "uri": "file:///docs/a", "name": "a" },
                { "uri": "file:///etc/b", "name": "b" },
                { "uri": "db://users/rows", "name": "c" },
            ] }),
        ),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [
                { "uriTemplate": "file:///docs/{page}", "name": "d" },
                { "uriTemplate": "db://{table}/rows", "name": "e" },
                { "uriTemplate": "db://open/{name}", "name": "f" },
            ] }),
        ),
    ];
    let capabilities = json!({
        "tools": {}, "prompts": {}, "resources": { "subscribe": true }, "completions": {},
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    });
    Fake::new("u", capabilities, &lists, |call| {
        Ok(match call.params.string("name").as_deref() {
            Some("list") if call.meta.capabilities.has_tasks() => {
                reply(&json!({ "resultType": "task", "taskId": "t1", "status": "working" }))
            }
            _ => echo(call),
        })
    })
}

async fn shaped(settings: &str) -> (Arc<Hub>, Arc<Fake>) {
    let yaml = format!("upstreams:\n  u:\n    url: \"http://127.0.0.1:9\"\n{settings}");
    let fake = server();
    (hub(&yaml, &[&fake]).await, fake)
}

async fn listed(hub: &Arc<Hub>, kind: Kind) -> Vec<String> {
    let list = result(hub.call(call(kind.list_method(), &json!({}))).await).await;
    let items = list[kind.list_member()].as_array().unwrap().iter();
    let names = items.map(|item| item[kind.name_member()].as_str().unwrap().to_owned());
    names.collect()
}

/// The definition of a tool that clients see.
async fn definition(hub: &Arc<Hub>, name: &str) -> Value {
    let list = result(hub.call(call("tools/list", &json!({}))).await).await;
    let mut tools = list["tools"].as_array().unwrap().iter();
    tools.find(|tool| tool["name"] == name).unwrap().clone()
}

/// The failure of a call, whichever way it comes, without the name in it.
async fn refused(hub: &Arc<Hub>, call: Call, name: &str) -> String {
    let text = match hub.call(call).await {
        Err(error) => format!("{:?} {error}", error.kind),
        reply => error(reply).await.to_string(),
    };
    text.replace(name, "NAME")
}

fn warnings(hub: &Hub) -> Vec<String> {
    let catalog = hub.catalog();
    catalog.warnings.iter().map(|w| w.text.clone()).collect()
}

fn use_of(method: &str, name: &str) -> Call {
    let params = match method {
        "resources/read" => json!({ "uri": name }),
        "completion/prompt" => json!({ "ref": { "type": "ref/prompt", "name": name } }),
        "completion/resource" => json!({ "ref": { "type": "ref/resource", "uri": name } }),
        _ => json!({ "name": name }),
    };
    let method = if method.starts_with("completion/") {
        "completion/complete"
    } else {
        method
    };
    call(method, &params)
}

const FILTERS: &str = "    \
    tools: { deny: [drop] }\n    \
    prompts: { allow: ['a*'] }\n    \
    resources: { deny: ['file:///etc/*', 'db://{table}/rows'] }\n";

#[tokio::test(start_paused = true)]
async fn r05_what_an_upstreams_filters_hide_is_as_unknown_as_what_it_never_had() {
    let (hub, fake) = shaped(FILTERS).await;
    assert_eq!(listed(&hub, Kind::Tool).await, ["u_list", "u_send"]);
    assert_eq!(listed(&hub, Kind::Prompt).await, ["u_ask"]);
    let resources = listed(&hub, Kind::Resource).await;
    assert_eq!(resources, ["db://users/rows", "file:///docs/a"]);
    let templates = listed(&hub, Kind::Template).await;
    assert_eq!(templates, ["db://open/{name}", "file:///docs/{page}"]);
    for (method, hidden, never) in [
        ("tools/call", "u_drop", "u_nope"),
        ("prompts/get", "u_beg", "u_nope"),
        ("resources/read", "file:///etc/b", "file:///etc/nope"),
        ("resources/read", "u+file:///etc/b", "u+file:///etc/nope"),
        ("completion/prompt", "u_beg", "u_nope"),
        ("completion/resource", "file:///etc/b", "file:///etc/nope"),
        (
            "completion/resource",
            "db://{table}/rows",
            "db://{other}/rows",
        ),
    ] {
        let hidden = refused(&hub, use_of(method, hidden), hidden).await;
        let never = refused(&hub, use_of(method, never), never).await;
        assert_eq!(hidden, never, "{method}");
        let known = ["UnknownTarget", "-32602"];
        assert!(known.iter().any(|known| hidden.contains(known)), "{hidden}");
    }
    assert_eq!(fake.seen().len(), 0, "the server was asked");
    // Whom a subscription would go to.
    let owner = |uri: &str| hub.catalog().resource_owner(&View::All, uri).is_ok();
    assert!(owner("file:///docs/a") && !owner("file:///etc/b"));
    for (method, shown) in [
        ("tools/call", "u_list"),
        ("prompts/get", "u_ask"),
        ("resources/read", "file:///docs/x"),
        ("completion/resource", "db://open/{name}"),
    ] {
        result(hub.call(use_of(method, shown)).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn r05_a_denied_resource_of_a_gateway_is_not_read_by_its_qualified_form() {
    let (hub, fake) = shaped("    resources: { deny: ['db://users/*'] }\n").await;
    let read = |uri: &str| hub.call(call("resources/read", &json!({ "uri": uri })));
    for uri in ["u+inner+db://users/rows", "u+a+b+db://users/x"] {
        assert_eq!(error(read(uri).await).await["code"], -32602, "{uri}");
    }
    result(read("u+inner+db://open/x").await).await;
    assert_eq!(fake.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r05_a_template_that_is_denied_by_its_text_stands_for_nothing() {
    let (hub, _) = shaped(FILTERS).await;
    for uri in ["db://other/rows", "u+db://other/rows", "DB://other/%72ows"] {
        let said = refused(&hub, use_of("resources/read", uri), uri).await;
        assert!(
            said.contains("no upstream has the resource"),
            "{uri}: {said}"
        );
    }
    // What is listed by itself is no less there, and another template says more of the next.
    result(hub.call(use_of("resources/read", "db://users/rows")).await).await;
    result(hub.call(use_of("resources/read", "db://open/rows")).await).await;
    result(
        hub.call(use_of("resources/read", "db://other/columns"))
            .await,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn r05_a_template_that_is_allowed_by_its_text_lets_what_it_stands_for_be_read() {
    let (hub, _) =
        shaped("    resources: { allow: ['db://{table}/rows'], deny: ['*secret*'] }\n").await;
    assert_eq!(listed(&hub, Kind::Template).await, ["db://{table}/rows"]);
    result(hub.call(use_of("resources/read", "db://other/rows")).await).await;
    for uri in [
        "db://other/columns",
        "db://a/b/rows",
        "db://a%2Fb/rows",
        "db://../rows",
        "db://secret/rows",
        "file:///docs/a",
    ] {
        let said = refused(&hub, use_of("resources/read", uri), uri).await;
        assert!(
            said.contains("no upstream has the resource"),
            "{uri}: {said}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r05_a_task_of_a_tool_that_the_file_hides_is_unknown() {
    let (before, _) = shaped("").await;
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let start = declaring(call("tools/call", &json!({ "name": "u_list" })), &tasks);
    let handle = result(before.call(start).await).await["taskId"].clone();
    let get = || declaring(call("tasks/get", &json!({ "taskId": handle })), &tasks);
    result(before.call(get()).await).await;
    let (hub, _) = shaped("    tools: { deny: [list] }\n").await;
    names(&hub).await;
    let said = refused(&hub, get(), handle.as_str().unwrap()).await;
    assert!(said.contains("unknown task"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn r05_a_setting_for_what_is_not_there_is_told_what_it_may_mean() {
    let (hub, _) = shaped(
        "    tools:\n      deny: [dropp]\n      rename: { lst: l }\n      describe: { nothing: x }\n      \
         hide_params: { send: [regoin] }\n      set_params: { send: { token: t, other: 1 } }\n    \
         prompts: { allow: ['a*', bge] }\n    resources: { deny: ['nope://*'] }\n",
    )
    .await;
    names(&hub).await;
    let expected = [
        "pattern `dropp` of `tools.deny` matches no tool; did you mean `drop`?",
        "`tools.rename` is for `lst`, and it has no such tool; did you mean `list`?",
        "`tools.describe` is for `nothing`, and it has no such tool",
        "`tools.hide_params` is for `regoin` of `send`, which has no such parameter; did you mean `region`?",
        "`tools.set_params` is for `other` of `send`, which has no such parameter",
        "pattern `bge` of `prompts.allow` matches no prompt; did you mean `beg`?",
    ];
    // There are templates, so nobody knows all resources.
    assert_eq!(warnings(&hub), expected);
}

#[tokio::test(start_paused = true)]
async fn a20_a_tool_and_a_prompt_get_other_names_and_keep_the_original_in_meta() {
    let (hub, fake) = shaped(
        "    tools: { rename: { send: mail, list: drop } }\n    \
         prompts: { rename: { ask: question } }\nendpoints: { bare: { prefix: '' } }\n",
    )
    .await;
    let tools = listed(&hub, Kind::Tool).await;
    assert_eq!(tools[0], "u_drop");
    assert_eq!(tools[2], "u_mail");
    // The second of two that want one name gets another by the rules for collisions.
    assert!(tools[1].starts_with("u_drop_"), "{tools:?}");
    assert_eq!(listed(&hub, Kind::Prompt).await, ["u_question", "u_beg"]);
    let tool = definition(&hub, "u_mail").await;
    assert_eq!(tool["_meta"], json!({ "dev.waypost/name": "send" }));

    result(
        hub.call(call("tools/call", &json!({ "name": "u_mail" })))
            .await,
    )
    .await;
    result(
        hub.call(call("prompts/get", &json!({ "name": "u_question" })))
            .await,
    )
    .await;
    result(hub.call(use_of("completion/prompt", "u_question")).await).await;
    let mut bare = call("tools/call", &json!({ "name": "mail" }));
    bare.view = View::Endpoint("bare".into());
    result(hub.call(bare).await).await;
    let named = |call: &Call| {
        let reference = call.params.get("ref").and_then(|raw| raw.as_object().ok());
        let named = reference.unwrap_or_else(|| call.params.clone());
        named.string("name").unwrap()
    };
    let sent: Vec<_> = fake.seen().iter().map(named).collect();
    assert_eq!(sent, ["send", "ask", "ask", "send"]);
    for old in ["u_send", "u_list"] {
        let said = refused(&hub, use_of("tools/call", old), old).await;
        assert!(said.contains("unknown tool `NAME`"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a20_a_description_and_annotations_are_the_files() {
    let (hub, _) = shaped(
        "    tools:\n      describe: { send: 'Mails it.' }\n      \
         annotations: { send: { readOnlyHint: false, x: { y: [1] } } }\n    \
         prompts: { describe: { ask: 'Asks.' } }\n",
    )
    .await;
    let tool = definition(&hub, "u_send").await;
    assert_eq!(tool["description"], "Mails it.");
    assert_eq!(
        tool["annotations"],
        json!({ "readOnlyHint": false, "x": { "y": [1] } })
    );
    let list = result(hub.call(call("prompts/list", &json!({}))).await).await;
    assert_eq!(list["prompts"][0]["description"], "Asks.");
}

const SET: &str = "    tools:\n      hide_params: { send: [region] }\n      \
    set_params: { send: { token: canary } }\n";

#[tokio::test(start_paused = true)]
async fn a20_a_parameter_that_is_set_reaches_the_server_and_no_caller_sees_or_gives_it() {
    let (hub, fake) = shaped(SET).await;
    let schema = definition(&hub, "u_send").await["inputSchema"].clone();
    let expected = json!({
        "type": "object", "properties": { "to": { "type": "string" } }, "required": ["to"],
    });
    assert_eq!(schema, expected);
    let everything = result(hub.call(call("tools/list", &json!({}))).await)
        .await
        .to_string();
    assert!(!everything.contains("canary"));

    let send = |arguments: Value| {
        call(
            "tools/call",
            &json!({ "name": "u_send", "arguments": arguments }),
        )
    };
    result(hub.call(send(json!({ "to": "me" }))).await).await;
    let sent = fake.seen().pop().unwrap();
    assert_eq!(
        value(&sent.params)["arguments"],
        json!({ "to": "me", "token": "canary" })
    );
    assert_eq!(
        sent.headers.params,
        [("mcp-param-token".to_owned(), "canary".to_owned())]
    );

    for (given, name) in [("token", "token"), ("region", "region")] {
        let said = error(hub.call(send(json!({ given: "mine" }))).await).await;
        assert_eq!(said["code"], -32602);
        assert_eq!(
            said["message"],
            format!("the tool has no parameter `{name}`")
        );
    }
    assert_eq!(fake.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_header_of_a_hidden_parameter_is_made_from_what_the_file_gives() {
    let (hub, fake) = shaped(SET).await;
    names(&hub).await;
    let mut forged = call(
        "tools/call",
        &json!({ "name": "u_send", "arguments": { "to": "me" } }),
    );
    forged.headers.params = vec![
        ("mcp-param-token".into(), "mine".into()),
        ("mcp-param-region".into(), "eu".into()),
    ];
    result(hub.call(forged).await).await;
    let sent = fake.seen().pop().unwrap();
    assert_eq!(
        sent.headers.params,
        [("mcp-param-token".to_owned(), "canary".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_given_twice_is_refused_where_the_file_looks_into_the_arguments() {
    let (hub, fake) = shaped(SET).await;
    names(&hub).await;
    let twice = waypost_wire::raw::Raw::parse(&r#"{"to":"a","\u0074o":"b"}"#.into()).unwrap();
    let mut send = call("tools/call", &json!({ "name": "u_send" }));
    send.params.set("arguments", twice);
    let said = error(hub.call(send).await).await;
    assert_eq!(said["code"], -32602);
    assert_eq!(said["message"], "`arguments`: key `to` is repeated");
    assert_eq!(fake.seen().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_no_call_could_reach_is_left_out_and_said_to_be() {
    let (hub, _) = shaped("    tools: { hide_params: { send: [token] } }\n").await;
    assert_eq!(names(&hub).await, ["u_drop", "u_list"]);
    let expected = "tool `send` is dropped: its parameter `token` is hidden, but the server needs it; \
                    hint: give it a value in `tools.set_params`";
    assert_eq!(warnings(&hub), [expected]);
}

#[tokio::test(start_paused = true)]
async fn search_finds_and_describes_tools_as_the_file_makes_them() {
    let (hub, _) = shaped(
        "    tools:\n      deny: [drop]\n      rename: { send: mail }\n      \
         describe: { send: 'Posts letters.' }\n      set_params: { send: { token: canary } }\n\
         discovery: search\n",
    )
    .await;
    let find = |query: &str| {
        let arguments = json!({ "query": query });
        call(
            "tools/call",
            &json!({ "name": "find_tools", "arguments": arguments }),
        )
    };
    for query in ["mail", "letters"] {
        let found = result(hub.call(find(query)).await).await;
        assert_eq!(
            found["structuredContent"]["tools"][0]["name"], "u_mail",
            "{query}"
        );
        assert!(!found.to_string().contains("canary") && !found.to_string().contains("token"));
    }
    let found = result(hub.call(find("drop")).await).await;
    assert_eq!(found["structuredContent"]["tools"], json!([]));
    let use_it = |name: &str| {
        let arguments = json!({ "name": name, "arguments": { "to": "me" } });
        call(
            "tools/call",
            &json!({ "name": "call_tool", "arguments": arguments }),
        )
    };
    let sent = result(hub.call(use_it("u_mail")).await).await;
    assert_eq!(sent["params"]["arguments"]["token"], "canary");
    let said = refused(&hub, use_it("u_drop"), "u_drop").await;
    assert!(said.contains("unknown tool `NAME`"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_without_such_settings_is_as_it_was() {
    let (plain, _) = shaped("").await;
    let (other, _) = shaped("    tools: { timeouts: { send: 1s } }\n").await;
    let bytes = |hub: &Arc<Hub>| hub.catalog().tools.listed().rendered;
    names(&plain).await;
    names(&other).await;
    assert_eq!(bytes(&plain), bytes(&other));
    for entry in plain.catalog().tools.entries() {
        assert!(entry.arguments.is_none() && entry.renamed.is_none());
    }
    let (bare, _) = shaped("    prefix: ''\n").await;
    names(&bare).await;
    let learned = bare.members()[0].learned().unwrap();
    let received = learned.catalogue.tools.as_ref().unwrap().items.iter();
    let shown = bare.catalog();
    let shown = shown.tools.entries().map(|entry| &entry.definition);
    assert!(shown.eq(received), "byte for byte");
    let catalog = plain.catalog();
    assert!(catalog.hidden(Kind::Tool, "u").is_empty() && catalog.pending("u").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pattern_for_resources_is_not_pointed_out_once_there_are_templates() {
    let lists = [
        (
            "resources/list",
            json!({ "resources": [{ "uri": "a://1" }] }),
        ),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [] }),
        ),
    ];
    let u = Fake::new("u", json!({ "resources": {} }), &lists, |call| {
        Ok(echo(call))
    });
    let yaml = "upstreams: { u: { url: 'http://127.0.0.1:9', resources: { deny: ['b://*'] } } }";
    let hub = hub(yaml, &[&u]).await;
    listed(&hub, Kind::Resource).await;
    assert_eq!(
        warnings(&hub),
        ["pattern `b://*` of `resources.deny` matches no resource"]
    );
    let templates = json!({ "resourceTemplates": [{ "uriTemplate": "c://{x}" }] });
    u.lists
        .lock()
        .unwrap()
        .insert("resources/templates/list".to_owned(), templates);
    u.lost.notify_one();
    let is_read = || hub.catalog().templates.get("c://{x}").is_some();
    until("read", is_read).await;
    assert_eq!(warnings(&hub), [""; 0]);
}
