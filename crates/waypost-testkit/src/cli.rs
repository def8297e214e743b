//! `waypost demo-server`: the demo servers from a command line.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tokio_util::sync::CancellationToken;

use crate::demo::all::AllServer;
use crate::demo::everything::EverythingServer;
use crate::demo::tasks::{Options, TaskServer};
use crate::demo::{start, start_legacy};
use crate::kit::events::Events;
use crate::kit::legacy::{self, Fault, Revision, Transport};
use crate::kit::server::Server;
use crate::kit::stdio::{serve_stdio, serve_stdio_legacy};

/// Which demo server.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Which {
    /// The tasks extension.
    Tasks,
    /// Everything else of the protocol.
    Everything,
    /// Both behind one endpoint.
    All,
}

/// Runs one of the embedded demo servers.
#[derive(Args, Clone, Debug)]
pub struct DemoServer {
    /// The server to run.
    #[arg(value_enum)]
    pub which: Which,
    /// Where to listen; port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7410")]
    pub listen: SocketAddr,
    /// Speak over standard input and output instead.
    #[arg(long, conflicts_with = "listen")]
    pub stdio: bool,
    /// Keep tasks here, across restarts.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Which era to speak: `modern`, or `legacy` where the transport is `sse`, unless given.
    #[arg(long, value_enum)]
    pub era: Option<Era>,
    /// How the session era is spoken over HTTP.
    #[arg(long, value_enum, default_value = "http")]
    pub transport: Over,
    /// Whether clients of the session era must open a session.
    #[arg(long, value_enum, default_value = "demanded")]
    pub sessions: Need,
    /// The newest revision spoken in the session era.
    #[arg(
        long,
        value_enum,
        default_value = "2025-11-25",
        value_name = "REVISION"
    )]
    pub protocol: Revision,
    /// Misbehave over standard input and output (session era).
    #[arg(long, value_enum, hide = true, requires = "stdio")]
    pub fault: Option<Fault>,
}

/// Which era a demo server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Era {
    /// 2026-07-28 only.
    Modern,
    /// 2024-11-05 to 2025-11-25 only.
    Legacy,
    /// Whatever each request speaks.
    Both,
}

/// A transport of the session era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE.
    Sse,
}

/// What becomes of requests without a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Need {
    /// They are refused.
    Demanded,
    /// They are served; there are no sessions.
    Off,
}

impl DemoServer {
    /// What is said about the session era is meant for a server that speaks it.
    fn check(&self) -> io::Result<()> {
        let usual = self.sessions == Need::Demanded && self.protocol == Revision::Nov2025;
        if usual || self.legacy().is_some() {
            return Ok(());
        }
        let why = "`--sessions` and `--protocol` need `--era legacy` or `--era both`";
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    /// How the session era is served; `None` when only the modern one is.
    fn legacy(&self) -> Option<legacy::Options> {
        let sse = self.transport == Over::Sse;
        let era = self.era.unwrap_or(if sse || self.fault.is_some() {
            Era::Legacy
        } else {
            Era::Modern
        });
        (era != Era::Modern).then(|| legacy::Options {
            modern: era == Era::Both,
            sessions: self.sessions == Need::Demanded,
            newest: self.protocol,
            transport: if sse { Transport::Sse } else { Transport::Http },
            fault: self.fault,
            ..legacy::Options::default()
        })
    }
}

/// Runs the server until `stop`, or, over stdio, until the input ends. `ready` gets the URL.
///
/// # Errors
///
/// When the address or the state directory cannot be used, or the pipe breaks.
pub async fn run(
    args: DemoServer,
    stop: CancellationToken,
    ready: impl FnOnce(&str),
) -> io::Result<()> {
    args.check()?;
    let options = Options {
        state: args.state.clone(),
        ..Options::default()
    };
    let events = Events::default();
    let everything = EverythingServer::new(events.clone());
    match args.which {
        Which::Everything => serve(&args, everything, stop, ready).await,
        Which::Tasks => {
            let server = TaskServer::open(options, events, stop.clone())?;
            serve(&args, server, stop, ready).await
        }
        Which::All => {
            let tasks = TaskServer::open(options, events, stop.clone())?;
            serve(&args, AllServer::new(everything, tasks), stop, ready).await
        }
    }
}

async fn serve(
    args: &DemoServer,
    server: impl Server,
    stop: CancellationToken,
    ready: impl FnOnce(&str),
) -> io::Result<()> {
    let legacy = args.legacy();
    if args.stdio {
        let served = async {
            match legacy {
                Some(options) => serve_stdio_legacy(server, options).await,
                None => serve_stdio(server).await,
            }
        };
        return stop.run_until_cancelled(served).await.unwrap_or(Ok(()));
    }
    let running = match legacy {
        Some(options) => start_legacy(args.listen, server, options, stop).await?,
        None => start(args.listen, server, stop).await?,
    };
    ready(&running.url);
    running.wait().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::client::Client;

    #[derive(Parser, Debug)]
    struct Program {
        #[command(flatten)]
        server: DemoServer,
    }

    fn parse(line: &str) -> Result<DemoServer, clap::Error> {
        Program::try_parse_from(line.split(' ')).map(|program| program.server)
    }

    #[test]
    fn an_address_or_the_pipe_but_not_both() {
        assert!(
            parse("demo-server tasks --stdio --state dir")
                .expect("valid")
                .stdio
        );
        assert!(parse("demo-server all --listen 127.0.0.1:0").is_ok());
        assert!(parse("demo-server tasks --stdio --listen 127.0.0.1:0").is_err());
        assert!(parse("demo-server nothing").is_err());
    }

    #[track_caller]
    fn check(line: &str, era: Option<(bool, bool, Transport)>) {
        let options = parse(line).expect("valid").legacy();
        let said = options.map(|all| (all.modern, all.sessions, all.transport));
        assert_eq!(said, era, "{line}");
    }

    #[test]
    fn the_era_is_modern_unless_something_says_otherwise() {
        check("demo-server all", None);
        check("demo-server all --era modern", None);
        let http = Transport::Http;
        check("demo-server all --era legacy", Some((false, true, http)));
        check(
            "demo-server all --era both --sessions off",
            Some((true, false, http)),
        );
        check(
            "demo-server all --transport sse",
            Some((false, true, Transport::Sse)),
        );
        assert!(parse("demo-server all --era legacy --protocol 2025-06-18").is_ok());
        assert!(parse("demo-server all --era legacy --protocol 2026-07-28").is_err());
        assert!(parse("demo-server all --fault crash").is_err());
        let refused = parse("demo-server all --sessions off")
            .expect("valid")
            .check();
        assert!(refused.is_err_and(|why| why.to_string().contains("--era legacy")));
    }

    #[tokio::test]
    async fn every_server_runs_until_it_is_stopped() {
        for which in ["tasks", "everything", "all"] {
            let args = parse(&format!("demo-server {which} --listen 127.0.0.1:0")).expect("valid");
            let stop = CancellationToken::new();
            let (send, url) = tokio::sync::oneshot::channel();
            let ready = |url: &str| send.send(url.to_owned()).expect("a listener");
            let ask = async {
                let client = Client::new(url.await.expect("a URL"));
                let reply = client.call("server/discover", serde_json::json!({})).await;
                stop.cancel();
                reply.expect("an answer")
            };
            let (ended, reply) = tokio::join!(run(args, stop.clone(), ready), ask);
            ended.expect("a clean end");
            assert!(reply.result()["capabilities"]["tools"].is_object());
        }
    }
}
