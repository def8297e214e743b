//! Search mode under clients and servers that are not ours: whatever is called through `call_tool` is
//! as if it were called itself.

use std::path::Path;

use anyhow::ensure;
use serde_json::{Value, json};
use waypost_testkit::client::Client;
use waypost_testkit::demo::{demo_tasks, tasks};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::drive::{self, Seen};
use waypost_tests::gateway::Gateway;
use waypost_tests::interop::{Interop, Server, Steps};

const ENDPOINTS: &str = "endpoints: { search: { discovery: search } }";

/// A call of an everyday server's tool, and what its answer has to say.
struct Use {
    tool: &'static str,
    arguments: Value,
    says: &'static str,
}

fn case(tool: &'static str, arguments: Value, says: &'static str) -> Use {
    Use {
        tool,
        arguments,
        says,
    }
}

/// Every tool of the server of files, in an order in which each can do its work.
fn files(folder: &Path) -> Vec<Use> {
    let at = |name: &str| folder.join(name).display().to_string();
    let path = |name: &str| json!({ "path": at(name) });
    let edits = json!([{ "oldText": "one", "newText": "two" }]);
    vec![
        case("filesystem_create_directory", path("in"), "created"),
        case(
            "filesystem_write_file",
            json!({ "path": at("in/a.txt"), "content": "one\n" }),
            "wrote",
        ),
        case(
            "filesystem_edit_file",
            json!({ "path": at("in/a.txt"), "edits": edits }),
            "+two",
        ),
        case(
            "filesystem_move_file",
            json!({ "source": at("in/a.txt"), "destination": at("in/b.txt") }),
            "moved",
        ),
        case("filesystem_read_text_file", path("in/b.txt"), "two"),
        case("filesystem_read_file", path("in/b.txt"), "two"),
        case("filesystem_read_media_file", path("in/b.txt"), ""),
        case(
            "filesystem_read_multiple_files",
            json!({ "paths": [at("in/b.txt")] }),
            "two",
        ),
        case("filesystem_get_file_info", path("in/b.txt"), "size: 4"),
        case("filesystem_list_directory", path("in"), "b.txt"),
        case("filesystem_list_directory_with_sizes", path("in"), "b.txt"),
        case("filesystem_directory_tree", path("in"), "b.txt"),
        case(
            "filesystem_search_files",
            json!({ "path": at(""), "pattern": "**/b.*" }),
            "b.txt",
        ),
        case(
            "filesystem_list_allowed_directories",
            json!({}),
            "Allowed directories",
        ),
    ]
}

/// Every tool of the server of everything: questions, progress and a task of the session era too.
fn everything() -> Vec<Use> {
    let url = json!({ "url": "https://example.org", "message": "Look.", "elicitationId": "e1" });
    let number = json!({ "resourceType": "Text", "resourceId": 1 });
    let zip = json!({ "name": "a.gz", "data": "data:text/plain,hi", "outputType": "resource" });
    vec![
        case("everything_echo", json!({ "message": "hi" }), "Echo: hi"),
        case(
            "everything_get-annotated-message",
            json!({ "messageType": "success" }),
            "success",
        ),
        case("everything_get-env", json!({}), "PATH"),
        case(
            "everything_get-resource-links",
            json!({ "count": 2 }),
            "resource",
        ),
        case("everything_get-resource-reference", number, "esource"),
        case("everything_get-roots-list", json!({}), "roots"),
        case(
            "everything_get-structured-content",
            json!({ "location": "Chicago" }),
            "temperature",
        ),
        case("everything_get-sum", json!({ "a": 40, "b": 2 }), "42"),
        case("everything_get-tiny-image", json!({}), "image"),
        case("everything_gzip-file-as-resource", zip, ""),
        case("everything_toggle-simulated-logging", json!({}), "ogging"),
        case("everything_toggle-simulated-logging", json!({}), "ogging"),
        case("everything_toggle-subscriber-updates", json!({}), "updates"),
        case("everything_toggle-subscriber-updates", json!({}), "updates"),
        case(
            "everything_trigger-elicitation-request",
            json!({}),
            "provided",
        ),
        case(
            "everything_trigger-long-running-operation",
            json!({ "duration": 0.5, "steps": 5 }),
            "completed",
        ),
        case(
            "everything_trigger-sampling-request",
            json!({ "prompt": "Well?", "maxTokens": 10 }),
            "sampled text",
        ),
        case("everything_trigger-url-elicitation", url, ""),
        case(
            "everything_simulate-research-query",
            json!({ "topic": "bees", "ambiguous": true }),
            "bees",
        ),
    ]
}

/// Every tool of the server of a memory, which is as empty at the end as it was.
fn memory() -> Vec<Use> {
    let named = json!({ "name": "Ada", "entityType": "person", "observations": ["counts"] });
    let other = json!({ "name": "Bob", "entityType": "person", "observations": [] });
    let both = json!([named, other]);
    let knows = json!([{ "from": "Ada", "to": "Bob", "relationType": "knows" }]);
    let seen = json!([{ "entityName": "Ada", "contents": ["writes"] }]);
    let unseen = json!([{ "entityName": "Ada", "observations": ["writes"] }]);
    vec![
        case(
            "memory_create_entities",
            json!({ "entities": both }),
            "counts",
        ),
        case(
            "memory_create_relations",
            json!({ "relations": knows }),
            "knows",
        ),
        case(
            "memory_add_observations",
            json!({ "observations": seen }),
            "writes",
        ),
        case("memory_read_graph", json!({}), "writes"),
        case("memory_search_nodes", json!({ "query": "Ada" }), "writes"),
        case("memory_open_nodes", json!({ "names": ["Ada"] }), "writes"),
        case(
            "memory_delete_observations",
            json!({ "deletions": unseen }),
            "deleted",
        ),
        case(
            "memory_delete_relations",
            json!({ "relations": knows }),
            "deleted",
        ),
        case(
            "memory_delete_entities",
            json!({ "entityNames": ["Ada", "Bob"] }),
            "deleted",
        ),
    ]
}

/// The everyday servers, over this folder.
fn everyday(interop: &Interop, folder: &Path) -> String {
    let upstream = |name: &str, more: &[&str]| {
        let server = format!("@modelcontextprotocol/server-{name}/dist/index.js");
        interop.stdio_upstream(name, &interop.package(&server), more)
    };
    let kept = format!("env: {{ MEMORY_FILE_PATH: {:?},", folder.join("memory"));
    [
        upstream("filesystem", &[&folder.display().to_string()]),
        upstream("everything", &["stdio"]),
        upstream("memory", &[]).replace("env: {", &kept),
    ]
    .join("\n")
}

/// Names at an endpoint.
async fn names(url: &str) -> anyhow::Result<Vec<String>> {
    let list = Client::new(url).call("tools/list", json!({})).await?;
    let tools = list.result().get("tools").and_then(Value::as_array);
    let name = |tool: &Value| tool.get("name")?.as_str().map(str::to_owned);
    Ok(tools.into_iter().flatten().filter_map(name).collect())
}

/// What a client reported of a call is what the tool says when it is called itself.
fn is_as_it_should(steps: &Steps, one: &Use) -> anyhow::Result<()> {
    let step = steps.step(one.tool)?;
    let field = |name: &str| step.get(name).cloned().unwrap_or_default();
    ensure!(field("described") == one.tool, "{step}");
    let text = field("text").as_str().unwrap_or_default().to_lowercase();
    ensure!(text.contains(&one.says.to_lowercase()), "{step}");
    ensure!(field("error") == false, "{step}");
    Ok(())
}

#[tokio::test]
async fn every_tool_of_everyday_servers_is_called_through_call_tool() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let home = tempfile::tempdir_in(std::env::temp_dir().canonicalize()?)?;
    let gateway = Gateway::with(&everyday(&interop, home.path()), ENDPOINTS).await?;
    let search = format!("{}/search", gateway.url);
    let direct = names(&gateway.url).await?;
    for (name, command) in [
        ("typescript", interop.node("search_client.mjs")),
        ("python", interop.session_python("search_client.py")),
    ] {
        let folder = home.path().join(name);
        std::fs::create_dir(&folder)?;
        let uses: Vec<Use> = files(&folder)
            .into_iter()
            .chain(everything())
            .chain(memory())
            .collect();
        let unused: Vec<_> = direct
            .iter()
            .filter(|name| !uses.iter().any(|one| one.tool == **name))
            .collect();
        ensure!(unused.is_empty(), "nobody calls {unused:?}");
        let calls: Vec<Value> = uses
            .iter()
            .map(|one| json!({ "name": one.tool, "arguments": one.arguments }))
            .collect();
        let calls = Value::from(calls).to_string();
        let steps = Steps::run(command, &[search.as_str(), &calls]).await?;
        let listed: Vec<String> = serde_json::from_value(steps.field("tools", "names")?.clone())?;
        ensure!(
            listed.iter().any(|name| name == "call_tool")
                && !listed.iter().any(|name| direct.contains(name)),
            "{listed:?}"
        );
        for one in &uses {
            is_as_it_should(&steps, one)?;
        }
        let told = steps.field("everything_trigger-long-running-operation", "progress")?;
        let steps_told: Vec<f64> = serde_json::from_value(told.clone())?;
        ensure!(steps_told == [1.0, 2.0, 3.0, 4.0, 5.0], "{name}: {told}");
        let image = steps.field("everything_get-tiny-image", "kinds")?;
        ensure!(image.to_string().contains("\"image\""), "{name}: {image}");
        let structured = steps.field("everything_get-structured-content", "structured")?;
        ensure!(structured.is_object(), "{name}: {structured}");
    }
    Ok(())
}

/// The list is that of search mode, and what was handed out as a task's id is a handle of Waypost's.
fn check(seen: &Seen) {
    assert!(
        seen.tools.contains(&"call_tool".to_owned())
            && !seen.tools.iter().any(|name| name.starts_with("peer_")),
        "{seen:?}"
    );
    assert!(!seen.tasks.is_empty(), "{seen:?}");
    assert!(
        seen.tasks.iter().all(|id| id.starts_with("peer~")),
        "{seen:?}"
    );
}

async fn task_clients_drive(url: &str) -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let upstream = format!("peer: {{ url: {url}, required: true }}");
    let gateway = Gateway::with(&upstream, ENDPOINTS).await?;
    let url = format!("{}/search", gateway.url);
    check(&drive::fastmcp_through_search(&interop, &url, "peer_").await?);
    check(&drive::typescript_through_search(&interop, &url, "peer_").await?);
    Ok(())
}

#[tokio::test]
async fn task_clients_drive_fastmcp_through_call_tool() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let server = Server::start(&mut interop.python("fastmcp_task_server.py")).await?;
    task_clients_drive(&server.url).await
}

#[tokio::test]
async fn task_clients_drive_the_demo_server_through_call_tool() -> anyhow::Result<()> {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default()).await?;
    task_clients_drive(&demo.url).await
}
