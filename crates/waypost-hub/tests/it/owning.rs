//! Whose a resource is that is in no list.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use waypost_hub::call::{Call, View};
use waypost_hub::error::Kind;
use waypost_hub::hub::Hub;
use waypost_hub::status::State;

use crate::fake::{Fake, call, declaring, echo, error, hub, reply, result, upstreams};
use crate::supervising::{state, until};

/// A server with these templates, which lists no resource.
fn server(name: &str, templates: &[&str]) -> Arc<Fake> {
    let each = templates.iter();
    let each = each.map(|text| json!({ "uriTemplate": text, "name": "t" }));
    let lists = [
        ("resources/list", json!({ "resources": [] })),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": each.collect::<Vec<_>>() }),
        ),
    ];
    let capabilities = json!({ "resources": {}, "completions": {} });
    Fake::new(name, capabilities, &lists, |call| Ok(echo(call)))
}

fn read(uri: &str) -> Call {
    call("resources/read", &json!({ "uri": uri }))
}

/// Who was asked for a resource.
async fn reads(hub: &Arc<Hub>, call: Call) -> Value {
    result(hub.call(call).await).await["_meta"]["dev.waypost/upstream"].clone()
}

#[tokio::test(start_paused = true)]
async fn r30_an_upstream_of_which_nothing_is_known_may_have_any_resource() {
    let (a, b) = (server("a", &[]), server("b", &[]));
    b.slow.store(true, Ordering::SeqCst);
    let complete = json!({ "ref": { "type": "ref/resource", "uri": "file:///srv/b/x" },
        "argument": { "name": "x", "value": "" } });
    let calls = || {
        [
            read("file:///srv/b/x"),
            call("completion/complete", &complete),
        ]
    };
    let yaml = upstreams(&["a", "b"]);
    let soon = yaml.replace(" }", ", timeout: 1s }");
    let impatient = hub(&soon, &[&a, &b]).await;
    for call in calls() {
        let error = impatient.call(call).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable);
        assert!(error.to_string().contains("still starting"), "{error}");
    }
    assert!(a.seen().is_empty() && b.seen().is_empty());

    // Whoever asks waits for it.
    let hub = hub(&yaml, &[&a, &b]).await;
    let mut waits = Box::pin(hub.call(read("file:///srv/b/x")));
    let asked = timeout(Duration::from_secs(3), waits.as_mut()).await;
    assert!(asked.is_err(), "it waits");
    b.slow.store(false, Ordering::SeqCst);
    let said = error(waits.await).await;
    let ways = json!(["a+file:///srv/b/x", "b+file:///srv/b/x"]);
    assert_eq!(said["data"]["candidates"], ways);
    for call in calls() {
        assert_eq!(
            error(hub.call(call).await).await["data"]["candidates"],
            ways
        );
    }
    assert_eq!(reads(&hub, read("b+file:///srv/b/x")).await, "b");
}

#[tokio::test(start_paused = true)]
async fn r30_an_upstream_that_was_never_reached_may_have_any_resource() {
    let (a, b) = (server("a", &["memo://{id}"]), Fake::with_tools("b", &["x"]));
    b.down.store(true, Ordering::SeqCst);
    let yaml = upstreams(&["a", "b"]) + "endpoints: { e: { upstreams: [b] } }\n";
    let hub = hub(&yaml, &[&a, &b]).await;
    until("b is down", || state(&hub, "b") == State::Down).await;
    until("a is up", || state(&hub, "a") == State::Up).await;
    let said = error(hub.call(read("file:///x")).await).await;
    assert_eq!(
        said["data"]["candidates"],
        json!(["a+file:///x", "b+file:///x"])
    );
    let mut alone = read("file:///x");
    alone.view = View::Endpoint("e".into());
    let error = hub.call(alone).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(
        error.to_string().contains("nothing is known of it yet"),
        "{error}"
    );
    assert_eq!(
        reads(&hub, read("memo://1")).await,
        "a",
        "a template says so"
    );
    assert_eq!(reads(&hub, read("a+file:///x")).await, "a");
    // It turns out to have none.
    b.down.store(false, Ordering::SeqCst);
    until("b is up", || state(&hub, "b") == State::Up).await;
    assert_eq!(reads(&hub, read("file:///x")).await, "a");
}

#[tokio::test(start_paused = true)]
async fn r05_an_endpoint_looks_at_the_templates_of_each_upstream_alone() {
    let (a, b) = (
        server("a", &["file:///a/{+path}"]),
        server("b", &["file:///a/secret/{name}", "db://{key}"]),
    );
    let c = server("c", &["db://{id}"]);
    let yaml = upstreams(&["a", "b", "c"])
        + "endpoints: { e: { resources: { deny: ['file:///a/{+path}', 'db://{key}'] } } }\n";
    let hub = hub(&yaml, &[&a, &b, &c]).await;
    until("up", || {
        ["a", "b", "c"]
            .iter()
            .all(|name| state(&hub, name) == State::Up)
    })
    .await;
    let at = |mut call: Call| {
        call.view = View::Endpoint("e".into());
        call
    };
    // What `b` has to say of the URI is not about `a`.
    let said = error(hub.call(at(read("a+file:///a/secret/x"))).await).await;
    assert_eq!(said["code"], -32602, "{said}");
    assert!(a.seen().is_empty());
    assert_eq!(reads(&hub, at(read("file:///a/secret/x"))).await, "b");
    // One that is hidden stands for nothing.
    assert_eq!(error(hub.call(read("db://1")).await).await["code"], -32602);
    assert_eq!(reads(&hub, at(read("db://1"))).await, "c");
}

#[tokio::test(start_paused = true)]
async fn many_links_of_many_templates_keep_nobody_waiting() {
    let many: Vec<String> = (0..20_000).map(|n| format!("a://x/{{id}}/{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let lists = [
        ("tools/list", json!({ "tools": [{ "name": "t" }] })),
        ("resources/list", json!({ "resources": [] })),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [] }),
        ),
    ];
    let capabilities = json!({ "tools": {}, "resources": {} });
    let b = Fake::new("b", capabilities, &lists, |_| {
        let links = (0..20_000).map(|n| {
            json!({ "type": "resource_link", "name": "l",
            "uri": format!("a://x/{}/{n}", n % 5_000) })
        });
        let web = json!({ "type": "resource_link", "name": "w", "uri": "https://example.com/" });
        let content: Vec<Value> = links.chain([web]).collect();
        Ok(reply(&json!({ "content": content })))
    });
    let a = server("a", &many);
    let hub = hub(&upstreams(&["a", "b"]), &[&a, &b]).await;
    until("up", || {
        ["a", "b"].iter().all(|name| state(&hub, name) == State::Up)
    })
    .await;
    let started = std::time::Instant::now();
    let call = declaring(call("tools/call", &json!({ "name": "b_t" })), &json!({}));
    let said = result(hub.call(call).await).await;
    let took = started.elapsed();
    let content = said["content"].as_array().unwrap();
    let (web, links) = content.split_last().unwrap();
    let leads_back = |link: &Value| link["uri"].as_str().unwrap().starts_with("b+a://x/");
    assert!(links.iter().all(leads_back));
    assert_eq!(web["uri"], "https://example.com/");
    assert!(took < Duration::from_secs(5), "{took:?}");
}
