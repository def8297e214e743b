//! `waypost demo`: Waypost with demo servers behind it, and `waypost demo-server`.

mod gateway;
mod words;

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use waypost_config::{Log, LogFormat};
use waypost_testkit::cli::{self, DemoServer};

pub(crate) use self::gateway::Gateway;
#[cfg(test)]
pub(crate) use self::words::first_call;
use crate::cli::Demo;
use crate::exit::Fatal;
use crate::logging::{self, LastLines};
use crate::output::print;
use crate::serve::runtime;
use crate::signal::Signals;
use crate::walkthrough;

impl Demo {
    /// Nobody else needs to find the tour, so that one may run beside a demo.
    fn address(&self) -> SocketAddr {
        let port = if self.walkthrough { 0 } else { 7400 };
        self.listen
            .unwrap_or_else(|| (Ipv4Addr::LOCALHOST, port).into())
    }
}

/// Runs the demo until Ctrl-C, or to the end of the walkthrough.
pub(crate) fn run(demo: Demo) -> Result<(), Fatal> {
    let _last = quiet()?;
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        let gateway = Gateway::start(demo.address()).await?;
        if demo.walkthrough {
            let url = gateway.daemon.url();
            let tour = walkthrough::play(&url, print);
            tokio::select! {
                result = tour => result.context("the walkthrough broke off")?,
                _ = signals.next() => {}
            }
        } else {
            print(&words::welcome(&gateway));
            signals.next().await;
        }
        tokio::select! {
            () = gateway.stop() => {}
            _ = signals.next() => {}
        }
        Ok(())
    });
    runtime.shutdown_background();
    result
}

/// Runs one demo server until Ctrl-C, or the end of its input.
pub(crate) fn server(server: DemoServer) -> Result<(), Fatal> {
    let _last = quiet()?;
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        let stop = CancellationToken::new();
        let address = server.listen;
        let ready = |url: &str| print(&format!("listening on {url}"));
        let mut served = std::pin::pin!(cli::run(server, stop.clone(), ready));
        let result = tokio::select! {
            result = &mut served => result,
            _ = signals.next() => {
                stop.cancel();
                served.await
            }
        };
        result.map_err(|error| {
            let error = anyhow::Error::from(error);
            let error = error.context(format!("the demo server cannot run on `{address}`"));
            Fatal::hint(
                error,
                "give another address with `--listen`; port 0 takes any free one",
            )
        })
    });
    runtime.shutdown_background();
    result
}

/// Only what goes wrong is worth a line between the demo's own.
fn quiet() -> Result<LastLines, Fatal> {
    logging::start(&Log {
        level: "warn".to_owned(),
        format: LogFormat::Text,
    })
}
