//! One process as its callers see it.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::process::Pid;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::command::SpawnFault;
use super::process::Running;
use super::redact::Redactor;
use super::writer::{self, Cancels, Outgoing};
use crate::ear::SharedEar;
use crate::fault::{Exit, Fault};

/// What all who deal with one process share.
#[derive(Debug)]
pub(crate) struct Child {
    upstream: Arc<str>,
    instance: Arc<str>,
    /// Who hears what it says now.
    ear: Mutex<SharedEar>,
    pub(super) cancels: Arc<Cancels>,
    queue: mpsc::Sender<Outgoing>,
    pub(super) redactor: Redactor,
    pub(super) limit: usize,
    pub(super) tell_callers: Arc<AtomicBool>,
    /// Its first stray line was logged.
    pub(super) warned: AtomicBool,
    pub(super) closing: CancellationToken,
    pub(super) exit: OnceLock<Arc<Exit>>,
    pub(super) lost: CancellationToken,
    pub(super) reaped: CancellationToken,
}

/// What is needed to run a process, beside the command.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) upstream: Arc<str>,
    /// Who hears what it says.
    pub(crate) ear: SharedEar,
    /// What goes before everything that waits to be written.
    pub(crate) cancels: Arc<Cancels>,
    pub(crate) redactor: Redactor,
    /// Bytes of one message.
    pub(crate) limit: usize,
    /// Whether callers may read its last words.
    pub(crate) tell_callers: Arc<AtomicBool>,
}

impl Child {
    /// Starts the process; [`Child::run`] has to be spawned then.
    pub(crate) fn start(
        mut command: Command,
        program: &Path,
        start: Start,
    ) -> Result<(Arc<Self>, Running), Fault> {
        let process = command.spawn();
        let refused = |e| SpawnFault::of(&e, program).clean(&start.redactor);
        let mut process = process.map_err(|e| Fault::Spawn(refused(e)))?;
        let pipes = (
            process.stdin.take(),
            process.stdout.take(),
            process.stderr.take(),
        );
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Fault::NotRunning(None));
        };
        let pid = process.id().and_then(|pid| i32::try_from(pid).ok());
        let (sender, queue) = writer::queue();
        let child = Arc::new(Self {
            ear: Mutex::new(start.ear),
            cancels: start.cancels,
            upstream: start.upstream,
            instance: format!("{:016x}", rand::random::<u64>()).into(),
            queue: sender,
            redactor: start.redactor,
            limit: start.limit,
            tell_callers: start.tell_callers,
            warned: AtomicBool::new(false),
            closing: CancellationToken::new(),
            exit: OnceLock::new(),
            lost: CancellationToken::new(),
            reaped: CancellationToken::new(),
        });
        let running = Running {
            process,
            pid: pid.and_then(Pid::from_raw),
            stdin,
            stdout,
            stderr,
            queue,
        };
        Ok((child, running))
    }

    /// The upstream's name.
    pub(crate) fn upstream(&self) -> &Arc<str> {
        &self.upstream
    }

    /// The tag of this process.
    pub(crate) fn instance(&self) -> &Arc<str> {
        &self.instance
    }

    /// How it ended, once calls to it are pointless.
    pub(crate) fn exit(&self) -> Option<&Arc<Exit>> {
        self.exit.get()
    }

    /// Asks it to end; see [`Child::reaped`].
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Resolves when calls to it are pointless.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Resolves when the process is gone and reaped.
    pub(crate) async fn reaped(&self) {
        self.reaped.cancelled().await;
    }

    /// Who hears what it says now.
    pub(super) fn ear(&self) -> SharedEar {
        Arc::clone(&self.ear.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on `ear` hears what it says.
    pub(crate) fn hand_to(&self, ear: &SharedEar) {
        *self.ear.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(ear);
        if let Some(exit) = self.exit() {
            ear.gone(&Fault::exited(exit));
        }
    }

    /// Queues a message to be written. A closed queue means that the process is gone, and then
    /// its ear knows already.
    pub(crate) async fn send(&self, message: Outgoing) {
        drop(self.queue.send(message).await);
    }
}
