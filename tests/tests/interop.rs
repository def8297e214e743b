//! Real clients in front of Waypost, real servers behind it.

use waypost_testkit::demo::{demo_everything, demo_tasks, tasks};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::drive::{self, Seen};
use waypost_tests::gateway::Gateway;
use waypost_tests::interop::{Interop, Server};
use waypost_tests::rmcp_peer::RmcpServer;

const TOOLS: [&str; 4] = ["greet", "slow_compute", "failing_job", "confirm_delete"];

/// One upstream named `peer`, which must answer before the gateway is ready.
async fn in_front_of(url: &str) -> anyhow::Result<Gateway> {
    Gateway::start(&format!("peer: {{ url: {url}, required: true }}")).await
}

/// Names carry the prefix, and what was handed out as a task's id is a handle of Waypost's.
fn check(seen: &Seen) {
    for tool in TOOLS {
        assert!(
            seen.tools.contains(&format!("peer_{tool}")),
            "{tool}: {seen:?}"
        );
    }
    assert!(!seen.tasks.is_empty(), "{seen:?}");
    assert!(
        seen.tasks.iter().all(|id| id.starts_with("peer~")),
        "{seen:?}"
    );
}

async fn every_task_client_drives(url: &str) -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let gateway = in_front_of(url).await?;
    check(&drive::fastmcp(&interop, &gateway.url, "peer_").await?);
    check(&drive::typescript(&interop, &gateway.url, "peer_").await?);
    check(&drive::rmcp(&gateway.url, "peer_").await?);
    Ok(())
}

#[tokio::test]
async fn every_task_client_drives_fastmcp() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let server = Server::start(&mut interop.python("fastmcp_task_server.py")).await?;
    every_task_client_drives(&server.url).await
}

#[tokio::test]
async fn every_task_client_drives_rmcp() -> anyhow::Result<()> {
    let server = RmcpServer::start(true).await?;
    every_task_client_drives(&server.url).await
}

#[tokio::test]
async fn every_task_client_drives_rmcp_that_only_streams() -> anyhow::Result<()> {
    let server = RmcpServer::start(false).await?;
    every_task_client_drives(&server.url).await
}

#[tokio::test]
async fn every_task_client_drives_the_demo_server() -> anyhow::Result<()> {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default()).await?;
    every_task_client_drives(&demo.url).await
}

#[tokio::test]
async fn the_python_client_drives_the_typescript_server() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let server = Server::start(&mut interop.node("ts_server.mjs")).await?;
    let gateway = in_front_of(&server.url).await?;
    drive::python(&interop, &gateway.url, "peer_").await?;
    Ok(())
}

#[tokio::test]
async fn the_python_client_drives_the_typescript_server_over_stdio() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let gateway = Gateway::start(&interop.stdio_upstream(
        "peer",
        &interop.node("ts_server.mjs"),
        &["--stdio"],
    ))
    .await?;
    drive::python(&interop, &gateway.url, "peer_").await?;
    Ok(())
}

#[tokio::test]
async fn the_python_client_drives_the_demo_server() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let demo = demo_everything(ANY_PORT).await?;
    let gateway = in_front_of(&demo.url).await?;
    drive::python(&interop, &gateway.url, "peer_").await?;
    Ok(())
}
