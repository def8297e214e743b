//! The peers among themselves, without Waypost: when these fail, it is the peers that do not
//! understand each other, and no failure of a test with Waypost between them says anything.

use waypost_testkit::demo::{demo_all, legacy_everything, tasks};
use waypost_testkit::kit::legacy::Options;
use waypost_testkit::run::ANY_PORT;
use waypost_tests::interop::{Interop, Server};
use waypost_tests::rmcp_peer::RmcpServer;
use waypost_tests::{conformance, drive};

const TOOLS: [&str; 4] = ["greet", "slow_compute", "failing_job", "confirm_delete"];

fn check(seen: &drive::Seen) {
    assert!(
        TOOLS
            .iter()
            .all(|tool| seen.tools.iter().any(|name| name == tool)),
        "{seen:?}"
    );
    assert!(seen.tasks.iter().all(|id| !id.is_empty()), "{seen:?}");
}

#[tokio::test]
async fn every_task_client_drives_fastmcp_directly() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let server = Server::start(&mut interop.python("fastmcp_task_server.py")).await?;
    check(&drive::fastmcp(&interop, &server.url, "").await?);
    check(&drive::typescript(&interop, &server.url, "").await?);
    check(&drive::rmcp(&server.url, "").await?);
    Ok(())
}

#[tokio::test]
async fn the_tasks_package_and_rmcp_drive_rmcp_directly() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    for json in [true, false] {
        let server = RmcpServer::start(json).await?;
        check(&drive::typescript(&interop, &server.url, "").await?);
        check(&drive::rmcp(&server.url, "").await?);
    }
    Ok(())
}

#[tokio::test]
async fn the_python_client_drives_the_typescript_server_directly() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let server = Server::start(&mut interop.node("ts_server.mjs")).await?;
    drive::python(&interop, &server.url, "").await?;
    Ok(())
}

#[tokio::test]
async fn the_suite_finds_out_what_a_server_does_and_does_not() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let server = Server::start(&mut interop.node("ts_server.mjs")).await?;
    let scenarios = ["tools-list", "tasks-lifecycle"];
    let report = conformance::server_scenarios(&interop, &server.url, &scenarios).await?;
    assert_eq!(
        report.failing().into_iter().collect::<Vec<_>>(),
        ["tasks-lifecycle"],
        "{report}"
    );
    Ok(())
}

#[tokio::test]
async fn strict_clients_drive_the_demo_servers_directly() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let demo = demo_all(ANY_PORT, tasks::Options::default()).await?;
    // FastMCP's client sends no `Mcp-Name` on `tasks/*`, which a strict server refuses.
    assert!(drive::fastmcp(&interop, &demo.url, "").await.is_err());
    check(&drive::typescript(&interop, &demo.url, "").await?);
    check(&drive::rmcp(&demo.url, "").await?);
    drive::python(&interop, &demo.url, "").await?;
    Ok(())
}

#[tokio::test]
async fn the_clients_and_servers_of_the_session_era_understand_each_other() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let demo = legacy_everything(ANY_PORT, Options::default()).await?;
    let typescript = Server::start(&mut interop.node("session_server.mjs")).await?;
    let python = Server::start(&mut interop.session_python("session_server.py")).await?;
    for url in [&demo.url, &typescript.url, &python.url] {
        drive::session_typescript(&interop, url, "").await?;
        drive::session_python(&interop, url, "").await?;
        drive::typescript_in_a_session(&interop, url, "").await?;
        drive::python_in_a_session(&interop, url, "").await?;
    }
    Ok(())
}
