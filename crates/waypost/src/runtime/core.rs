//! One core: a thread, a runtime, its share of the connections.

use std::io;
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use hyper::body::Incoming;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use waypost_upstream::core_local::set_core;

use super::connection::{Answers, Connections, accept};

/// Connections that wait for a busy core; then the kernel's backlog fills.
const DEALT_QUEUE: usize = 64;

/// Where a core's connections come from.
#[derive(Debug)]
enum Share {
    Own(TcpListener),
    Dealt(mpsc::Receiver<std::net::TcpStream>),
}

/// A running core.
#[derive(Debug)]
pub(crate) struct Core(JoinHandle<()>);

impl Core {
    /// Starts one core per listener; `make` makes what each serves.
    pub(crate) fn own<S: Answers<Incoming>>(
        listeners: Vec<TcpListener>,
        make: impl Fn() -> Connections<S>,
        end: &CancellationToken,
    ) -> io::Result<Vec<Self>> {
        let listeners = listeners.into_iter().enumerate();
        listeners
            .map(|(index, listener)| Self::start(index, Share::Own(listener), make(), end))
            .collect()
    }

    /// Starts `count` cores and deals the connections of `listener` out to them, in turn, from
    /// the runtime of the caller.
    pub(crate) fn dealt<S: Answers<Incoming>>(
        listener: TcpListener,
        count: usize,
        make: impl Fn() -> Connections<S>,
        end: &CancellationToken,
    ) -> io::Result<Vec<Self>> {
        let (hands, shares): (Vec<_>, Vec<_>) =
            (0..count).map(|_| mpsc::channel(DEALT_QUEUE)).unzip();
        let shares = shares.into_iter().enumerate();
        let cores = shares
            .map(|(index, share)| Self::start(index, Share::Dealt(share), make(), end))
            .collect();
        make().door().spawn_here(|stop| async move {
            if let Err(error) = deal(listener, &stop, &hands).await {
                tracing::error!(%error, "cannot accept connections");
            }
        });
        cores
    }

    fn start<S: Answers<Incoming>>(
        index: usize,
        share: Share,
        connections: Connections<S>,
        end: &CancellationToken,
    ) -> io::Result<Self> {
        let end = end.clone();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name(format!("waypost-core-{index}"));
        let work = move || {
            // From 1: 0 is every other thread.
            set_core(index + 1);
            runtime.block_on(async {
                match share {
                    Share::Own(listener) => connections.accept(listener).await,
                    Share::Dealt(share) => take(share, &connections).await,
                }
                // Connections are still being served while others wait for them to end.
                end.cancelled().await;
            });
            runtime.shutdown_background();
        };
        Ok(Self(thread.spawn(work)?))
    }

    /// Waits for the thread, after its `end`.
    pub(crate) fn join(self) {
        // A panic inside was reported on its own thread.
        drop(self.0.join());
    }
}

/// Deals until `stop`. A core that is behind gets its turn when it has room again.
async fn deal(
    listener: TcpListener,
    stop: &CancellationToken,
    hands: &[mpsc::Sender<std::net::TcpStream>],
) -> io::Result<()> {
    let mut turn = 0_usize;
    accept(listener, stop, |stream| {
        let Ok(mut stream) = stream.into_std() else {
            return;
        };
        for _ in hands {
            let Some(hand) = hands.get(turn % hands.len()) else {
                return;
            };
            turn = turn.wrapping_add(1);
            match hand.try_send(stream) {
                Ok(()) => return,
                Err(
                    mpsc::error::TrySendError::Full(back) | mpsc::error::TrySendError::Closed(back),
                ) => {
                    stream = back;
                }
            }
        }
        metrics::counter!("waypost_connections_refused_total").increment(1);
    })
    .await
}

async fn take<S: Answers<Incoming>>(
    mut share: mpsc::Receiver<std::net::TcpStream>,
    connections: &Connections<S>,
) {
    let stop = connections.door().stop_signal();
    loop {
        let stream = tokio::select! {
            stream = share.recv() => stream,
            () = stop.cancelled() => return,
        };
        let Some(stream) = stream else { return };
        match TcpStream::from_std(stream) {
            Ok(stream) => connections.serve(stream),
            Err(error) => tracing::debug!(%error, "a connection broke off"),
        }
    }
}
