//! Names go to the upstream they belong to, and nothing else about a call changes.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use serde_json::{Value, json};
use waypost_hub::call::View;
use waypost_hub::error::{CallError, Kind};
use waypost_hub::reply::{End, Reply};
use waypost_wire::error::ErrorObject;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::fake::{
    Fake, call, declaring, echo, error, hub, names, object, reply, result, upstreams,
};

#[tokio::test(start_paused = true)]
async fn r08_names_that_contain_the_separator_reach_their_own_upstream() {
    let db = Fake::with_tools("db", &["my_db_query"]);
    let my = Fake::with_tools("my-db", &["query"]);
    let a = Fake::with_tools("a", &["_x"]);
    let hub = hub(&upstreams(&["db", "my-db", "a"]), &[&db, &my, &a]).await;
    assert_eq!(names(&hub).await, ["db_my_db_query", "my-db_query", "a__x"]);
    for (exposed, fake, original) in [
        ("db_my_db_query", &db, "my_db_query"),
        ("my-db_query", &my, "query"),
        ("a__x", &a, "_x"),
    ] {
        let answer = result(
            hub.call(call("tools/call", &json!({ "name": exposed })))
                .await,
        )
        .await;
        assert_eq!(answer["params"]["name"], original);
        assert_eq!(fake.seen().len(), 1, "{exposed}");
    }
}

#[tokio::test(start_paused = true)]
async fn r66_names_do_not_depend_on_who_else_is_there() {
    let a = Fake::with_tools("a", &["x"]);
    let b = Fake::with_tools("b", &["x"]);
    let alone = hub(&upstreams(&["a"]), &[&a]).await;
    let both = hub(&upstreams(&["a", "b"]), &[&a, &b]).await;
    assert_eq!(names(&alone).await, ["a_x"]);
    assert_eq!(names(&both).await, ["a_x", "b_x"]);
}

#[tokio::test(start_paused = true)]
async fn r62_a_name_that_two_upstreams_use_follows_the_policy() {
    let yaml = |policy: &str| {
        format!(
            "naming: {{ on_collision: {policy} }}\nupstreams:\n  \
             a: {{ url: \"http://127.0.0.1:9\", prefix: \"\" }}\n  \
             b: {{ url: \"http://127.0.0.1:9\", prefix: \"\" }}\n"
        )
    };
    for (policy, shown, warned) in [
        ("prefix", vec!["own", "search", "b_search"], vec!["b"]),
        ("first", vec!["own", "search"], vec!["b"]),
        ("error", vec!["own"], vec!["a", "b"]),
    ] {
        let a = Fake::with_tools("a", &["search", "own"]);
        let b = Fake::with_tools("b", &["search"]);
        let hub = hub(&yaml(policy), &[&a, &b]).await;
        assert_eq!(names(&hub).await, shown, "{policy}");
        let catalog = hub.catalog();
        let named: Vec<_> = catalog.warnings.iter().map(|w| &*w.upstream).collect();
        assert_eq!(named, warned, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn r05_a_denied_tool_is_not_listed_and_not_called() {
    let yaml =
        "upstreams:\n  a:\n    url: http://127.0.0.1:9\n    tools: { deny: [\"*delete*\"] }\n";
    let a = Fake::with_tools("a", &["read", "delete_all"]);
    let hub = hub(yaml, &[&a]).await;
    assert_eq!(names(&hub).await, ["a_read"]);
    let refused = hub
        .call(call("tools/call", &json!({ "name": "a_delete_all" })))
        .await;
    let error = refused.unwrap_err();
    assert_eq!(
        (error.kind, error.to_string().as_str()),
        (Kind::UnknownTarget, "unknown tool `a_delete_all`")
    );
    assert!(a.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_view_of_one_upstream_shows_and_calls_only_its_own() {
    let (a, b) = (Fake::with_tools("a", &["x"]), Fake::with_tools("b", &["y"]));
    let hub = hub(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let view = View::Upstream("a".into());
    let mut list = call("tools/list", &json!({}));
    list.view = view.clone();
    assert_eq!(
        result(hub.call(list).await).await["tools"],
        json!([{ "name": "a_x", "inputSchema": { "type": "object" },
        "_meta": { "dev.waypost/name": "x" } }])
    );
    let mut other = call("tools/call", &json!({ "name": "b_y" }));
    other.view = view;
    assert!(hub.call(other).await.is_err());
    assert!(b.seen().is_empty());
    assert!(hub.shows_view(&View::Upstream("b".into())));
    assert!(!hub.shows_view(&View::Upstream("c".into())));
}

#[tokio::test(start_paused = true)]
async fn r50_definitions_and_requests_keep_what_is_not_ours() {
    let rest = r#""z":1.0,"inputSchema":{"b":12345678901234567890123,"type":"object","a":[ 1 ]},"_meta":{"k/v":1.50"#;
    let list = Raw::parse(&Bytes::from(format!("[{{\"name\":\"t\",{rest}}}}}]"))).unwrap();
    let a = Fake::new("a", json!({ "tools": {} }), &[], move |call| {
        let mut page = Object::new();
        page.set("tools", list.clone());
        Ok(if call.method == "tools/list" {
            Reply::complete(page)
        } else {
            echo(call)
        })
    });
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    let listed = hub
        .call(call("tools/list", &json!({})))
        .await
        .unwrap()
        .into_end()
        .await
        .unwrap();
    let End::Complete(listed) = listed else {
        panic!("{listed:?}")
    };
    let expected = format!("[{{\"name\":\"a_t\",{rest},\"dev.waypost/name\":\"t\"}}}}]");
    assert_eq!(listed.get("tools").unwrap().text(), expected);

    let mut with_meta = call("tools/call", &json!({ "name": "a_t", "extra": 1 }));
    let meta = object(&json!({ "traceparent": "00-1", "x/y": { "a": 1 } }));
    with_meta.meta.rest = meta.clone();
    result(hub.call(with_meta).await).await;
    assert_eq!(a.seen()[0].meta.rest, meta);
    assert!(a.seen()[0].params.contains("extra"));
}

#[tokio::test(start_paused = true)]
async fn answers_are_signed_by_the_gateway_and_name_their_upstream() {
    let a = Fake::new(
        "a",
        json!({ "tools": {} }),
        &[("tools/list", json!({ "tools": [{ "name": "x" }] }))],
        |_| {
            Ok(reply(&json!({ "content": [], "_meta": { "k": 1,
            "io.modelcontextprotocol/subscriptionId": 7,
            "io.modelcontextprotocol/serverInfo": { "name": "secret-internal", "version": "1" } } })))
        },
    );
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    let answer = result(
        hub.call(call("tools/call", &json!({ "name": "a_x" })))
            .await,
    )
    .await;
    assert_eq!(answer["resultType"], "complete");
    assert_eq!(
        answer["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "waypost"
    );
    assert_eq!(answer["_meta"]["dev.waypost/upstream"], "a");
    assert_eq!(answer["_meta"]["k"], 1);
    let meta = answer["_meta"].as_object().unwrap();
    assert!(!meta.contains_key("io.modelcontextprotocol/subscriptionId"));
}

#[tokio::test(start_paused = true)]
async fn what_the_caller_declared_is_declared_and_nothing_more() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    let declared = json!({ "sampling": {}, "extensions": { "com.example/odd": {},
        "io.modelcontextprotocol/ui": { "v": 1 } } });
    result(
        hub.call(declaring(
            call("tools/call", &json!({ "name": "a_x" })),
            &declared,
        ))
        .await,
    )
    .await;
    let expected =
        json!({ "sampling": {}, "extensions": { "io.modelcontextprotocol/ui": { "v": 1 } } });
    assert_eq!(a.seen()[0].meta.capabilities.object(), &object(&expected));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_caller_did_not_declare_never_reaches_it() {
    let asks = |_: &waypost_hub::call::Call| {
        Ok(reply(
            &json!({ "resultType": "input_required", "requestState": "s", "inputRequests": {
            "k": { "method": "elicitation/create", "params": { "message": "?" } } } }),
        ))
    };
    let lists = [("tools/list", json!({ "tools": [{ "name": "x" }] }))];
    let a = Fake::new("a", json!({ "tools": {} }), &lists, asks);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    let plain = call("tools/call", &json!({ "name": "a_x" }));
    let refused = error(hub.call(plain.clone()).await).await;
    assert_eq!(refused["code"], -32021);
    assert_eq!(
        refused["data"]["requiredCapabilities"],
        json!({ "elicitation": {} })
    );
    let asked = result(
        hub.call(declaring(plain, &json!({ "elicitation": {} })))
            .await,
    )
    .await;
    assert_eq!(asked["requestState"], "s");
}

#[tokio::test(start_paused = true)]
async fn arguments_are_checked_against_headers_and_repeated_in_ours() {
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" } } });
    let tools = json!({ "tools": [{ "name": "x", "inputSchema": schema },
        { "name": "bad", "inputSchema": { "properties": { "n": { "type": "number", "x-mcp-header": "N" } } } }] });
    let a = Fake::new(
        "a",
        json!({ "tools": {} }),
        &[("tools/list", tools)],
        |call| Ok(echo(call)),
    );
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    assert_eq!(names(&hub).await, ["a_x"]);
    let mut wrong = call(
        "tools/call",
        &json!({ "name": "a_x", "arguments": { "region": "eu" } }),
    );
    assert_eq!(error(hub.call(wrong.clone()).await).await["code"], -32020);
    wrong.headers.params = vec![("mcp-param-region".into(), "us".into())];
    assert_eq!(error(hub.call(wrong.clone()).await).await["code"], -32020);
    assert!(a.seen().is_empty());
    let mut right = wrong;
    right.headers.params = vec![
        ("mcp-param-region".into(), "eu".into()),
        ("mcp-param-other".into(), "1".into()),
    ];
    result(hub.call(right.clone()).await).await;
    assert_eq!(a.seen()[0].headers.params, right.headers.params);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_refuses_our_headers_is_listed_again_and_asked_once_more() {
    let tools = |header: &str| {
        json!({ "tools": [{ "name": "x", "inputSchema": { "properties": {
            "r": { "type": "string", "x-mcp-header": header } } } }] })
    };
    let a = Fake::new(
        "a",
        json!({ "tools": {} }),
        &[("tools/list", tools("Old"))],
        |call| {
            let error = ErrorObject::new(-32020, "header mismatch");
            match call
                .headers
                .params
                .iter()
                .any(|(n, _)| n == "mcp-param-new")
            {
                true => Ok(echo(call)),
                false => Ok(Reply::error(error)),
            }
        },
    );
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    assert_eq!(names(&hub).await, ["a_x"]);
    let mut wanted = call(
        "tools/call",
        &json!({ "name": "a_x", "arguments": { "r": "1" } }),
    );
    wanted.headers.params = vec![("mcp-param-old".into(), "1".into())];
    let refused = hub.call(wanted.clone()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "upstream `a`: refuses our request with -32020"
    );
    *a.lists.lock().unwrap() = [("tools/list".to_owned(), tools("New"))].into();
    result(hub.call(wanted).await).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_methods_are_not_found() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    for method in [
        "unknown/method",
        "prompts/list",
        "completion/complete",
        "tasks/list",
    ] {
        let params = json!({ "ref": { "type": "ref/prompt", "name": "p" } });
        assert_eq!(
            error(hub.call(call(method, &params)).await).await["code"],
            -32601,
            "{method}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r30_a_resource_is_read_from_its_owner_and_never_from_another() {
    let lists = |template: &str| {
        [
            (
                "resources/list",
                json!({ "resources": [{ "uri": "file:///x", "name": "x" }] }),
            ),
            (
                "resources/templates/list",
                json!({ "resourceTemplates": [{ "uriTemplate": template, "name": "t" }] }),
            ),
        ]
    };
    let a = Fake::new(
        "a",
        json!({ "resources": {} }),
        &lists("db://{t}/{id}"),
        |c| Ok(echo(c)),
    );
    let b = Fake::new("b", json!({ "resources": {} }), &lists("log://{t}"), |c| {
        Ok(echo(c))
    });
    let hub = hub(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let read = |uri: &str| hub.call(call("resources/read", &json!({ "uri": uri })));
    for (uri, fake, original) in [
        ("file:///x", &a, "file:///x"),
        ("b+file:///x", &b, "file:///x"),
        ("a+file:///x", &a, "file:///x"),
        ("db://t/1", &a, "db://t/1"),
        ("log://z", &b, "log://z"),
    ] {
        let before = fake.seen().len();
        assert_eq!(
            result(read(uri).await).await["params"]["uri"],
            original,
            "{uri}"
        );
        assert_eq!(fake.seen().len(), before + 1, "{uri}");
    }
    let unknown = error(read("other://thing").await).await;
    assert_eq!(
        (unknown["code"].clone(), unknown["data"]["uri"].clone()),
        (json!(-32602), json!("other://thing"))
    );
    let message = unknown["message"].as_str().unwrap();
    let ways = "hint: name one with `a+other://thing` or `b+other://thing`";
    assert!(message.contains(ways), "{unknown}");
    let candidates = json!(["a+other://thing", "b+other://thing"]);
    assert_eq!(unknown["data"]["candidates"], candidates);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_an_upstream_that_is_down_says_which_and_why() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    assert_eq!(names(&hub).await, ["a_x"]);
    a.down.store(true, Ordering::SeqCst);
    let failed: CallError = hub
        .call(call("tools/call", &json!({ "name": "a_x" })))
        .await
        .unwrap_err();
    assert_eq!(failed.to_string(), "upstream `a`: connection refused");
    assert!(failed.retryable);
}

#[tokio::test(start_paused = true)]
async fn r62_settings_of_an_extension_that_differ_are_said_once_to_the_operator() {
    let server = |name: &str, settings: Value| {
        let capabilities = json!({ "tools": {},
            "extensions": { "io.modelcontextprotocol/ui": settings } });
        let lists = [("tools/list", json!({ "tools": [] }))];
        Fake::new(name, capabilities, &lists, |call| Ok(echo(call)))
    };
    let (a, b) = (
        server("a", json!({ "n": 1 })),
        server("b", json!({ "n": 2 })),
    );
    let c = server("c", json!({ "n": 1 }));
    let hub = hub(&upstreams(&["a", "b", "c"]), &[&a, &b, &c]).await;
    for _ in 0..3 {
        let said = result(hub.call(call("server/discover", &json!({}))).await).await;
        let shown = &said["capabilities"]["extensions"]["io.modelcontextprotocol/ui"];
        assert_eq!(*shown, json!({ "n": 1 }), "the first in the file");
    }
    let catalog = hub.catalog();
    let warned: Vec<_> = catalog
        .warnings
        .iter()
        .map(|w| (&*w.upstream, w.text.as_str()))
        .collect();
    let text = "its settings of extension `io.modelcontextprotocol/ui` differ from an earlier \
        upstream's, which are shown";
    assert_eq!(warned, [("b", text)]);
}
