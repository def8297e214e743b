//! The signals that end the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT, and SIGHUP of a terminal that closes: the first one drains, the second one
/// ends at once.
#[derive(Debug)]
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Signals {
    /// Takes the signals over from their default, which is the end without farewell. As process 1
    /// of a container there is no default at all, so this comes before anything slow.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// What `work` gives; `None` when a signal comes first, which drops it.
    pub(crate) async fn until<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            given = work => Some(given),
            signal = self.next() => {
                tracing::info!(signal, "told to end");
                None
            }
        }
    }

    /// Waits for the next one and gives its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
            _ = self.hup.recv() => "SIGHUP",
        }
    }
}
