//! `waypost demo-server`: the demo servers from a command line.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tokio_util::sync::CancellationToken;

use crate::demo::all::AllServer;
use crate::demo::everything::EverythingServer;
use crate::demo::start;
use crate::demo::tasks::{Options, TaskServer};
use crate::kit::events::Events;
use crate::kit::server::Server;
use crate::kit::stdio::serve_stdio;

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
    if args.stdio {
        return match stop.run_until_cancelled(serve_stdio(server)).await {
            Some(result) => result,
            None => Ok(()),
        };
    }
    let running = start(args.listen, server, stop).await?;
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
