//! The official conformance suite.

use waypost_testkit::demo::{demo_all, tasks};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::conformance::{self, ExpectedFailures};
use waypost_tests::interop::{Interop, Server};

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
