//! What a stateless server says, in the words of the session era.

use serde_json::{Map, Value, json};

use super::options::Options;
use super::revision::Revision;
use crate::kit::dispatch::has;
use crate::kit::fail::Fail;
use crate::kit::server::{Server, TaskSupport};
use crate::kit::words::TASKS;

/// The result of `initialize`.
pub(super) fn initialized(server: &dyn Server, revision: Revision, options: &Options) -> Value {
    json!({
        "protocolVersion": revision.as_str(),
        "capabilities": capabilities(&server.capabilities(), revision, options),
        "serverInfo": { "name": server.name(), "version": env!("CARGO_PKG_VERSION") },
        "instructions": server.instructions(),
    })
}

/// Whether the experimental tasks of 2025-11-25 are offered.
pub(super) fn has_tasks(capabilities: &Value, revision: Revision, sessions: bool) -> bool {
    sessions && revision >= Revision::Nov2025 && has(capabilities, &["extensions", TASKS])
}

fn capabilities(modern: &Value, revision: Revision, options: &Options) -> Value {
    let mut all = modern.as_object().cloned().unwrap_or_default();
    if has_tasks(modern, revision, options.sessions) {
        let requests = json!({ "tools": { "call": {} } });
        let tasks = json!({ "list": {}, "cancel": {}, "requests": requests });
        all.insert("tasks".into(), tasks);
    }
    all.remove("extensions");
    for of in ["tools", "prompts", "resources"] {
        let Some(Value::Object(members)) = all.get_mut(of) else {
            continue;
        };
        // Without a session nothing can be told to a client that is not asking.
        if !options.sessions || options.quirks.unannounced {
            members.remove("listChanged");
        }
        if !options.sessions {
            members.remove("subscribe");
        }
    }
    Value::Object(all)
}

/// A result without what only the stateless revision knows.
pub(super) fn result(mut result: Value, revision: Revision) -> Value {
    if let Some(members) = result.as_object_mut() {
        for key in ["resultType", "ttlMs", "cacheScope"] {
            members.remove(key);
        }
        if revision < Revision::Jun2025 {
            members.remove("structuredContent");
        }
    }
    result
}

/// The tools, each saying whether it can be a task.
pub(super) fn tools(mut list: Value, server: &dyn Server) -> Value {
    let tools = list.get_mut("tools").and_then(Value::as_array_mut);
    for tool in tools.into_iter().flatten() {
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
        let support = match server.task_support(name) {
            TaskSupport::Forbidden => "forbidden",
            TaskSupport::Optional => "optional",
            TaskSupport::Required => "required",
        };
        if let Some(members) = tool.as_object_mut() {
            members.insert("execution".into(), json!({ "taskSupport": support }));
        }
    }
    list
}

/// The code an unknown resource had before 2026-07-28.
pub(super) fn fail(mut fail: Fail, method: &str) -> Fail {
    if method == "resources/read" && fail.code == -32602 && fail.data.is_some() {
        fail.code = -32002;
    }
    fail
}

/// What a client lacks, as text for whoever called the tool.
pub(super) fn lacks(fail: &Fail) -> String {
    let missing = fail
        .data
        .as_ref()
        .and_then(|data| data.get("requiredCapabilities"))
        .and_then(Value::as_object)
        .map(|all: &Map<String, Value>| all.keys().cloned().collect::<Vec<_>>().join(", "));
    format!(
        "the client does not support: {}",
        missing.unwrap_or_default()
    )
}
