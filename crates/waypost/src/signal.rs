//! The signals that end the process, and the one that makes it read its configuration again.

use std::fs::File;
use std::io::{self, IsTerminal as _};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT and SIGHUP.
#[derive(Debug)]
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
    /// Somebody sits there.
    terminal: bool,
}

/// What a signal says to who has a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// To read its configuration again.
    Reload,
    /// To end, by the signal of this name: the first one drains, the second one ends at once.
    End(&'static str),
}

impl Signals {
    /// Takes the signals over from their default, which is the end without farewell. As process 1
    /// of a container there is no default at all, so this comes before anything slow.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
            terminal: io::stdin().is_terminal(),
        })
    }

    /// What `work` gives; `None` when a signal to end comes first, which drops it.
    pub(crate) async fn until<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            given = work => Some(given),
            signal = self.end() => {
                tracing::info!(signal, "told to end");
                None
            }
        }
    }

    /// The same, where a signal may also ask for a reload.
    pub(crate) async fn until_or<T>(
        &mut self,
        reload: impl Fn(),
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                given = &mut work => return Some(given),
                told = self.told() => match told {
                    Told::Reload => reload(),
                    Told::End(signal) => {
                        tracing::info!(signal, "told to end");
                        return None;
                    }
                },
            }
        }
    }

    /// What the next one says. SIGHUP is a reload, unless it is the terminal that was
    /// closed.
    pub(crate) async fn told(&mut self) -> Told {
        match self.next().await {
            "SIGHUP" if !self.has_lost_terminal() => Told::Reload,
            signal => Told::End(signal),
        }
    }

    /// Waits for one that says to end, and gives its name.
    pub(crate) async fn end(&mut self) -> &'static str {
        loop {
            if let Told::End(signal) = self.told().await {
                return signal;
            }
        }
    }

    fn has_lost_terminal(&self) -> bool {
        self.terminal && File::open("/dev/tty").is_err()
    }

    /// Waits for the next one, whichever it is, and gives its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
            _ = self.hup.recv() => "SIGHUP",
        }
    }
}
