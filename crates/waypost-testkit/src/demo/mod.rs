//! The demo servers: honest servers of the whole protocol, and the fixtures of the official
//! conformance suite.

pub mod all;
pub mod everything;
pub mod tasks;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::kit::events::Events;
use crate::kit::http::router;
use crate::kit::server::Server;
use crate::run::{Running, serve};

/// Starts *demo-tasks*.
///
/// # Errors
///
/// When the address cannot be bound, or the state directory cannot be used.
pub async fn demo_tasks(address: SocketAddr, options: tasks::Options) -> io::Result<Running> {
    let stop = CancellationToken::new();
    let server = tasks::TaskServer::open(options, Events::default(), stop.clone())?;
    start(address, server, stop).await
}

/// Starts *demo-everything*.
///
/// # Errors
///
/// When the address cannot be bound.
pub async fn demo_everything(address: SocketAddr) -> io::Result<Running> {
    let server = everything::EverythingServer::new(Events::default());
    start(address, server, CancellationToken::new()).await
}

/// Starts both behind one endpoint.
///
/// # Errors
///
/// When the address cannot be bound, or the state directory cannot be used.
pub async fn demo_all(address: SocketAddr, options: tasks::Options) -> io::Result<Running> {
    let (events, stop) = (Events::default(), CancellationToken::new());
    let tasks = tasks::TaskServer::open(options, events.clone(), stop.clone())?;
    let everything = everything::EverythingServer::new(events);
    start(address, all::AllServer::new(everything, tasks), stop).await
}

/// Starts any server of the kit at `/mcp`; `stop` is the signal the server was made with.
///
/// # Errors
///
/// When the address cannot be bound.
pub async fn start(
    address: SocketAddr,
    server: impl Server,
    stop: CancellationToken,
) -> io::Result<Running> {
    let router = router(Arc::new(server), address.ip().is_loopback(), stop.clone());
    serve(address, router, stop).await
}
