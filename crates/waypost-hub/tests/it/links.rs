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
