//! Each kind of wrong member, and that what is known is what the protocol says.

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;

fn read(kind: Kind, text: &str) -> Result<String, String> {
    let raw = Raw::parse(&Bytes::from(text.to_owned())).unwrap();
    let sound = sound(kind, &raw);
    sound
        .map(|sound| sound.definition.to_string())
        .map_err(|e| e.to_string())
}

#[test]
fn r28_what_is_sound_keeps_every_byte() {
    for (kind, text) in [
        (
            Kind::Tool,
            r#"{ "x":1.0, "name":"a", "inputSchema":{ "type" : "object" } }"#,
        ),
        (Kind::Prompt, r#"{"name":"a", "arguments":[ ] }"#),
        (
            Kind::Resource,
            r#"{"uri":"a:b", "name":"a", "size":1e2, "icons":[ ]}"#,
        ),
        (Kind::Template, r#"{"uriTemplate":"a:{b}", "name":""}"#),
    ] {
        assert_eq!(read(kind, text).unwrap(), text);
    }
}

#[test]
fn r28_what_would_break_a_list_is_refused() {
    for (kind, text, member) in [
        (Kind::Tool, r#"{"inputSchema":{"type":"object"}}"#, "name"),
        (
            Kind::Tool,
            r#"{"name":1,"inputSchema":{"type":"object"}}"#,
            "name",
        ),
        (Kind::Tool, r#"{"name":"a"}"#, "inputSchema"),
        (
            Kind::Tool,
            r#"{"name":"a","inputSchema":[]}"#,
            "inputSchema",
        ),
        (
            Kind::Tool,
            r#"{"name":"a","inputSchema":null}"#,
            "inputSchema",
        ),
        (
            Kind::Tool,
            r#"{"name":"a","inputSchema":{"type":"array"}}"#,
            "inputSchema",
        ),
        (
            Kind::Tool,
            r#"{"name":"a","inputSchema":{"type":["object"]}}"#,
            "inputSchema",
        ),
        (Kind::Resource, r#"{"uri":"a:b"}"#, "name"),
        (
            Kind::Template,
            r#"{"uriTemplate":{},"name":"a"}"#,
            "uriTemplate",
        ),
    ] {
        let why = read(kind, text).unwrap_err();
        assert!(why.contains(&format!("`{member}`")), "{text}: {why}");
    }
}

#[test]
fn r28_small_slips_are_put_right() {
    let nulls = r#"{"name":"a","title":null,"inputSchema":{ "properties":{} },"_meta":null}"#;
    let mended = r#"{"name":"a","inputSchema":{ "properties":{} ,"type":"object"}}"#;
    assert_eq!(read(Kind::Tool, nulls).unwrap(), mended);
}
/// What is left of it, and what was wrong.
#[track_caller]
fn check(kind: Kind, text: &str, left: &str, wrong: &[&str]) {
    let raw = Raw::parse(&Bytes::from(text.to_owned())).unwrap();
    let Ok(sound) = sound(kind, &raw) else {
        panic!("{text} is refused");
    };
    assert_eq!(sound.definition.text(), left, "{text}");
    let flaws: Vec<String> = sound.flaws.iter().map(ToString::to_string).collect();
    assert_eq!(flaws, wrong, "{text}");
}

/// A tool with these members after what it needs.
#[track_caller]
fn check_tool(members: &str, left: &str, wrong: &[&str]) {
    let of = |members: &str| match members {
        "" => r#"{"name":"a","inputSchema":{"type":"object"}}"#.to_owned(),
        members => format!(r#"{{"name":"a","inputSchema":{{"type":"object"}},{members}}}"#),
    };
    check(Kind::Tool, &of(members), &of(left), wrong);
}

#[test]
fn r17_an_optional_member_of_a_wrong_kind_is_left_out_alone() {
    check_tool(
        r#""description":1"#,
        "",
        &["its `description` is no string"],
    );
    check_tool(
        r#""annotations":{"title":5,"readOnlyHint":true,"x":[ 1.0 ]}"#,
        r#""annotations":{"readOnlyHint":true,"x":[ 1.0 ]}"#,
        &["its `annotations.title` is no string"],
    );
    check_tool(
        r#""annotations":{"readOnlyHint":"yes","openWorldHint":null}"#,
        r#""annotations":{}"#,
        &["its `annotations.readOnlyHint` is no boolean"],
    );
    check_tool(
        r#""annotations":[]"#,
        "",
        &["its `annotations` is no object"],
    );
    check_tool(
        r#""execution":{"taskSupport":"sometimes"}"#,
        r#""execution":{}"#,
        &["its `execution.taskSupport` is none of `forbidden`, `optional`, `required`"],
    );
    check_tool(r#""execution":null"#, "", &[]);
    check_tool(r#""_meta":"x""#, "", &["its `_meta` is no object"]);
    let odd =
        r#""icons":[{"src":5},{ "src":"a:b","sizes":"48x48","theme":"blue" },"x",{"src":"c:d"}]"#;
    check_tool(
        odd,
        r#""icons":[{"src":"a:b"},{"src":"c:d"}]"#,
        &[
            "its `icons[0].src` is no string",
            "its `icons[1].sizes` is no array",
            "its `icons[1].theme` is none of `dark`, `light`",
            "its `icons[2]` is no object",
        ],
    );
    check_tool(r#""icons":[5,6]"#, "", &["its `icons[0]` is no object"]);
}

#[test]
fn r17_of_a_schema_of_arguments_what_is_wrong_is_left_out_and_the_tool_stays() {
    let check = |schema: &str, left: &str, wrong: &[&str]| {
        let of = |schema: &str| format!(r#"{{"name":"a", "inputSchema":{schema}}}"#);
        check(Kind::Tool, &of(schema), &of(left), wrong);
    };
    check(
        r#"{"type":"object","properties":[],"required":"a"}"#,
        r#"{"type":"object"}"#,
        &[
            "its `inputSchema.properties` is no object",
            "its `inputSchema.required` is no array",
        ],
    );
    check(
        r#"{"type":null,"properties":null}"#,
        r#"{"type":"object"}"#,
        &[],
    );
    check(
        r#"{ "type":"object", "required":["a",5] }"#,
        r#"{ "type":"object", "required":["a"] }"#,
        &["its `inputSchema.required[1]` is no string"],
    );
    // What may be anything, and what may be nothing, in the words that all clients know.
    check(
        r#"{ "type":"object", "properties":{"a":true, "b":false,"c":{ "x":1.0 }} }"#,
        r#"{ "type":"object", "properties":{"a":{}, "b":{"not":{}},"c":{ "x":1.0 }} }"#,
        &[],
    );
    check(
        r#"{"type":"object","properties":{"b":5}}"#,
        r#"{"type":"object","properties":{"b":{}}}"#,
        &["its `inputSchema.properties.b` is no object"],
    );
}

#[test]
fn r28_a_schema_of_results_that_validators_stop_at_is_left_out() {
    let fine =
        r##""outputSchema":{ "type":"array", "items":{"$ref":"#/$defs/a"},"$defs":{"a":{}} }"##;
    check_tool(fine, fine, &[]);
    check_tool(
        r##""outputSchema":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}}}"##,
        "",
        &["its `outputSchema.properties.a.$ref` is nothing that validators of schemas take"],
    );
    check_tool(
        r#""outputSchema":5"#,
        "",
        &["its `outputSchema` is no object"],
    );
    check_tool(
        r#""output\u0053chema":{"type":"array"}"#,
        "",
        &["its `outputSchema` is nothing that validators of schemas take"],
    );
}

#[test]
fn r17_what_is_wrong_with_prompts_resources_and_templates_is_left_out_alone() {
    check(
        Kind::Prompt,
        r#"{"name":"a","arguments":[{"name":5},{"name":"b","required":"yes"},{"title":"c"}]}"#,
        r#"{"name":"a","arguments":[{"name":"b"}]}"#,
        &[
            "its `arguments[0].name` is no string",
            "its `arguments[1].required` is no boolean",
            "its `arguments[2].name` is no string",
        ],
    );
    let wrong = [
        "its `size` is no integer",
        "its `annotations.audience[0]` is none of `assistant`, `user`",
        "its `annotations.lastModified` is no time of ISO 8601 with its offset",
        "its `annotations.priority` is no number from 0 to 1",
    ];
    check(
        Kind::Resource,
        r#"{"uri":"a:b","name":"a","size":"big","annotations":{"audience":["robot"],"priority":7,"lastModified":"2026"}}"#,
        r#"{"uri":"a:b","name":"a","annotations":{}}"#,
        &wrong,
    );
    check(
        Kind::Resource,
        r#"{"uri":"a:b","name":"a","size":null}"#,
        r#"{"uri":"a:b","name":"a"}"#,
        &[],
    );
    check(
        Kind::Template,
        r#"{"uriTemplate":"a:{b}","name":"a","mimeType":[],"annotations":{"audience":["user",1],"priority":0.5}}"#,
        r#"{"uriTemplate":"a:{b}","name":"a","annotations":{"audience":["user"],"priority":0.5}}"#,
        &[
            "its `mimeType` is no string",
            "its `annotations.audience[1]` is none of `assistant`, `user`",
        ],
    );
}

#[test]
fn r17_what_no_reader_takes_is_refused() {
    let deep = format!(
        r#"{{"name":"a","x":{}{}}}"#,
        "[".repeat(100),
        "]".repeat(100)
    );
    for (kind, text, why) in [
        (
            Kind::Resource,
            r#"{"uri":"a b","name":"a"}"#,
            "its `uri` is no absolute URI",
        ),
        (
            Kind::Resource,
            r#"{"uri":"","name":"a"}"#,
            "its `uri` is no absolute URI",
        ),
        (
            Kind::Prompt,
            r#"{"name":"a","x":["\ud800"]}"#,
            "half a character",
        ),
        (
            Kind::Prompt,
            r#"{"name":"a","x":1e999}"#,
            "a number too large",
        ),
        (Kind::Prompt, &deep, "nested deeper than 100 levels"),
        (
            Kind::Tool,
            r#"{"name":"a","inputSchema":{"properties":{"b":{},"\u0062":{}}}}"#,
            "key `b` is repeated",
        ),
        (
            Kind::Tool,
            r#"{"name":"a","inputSchema":{},"annotations":{"title":"a","title":"b"}}"#,
            "key `title` is repeated",
        ),
    ] {
        let said = read(kind, text).unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
    }
    let whole = r#"{"name":"a","x":["\ud83d\ude00","\\ud800"]}"#;
    assert_eq!(read(Kind::Prompt, whole).unwrap(), whole);
}

/// `definitions.json` is the protocol's own schema of what can be listed, by version.
#[test]
fn what_is_known_of_definitions_is_what_the_protocol_says() {
    let said: Value = serde_json::from_str(include_str!("definitions.json")).unwrap();
    let kinds = ["Tool", "Prompt", "Resource", "ResourceTemplate"];
    for (version, said) in said.as_object().unwrap() {
        for (kind, name) in Kind::ALL.into_iter().zip(kinds) {
            covers(
                &Shape::Members(definitions::of(kind)),
                &said[name],
                &format!("{version} {name}"),
            );
        }
    }
}

#[track_caller]
fn covers(shape: &Shape, said: &Value, at: &str) {
    let kind = |kind: &str| assert_eq!(said["type"], *kind, "{at}");
    match shape {
        Shape::String | Shape::Uri | Shape::Time => kind("string"),
        Shape::Boolean => kind("boolean"),
        Shape::Integer => kind("integer"),
        Shape::Share => {
            let share = json!({ "type": "number", "minimum": 0, "maximum": 1 });
            assert_eq!(*said, share, "{at}");
        }
        Shape::OneOf(words) => assert_eq!(said["enum"], json!(words), "{at}"),
        Shape::Object | Shape::Schemas | Shape::Schema => kind("object"),
        Shape::List(of) => {
            kind("array");
            covers(of, &said["items"], at);
        }
        Shape::Members(known) => {
            kind("object");
            let needed = said["required"].as_array().cloned().unwrap_or_default();
            for (name, said) in said["properties"].as_object().unwrap() {
                // `type` of schemas is looked at apart.
                let Some(member) = known.iter().find(|member| member.name == *name) else {
                    assert_eq!(name, "type", "{at} has a `{name}`");
                    continue;
                };
                let at = format!("{at}.{name}");
                assert_eq!(needed.contains(&json!(name)), member.needed, "{at}");
                covers(&member.shape, said, &at);
            }
        }
    }
}
