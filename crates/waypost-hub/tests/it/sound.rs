//! One definition that breaks the protocol does not take a list with it.

use serde_json::{Value, json};

use crate::fake::{Fake, call, echo, hub, names, result, upstreams};

#[tokio::test(start_paused = true)]
async fn r28_a_malformed_definition_is_left_out_and_the_rest_of_the_list_stays() {
    let schema = json!({ "type": "object" });
    let tools = json!({ "tools": [
        { "name": "good", "inputSchema": { "type": "object", "$defs": { "a": {} } } },
        { "inputSchema": schema }, { "name": 7, "inputSchema": schema }, 5, null,
        { "name": "none", "inputSchema": null }, { "name": "list", "inputSchema": [] },
        { "name": "text", "inputSchema": { "type": "string" } },
        { "name": "said", "description": {}, "inputSchema": schema },
        { "name": "loose", "title": null, "inputSchema": {} },
    ] });
    let lists = [
        ("tools/list", tools),
        (
            "prompts/list",
            json!({ "prompts": [{ "name": "p" }, { "name": "q", "arguments": 1 }] }),
        ),
        (
            "resources/list",
            json!({ "resources": [{ "uri": "a:b" }, { "uri": "a:c", "name": 1 }, { "name": "d" }] }),
        ),
    ];
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {} });
    let bad = Fake::new("bad", capabilities, &lists, |call| Ok(echo(call)));
    let fine = Fake::with_tools("fine", &["x"]);
    let hub = hub(&upstreams(&["bad", "fine"]), &[&bad, &fine]).await;
    assert_eq!(
        names(&hub).await,
        ["bad_good", "bad_loose", "bad_said", "fine_x"]
    );
    let tools = result(hub.call(call("tools/list", &json!({}))).await).await["tools"].clone();
    let is_text = |value: &Value| value.is_null() || value.is_string();
    for tool in tools.as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert!(
            tool.get("title").is_none() && is_text(&tool["description"]),
            "{tool}"
        );
    }
    let listed = |method: &str| hub.call(call(method, &json!({})));
    let prompts = result(listed("prompts/list").await).await;
    assert_eq!(prompts["prompts"].as_array().unwrap().len(), 2);
    let resources = result(listed("resources/list").await).await;
    assert_eq!(resources["resources"].as_array().unwrap().len(), 1);

    let catalog = hub.catalog();
    let said: Vec<&str> = catalog.warnings.iter().map(|w| w.text.as_str()).collect();
    assert_eq!(said.len(), 11, "{said:#?}");
    for part in [
        "tool `?` is dropped: its `name` is no string",
        "tool `none` is dropped: its `inputSchema` is no object",
        "tool `text` is dropped: its `inputSchema` is not of the type `object`",
        "tool `said` is shown without what is wrong: its `description` is no string",
        "prompt `q` is shown without what is wrong: its `arguments` is no array",
        "resource `a:c` is dropped: its `name` is no string",
    ] {
        assert!(said.contains(&part), "{part}: {said:#?}");
    }
    assert!(catalog.warnings.iter().all(|w| *w.upstream == *"bad"));
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_bad_definitions_is_no_longer_than_it_is_ours_to_say() {
    let long = "x".repeat(1 << 20);
    let annotated = json!({ "name": "a", "inputSchema": { "type": "object",
        "properties": { long: { "type": "number", "x-mcp-header": "N" } } } });
    let bad = (0..5_000).map(|n| json!({ "name": format!("{n:04}"), "inputSchema": 1 }));
    let twice = (0..100).map(|_| json!({ "name": "t" }));
    let tools: Vec<Value> = std::iter::once(annotated).chain(bad).chain(twice).collect();
    let lists = [("tools/list", json!({ "tools": tools }))];
    let u = Fake::new("u", json!({ "tools": {} }), &lists, |call| Ok(echo(call)));
    let hub = hub(&upstreams(&["u"]), &[&u]).await;
    assert_eq!(names(&hub).await, ["u_t"]);
    let catalog = hub.catalog();
    let said: Vec<_> = catalog.warnings.iter().map(|w| w.text.as_str()).collect();
    assert_eq!(said.len(), 42, "{said:#?}");
    assert!(said.iter().all(|text| text.len() < 1_000));
    assert_eq!(said[20], "4981 more tools are dropped");
    assert_eq!(said[41], "79 more tools are listed twice");
}
