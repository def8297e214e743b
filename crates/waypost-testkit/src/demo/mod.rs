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
use crate::kit::legacy::{self, Sessions, Transport};
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
    let stop = CancellationToken::new();
    start(address, all::AllServer::open(options, stop.clone())?, stop).await
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

/// Starts *demo-everything* in the session era.
///
/// # Errors
///
/// When the address cannot be bound.
pub async fn legacy_everything(
    address: SocketAddr,
    options: legacy::Options,
) -> io::Result<Running> {
    let server = everything::EverythingServer::new(Events::default());
    start_legacy(address, server, options, CancellationToken::new()).await
}

/// Starts *demo-tasks* in the session era.
///
/// # Errors
///
/// When the address cannot be bound, or the state directory cannot be used.
pub async fn legacy_tasks(
    address: SocketAddr,
    tasks: tasks::Options,
    options: legacy::Options,
) -> io::Result<Running> {
    let stop = CancellationToken::new();
    let server = tasks::TaskServer::open(tasks, Events::default(), stop.clone())?;
    start_legacy(address, server, options, stop).await
}

/// Starts both behind one endpoint in the session era.
///
/// # Errors
///
/// When the address cannot be bound, or the state directory cannot be used.
pub async fn legacy_all(
    address: SocketAddr,
    tasks: tasks::Options,
    options: legacy::Options,
) -> io::Result<Running> {
    let stop = CancellationToken::new();
    let server = all::AllServer::open(tasks, stop.clone())?;
    start_legacy(address, server, options, stop).await
}

/// Starts any server of the kit in the session era: at `/mcp`, or over HTTP+SSE at `/p/sse` (and
/// `/sse`); `stop` is the signal the server was made with.
///
/// # Errors
///
/// When the address cannot be bound.
pub async fn start_legacy(
    address: SocketAddr,
    server: impl Server,
    options: legacy::Options,
    stop: CancellationToken,
) -> io::Result<Running> {
    let (sessions, transport) = (Sessions::default(), options.transport);
    let loopback = address.ip().is_loopback();
    let server = Arc::new(server);
    let router = legacy::router(server, options, sessions.clone(), loopback, stop.clone());
    let mut running = serve(address, router, stop).await?.with_sessions(sessions);
    if transport == Transport::Sse {
        running.url = format!("http://{}/p/sse", running.address);
    }
    Ok(running)
}
