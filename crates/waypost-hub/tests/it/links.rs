//! URIs in results lead back to whom they come from.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use waypost_hub::call::{Call, View};
use waypost_hub::hub::Hub;
use waypost_hub::reply::{End, Reply};
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::fake::{Fake, call, declaring, error, hub, object, reply, result, upstreams};
use crate::listening::{Voices, acknowledges, next, notification, say, settled};

/// What a server of these tests answers to every call, as it is spelled.
const SAID: &str = r#"{"content":[ {"type":"resource_link", "uri":"file:///x" ,"name":"x","size":1.0},{"type":"resource","resource":{ "uri":"memo:1","text":"\"uri\""}},{"type":"resource_link","uri":"https://example.com/","name":"w"},{"type":"resource_link","uri":"db://1","name":"d"}],"structuredContent":{"uri":"file:///x"},"_meta":{"ui":{"resourceUri":"ui://app/a", "csp":{ }}}}"#;

fn said(text: &str) -> Reply {
    Reply::complete(Object::parse(&Bytes::from(text.to_owned())).unwrap())
}

/// A server with a tool, a prompt, the resource `file:///x`, and a template of its own.
fn server(name: &str) -> Arc<Fake> {
    let lists = [
        (
            "tools/list",
            json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        ),
        ("prompts/list", json!({ "prompts": [{ "name": "p" }] })),
        (
            "resources/list",
            json!({ "resources": [{ "uri": "file:///x", "name": "x" }, { "uri": "ui://app/a", "name": "ui" }] }),
        ),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [{ "uriTemplate": format!("{name}://{{id}}"), "name": "t" }] }),
        ),
    ];
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {},
        "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let own = name.to_owned();
    Fake::new(name, capabilities, &lists, move |call| {
        Ok(answer(&own, call))
    })
}

fn answer(name: &str, call: &Call) -> Reply {
    match call.method.as_str() {
        "tools/call" if call.meta.capabilities.has_tasks() => reply(
            &json!({ "resultType": "task", "taskId": "1", "status": "working",
                "createdAt": "2026-11-30T00:00:00Z", "lastUpdatedAt": "2026-11-30T00:00:00Z", "ttlMs": null }),
        ),
        "tasks/get" => {
            let mut task = object(&json!({ "taskId": "1", "status": "completed",
                "createdAt": "2026-11-30T00:00:00Z", "lastUpdatedAt": "2026-11-30T00:00:00Z", "ttlMs": null }));
            task.set(
                "result",
                Raw::parse(&Bytes::from_static(SAID.as_bytes())).unwrap(),
            );
            Reply::complete(task)
        }
        "prompts/get" => reply(&json!({ "messages": [
            { "role": "user", "content": { "type": "resource_link", "uri": "file:///x", "name": "x" } },
        ] })),
        "resources/read" => reply(&json!({ "contents": [
            { "uri": call.params.string("uri"), "text": name },
            { "uri": "ui://app/a", "text": name },
        ] })),
        _ => said(SAID),
    }
}

fn at(view: View, method: &str, params: &Value) -> Call {
    Call {
        view,
        ..call(method, params)
    }
}

async fn text(hub: &Arc<Hub>, call: Call) -> String {
    match hub.call(call).await.unwrap().into_end().await.unwrap() {
        End::Complete(mut result) => {
            // Signed in `_meta`, so that what is before is compared.
            let meta = result.get("_meta").unwrap().as_object().unwrap();
            let ui = meta.get("ui").cloned();
            result.remove("_meta");
            result.remove("resultType");
            format!("{}{}", Raw::from(result), ui.unwrap_or_else(Raw::null))
        }
        other => panic!("{other:?}"),
    }
}

fn plain() -> String {
    let (head, meta) = SAID.split_once(r#","_meta":{"ui":"#).unwrap();
    format!("{head}}}{}", meta.strip_suffix("}}").unwrap())
}

#[tokio::test(start_paused = true)]
async fn r30_a_uri_in_a_result_leads_back_to_its_producer_and_nothing_else_changes() {
    let (db, b) = (server("db"), server("b"));
    let hub = hub(&upstreams(&["db", "b"]), &[&db, &b]).await;
    let use_tool = |name: &str| text(&hub, call("tools/call", &json!({ "name": name })));
    // What the first has is its own; nobody has `memo:1`.
    let first = plain().replace("memo:1", "db+memo:1");
    assert_eq!(use_tool("db_t").await, first);
    let second = plain()
        .replace(r#""file:///x" ,"#, r#""b+file:///x" ,"#)
        .replace("memo:1", "b+memo:1")
        .replace("db://1", "b+db://1")
        .replace("ui://app/a", "ui://b+app/a");
    assert_eq!(use_tool("b_t").await, second);
    for (uri, fake, original) in [
        ("file:///x", &db, "file:///x"),
        ("db+memo:1", &db, "memo:1"),
        ("b+file:///x", &b, "file:///x"),
        ("b+memo:1", &b, "memo:1"),
        ("b+db://1", &b, "db://1"),
        ("ui://b+app/a", &b, "ui://app/a"),
    ] {
        let read = call("resources/read", &json!({ "uri": uri }));
        let contents = result(hub.call(read).await).await["contents"].clone();
        assert_eq!(contents[0]["uri"], uri, "as it was asked for");
        let other = if Arc::ptr_eq(fake, &b) {
            "ui://b+app/a"
        } else {
            "ui://app/a"
        };
        assert_eq!(contents[1]["uri"], other);
        let asked = fake.seen().last().unwrap().params.string("uri");
        assert_eq!(asked.as_deref(), Some(original), "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn r30_uris_of_prompts_and_tasks_lead_back_too() {
    let (a, b) = (server("a"), server("b"));
    let hub = hub(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let prompt = call("prompts/get", &json!({ "name": "b_p" }));
    let prompt = result(hub.call(prompt).await).await;
    assert_eq!(prompt["messages"][0]["content"]["uri"], "b+file:///x");
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let start = declaring(call("tools/call", &json!({ "name": "b_t" })), &tasks);
    let task = result(hub.call(start).await).await;
    let poll = call("tasks/get", &json!({ "taskId": task["taskId"] }));
    let poll = hub.call(declaring(poll, &tasks)).await;
    let End::Complete(done) = poll.unwrap().into_end().await.unwrap() else {
        panic!("no result");
    };
    let text = done.get("result").unwrap().text();
    assert!(text.contains(r#""uri":"b+file:///x" ,"name""#), "{text}");
    assert!(
        text.contains(r#"{"resourceUri":"ui://b+app/a", "csp":{ }}"#),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn r30_uris_of_a_task_that_a_listener_is_told_of_lead_back_too() {
    let voices = Voices::default();
    let heard = Arc::clone(&voices);
    let capabilities = json!({ "tools": {}, "resources": {},
        "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let lists = [
        ("tools/list", json!({ "tools": [{ "name": "t" }] })),
        ("resources/list", json!({ "resources": [] })),
    ];
    let b = Fake::new("b", capabilities, &lists, move |call| {
        Ok(match call.method.as_str() {
            "subscriptions/listen" => acknowledges(&heard, call),
            _ => answer("b", call),
        })
    });
    let a = server("a");
    let hub = settled(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let start = declaring(call("tools/call", &json!({ "name": "b_t" })), &tasks);
    let task = result(hub.call(start).await).await["taskId"].clone();
    let filter = json!({ "notifications": { "taskIds": [task] } });
    let wanted = declaring(call("subscriptions/listen", &filter), &tasks);
    let mut events = hub.call(wanted).await.unwrap().into_stream();
    next(&mut events).await;
    let links = json!([{ "type": "resource_link", "uri": "file:///x", "name": "x" }]);
    let told = json!({ "taskId": "1", "status": "completed", "result": { "content": links } });
    say(&voices, &notification("notifications/tasks", &told));
    let (_, params) = next(&mut events).await;
    assert_eq!(params["result"]["content"][0]["uri"], "b+file:///x");
}

#[tokio::test(start_paused = true)]
async fn r30_where_one_upstream_alone_has_resources_no_uri_is_touched() {
    let (a, b) = (server("a"), server("b"));
    let tools = Fake::new(
        "c",
        json!({ "tools": {} }),
        &[(
            "tools/list",
            json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        )],
        |_| Ok(said(SAID)),
    );
    let endpoint = "endpoints:\n  one: { upstreams: [b, c] }\n  two: { upstreams: [a, b] }\n";
    let yaml = format!("{endpoint}{}", upstreams(&["a", "b", "c"]));
    let hub = hub(&yaml, &[&a, &b, &tools]).await;
    let one = || View::Endpoint("one".into());
    let view_of_b = View::Upstream("b".into());
    for (view, name) in [
        (one(), "b_t"),
        (one(), "c_t"),
        (view_of_b, "b_t"),
        (View::All, "c_t"),
    ] {
        let call = at(view, "tools/call", &json!({ "name": name }));
        assert_eq!(text(&hub, call).await, plain(), "{name}");
    }
    let two = View::Endpoint("two".into());
    let call = at(two, "tools/call", &json!({ "name": "b_t" }));
    assert!(text(&hub, call).await.contains("b+file:///x"));
    // Asked for by the long form, it is called so where nobody else has resources too.
    let read = at(one(), "resources/read", &json!({ "uri": "b+file:///x" }));
    let contents = result(hub.call(read).await).await["contents"].clone();
    assert_eq!(
        (&contents[0]["uri"], &contents[1]["uri"]),
        (&json!("b+file:///x"), &json!("ui://app/a"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_uri_that_a_view_hides_is_not_qualified_for_nothing() {
    let (a, b) = (server("a"), server("b"));
    let endpoint = "endpoints:\n  few: { resources: { deny: ['memo:*'] } }\n";
    let hub = hub(&format!("{endpoint}{}", upstreams(&["a", "b"])), &[&a, &b]).await;
    let few = View::Endpoint("few".into());
    let said = text(
        &hub,
        at(few.clone(), "tools/call", &json!({ "name": "b_t" })),
    )
    .await;
    assert!(
        said.contains("\"memo:1\"") && said.contains("b+file:///x"),
        "{said}"
    );
    let read = at(few, "resources/read", &json!({ "uri": "b+memo:1" }));
    assert_eq!(error(hub.call(read).await).await["code"], -32602);
}

/// The definitions of a list as they are spelled.
async fn definitions(hub: &Arc<Hub>, view: View) -> Vec<String> {
    let list = hub.call(at(view, "tools/list", &json!({}))).await;
    let End::Complete(list) = list.unwrap().into_end().await.unwrap() else {
        panic!("no list");
    };
    let tools = list.get("tools").unwrap().as_array().unwrap();
    tools.iter().map(ToString::to_string).collect()
}

/// A server with a tool that is shown with `ui://app/a`, which its list has or has not.
fn app(name: &str, is_listed: bool) -> Arc<Fake> {
    let meta = r#""_meta":{ "ui" : { "resourceUri":"ui://app/a", "visibility":[ "app" ] },"ui/resourceUri":"ui://app/a"}"#;
    let tool = format!(r#"{{"name":"show","inputSchema":{{"type":"object"}},{meta}}}"#);
    let list = Raw::array([&Raw::parse(&Bytes::from(tool)).unwrap()]);
    let resources = if is_listed {
        json!([{ "uri": "ui://app/a", "name": "a" }])
    } else {
        json!([])
    };
    let capabilities = json!({ "tools": {}, "resources": {} });
    let lists = [("resources/list", json!({ "resources": resources }))];
    let own = name.to_owned();
    Fake::new(name, capabilities, &lists, move |call| {
        Ok(match call.method.as_str() {
            "tools/list" => Reply::complete([("tools", list.clone())].into_iter().collect()),
            "resources/templates/list" => reply(&json!({ "resourceTemplates": [] })),
            _ => answer(&own, call),
        })
    })
}

#[tokio::test(start_paused = true)]
async fn r30_a_tool_that_is_shown_with_a_resource_of_two_servers_names_its_own() {
    let (a, b, c) = (app("a", true), app("b", true), app("c", false));
    let names = ["a", "b", "c"];
    let yaml = format!(
        "endpoints:\n  own: {{ prefix: 'x_' }}\n{}",
        upstreams(&names)
    );
    let hub = hub(&yaml, &[&a, &b, &c]).await;
    let meta = |uri: &str| {
        format!(
            r#""_meta":{{"ui":{{ "resourceUri":"{uri}", "visibility":[ "app" ] }},"ui/resourceUri":"{uri}","#
        )
    };
    let uris = ["ui://app/a", "ui://b+app/a", "ui://c+app/a"];
    for view in [View::All, View::Endpoint("own".into())] {
        let listed = definitions(&hub, view).await;
        for (definition, uri) in listed.iter().zip(uris) {
            assert!(definition.contains(&meta(uri)), "{uri}: {definition}");
        }
    }
    for (fake, uri) in [&a, &b, &c].into_iter().zip(uris) {
        let read = call("resources/read", &json!({ "uri": uri }));
        let contents = result(hub.call(read).await).await["contents"].clone();
        assert_eq!((&contents[0]["uri"], fake.seen().len()), (&json!(uri), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_shown_with_its_own_resource_keeps_its_bytes() {
    let unlisted = app("a", false);
    let yaml = "upstreams:\n  a: { url: \"http://127.0.0.1:9/mcp\", prefix: '' }\n";
    let hub = hub(yaml, &[&unlisted]).await;
    definitions(&hub, View::All).await;
    let learned = hub.members()[0].learned().unwrap();
    let received = learned.catalogue.tools.as_ref().unwrap().items[0].clone();
    assert_eq!(definitions(&hub, View::All).await, [received.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn r30_a_uri_of_two_servers_templates_is_an_error_that_names_both_ways() {
    let with = |name: &str, templates: &[&str]| {
        let templates: Vec<Value> = templates
            .iter()
            .map(|t| json!({ "uriTemplate": t }))
            .collect();
        let lists = [
            ("resources/list", json!({ "resources": [] })),
            (
                "resources/templates/list",
                json!({ "resourceTemplates": templates }),
            ),
        ];
        let capabilities = json!({ "resources": {}, "completions": {} });
        let own = name.to_owned();
        Fake::new(name, capabilities, &lists, move |call| {
            Ok(answer(&own, call))
        })
    };
    let a = with("a", &["db://{t}/{id}", "log://{day}"]);
    let b = with("b", &["db://{t}/{id}", "db://{t}", "log://{day}/all"]);
    let hub = hub(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let read = |uri: &str| hub.call(call("resources/read", &json!({ "uri": uri })));
    let refused = error(read("db://users/1").await).await;
    let candidates = json!(["a+db://users/1", "b+db://users/1"]);
    assert_eq!(refused["data"]["candidates"], candidates);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("`a+db://users/1` or `b+db://users/1`"),
        "{message}"
    );
    // What a template stands for is its own although another begins like it; of what none stands
    // for, both could be asked.
    for (uri, fake) in [
        ("db://users", &b),
        ("log://1", &a),
        ("log://1/all", &b),
        ("a+log://1/all", &a),
    ] {
        let before = fake.seen().len();
        result(read(uri).await).await;
        assert_eq!(fake.seen().len(), before + 1, "{uri}");
    }
    let refused = error(read("log://1/2/3").await).await;
    assert_eq!(refused["data"]["candidates"][1], "b+log://1/2/3");

    // Completion goes to whom a template belongs, by its text as it is listed or in full.
    let complete = |uri: &str| {
        let reference = json!({ "type": "ref/resource", "uri": uri });
        let argument = json!({ "name": "t", "value": "" });
        hub.call(call(
            "completion/complete",
            &json!({ "ref": reference, "argument": argument }),
        ))
    };
    for (uri, fake, original) in [
        ("db://{t}/{id}", &a, "db://{t}/{id}"),
        ("a+db://{t}/{id}", &a, "db://{t}/{id}"),
        ("b+db://{t}/{id}", &b, "db://{t}/{id}"),
        ("db://{t}", &b, "db://{t}"),
        ("b+db://{t}", &b, "db://{t}"),
    ] {
        result(complete(uri).await).await;
        let reference = fake.seen().last().unwrap().params.get("ref").cloned();
        let reference = reference.unwrap().as_object().unwrap();
        assert_eq!(reference.string("uri").as_deref(), Some(original), "{uri}");
    }
    let only = Call {
        view: View::Upstream("b".into()),
        ..call("resources/read", &json!({ "uri": "db://users/1" }))
    };
    let contents = result(hub.call(only).await).await["contents"].clone();
    assert_eq!(contents[0]["text"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_the_file_describes_keeps_the_rest_of_its_bytes() {
    let (a, b) = (server("a"), server("b"));
    let meta = json!({ "ui": { "resourceUri": "ui://app/a" } });
    let prompts = json!({ "prompts": [{ "name": "p", "_meta": meta }] });
    b.lists
        .lock()
        .unwrap()
        .insert("prompts/list".to_owned(), prompts);
    let yaml = upstreams(&["a", "b"]) + "    prompts: { describe: { p: Says it. } }\n";
    let yaml = yaml.replacen(
        "b: { url: \"http://127.0.0.1:9/mcp\" }",
        "b:\n    url: \"http://127.0.0.1:9/mcp\"",
        1,
    );
    let hub = settled(&yaml, &[&a, &b]).await;
    let list = result(hub.call(call("prompts/list", &json!({}))).await).await;
    let own = &list["prompts"][1];
    assert_eq!(own["description"], "Says it.");
    assert_eq!(own["_meta"]["ui"], meta["ui"]);
}
