//! The official conformance suite.

use waypost_testkit::demo::{
    demo_all, demo_everything, demo_tasks, legacy_all, legacy_everything, tasks,
};
use waypost_testkit::kit::legacy::Options;
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_tests::conformance::{self, ExpectedFailures, Revision};
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

/// Those of 2025-11-25.
const SESSION_CLIENT_SCENARIOS: [&str; 4] = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
];

#[tokio::test]
async fn the_demo_servers_pass_everything_directly() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let demo = demo_all(ANY_PORT, tasks::Options::default()).await?;
    let report = conformance::server(&interop, Revision::July2026, &demo.url).await?;
    report.print("demo servers, directly");
    report.verify("direct", &ExpectedFailures::load(&interop)?)
}

#[tokio::test]
async fn the_shim_changes_nothing_but_names() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let demo = demo_all(ANY_PORT, tasks::Options::default()).await?;
    let mut shim = interop.node("shim.mjs");
    let shim = Server::start(shim.args([demo.url.as_str(), ""])).await?;
    let report = conformance::server(&interop, Revision::July2026, &shim.url).await?;
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
    let expected = ExpectedFailures::load(&interop)?;
    let report = conformance::server(&interop, Revision::July2026, &gateway.url).await?;
    report.print("Waypost over a modern server, 2026-07-28");
    assert_eq!(report.score(), (37, 37), "{report}");
    report.verify("passthrough", &expected)?;
    let report = conformance::server(&interop, Revision::November2025, &gateway.url).await?;
    report.print("Waypost over a modern server, 2025-11-25");
    assert_eq!(report.score(), (30, 30), "{report}");
    report.verify("session", &expected)
}

#[tokio::test]
async fn the_session_era_demo_server_passes_everything_directly() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let demo = legacy_all(ANY_PORT, tasks::Options::default(), Options::default()).await?;
    let report = conformance::server(&interop, Revision::November2025, &demo.url).await?;
    report.print("session-era demo server, directly");
    assert_eq!(report.score(), (30, 30), "{report}");
    report.verify("direct", &ExpectedFailures::load(&interop)?)
}

/// Both sets of requirements against one daemon, whose only server speaks 2025-11-25.
#[tokio::test]
async fn waypost_passes_everything_over_a_session_era_server() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let demo = legacy_everything(ANY_PORT, Options::default()).await?;
    let upstream = format!(
        "everything: {{ url: {}, required: true, prefix: \"\" }}",
        demo.url
    );
    let gateway = Gateway::start(&upstream).await?;
    let expected = ExpectedFailures::load(&interop)?;
    let report = conformance::server(&interop, Revision::November2025, &gateway.url).await?;
    report.print("Waypost over a session-era server, 2025-11-25");
    assert_eq!(report.score(), (30, 30), "{report}");
    report.verify("session", &expected)?;
    let report = conformance::server(&interop, Revision::July2026, &gateway.url).await?;
    report.print("Waypost over a session-era server, 2026-07-28");
    assert_eq!(report.score(), (37, 37), "{report}");
    report.verify("legacy-upstream", &expected)
}

#[tokio::test]
async fn waypost_differs_in_one_scenario_where_it_helps_with_tasks() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let (gateway, _servers) = waypost("prefix: \"\", tasks: auto").await?;
    let report = conformance::server(&interop, Revision::July2026, &gateway.url).await?;
    report.print("Waypost, `tasks: auto`");
    report.verify("auto", &ExpectedFailures::load(&interop)?)
}

#[tokio::test]
async fn waypost_passes_everything_under_prefixes() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let (gateway, _servers) = waypost("tasks: passthrough").await?;
    let mut shim = interop.node("shim.mjs");
    let shim = Server::start(shim.args([gateway.url.as_str(), "everything_", "tasks_"])).await?;
    let report = conformance::server(&interop, Revision::July2026, &shim.url).await?;
    report.print("Waypost, prefixes, through the shim");
    report.verify("prefixed", &ExpectedFailures::load(&interop)?)
}

/// What the suite skips of a client scenario is what the official client does not do either: the
/// session era's handshake, and capabilities a server that offers nothing is never told.
#[tokio::test]
async fn waypost_is_a_conforming_client() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let report =
        conformance::client_scenarios(&interop, Revision::July2026, &CLIENT_SCENARIOS).await?;
    report.print("Waypost as the client");
    assert_eq!(report.scenarios.len(), CLIENT_SCENARIOS.len(), "{report}");
    report.verify("client", &ExpectedFailures::load(&interop)?)
}

#[tokio::test]
async fn waypost_is_a_conforming_client_of_the_session_era() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let scenarios = &SESSION_CLIENT_SCENARIOS;
    let report = conformance::client_scenarios(&interop, Revision::November2025, scenarios).await?;
    report.print("Waypost as the client, 2025-11-25");
    assert_eq!(report.scenarios.len(), scenarios.len(), "{report}");
    report.verify("client", &ExpectedFailures::load(&interop)?)
}
