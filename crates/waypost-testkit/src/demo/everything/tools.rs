//! The tools of *demo-everything*, as they are listed.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::kit::schema::tool;

/// Listed from the second, fourth, … `test_trigger_tool_change` on: a list that does change.
pub(crate) const DYNAMIC: &str = "test_dynamic_tool";

/// Tools without arguments: name and description.
const PLAIN: &[(&str, &str)] = &[
    ("test_simple_text", "Answers with a text."),
    ("test_image_content", "Answers with an image."),
    ("test_audio_content", "Answers with audio."),
    (
        "test_embedded_resource",
        "Answers with an embedded resource.",
    ),
    (
        "test_multiple_content_types",
        "Answers with a text, an image and a resource.",
    ),
    ("test_resource_link", "Answers with links to resources."),
    ("test_error_handling", "Fails, as a tool."),
    ("test_tool_with_logging", "Logs three messages at `info`."),
    ("test_logging_tool", "Logs a message at each level."),
    ("test_tool_with_progress", "Reports progress three times."),
    (
        "test_cancelled",
        "Counts the slow calls: started, finished, cancelled.",
    ),
    (
        "test_reconnection",
        "Closes its stream while it works, where one can come back.",
    ),
    ("test_count", "Counts its calls in this session."),
    (
        "test_ask_outside",
        "Asks after its call is over (session era).",
    ),
    ("test_elicitation_url", "Asks to open a URL."),
    (
        "test_url_required",
        "Needs a URL to be opened; in the session era it says so by -32042.",
    ),
    ("test_list_roots", "Asks for the client's roots."),
    (
        "test_elicitation_sep1034_defaults",
        "Asks with a default of each type.",
    ),
    (
        "test_elicitation_sep1330_enums",
        "Asks with each kind of choice.",
    ),
    ("test_missing_capability", "Needs a client with sampling."),
    ("test_streaming_elicitation", "Speaks first, then asks."),
    ("test_trigger_tool_change", "Changes the list of tools."),
    ("test_trigger_prompt_change", "Changes the list of prompts."),
    (
        "test_trigger_resource_change",
        "Changes the list of resources.",
    ),
    (
        "test_trigger_resource_update",
        "Changes `test://watched-resource`.",
    ),
    ("test_input_required_result_elicitation", "Asks for a name."),
    (
        "test_input_required_result_sampling",
        "Asks the client's model.",
    ),
    (
        "test_input_required_result_list_roots",
        "Asks for the client's roots.",
    ),
    (
        "test_input_required_result_request_state",
        "Asks, and keeps state.",
    ),
    (
        "test_input_required_result_multiple_inputs",
        "Asks three things at once.",
    ),
    (
        "test_input_required_result_multi_round",
        "Asks in two rounds.",
    ),
    (
        "test_input_required_result_tampered_state",
        "Asks, and checks its state.",
    ),
    (
        "test_input_required_result_capabilities",
        "Asks only what the client can answer.",
    ),
];

/// The list without and with the dynamic tool, made once.
pub(crate) static TOOLS: LazyLock<[Vec<Value>; 2]> = LazyLock::new(|| [tools(false), tools(true)]);

fn tools(dynamic: bool) -> Vec<Value> {
    let none = json!({});
    let mut tools: Vec<Value> = PLAIN
        .iter()
        .map(|(name, about)| tool(name, about, &none, &[]))
        .collect();
    tools.push(tool(
        "echo",
        "Answers with its arguments, as text and as structured content.",
        &json!({ "message": { "type": "string" } }),
        &[],
    ));
    tools.push(tool(
        "test_slow",
        "Reports progress for so many seconds; `test_cancelled` says what became of it.",
        &json!({ "seconds": { "type": "number", "minimum": 0, "maximum": 3600 } }),
        &[],
    ));
    tools.push(tool(
        "test_sampling",
        "Asks the client's model.",
        &json!({ "prompt": { "type": "string" } }),
        &["prompt"],
    ));
    tools.push(tool(
        "test_elicitation",
        "Asks for a user name and an address.",
        &json!({ "message": { "type": "string" } }),
        &["message"],
    ));
    tools.push(mirrored());
    tools.push(full_schema());
    if dynamic {
        tools.push(tool(DYNAMIC, "Comes and goes.", &none, &[]));
    }
    tools
}

/// Arguments that clients mirror into `Mcp-Param-*` headers.
fn mirrored() -> Value {
    tool(
        "test_mirrored_headers",
        "Answers with the arguments that travel in headers too.",
        &json!({
            "region": { "type": "string", "x-mcp-header": "Region" },
            "priority": { "type": "integer", "x-mcp-header": "Priority" },
            "dry_run": { "type": "boolean", "x-mcp-header": "Dry-Run" },
            "place": {
                "type": "object",
                "properties": { "city": { "type": "string", "x-mcp-header": "City" } },
            },
            "note": { "type": "string" },
        }),
        &["region"],
    )
}

/// A schema with everything of JSON Schema 2020-12 that gateways like to lose.
fn full_schema() -> Value {
    json!({
        "name": "json_schema_2020_12_tool",
        "description": "Has a demanding input schema.",
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
                },
            },
            "properties": {
                "name": { "type": "string" },
                "address": { "$ref": "#/$defs/address" },
                "contactMethod": { "type": "string", "enum": ["phone", "email"] },
                "phone": { "type": "string" },
                "email": { "type": "string" },
            },
            "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
            "if": {
                "properties": { "contactMethod": { "const": "phone" } },
                "required": ["contactMethod"],
            },
            "then": { "required": ["phone"] },
            "else": { "required": ["email"] },
            "additionalProperties": false,
        },
    })
}
