//! A session over the standard streams of a child process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use waypost_hub::upstream::BoxFuture;

use super::link::{Dial, Link};
use crate::ear::SharedEar;
use crate::fault::Fault;
use crate::stdio::{Child, Launcher, Outgoing};

/// Starts a process for each session.
#[derive(Debug)]
pub(crate) struct PipeDial(pub(crate) Launcher);

impl Dial for PipeDial {
    fn dial(&self, ear: SharedEar) -> BoxFuture<'_, Result<Arc<dyn Link>, Fault>> {
        Box::pin(async move {
            let child = self.0.launch(ear, Arc::default()).await?;
            Ok(Arc::new(Pipe::new(child, true)) as Arc<dyn Link>)
        })
    }
}

/// Opens one session on a process that runs already and was spoken to in another way.
pub(crate) struct HandOver<F> {
    pub(crate) child: Arc<Child>,
    /// What hears the process from now on, given the session's ear.
    pub(crate) ear: F,
}

impl<F: Fn(SharedEar) -> SharedEar + Send + Sync> Dial for HandOver<F> {
    fn dial(&self, ear: SharedEar) -> BoxFuture<'_, Result<Arc<dyn Link>, Fault>> {
        self.child.hand_to(&(self.ear)(ear));
        // The process is somebody else's until the session stands.
        let pipe = Pipe::new(Arc::clone(&self.child), false);
        Box::pin(std::future::ready(Ok(Arc::new(pipe) as Arc<dyn Link>)))
    }
}

impl<F> std::fmt::Debug for HandOver<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandOver").finish_non_exhaustive()
    }
}

/// One process that serves one session.
#[derive(Debug)]
struct Pipe {
    child: Arc<Child>,
    /// It ends with the session.
    owned: AtomicBool,
}

impl Pipe {
    fn new(child: Arc<Child>, owned: bool) -> Self {
        Self {
            child,
            owned: AtomicBool::new(owned),
        }
    }

    async fn send(&self, message: Outgoing) -> Result<(), Fault> {
        self.child.send(message).await;
        match self.child.exit() {
            None => Ok(()),
            Some(exit) => Err(Fault::exited(exit)),
        }
    }
}

impl Link for Pipe {
    fn request(&self, id: u64, message: Bytes) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.send(Outgoing::Call(id, message)))
    }

    fn tell(&self, message: Bytes) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.send(Outgoing::Other(message)))
    }

    /// What waits for room in front of the pipe is not in it.
    fn knows_what_it_took(&self) -> bool {
        true
    }

    fn agreed(&self, _: &str) {}

    fn opened(&self) {
        self.owned.store(true, Ordering::Relaxed);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.owned.load(Ordering::Relaxed) {
                self.child.close();
                self.child.reaped().await;
            }
        })
    }

    fn instance(&self) -> Option<Arc<str>> {
        Some(Arc::clone(self.child.instance()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.owned.load(Ordering::Relaxed) {
            self.child.close();
        }
    }
}
