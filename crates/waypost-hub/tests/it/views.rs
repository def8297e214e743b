//! Named endpoints: what they show is all there is, for every method.

use std::sync::Arc;

use serde_json::json;
use waypost_hub::call::{Call, View};
use waypost_hub::catalog::entry::Kind;
use waypost_hub::error::CallError;
use waypost_hub::hub::Hub;

use crate::fake::{Fake, call, declaring, echo, error, hub, reply, result};

const TWO: &str = "upstreams:\n  files: { url: \"http://127.0.0.1:9\", aliases: [disk] }\n  \
    code: { url: \"http://127.0.0.1:9\" }\n";

/// A server with tools, prompts, resources and templates, all named after it.
fn server(name: &str) -> Arc<Fake> {
    let lists = [
        (
            "tools/list",
            json!({ "tools": [{ "name": "write_it" }, { "name": "read_it" }, { "name": "read_all" }] }),
        ),
        (
            "prompts/list",
            json!({ "prompts": [{ "name": "ask" }, { "name": "beg" }] }),
        ),
        (
            "resources/list",
            json!({ "resources": [
                { "uri": format!("{name}:///docs/a"), "name": "a" },
                { "uri": format!("{name}:///etc/b"), "name": "b" },
            ] }),
        ),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [
                { "uriTemplate": format!("{name}:///docs/{{page}}"), "name": "d" },
                { "uriTemplate": format!("{name}:///etc/{{page}}"), "name": "e" },
            ] }),
        ),
    ];
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {}, "completions": {} });
    Fake::new(name, capabilities, &lists, |call| Ok(echo(call)))
}

fn at(endpoint: &str, mut call: Call) -> Call {
    call.view = View::Endpoint(endpoint.into());
    call
}

async fn listed(hub: &Arc<Hub>, endpoint: &str, kind: Kind) -> Vec<String> {
    let list = hub.call(at(endpoint, call(kind.list_method(), &json!({}))));
    let list = result(list.await).await;
    let items = list[kind.list_member()].as_array().unwrap().iter();
    let names = items.map(|item| item[kind.name_member()].as_str().unwrap().to_owned());
    names.collect()
}

/// The error of a call, whichever way it comes, without the name in it.
async fn refused(hub: &Arc<Hub>, endpoint: &str, call: Call, name: &str) -> String {
    let text = match hub.call(at(endpoint, call)).await {
        Err(error) => format!("{:?} {error}", error.kind),
        reply => error(reply).await.to_string(),
    };
    text.replace(name, "NAME")
}

/// A method, what `review` shows of what it is for, and what it hides.
const CALLS: [(&str, &str, &[&str]); 5] = [
    (
        "tools/call",
        "files_read_it",
        &["files_write_it", "files_read_all", "code_read_it"],
    ),
    ("prompts/get", "files_ask", &["files_beg", "code_ask"]),
    (
        "resources/read",
        "files:///docs/x",
        &[
            "files:///etc/b",
            "files+files:///etc/b",
            "disk+files:///etc/b",
            "code+code:///docs/a",
            "code:///docs/a",
            "files:///docs/../etc/b",
            "files:///docs/%2e%2e/etc/b",
        ],
    ),
    (
        "completion/complete",
        "files_ask",
        &["files_beg", "code_ask"],
    ),
    (
        "completion/complete",
        "files:///docs/{page}",
        &["files:///etc/{page}", "code:///docs/{page}"],
    ),
];

#[tokio::test(start_paused = true)]
async fn r05_what_an_endpoint_hides_cannot_be_listed_called_read_or_completed() {
    let yaml = format!(
        "{TWO}endpoints:\n  review:\n    upstreams: [files]\n    \
         tools: {{ allow: [\"read_*\"], deny: [\"*_all\"] }}\n    prompts: {{ deny: [beg] }}\n    \
         resources: {{ allow: [\"files:///docs/*\"] }}\n"
    );
    let (files, code) = (server("files"), server("code"));
    let hub = hub(&yaml, &[&files, &code]).await;
    for (kind, expected) in [
        (Kind::Tool, "files_read_it"),
        (Kind::Prompt, "files_ask"),
        (Kind::Resource, "files:///docs/a"),
        (Kind::Template, "files:///docs/{page}"),
    ] {
        assert_eq!(listed(&hub, "review", kind).await, [expected], "{kind:?}");
    }
    let reference = |kind: &str, key: &str, name: &str| json!({ "ref": { "type": kind, key: name }, "argument": { "name": "page", "value": "" } });
    let calls = |method: &str, name: &str| {
        let params = match method {
            "resources/read" => json!({ "uri": name }),
            "completion/complete" if name.contains(':') => reference("ref/resource", "uri", name),
            "completion/complete" => reference("ref/prompt", "name", name),
            _ => json!({ "name": name }),
        };
        call(method, &params)
    };
    for (method, shown, hidden) in CALLS {
        let never = if shown.contains(':') {
            "never:///was"
        } else {
            "files_never"
        };
        let unknown = refused(&hub, "review", calls(method, never), never).await;
        assert!(unknown.contains("NAME"), "{unknown}");
        for hidden in hidden {
            let said = refused(&hub, "review", calls(method, hidden), hidden).await;
            assert_eq!(said, unknown, "{method} {hidden}");
        }
        assert!(
            files.seen().is_empty() && code.seen().is_empty(),
            "{method}"
        );
        result(hub.call(at("review", calls(method, shown))).await).await;
        assert_eq!(files.seen().len(), 1, "{method} {shown}");
        files.calls.lock().unwrap().clear();
    }
    // At `/mcp` all of it is there.
    let all = hub.call(calls("tools/call", "files_write_it")).await;
    result(all).await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_shares_the_bytes_of_what_it_shows_whole() {
    let yaml = format!(
        "{TWO}endpoints:\n  all: {{}}\n  one: {{ upstreams: [code] }}\n  \
         some: {{ tools: {{ deny: [write_it] }} }}\n"
    );
    let (files, code) = (server("files"), server("code"));
    let hub = hub(&yaml, &[&files, &code]).await;
    let whole = result(hub.call(call("tools/list", &json!({}))).await).await;
    assert_eq!(whole["tools"].as_array().unwrap().len(), 6);
    let catalog = hub.catalog();
    let text = |view: View| {
        let rendered = catalog.list(Kind::Tool, &view).rendered;
        rendered.as_bytes().as_ptr()
    };
    let endpoint = |name: &str| View::Endpoint(name.into());
    assert_eq!(text(endpoint("all")), text(View::All));
    assert_eq!(text(endpoint("one")), text(View::Upstream("code".into())));
    let some = listed(&hub, "some", Kind::Tool).await;
    assert_eq!(
        some,
        [
            "files_read_all",
            "files_read_it",
            "code_read_all",
            "code_read_it"
        ]
    );
    let entry = |view: &View| Arc::clone(catalog.find(Kind::Tool, view, "code_read_it").unwrap());
    assert!(Arc::ptr_eq(&entry(&endpoint("some")), &entry(&View::All)));
}

#[tokio::test(start_paused = true)]
async fn what_did_not_change_is_not_made_again() {
    let yaml = format!("{TWO}endpoints:\n  some: {{ tools: {{ deny: [write_it] }} }}\n");
    let (files, code) = (server("files"), server("code"));
    let hub = hub(&yaml, &[&files, &code]).await;
    let before = async || {
        listed(&hub, "some", Kind::Tool).await;
        hub.catalog()
    };
    let before = before().await;
    let tools = json!({ "tools": [{ "name": "read_it" }, { "name": "read_new" }] });
    code.lists
        .lock()
        .unwrap()
        .insert("tools/list".to_owned(), tools);
    code.lost.notify_one();
    let has_new = || {
        let catalog = hub.catalog();
        catalog
            .find(Kind::Tool, &View::All, "code_read_new")
            .is_some()
    };
    while !has_new() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let after = hub.catalog();
    for view in [View::Endpoint("some".into()), View::All] {
        let entry = |catalog: &waypost_hub::catalog::Catalog, name: &str| {
            catalog.find(Kind::Tool, &view, name).map(Arc::as_ptr)
        };
        assert_eq!(
            entry(&before, "files_read_it"),
            entry(&after, "files_read_it")
        );
        assert_ne!(
            entry(&before, "code_read_it"),
            entry(&after, "code_read_it")
        );
        let prompts = |catalog: &waypost_hub::catalog::Catalog| {
            let rendered = catalog.list(Kind::Prompt, &view).rendered;
            rendered.as_bytes().as_ptr()
        };
        assert_eq!(prompts(&before), prompts(&after));
    }
}

#[tokio::test(start_paused = true)]
async fn r62_an_endpoint_with_a_prefix_has_names_of_its_own() {
    let yaml = format!(
        "{TWO}endpoints:\n  bare: {{ prefix: \"\", tools: {{ allow: [\"read_*\"] }} }}\n  \
         long: {{ prefix: \"a-prefix-that-leaves-hardly-any-room-for-\", upstreams: [code] }}\n"
    );
    let (files, code) = (server("files"), server("code"));
    let hub = hub(&yaml, &[&files, &code]).await;
    let names = listed(&hub, "bare", Kind::Tool).await;
    assert_eq!(
        names,
        ["read_all", "read_it", "code_read_all", "code_read_it"]
    );
    for (name, fake) in [("read_it", &files), ("code_read_it", &code)] {
        let called = hub.call(at("bare", call("tools/call", &json!({ "name": name }))));
        assert_eq!(result(called.await).await["params"]["name"], "read_it");
        assert_eq!(fake.seen().len(), 1, "{name}");
    }
    // The names of `/mcp` are not names here, and the other way round.
    let of_mcp = call("tools/call", &json!({ "name": "files_read_it" }));
    assert!(hub.call(at("bare", of_mcp)).await.is_err());
    assert!(
        hub.call(call("tools/call", &json!({ "name": "read_it" })))
            .await
            .is_err()
    );
    let names = listed(&hub, "long", Kind::Tool).await;
    assert!(names.iter().all(|name| name.len() == 45), "{names:?}");
    let called = hub.call(at("long", call("tools/call", &json!({ "name": names[0] }))));
    assert_eq!(result(called.await).await["params"]["name"], "read_all");
    // Resources are what they are.
    assert_eq!(listed(&hub, "bare", Kind::Resource).await.len(), 4);
    let catalog = hub.catalog();
    let warnings = &catalog.endpoint("bare").unwrap().warnings;
    let said = "upstream `code`: tool name `read_it` is used by files too, shown as `code_read_it`";
    assert!(warnings.iter().any(|text| text == said), "{warnings:?}");
    assert!(catalog.warnings.is_empty(), "{:?}", catalog.warnings);
}

#[tokio::test(start_paused = true)]
async fn r05_a_pattern_that_matches_nothing_is_said_once_all_is_known() {
    let yaml = format!(
        "{TWO}endpoints:\n  e:\n    tools: {{ allow: [\"read_*\", \"wrong_*\"], deny: [nope, red_it] }}\n    \
         prompts: {{ allow: [ask] }}\n"
    );
    let (files, code) = (server("files"), server("code"));
    code.slow.store(true, std::sync::atomic::Ordering::SeqCst);
    let hub = hub(&yaml, &[&files, &code]).await;
    assert_eq!(listed(&hub, "e", Kind::Tool).await.len(), 2);
    let warnings = || hub.catalog().endpoint("e").unwrap().warnings.clone();
    assert_eq!(warnings(), [""; 0], "code may have them");
    code.slow.store(false, std::sync::atomic::Ordering::SeqCst);
    while warnings().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let expected = [
        "`wrong_*` in `tools.allow` matches nothing",
        "`nope` in `tools.deny` matches nothing",
        "`red_it` in `tools.deny` matches nothing; did you mean `read_it`?",
    ];
    assert_eq!(warnings(), expected);
}

#[tokio::test(start_paused = true)]
async fn r05_a_template_that_an_endpoint_denies_by_its_text_stands_for_nothing_there() {
    let yaml =
        format!("{TWO}endpoints:\n  e: {{ resources: {{ deny: ['files:///docs/{{page}}'] }} }}\n");
    let hub = hub(&yaml, &[&server("files"), &server("code")]).await;
    let templates = listed(&hub, "e", Kind::Template).await;
    assert!(!templates.contains(&"files:///docs/{page}".to_owned()));
    let read = |uri: &str| at("e", call("resources/read", &json!({ "uri": uri })));
    let uri = "files:///docs/x";
    let said = refused(&hub, "e", read(uri), uri).await;
    assert!(said.contains("no upstream has the resource"), "{said}");
    for uri in ["files:///docs/a", "files:///etc/x", "code:///docs/x"] {
        result(hub.call(read(uri)).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_is_of_the_upstreams_of_the_endpoint() {
    let yaml = format!("{TWO}endpoints:\n  e: {{ upstreams: [code] }}\n");
    let files = server("files");
    let tasks = json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let lists = [("tools/list", json!({ "tools": [] }))];
    let code = Fake::new("code", tasks, &lists, |call| Ok(echo(call)));
    let hub = hub(&yaml, &[&files, &code]).await;
    let discover = async |view: View| {
        let mut discover = call("server/discover", &json!({}));
        discover.view = view;
        result(hub.call(discover).await).await["capabilities"].clone()
    };
    let all = discover(View::All).await;
    assert!(all["prompts"].is_object() && all["extensions"].is_object());
    let own = discover(View::Endpoint("e".into())).await;
    assert!(
        own["prompts"].is_null() && own["completions"].is_null(),
        "{own}"
    );
    assert!(own["extensions"].is_object());
    assert!(hub.shows_view(&View::Endpoint("e".into())));
    for view in [
        View::Endpoint("files".into()),
        View::Endpoint("gone".into()),
    ] {
        assert!(!hub.shows_view(&view));
        let own = discover(view).await;
        assert!(own["prompts"].is_null() && own["extensions"].is_null());
    }
    let none = hub.call(at("e", call("prompts/list", &json!({}))));
    assert_eq!(error(none.await).await["code"], -32601);
}

#[tokio::test(start_paused = true)]
async fn r80_a_task_is_unknown_where_its_tool_is_hidden() {
    let yaml = format!(
        "{TWO}endpoints:\n  one: {{ tools: {{ deny: [\"*_all\"] }} }}\n  \
         two: {{ tools: {{ allow: [\"*_all\"] }} }}\n  other: {{ upstreams: [files] }}\n"
    );
    let files = server("files");
    let capabilities =
        json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let lists = [(
        "tools/list",
        json!({ "tools": [{ "name": "read_it" }, { "name": "read_all" }] }),
    )];
    let code = Fake::new("code", capabilities, &lists, |call| {
        let (kind, status) = match call.method.as_str() {
            "tools/call" => ("task", "working"),
            _ => ("complete", "completed"),
        };
        Ok(reply(
            &json!({ "resultType": kind, "taskId": "t1", "status": status,
            "createdAt": "2026-11-30T00:00:00Z", "lastUpdatedAt": "2026-11-30T00:00:00Z",
            "ttlMs": null, "result": { "content": [] } }),
        ))
    });
    let hub = hub(&yaml, &[&files, &code]).await;
    let knows = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let make = call("tools/call", &json!({ "name": "code_read_it" }));
    let made = hub.call(at("one", declaring(make, &knows))).await;
    let handle = result(made).await["taskId"].as_str().unwrap().to_owned();
    let get = |handle: &str| declaring(call("tasks/get", &json!({ "taskId": handle })), &knows);
    let seen = code.seen().len();
    for endpoint in ["two", "other", "gone"] {
        let said = |reply: Result<_, CallError>| reply.map(|_| ()).unwrap_err().to_string();
        let hidden = said(hub.call(at(endpoint, get(&handle))).await);
        let never = said(hub.call(at(endpoint, get("code~never"))).await);
        assert_eq!(hidden, never, "{endpoint}");
    }
    assert_eq!(code.seen().len(), seen, "nothing was asked");
    for view in [
        View::Endpoint("one".into()),
        View::All,
        View::Upstream("code".into()),
    ] {
        let mut get = get(&handle);
        get.view = view;
        assert_eq!(result(hub.call(get).await).await["taskId"], handle.as_str());
    }
}

#[tokio::test(start_paused = true)]
async fn r62_a_tool_that_only_an_endpoint_shows_has_tasks_headers_and_patterns_there() {
    let yaml = "naming: { on_collision: first }\nupstreams:\n  \
                a: { url: \"http://127.0.0.1:9\", prefix: \"\" }\n  \
                b: { url: \"http://127.0.0.1:9\", prefix: \"\" }\nendpoints:\n  \
                e: { upstreams: [b], prefix: \"e_\", tools: { allow: [x] } }\n";
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" } } });
    let a = Fake::with_tools("a", &["x"]);
    let capabilities =
        json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let lists = [(
        "tools/list",
        json!({ "tools": [{ "name": "x", "inputSchema": schema }] }),
    )];
    let b = Fake::new("b", capabilities, &lists, |call| {
        let (kind, status) = match call.method.as_str() {
            "tools/call" => ("task", "working"),
            _ => ("complete", "completed"),
        };
        Ok(reply(
            &json!({ "resultType": kind, "taskId": "t1", "status": status,
            "createdAt": "2026-11-30T00:00:00Z", "lastUpdatedAt": "2026-11-30T00:00:00Z",
            "ttlMs": null, "result": { "content": [] } }),
        ))
    });
    let hub = hub(yaml, &[&a, &b]).await;
    assert_eq!(listed(&hub, "e", Kind::Tool).await, ["e_x"]);
    let catalog = hub.catalog();
    assert_eq!(
        catalog.tools.entries().count(),
        1,
        "nobody sees it at `/mcp`"
    );
    assert_eq!(catalog.endpoint("e").unwrap().warnings, [""; 0]);
    let knows = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let arguments = json!({ "name": "e_x", "arguments": { "region": "eu" } });
    let mut make = declaring(call("tools/call", &arguments), &knows);
    make.headers.absent = true;
    let made = result(hub.call(at("e", make)).await).await;
    let headers = b.seen()[0].headers.params.clone();
    assert_eq!(headers, [("mcp-param-region".into(), "eu".into())]);
    let handle = made["taskId"].clone();
    let get = || declaring(call("tasks/get", &json!({ "taskId": handle })), &knows);
    let got = result(hub.call(at("e", get())).await).await;
    assert_eq!(got["status"], "completed");
    assert!(hub.call(get()).await.is_err(), "unknown at `/mcp`");
}

#[tokio::test(start_paused = true)]
async fn r05_a_resource_that_is_denied_is_not_listed_in_another_spelling_either() {
    let lists = [(
        "resources/list",
        json!({ "resources": [{ "uri": "db://users?limit=10" }, { "uri": "db://roles?limit=10" }] }),
    )];
    let server = || {
        Fake::new("db", json!({ "resources": {} }), &lists, |call| {
            Ok(echo(call))
        })
    };
    let one = "upstreams:\n  db: { url: \"http://127.0.0.1:9\" }\n";
    let by_view =
        format!("{one}endpoints: {{ e: {{ resources: {{ deny: [\"db://users\"] }} }} }}\n");
    let by_file =
        one.replace(" }", ", resources: { deny: [\"db://users\"] } }") + "endpoints: { e: {} }\n";
    for yaml in [by_view, by_file] {
        let hub = hub(&yaml, &[&server()]).await;
        let resources = listed(&hub, "e", Kind::Resource).await;
        assert_eq!(resources, ["db://roles?limit=10"]);
        let uri = "db://users?limit=10";
        let read = call("resources/read", &json!({ "uri": uri }));
        let said = refused(&hub, "e", read, uri).await;
        assert!(said.contains("no upstream has the resource"), "{said}");
        let catalog = hub.catalog();
        let warnings = &catalog.endpoint("e").unwrap().warnings;
        assert!(
            warnings.is_empty() && catalog.warnings.is_empty(),
            "{warnings:?} {:?}",
            catalog.warnings
        );
    }
}
