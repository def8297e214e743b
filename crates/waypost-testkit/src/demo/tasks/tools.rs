//! The tools of *demo-tasks*, as they are listed.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::kit::schema::tool;

/// The list, made once.
pub(crate) static TOOLS: LazyLock<Vec<Value>> = LazyLock::new(tools);

fn tools() -> Vec<Value> {
    let none = json!({});
    let pace = json!({
        "seconds": { "type": "number", "minimum": 0, "maximum": 3600 },
        "label": { "type": "string" },
    });
    vec![
        tool(
            "greet",
            "Greets somebody, at once.",
            &json!({ "name": { "type": "string" } }),
            &["name"],
        ),
        tool(
            "slow_compute",
            "Takes its time: a task for clients that know tasks, a slow call for others.",
            &pace,
            &["seconds"],
        ),
        tool(
            "failing_job",
            "Ends with a tool error. Only as a task.",
            &none,
            &[],
        ),
        tool(
            "protocol_error_job",
            "Ends with a protocol error. Only as a task.",
            &none,
            &[],
        ),
        tool(
            "external_job",
            "Works in another process, which survives a restart of this server. Only as a task.",
            &pace,
            &[],
        ),
        tool(
            "confirm_delete",
            "Asks before it would delete; nothing is deleted. Only as a task.",
            &json!({ "filename": { "type": "string" } }),
            &["filename"],
        ),
        tool(
            "multi_input",
            "Asks two questions at once. Only as a task.",
            &none,
            &[],
        ),
        tool(
            "test_tool_with_task",
            "Asks first, then becomes a task.",
            &none,
            &[],
        ),
    ]
}
