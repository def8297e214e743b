//! Lists of tools as sessions may know them.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

/// Tools as sessions may know them. Most lists have none that are otherwise, and are not read.
pub(super) fn plain(result: &mut Object) {
    let Some(tools) = result.get("tools").filter(|raw| is_marked(raw.text())) else {
        return;
    };
    let tools = tools.as_array().unwrap_or_default();
    let plain = tools
        .iter()
        .map(|tool| plain_tool(tool).unwrap_or_else(|| tool.clone()));
    let plain: Vec<_> = plain.collect();
    result.set("tools", Raw::array(&plain));
}

fn is_marked(tools: &str) -> bool {
    let demands = memmem::find(tools.as_bytes(), b"\"taskSupport\"");
    demands.is_some() || has_free_results(tools)
}

/// Whether a schema of results may be for something else than an object.
fn has_free_results(tools: &str) -> bool {
    #[derive(Deserialize)]
    struct Root<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    const KEY: &str = "\"outputSchema\"";
    let is_object = |schema: &str| {
        let schema = serde_json::Deserializer::from_str(schema).into_iter::<Root<'_>>();
        let mut schema = schema.filter_map(Result::ok);
        schema.next().is_some_and(|root| root.kind == "object")
    };
    let found = memmem::find_iter(tools.as_bytes(), KEY);
    let after = found.filter_map(|at| tools.get(at + KEY.len()..));
    // A text that is the same is no key.
    let mut schemas = after.filter_map(|after| after.trim_start().strip_prefix(':'));
    schemas.any(|schema| !is_object(schema))
}

/// A tool that sessions would not know so. It is called plainly, also one that demands a task
/// behind: a client that reads it demands one would refuse to call it. Its results are objects:
/// at another schema clients refuse the whole list.
fn plain_tool(tool: &Raw) -> Option<Raw> {
    let mut tool = tool.as_object().ok()?;
    let execution = tool.get("execution").and_then(|raw| raw.as_object().ok());
    let plain = execution.and_then(|mut execution| {
        execution.remove("taskSupport")?;
        Some(execution)
    });
    let free = tool.get("outputSchema").filter(|schema| {
        let schema = schema.as_object().unwrap_or_default();
        schema.str("type").is_none_or(|kind| kind != "object")
    });
    if plain.is_none() && free.is_none() {
        return None;
    }
    if free.is_some() {
        tool.remove("outputSchema");
    }
    match plain {
        Some(execution) if execution.is_empty() => drop(tool.remove("execution")),
        Some(execution) => tool.set("execution", execution.into()),
        None => {}
    }
    Some(tool.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_sessions_know_are_not_read() {
        let object =
            r#"[{"outputSchema" : {"a":{"b":1},"t\u0079pe":"object"}},{"x":"outputSchema"}]"#;
        assert!(!is_marked(object));
        assert!(is_marked(&object.replace(r#""object""#, r#""array""#)));
        assert!(is_marked(&object.replace(r#""object""#, r#"["object"]"#)));
        assert!(is_marked(r#"[{"execution":{"taskSupport":"optional"}}]"#));
    }
}
