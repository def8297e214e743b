//! The official conformance suite.

use waypost_testkit::demo::{demo_all, demo_everything, demo_tasks, tasks};
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_tests::conformance::{self, ExpectedFailures};
use waypost_tests::gateway::Gateway;
use waypost_tests::interop::{Interop, Server};

/// The client scenarios that say something about a gateway without a user.
const CLIENT_SCENARIOS: [&str; 7] = [
    "request-metadata",
    "tools_call",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "sep-2322-client-request-state",
    "json-schema-ref-no-deref",
];

#[tokio::test]
async fn the_demo_servers_pass_everything_directly() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let demo = demo_all(ANY_PORT, tasks::Options::default()).await?;
    let report = conformance::server(&interop, &demo.url).await?;
    report.print("demo servers, directly");
    report.verify("direct", &ExpectedFailures::load(&interop)?)
}

#[tokio::test]
async fn the_shim_changes_nothing_but_names() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let demo = demo_all(ANY_PORT, tasks::Options::default()).await?;
    let mut shim = interop.node("shim.mjs");
    let shim = Server::start(shim.args([demo.url.as_str(), ""])).await?;
    let report = conformance::server(&interop, &shim.url).await?;
    report.print("demo servers, through the shim");
    report.verify("direct", &ExpectedFailures::load(&interop)?)
}

/// Waypost in front of both demo servers. The guards keep them alive.
async fn waypost(settings: &str) -> anyhow::Result<(Gateway, [Running; 2])> {
    let tasks = demo_tasks(ANY_PORT, tasks::Options::default()).await?;
    let everything = demo_everything(ANY_PORT).await?;
    let upstreams = format!(
        "everything: {{ url: {}, required: true, {settings} }}\n\
         tasks: {{ url: {}, required: true, {settings} }}",
        everything.url, tasks.url
    );
    Ok((Gateway::start(&upstreams).await?, [tasks, everything]))
}

#[tokio::test]
async fn waypost_passes_everything_with_tasks_passed_through() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let (gateway, _servers) = waypost("prefix: \"\", tasks: passthrough").await?;
    let report = conformance::server(&interop, &gateway.url).await?;
    report.print("Waypost, `tasks: passthrough`");
    report.verify("passthrough", &ExpectedFailures::load(&interop)?)
}

#[tokio::test]
async fn waypost_differs_in_one_scenario_where_it_helps_with_tasks() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let (gateway, _servers) = waypost("prefix: \"\", tasks: auto").await?;
    let report = conformance::server(&interop, &gateway.url).await?;
    report.print("Waypost, `tasks: auto`");
    report.verify("auto", &ExpectedFailures::load(&interop)?)
}

#[tokio::test]
async fn waypost_passes_everything_under_prefixes() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let (gateway, _servers) = waypost("tasks: passthrough").await?;
    let mut shim = interop.node("shim.mjs");
    let shim = Server::start(shim.args([gateway.url.as_str(), "everything_", "tasks_"])).await?;
    let report = conformance::server(&interop, &shim.url).await?;
    report.print("Waypost, prefixes, through the shim");
    report.verify("prefixed", &ExpectedFailures::load(&interop)?)
}

/// What the suite skips of a client scenario is what the official client does not do either: the
/// session era's handshake, and capabilities a server that offers nothing is never told.
#[tokio::test]
async fn waypost_is_a_conforming_client() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let report = conformance::client_scenarios(&interop, &CLIENT_SCENARIOS).await?;
    report.print("Waypost as the client");
    assert_eq!(report.scenarios.len(), CLIENT_SCENARIOS.len(), "{report}");
    report.verify("client", &ExpectedFailures::load(&interop)?)
}
