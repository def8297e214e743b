//! Real clients, and lists with everything in them that can be wrong.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use waypost_testkit::client::Client;
use waypost_testkit::misbehave::bad_definitions::bad_definitions;
use waypost_tests::gateway::Gateway;
use waypost_tests::interop::{Interop, Steps};
use waypost_tests::rmcp_driver::RmcpClient;

/// What can be listed, as the protocol's schemas have it.
const DEFINITIONS: &str =
    include_str!("../../crates/waypost-hub/src/catalog/sound/definitions.json");

/// The type, its method, its member of the result, its name, and what clients call its list.
const KINDS: [(&str, &str, &str, &str, &str); 4] = [
    ("Tool", "tools/list", "tools", "name", "tools"),
    ("Prompt", "prompts/list", "prompts", "name", "prompts"),
    (
        "Resource",
        "resources/list",
        "resources",
        "uri",
        "resources",
    ),
    (
        "ResourceTemplate",
        "resources/templates/list",
        "resourceTemplates",
        "uriTemplate",
        "templates",
    ),
];

/// A value of this schema with everything in it that there can be.
fn sample(schema: &Value) -> Value {
    if let Some(fixed) = schema.get("const") {
        return fixed.clone();
    }
    if let Some(one) = schema.pointer("/enum/0") {
        return one.clone();
    }
    match schema["type"].as_str().unwrap() {
        "object" => {
            let none = Map::new();
            let members = schema
                .get("properties")
                .map_or(&none, |all| all.as_object().unwrap());
            let members = members.iter().map(|(name, of)| (name.clone(), sample(of)));
            Value::Object(members.collect())
        }
        "array" => json!([sample(&schema["items"])]),
        "boolean" => json!(true),
        "integer" | "number" => json!(1),
        _ => json!("2026-07-28T00:00:00Z"),
    }
}

/// Where something is in a value, itself and all below it.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut below = |name: &str, value: &Value| places(value, &format!("{at}/{name}"), found);
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| below(name, value)),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, value)| below(&index.to_string(), value));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found.push(at.to_owned());
}

/// Definitions of a kind, each with one place that is of another kind, or nothing.
fn wrong(schema: &Value, named: &str) -> Vec<String> {
    let (mut places_found, whole) = (Vec::new(), sample(schema));
    places(&whole, "", &mut places_found);
    let others = [
        json!(null),
        json!(5),
        json!(-0.5),
        json!("x"),
        json!(false),
        json!([]),
        json!({}),
        json!([[7]]),
        json!([null]),
        json!(["x", {}]),
        json!({ "a": true, "b": 7, "c": null }),
    ];
    let mut all = Vec::new();
    for place in &places_found {
        for other in &others {
            let mut definition = whole.clone();
            definition[named] = json!(format!("a:{}", all.len()));
            *definition.pointer_mut(place).unwrap() = other.clone();
            all.push(definition.to_string());
        }
    }
    let mut fine = whole;
    fine[named] = json!("a:fine");
    // What `serde_json` does not write: half a character, a key twice, and a depth that readers
    // of JSON do not follow.
    let text = fine.to_string();
    let deep = format!("{}{}", "[".repeat(150), "]".repeat(150));
    for odd in [r#""\ud800""#, r#"{"a":1,"a":2}"#, &deep, "1e999"] {
        let name = format!("\"a:{}\"", all.len());
        let odd = text.replacen('{', &format!("{{\"x\":{odd},"), 1);
        all.push(odd.replace("\"a:fine\"", &name));
    }
    all.push(text);
    all
}

/// What validators of clients stop at, and what only today's clients know.
fn tools() -> Vec<String> {
    let schemas = [
        json!({ "type": "array" }),
        json!({ "type": ["object", "null"] }),
        json!({ "properties": {} }),
        json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/b" } } }),
        json!({ "type": "object", "properties": { "a": { "type": "strng" } } }),
        json!({ "type": "object", "properties": { "a": { "pattern": "(?P<x>a)" } } }),
        json!({ "type": "object", "properties": { "a": { "enum": [] } } }),
        json!({ "type": "object", "properties": { "a": { "nullable": true } } }),
        json!({ "type": "object", "properties": { "a": true } }),
        json!({ "type": "object", "items": 5, "additionalProperties": null }),
    ];
    let of = |(index, schema): (usize, &Value)| json!({ "name": format!("o{index}"), "inputSchema": schema, "outputSchema": schema });
    schemas
        .iter()
        .enumerate()
        .map(of)
        .map(|tool| tool.to_string())
        .collect()
}

#[tokio::test]
async fn r17_r28_no_wrong_definition_costs_a_real_client_the_others() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let said: Value = serde_json::from_str(DEFINITIONS)?;
    let mut lists = Vec::new();
    for (kind, method, member, named, _) in KINDS {
        // The older one says more.
        let mut definitions = wrong(&said["2025-11-25"][kind], named);
        if kind == "Tool" {
            definitions.extend(tools());
        }
        lists.push((method, member, definitions));
    }
    let bad = bad_definitions(lists).await?;
    let upstream = format!("bad: {{ url: {}, required: true, prefix: '' }}", bad.url);
    let gateway = Gateway::start(&upstream).await?;
    let url = gateway.url.as_str();

    let mut expected = BTreeMap::new();
    let client = Client::new(url);
    for (_, method, member, named, list) in KINDS {
        let reply = client.call(method, json!({})).await?;
        let shown = reply.answer["result"][member].as_array().unwrap();
        let names: Vec<Value> = shown.iter().map(|one| one[named].clone()).collect();
        assert!(
            names
                .iter()
                .any(|name| name.as_str().unwrap().contains("fine")),
            "{names:?}"
        );
        expected.insert(list, names);
    }
    let of_tools = &expected["tools"];
    assert!(of_tools.len() > 300, "{}", of_tools.len());

    for (command, arguments) in [
        (interop.node("lists.mjs"), ["1"].as_slice()),
        (interop.node("lists.mjs"), &["2"]),
        (interop.node("lists.mjs"), &["2-session"]),
        (interop.python("lists.py"), &["auto"]),
        (interop.python("lists.py"), &["legacy"]),
        (interop.session_python("session_lists.py"), &[]),
    ] {
        let who = format!("{command:?} {arguments:?}");
        let arguments: Vec<&str> = std::iter::once(url)
            .chain(arguments.iter().copied())
            .collect();
        let steps = Steps::run(command, &arguments).await?;
        for (list, names) in &expected {
            let seen = steps.field(list, "names")?;
            assert_eq!(*seen, json!(names), "{who}: {list}");
        }
    }
    let expected = KINDS.map(|(.., list)| expected[list].len());
    for rmcp in [
        RmcpClient::connect(url).await?,
        RmcpClient::open(url).await?,
    ] {
        assert_eq!(rmcp.listed().await?, expected);
    }
    Ok(())
}
