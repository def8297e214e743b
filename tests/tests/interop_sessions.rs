//! Real clients of the session era in front of Waypost, real servers of it behind, and both beside
//! those of today.

use serde_json::json;
use tokio::process::Command;
use waypost_testkit::client::Client;
use waypost_testkit::demo::{demo_everything, demo_tasks, legacy_everything, legacy_tasks, tasks};
use waypost_testkit::kit::legacy::{Options, Transport};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::drive::{self, Seen};
use waypost_tests::gateway::Gateway;
use waypost_tests::interop::{Interop, Server};
use waypost_tests::rmcp_driver::RmcpClient;
use waypost_tests::rmcp_peer::RmcpServer;

const TOOLS: [&str; 2] = ["test_simple_text", "test_trigger_tool_change"];

fn check(seen: &Seen) {
    for tool in TOOLS {
        assert!(
            seen.tools.contains(&format!("peer_{tool}")),
            "{tool}: {seen:?}"
        );
    }
}

/// One after the other through one Waypost, so that both eras meet on one endpoint.
async fn every_client_drives(upstream: &str) -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let gateway = Gateway::start(upstream).await?;
    let url = gateway.url.as_str();
    check(&drive::session_typescript(&interop, url, "peer_").await?);
    check(&drive::session_python(&interop, url, "peer_").await?);
    check(&drive::typescript_in_a_session(&interop, url, "peer_").await?);
    check(&drive::python_in_a_session(&interop, url, "peer_").await?);
    check(&drive::python(&interop, url, "peer_").await?);
    Ok(())
}

/// A child of one's own has a list of its own, and what is listed is what a shared one says; the
/// clients here want to hear of a change.
fn child(interop: &Interop, command: &Command) -> String {
    let upstream = interop.stdio_upstream("peer", command, &["--stdio"]);
    upstream.replacen('{', "{ isolation: shared,", 1)
}

fn at(url: &str) -> String {
    format!("peer: {{ url: {url}, required: true }}")
}

#[tokio::test]
async fn every_client_drives_the_demo_server() -> anyhow::Result<()> {
    let demo = demo_everything(ANY_PORT).await?;
    every_client_drives(&at(&demo.url)).await
}

#[tokio::test]
async fn every_client_drives_the_demo_server_of_the_session_era() -> anyhow::Result<()> {
    let demo = legacy_everything(ANY_PORT, Options::default()).await?;
    every_client_drives(&at(&demo.url)).await
}

#[tokio::test]
async fn every_client_drives_the_demo_server_over_sse() -> anyhow::Result<()> {
    let transport = Transport::Sse;
    let options = Options {
        transport,
        ..Options::default()
    };
    let demo = legacy_everything(ANY_PORT, options).await?;
    every_client_drives(&at(&demo.url)).await
}

#[tokio::test]
async fn every_client_drives_the_typescript_server() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let server = Server::start(&mut interop.node("ts_server.mjs")).await?;
    every_client_drives(&at(&server.url)).await
}

#[tokio::test]
async fn every_client_drives_the_typescript_server_of_the_session_era() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let server = Server::start(&mut interop.node("session_server.mjs")).await?;
    every_client_drives(&at(&server.url)).await
}

#[tokio::test]
async fn every_client_drives_the_typescript_child_of_the_session_era() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let command = interop.node("session_server.mjs");
    every_client_drives(&child(&interop, &command)).await
}

#[tokio::test]
async fn every_client_drives_the_python_server_of_the_session_era() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let server = Server::start(&mut interop.session_python("session_server.py")).await?;
    every_client_drives(&at(&server.url)).await
}

#[tokio::test]
async fn every_client_drives_the_python_child_of_the_session_era() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let command = interop.session_python("session_server.py");
    every_client_drives(&child(&interop, &command)).await
}

/// In front of servers of either era: a tool, progress, a question, and the end of the stream.
#[tokio::test]
async fn clients_of_http_sse_drive_servers_of_both_eras() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let modern = demo_everything(ANY_PORT).await?;
    let child = child(&interop, &interop.node("session_server.mjs"));
    for upstream in [at(&modern.url), child] {
        let gateway = Gateway::with(&upstream, "front: { sse: true }").await?;
        let url = gateway.sse_url();
        check(&drive::sse_typescript(&interop, &url, "peer_").await?);
        check(&drive::sse_python(&interop, &url, "peer_").await?);
        assert!(gateway.stop().await, "nothing is left of them");
    }
    Ok(())
}

/// It offers a revision that has no sessions, and declares tasks where they do not exist.
#[tokio::test]
async fn rmcp_in_a_session_gets_plain_answers_for_tasks() -> anyhow::Result<()> {
    let modern = demo_tasks(ANY_PORT, tasks::Options::default()).await?;
    let options = Options::default();
    let legacy = legacy_tasks(ANY_PORT, tasks::Options::default(), options).await?;
    for url in [&modern.url, &legacy.url] {
        let gateway = Gateway::start(&at(url)).await?;
        let client = RmcpClient::open(&gateway.url).await?;
        assert_eq!(client.version().as_deref(), Some("2025-11-25"));
        let args = json!({ "seconds": 0.1, "label": "short" });
        let slow = client.call("peer_slow_compute", args).await?;
        assert!(slow.task.is_none(), "{slow:?}");
        assert!(slow.text()?.contains("short"), "{slow:?}");
        let failed = client.call("peer_failing_job", json!({})).await?;
        assert!(
            failed.task.is_none() && failed.is_tool_error(),
            "{failed:?}"
        );
        let args = json!({ "filename": "a.txt" });
        let asked = client.call("peer_confirm_delete", args).await?;
        assert_eq!(asked.text()?, "Deleted a.txt.");
        assert_eq!(client.asked().len(), 1);
    }
    Ok(())
}

/// It speaks both eras, and what it is spoken to in is a setting.
#[tokio::test]
async fn rmcp_serves_sessions_behind_waypost() -> anyhow::Result<()> {
    let server = RmcpServer::start_with_sessions().await?;
    for era in ["auto", "legacy"] {
        let upstream = format!(
            "peer: {{ url: {}, required: true, era: {era} }}",
            server.url
        );
        let gateway = Gateway::start(&upstream).await?;
        let modern = RmcpClient::connect(&gateway.url).await?;
        let session = RmcpClient::open(&gateway.url).await?;
        for client in [&modern, &session] {
            let greeting = client.call("peer_greet", json!({ "name": "Ada" })).await?;
            assert_eq!(greeting.text()?, "Hello, Ada!", "{era}");
            let args = json!({ "seconds": 0.1, "label": "short" });
            let slow = client.call("peer_slow_compute", args).await?;
            assert!(slow.text()?.contains("short"), "{era}: {slow:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn r30_links_of_two_real_servers_lead_back_to_the_one_that_made_them() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let server = interop.package("@modelcontextprotocol/server-everything/dist/index.js");
    let upstreams = ["a", "b"].map(|name| interop.stdio_upstream(name, &server, &["stdio"]));
    let gateway = Gateway::start(&upstreams.join("\n")).await?;
    let client = Client::new(&gateway.url);
    for name in ["a", "b"] {
        let tool = format!("{name}_get-resource-links");
        let said = client.tool(&tool, json!({ "count": 4 })).await?;
        let links = said.result()["content"].as_array().cloned();
        let links = links.unwrap_or_default();
        let uris: Vec<&str> = links
            .iter()
            .filter_map(|link| link["uri"].as_str())
            .collect();
        assert_eq!(uris.len(), 4, "{}", said.answer);
        for uri in uris {
            // Both have the templates, so only the long form says whose it is.
            assert!(uri.starts_with(&format!("{name}+demo://")), "{uri}");
            let read = client.call("resources/read", json!({ "uri": uri })).await?;
            let contents = &read.result()["contents"][0];
            assert_eq!(contents["uri"], uri, "{}", read.answer);
        }
    }
    let read = json!({ "uri": "demo://resource/dynamic/text/1" });
    let refused = client.call("resources/read", read).await?;
    let text = refused.answer["error"]["message"].to_string();
    assert!(
        text.contains("`a+demo://") && text.contains("`b+demo://"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
async fn r28_no_client_loses_a_list_to_one_malformed_tool() -> anyhow::Result<()> {
    let schema = json!({ "type": "object" });
    let tools = json!([
        { "name": "sound", "inputSchema": schema }, { "inputSchema": schema },
        { "name": 1, "inputSchema": schema }, { "name": "none" }, { "name": "null", "inputSchema": null },
        { "name": "list", "inputSchema": [] }, { "name": "text", "inputSchema": { "type": "string" } },
        { "name": "loose", "title": null, "description": null, "inputSchema": { "properties": {} } },
    ]);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tools.json");
    std::fs::write(&file, tools.to_string())?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/pinned.py");
    let demo = demo_everything(ANY_PORT).await?;
    let bad = format!(
        "bad: {{ command: python3, args: ['{script}', '{}'], required: true }}",
        file.display()
    );
    let upstreams = format!("{}\n{bad}", at(&demo.url));
    every_client_drives(&upstreams).await?;
    let gateway = Gateway::start(&upstreams).await?;
    let list = Client::new(&gateway.url)
        .call("tools/list", json!({}))
        .await?;
    let names = list.result()["tools"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let names = names.iter().filter_map(|tool| tool["name"].as_str());
    let bad: Vec<&str> = names.filter(|name| name.starts_with("bad_")).collect();
    assert_eq!(bad, ["bad_loose", "bad_sound"]);
    Ok(())
}
