//! From a checked request to its answer, the same for every transport.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::fail::Fail;
use super::listen;
use super::out::Out;
use super::request::Request;
use super::server::{Server, ToolCall};
use super::words::{META_SERVER_INFO, TASKS, VERSION};

const LIST_TTL_MS: u64 = 60_000;

/// Adds what a cacheable list must say about itself.
pub(crate) fn cacheable(mut result: Value) -> Value {
    if let Some(members) = result.as_object_mut() {
        members.insert("ttlMs".into(), LIST_TTL_MS.into());
        members.insert("cacheScope".into(), "public".into());
    }
    result
}

/// Refuses cursors: every list here is one page.
pub(crate) fn only_page(request: &Request) -> Result<(), Fail> {
    match request.params.get("cursor") {
        None => Ok(()),
        Some(_) => Err(Fail::invalid_params(
            "unknown `cursor`: this list has one page",
        )),
    }
}

/// Whether `capabilities` has a member at this path.
pub(crate) fn has(capabilities: &Value, path: &[&str]) -> bool {
    let found = path.iter().try_fold(capabilities, |at, key| at.get(*key));
    found.is_some_and(|value| value.is_object() || value.as_bool() == Some(true))
}

/// Runs `request` to its end; `stop` ends subscriptions gracefully.
pub(crate) async fn answer(
    server: Arc<dyn Server>,
    request: Request,
    out: Out,
    stop: CancellationToken,
) -> Value {
    match run(&*server, &request, &out, stop).await {
        Ok(result) => {
            let result = finish(&*server, result);
            json!({ "jsonrpc": "2.0", "id": request.id, "result": result })
        }
        Err(fail) => fail.to_response(&request.id),
    }
}

/// As [`answer`], but an error keeps the HTTP status it wants.
pub(crate) async fn run(
    server: &dyn Server,
    request: &Request,
    out: &Out,
    stop: CancellationToken,
) -> Result<Value, Fail> {
    let capabilities = server.capabilities();
    match request.method.as_str() {
        "server/discover" => Ok(cacheable(json!({
            "supportedVersions": [VERSION],
            "capabilities": capabilities,
            "instructions": server.instructions(),
        }))),
        "tools/list" if has(&capabilities, &["tools"]) => {
            only_page(request)?;
            Ok(cacheable(json!({ "tools": server.tools() })))
        }
        "tools/call" if has(&capabilities, &["tools"]) => call_tool(server, request, out).await,
        "subscriptions/listen" => listen::run(server, request, out, stop).await,
        "tasks/get" | "tasks/update" | "tasks/cancel"
            if has(&capabilities, &["extensions", TASKS]) =>
        {
            // Before the id is looked at: whoever does not know tasks learns nothing about them.
            if !request.has_tasks() {
                return Err(Fail::missing_tasks());
            }
            server.call(request, out).await
        }
        _ => server.call(request, out).await,
    }
}

async fn call_tool(server: &dyn Server, request: &Request, out: &Out) -> Result<Value, Fail> {
    let name = request.string("name")?;
    let known = server
        .tools()
        .iter()
        .any(|tool| tool.get("name") == Some(&name.into()));
    if !known {
        return Err(Fail::invalid_params(format!("unknown tool `{name}`")));
    }
    let none = Map::new();
    let arguments = match request.params.get("arguments") {
        None => &none,
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Err(Fail::invalid_params("`arguments` must be an object")),
    };
    server
        .call_tool(
            ToolCall {
                name,
                arguments,
                request,
            },
            out,
        )
        .await
}

/// Completes a result: its type, and who answered.
pub(crate) fn finish(server: &dyn Server, mut result: Value) -> Value {
    let Some(members) = result.as_object_mut() else {
        return result;
    };
    members
        .entry("resultType")
        .or_insert_with(|| "complete".into());
    let meta = members.entry("_meta").or_insert_with(|| json!({}));
    if let Some(meta) = meta.as_object_mut() {
        let info = json!({ "name": server.name(), "version": env!("CARGO_PKG_VERSION") });
        meta.insert(META_SERVER_INFO.into(), info);
    }
    result
}
