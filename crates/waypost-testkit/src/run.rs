//! A server that is up, until it is stopped or dropped.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::kit::legacy::Sessions;
use crate::kit::spawn::spawn;
use crate::seen::{Seen, record};

/// Any free port of loopback.
pub const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long answers under way may take once the server is to stop.
const GRACE: Duration = Duration::from_millis(500);

/// A running server. It stops when this is dropped.
#[derive(Debug)]
pub struct Running {
    /// The endpoint: `http://127.0.0.1:PORT/mcp`.
    pub url: String,
    /// The address it listens on.
    pub address: SocketAddr,
    seen: Seen,
    sessions: Sessions,
    stop: CancellationToken,
    kill: CancellationToken,
    served: Option<JoinHandle<Option<()>>>,
}

impl Running {
    /// What reached the server.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The sessions of a session-era server; of others none.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(crate) fn with_sessions(mut self, sessions: Sessions) -> Self {
        self.sessions = sessions;
        self
    }

    /// Ends subscriptions with their result, closes every connection and waits for that.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(served) = self.served.take() {
            // A panic inside was already reported on its own thread.
            drop(served.await);
        }
    }

    /// Closes every connection at once, as a crash would.
    pub async fn kill(mut self) {
        self.kill.cancel();
        if let Some(served) = self.served.take() {
            drop(served.await);
        }
    }

    /// Waits until the server has stopped by itself.
    pub async fn wait(mut self) {
        if let Some(served) = self.served.take() {
            drop(served.await);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves `router` on `address`; `stop` also reaches what the router keeps of it.
pub(crate) async fn serve(
    address: SocketAddr,
    router: Router,
    stop: CancellationToken,
) -> std::io::Result<Running> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let seen = Seen::default();
    let router = router.layer(from_fn_with_state(seen.clone(), record));
    let kill = CancellationToken::new();
    let served = spawn(kill.clone().run_until_cancelled_owned(accept(
        listener,
        router,
        stop.clone(),
    )));
    let url = format!("http://{address}/mcp");
    Ok(Running {
        url,
        address,
        seen,
        sessions: Sessions::default(),
        stop,
        kill,
        served: Some(served),
    })
}

/// Dropping this closes every connection, mid-answer or not.
async fn accept(listener: TcpListener, router: Router, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve_connection(stream, router.clone(), stop.clone()));
            }
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // Answers that do not end by themselves are cut off.
    drop(tokio::time::timeout(GRACE, all).await);
}

async fn serve_connection(stream: TcpStream, router: Router, stop: CancellationToken) {
    // Small frames must not wait for each other.
    drop(stream.set_nodelay(true));
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
