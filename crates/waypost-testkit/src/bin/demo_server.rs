//! The demo servers alone, for running the official conformance suite directly against them:
//! `cargo run -p waypost-testkit --bin demo_server -- tasks`.

use clap::Parser;
use tokio_util::sync::CancellationToken;
use waypost_testkit::cli::{DemoServer, run};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    server: DemoServer,
}

#[tokio::main]
#[expect(
    clippy::print_stderr,
    reason = "standard output belongs to the stdio transport"
)]
async fn main() -> std::io::Result<()> {
    let server = Program::parse().server;
    run(server, CancellationToken::new(), |url| {
        eprintln!("listening on {url}")
    })
    .await
}
