//! Real clients of the session era in front of Waypost, real servers of it behind, and both beside
//! those of today.

use waypost_testkit::demo::{demo_everything, legacy_everything};
use waypost_testkit::kit::legacy::{Options, Transport};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::drive::{self, Seen};
use waypost_tests::gateway::Gateway;
use waypost_tests::interop::{Interop, Server};

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
    check(&drive::python_in_a_session(&interop, url, "peer_").await?);
    check(&drive::python(&interop, url, "peer_").await?);
    Ok(())
}

/// A child of one's own has a list of its own, and what is listed is what a shared one says; the
/// clients here want to hear of a change.
fn shared(upstream: &str) -> String {
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
    every_client_drives(&shared(&interop.stdio_upstream(
        "peer",
        &command,
        &["--stdio"],
    )))
    .await
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
    every_client_drives(&shared(&interop.stdio_upstream(
        "peer",
        &command,
        &["--stdio"],
    )))
    .await
}
