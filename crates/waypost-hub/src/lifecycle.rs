//! Background work and the one way to stop it.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What must not be left half done when all is to stop may take so long from then on. The end waits
/// longer than that.
pub const FAREWELL: Duration = Duration::from_secs(1);

/// Every background task of the daemon, and the one way to stop them.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    stop: CancellationToken,
    running: TaskTracker,
    control: Option<Handle>,
}

impl Tasks {
    /// Tasks that run on the runtime of `control`, whoever spawns them: work that belongs to no
    /// core must not die with, or burden, the one it was started from.
    pub fn on(control: Handle) -> Self {
        Self {
            control: Some(control),
            ..Self::default()
        }
    }

    /// Spawns a task that is waited for at shutdown. It gets the stop signal.
    pub fn spawn<F>(&self, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let future = task(self.stop.child_token());
        match &self.control {
            Some(control) => drop(self.running.spawn_on(future, control)),
            None => drop(self.running.spawn(future)),
        }
    }

    /// Spawns on the runtime of the caller: for connections, which stay on the core that
    /// accepted them.
    pub fn spawn_here<F>(&self, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        drop(self.running.spawn(task(self.stop.child_token())));
    }

    /// The stop signal.
    pub fn stop_signal(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Whether it was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Signals stop and waits; `false` means some task outlived `grace`.
    pub async fn drain(self, grace: Duration) -> bool {
        self.stop.cancel();
        self.running.close();
        tokio::time::timeout(grace, self.running.wait())
            .await
            .is_ok()
    }
}
