//! Starts processes of one configured program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::oneshot;
use waypost_hub::lifecycle::Tasks;

use super::child::{Child, Start};
use super::command::Program;
use super::process::Running;
use super::writer::Cancels;
use crate::ear::SharedEar;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::parts::Parts;

/// Starts processes of one configured program. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Launcher(Arc<Shared>);

struct Shared {
    upstream: Arc<str>,
    program: Program,
    env: Arc<BTreeMap<OsString, OsString>>,
    tasks: Tasks,
    limit: usize,
    tell_callers: Arc<AtomicBool>,
    guard: Option<Guard>,
}

impl Launcher {
    pub(crate) fn new(upstream: &Arc<str>, program: Program, parts: &Parts) -> Self {
        Self(Arc::new(Shared {
            upstream: Arc::clone(upstream),
            program,
            env: Arc::clone(&parts.env),
            tasks: parts.tasks.clone(),
            limit: parts.response_limit,
            tell_callers: Arc::clone(&parts.tell_callers),
            guard: parts.guard.clone(),
        }))
    }

    /// Starts a process; `ear` hears what it says, and `cancels` go before what is queued for it.
    pub(crate) async fn launch(
        &self,
        ear: SharedEar,
        cancels: Arc<Cancels>,
    ) -> Result<Arc<Child>, Fault> {
        let (started, outcome) = oneshot::channel();
        let shared = Arc::clone(&self.0);
        // A process belongs to the runtime that it was started on.
        self.0.tasks.spawn(move |stop| async move {
            if stop.is_cancelled() {
                return;
            }
            match shared.start(ear, cancels) {
                Ok((child, running)) => {
                    // Nobody to give it to: it is stopped like any other.
                    if started.send(Ok(Arc::clone(&child))).is_err() {
                        child.close();
                    }
                    child.run(running, stop, shared.guard.clone()).await;
                }
                Err(fault) => drop(started.send(Err(fault))),
            }
        });
        outcome.await.unwrap_or(Err(Fault::Stopping))
    }
}

impl Shared {
    fn start(&self, ear: SharedEar, cancels: Arc<Cancels>) -> Result<(Arc<Child>, Running), Fault> {
        let env = self.program.environment(&self.env);
        let redactor = self.program.redactor(&env);
        let command = self.program.command(&env);
        let (command, path) = command.map_err(|fault| Fault::Spawn(fault.clean(&redactor)))?;
        let start = Start {
            upstream: Arc::clone(&self.upstream),
            ear,
            cancels,
            redactor,
            limit: self.limit,
            tell_callers: Arc::clone(&self.tell_callers),
        };
        Child::start(command, &path, start)
    }
}

impl fmt::Debug for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments may carry secrets.
        f.debug_struct("Launcher")
            .field("upstream", &self.0.upstream)
            .finish_non_exhaustive()
    }
}
