//! Whole runs of the peers' clients against a task server or everything server, with what must come
//! of them: the same directly and through Waypost.

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::interop::{Interop, Steps};
use crate::rmcp_driver::RmcpClient;

/// What a run showed beyond what it checked itself.
#[derive(Debug)]
pub struct Seen {
    /// The names of all tools, as they were listed.
    pub tools: Vec<String>,
    /// The ids of tasks that were handed to the client.
    pub tasks: Vec<String>,
}

/// `FastMCP`'s client, which sends no `Mcp-Name` on `tasks/*`.
///
/// # Errors
/// When anything went differently than the tools promise.
pub async fn fastmcp(interop: &Interop, url: &str, prefix: &str) -> anyhow::Result<Seen> {
    let command = interop.python("fastmcp_task_client.py");
    fastmcp_with(command, &[url, prefix]).await
}

/// The same, which calls every tool through `call_tool`.
///
/// # Errors
/// As [`fastmcp`].
pub async fn fastmcp_through_search(
    interop: &Interop,
    url: &str,
    prefix: &str,
) -> anyhow::Result<Seen> {
    let command = interop.python("fastmcp_task_client.py");
    fastmcp_with(command, &[url, prefix, "search"]).await
}

async fn fastmcp_with(command: Command, arguments: &[&str]) -> anyhow::Result<Seen> {
    let steps = Steps::run(command, arguments).await?;
    is(&steps, "connected", "version", "2026-07-28")?;
    is(&steps, "plain", "text", "Hello, Ada!")?;
    has(&steps, "transparent", "text", "transparent")?;
    has(&steps, "settled", "text", "handle")?;
    is(&steps, "settled", "status", "completed")?;
    is(&steps, "failed", "error", true)?;
    has(&steps, "failed", "text", "fail")?;
    has(&steps, "asked", "text", "deleted a.txt")?;
    is(&steps, "asked", "messages", json!(["Delete a.txt?"]))?;
    is(&steps, "cancelled", "status", "cancelled")?;
    advertised(&steps)?;
    let tasks = vec![string(&steps, "created", "id")?];
    Ok(Seen {
        tools: strings(&steps, "tools", "names")?,
        tasks,
    })
}

/// The official TypeScript client with its tasks package.
///
/// # Errors
/// When anything went differently than the tools promise.
pub async fn typescript(interop: &Interop, url: &str, prefix: &str) -> anyhow::Result<Seen> {
    typescript_with(interop.node("ts_tasks_client.mjs"), &[url, prefix]).await
}

/// The same, which calls every tool through `call_tool`.
///
/// # Errors
/// As [`typescript`].
pub async fn typescript_through_search(
    interop: &Interop,
    url: &str,
    prefix: &str,
) -> anyhow::Result<Seen> {
    let command = interop.node("ts_tasks_client.mjs");
    typescript_with(command, &[url, prefix, "search"]).await
}

async fn typescript_with(command: Command, arguments: &[&str]) -> anyhow::Result<Seen> {
    let steps = Steps::run(command, arguments).await?;
    is(&steps, "plain", "kind", "immediate")?;
    is(&steps, "plain", "text", "Hello, Ada!")?;
    for (step, text) in [
        ("task", "task"),
        ("failed", "fail"),
        ("asked", "deleted a.txt"),
    ] {
        is(&steps, step, "kind", "task")?;
        is(&steps, step, "status", "completed")?;
        has(&steps, step, "text", text)?;
        is(&steps, step, "error", step == "failed")?;
    }
    is(&steps, "asked", "messages", json!(["Delete a.txt?"]))?;
    is(&steps, "cancelled", "status", "cancelled")?;
    advertised(&steps)?;
    let ids = ["task", "failed", "asked"].map(|step| string(&steps, step, "id"));
    let tasks = ids.into_iter().collect::<anyhow::Result<_>>()?;
    Ok(Seen {
        tools: strings(&steps, "tools", "names")?,
        tasks,
    })
}

/// The official Rust SDK's client.
///
/// # Errors
/// When anything went differently than the tools promise.
pub async fn rmcp(url: &str, prefix: &str) -> anyhow::Result<Seen> {
    // The SDK's futures are large.
    Box::pin(drive_rmcp(url, prefix)).await
}

async fn drive_rmcp(url: &str, prefix: &str) -> anyhow::Result<Seen> {
    let client = RmcpClient::connect(url).await?;
    let tools = client.tools().await?;
    let name = |tool: &str| format!("{prefix}{tool}");
    let greeting = client
        .call(&name("greet"), json!({ "name": "Ada" }))
        .await?;
    anyhow::ensure!(
        greeting.task.is_none() && greeting.text()? == "Hello, Ada!",
        "{greeting:?}"
    );

    let short = json!({ "seconds": 0.3, "label": "short" });
    let slow = client.call(&name("slow_compute"), short).await?;
    anyhow::ensure!(slow.text()?.contains("short"), "{slow:?}");
    let failed = client.call(&name("failing_job"), json!({})).await?;
    anyhow::ensure!(failed.is_tool_error(), "{failed:?}");
    let asked = client
        .call(&name("confirm_delete"), json!({ "filename": "a.txt" }))
        .await?;
    anyhow::ensure!(
        asked.text()?.to_lowercase().contains("deleted a.txt"),
        "{asked:?}"
    );
    anyhow::ensure!(
        client.asked() == ["Delete a.txt?"],
        "asked {:?}",
        client.asked()
    );
    let long = json!({ "seconds": 60, "label": "never" });
    let cancelled = client.cancel(&name("slow_compute"), long).await?;
    anyhow::ensure!(cancelled.is_cancelled(), "{cancelled:?}");

    let endings = [slow, failed, asked, cancelled];
    let tasks: Option<_> = endings.into_iter().map(|ending| ending.task).collect();
    Ok(Seen {
        tools,
        tasks: tasks.context("a call that should have been a task was none")?,
    })
}

/// The official Python client, against a server of everything but tasks.
///
/// # Errors
/// When anything went differently than the tools promise.
pub async fn python(interop: &Interop, url: &str, prefix: &str) -> anyhow::Result<Seen> {
    let steps = Steps::run(interop.python("mcp_client.py"), &[url, prefix]).await?;
    everything(&steps, "2026-07-28", prefix)
}

/// The same, made to open a session.
///
/// # Errors
/// As [`python`].
pub async fn python_in_a_session(
    interop: &Interop,
    url: &str,
    prefix: &str,
) -> anyhow::Result<Seen> {
    let command = interop.python("mcp_client.py");
    let steps = Steps::run(command, &[url, prefix, "legacy"]).await?;
    everything(&steps, "2025-11-25", prefix)
}

/// The Python SDK 1.x, which knows nothing but sessions.
///
/// # Errors
/// As [`python`].
pub async fn session_python(interop: &Interop, url: &str, prefix: &str) -> anyhow::Result<Seen> {
    let command = interop.session_python("session_client.py");
    let steps = Steps::run(command, &[url, prefix]).await?;
    everything(&steps, "2025-11-25", prefix)
}

/// The TypeScript SDK 1.x, which knows nothing but sessions.
///
/// # Errors
/// As [`python`].
pub async fn session_typescript(
    interop: &Interop,
    url: &str,
    prefix: &str,
) -> anyhow::Result<Seen> {
    let steps = Steps::run(interop.node("session_client.mjs"), &[url, prefix]).await?;
    everything(&steps, "2025-11-25", prefix)
}

/// The Python SDK 1.x over HTTP+SSE.
///
/// # Errors
/// As [`python`].
pub async fn sse_python(interop: &Interop, url: &str, prefix: &str) -> anyhow::Result<Seen> {
    let command = interop.session_python("session_client.py");
    let steps = Steps::run(command, &[url, prefix, "sse"]).await?;
    everything(&steps, "2025-11-25", prefix)
}

/// The TypeScript SDK 1.x over HTTP+SSE.
///
/// # Errors
/// As [`python`].
pub async fn sse_typescript(interop: &Interop, url: &str, prefix: &str) -> anyhow::Result<Seen> {
    let command = interop.node("session_client.mjs");
    let steps = Steps::run(command, &[url, prefix, "sse"]).await?;
    // What reaches it in one piece it takes in one turn, and in that turn the answer comes before
    // the progress that was read before it: some of it may be missing, and none may be wrong.
    let told = progress(&steps)?;
    let sent = [0.0, 50.0, 100.0];
    let right = told.is_sorted() && told.iter().all(|value| sent.contains(value));
    anyhow::ensure!(right, "progress: {told:?}");
    but_progress(&steps, "2025-11-25", prefix)
}

/// The official TypeScript client, which opens a session unless it is told otherwise.
///
/// # Errors
/// As [`python`].
pub async fn typescript_in_a_session(
    interop: &Interop,
    url: &str,
    prefix: &str,
) -> anyhow::Result<Seen> {
    let command = interop.node("session_client.mjs");
    let steps = Steps::run(command, &[url, prefix, "2"]).await?;
    everything(&steps, "2025-11-25", prefix)
}

fn everything(steps: &Steps, version: &str, prefix: &str) -> anyhow::Result<Seen> {
    let told = progress(steps)?;
    anyhow::ensure!(told == [0.0, 50.0, 100.0], "progress: {told:?}");
    but_progress(steps, version, prefix)
}

fn progress(steps: &Steps) -> anyhow::Result<Vec<f64>> {
    let values = steps.field("progress", "values")?;
    Ok(serde_json::from_value(values.clone())?)
}

fn but_progress(steps: &Steps, version: &str, prefix: &str) -> anyhow::Result<Seen> {
    is(steps, "connected", "version", version)?;
    is(steps, "connected", "tools", true)?;
    has(steps, "plain", "text", "simple text response")?;
    is(steps, "progress", "error", false)?;
    has(steps, "asked", "text", "Ada")?;
    is(steps, "asked", "messages", json!(["What is your name?"]))?;
    has(steps, "prompt", "text", "arg1='one', arg2='two'")?;
    has(steps, "resource", "text", "static text")?;
    is(steps, "listened", "event", "ToolsListChanged")?;
    let prompts = strings(steps, "prompts", "names")?;
    let simple = format!("{prefix}test_simple_prompt");
    anyhow::ensure!(prompts.contains(&simple), "no `{simple}` in {prompts:?}");
    let uris = strings(steps, "resources", "uris")?;
    anyhow::ensure!(
        uris.iter().any(|uri| uri == "test://static-text"),
        "{uris:?}"
    );
    Ok(Seen {
        tools: strings(steps, "tools", "names")?,
        tasks: Vec::new(),
    })
}

fn advertised(steps: &Steps) -> anyhow::Result<()> {
    let extensions = steps.field("connected", "extensions")?;
    let tasks = extensions.get("io.modelcontextprotocol/tasks");
    anyhow::ensure!(
        tasks == Some(&json!({})),
        "tasks are not advertised: {extensions}"
    );
    Ok(())
}

fn is(steps: &Steps, step: &str, field: &str, wanted: impl Into<Value>) -> anyhow::Result<()> {
    let (found, wanted) = (steps.field(step, field)?, wanted.into());
    anyhow::ensure!(
        *found == wanted,
        "`{field}` of `{step}` is {found}, not {wanted}"
    );
    Ok(())
}

/// Servers word their answers differently; `part` is what all of them say, in lower case or as is.
fn has(steps: &Steps, step: &str, field: &str, part: &str) -> anyhow::Result<()> {
    let found = string(steps, step, field)?;
    let contained = found.contains(part) || found.to_lowercase().contains(part);
    anyhow::ensure!(
        contained,
        "`{field}` of `{step}` is {found:?}, without {part:?}"
    );
    Ok(())
}

fn string(steps: &Steps, step: &str, field: &str) -> anyhow::Result<String> {
    let value = steps.field(step, field)?.as_str().map(str::to_owned);
    value.with_context(|| format!("`{field}` of `{step}` is no string"))
}

fn strings(steps: &Steps, step: &str, field: &str) -> anyhow::Result<Vec<String>> {
    Ok(serde_json::from_value(steps.field(step, field)?.clone())?)
}
