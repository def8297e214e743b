//! One server that runs as a child process; processes come and go, this stays.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use waypost_hub::call::{Call, Principal, Session};
use waypost_hub::error::CallError;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::upstream::{BoxFuture, CallFuture, Facts, Upstream};

use super::child::{Child, Start};
use super::command::Program;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::parts::Parts;
use crate::probe::{self, Answered, Discovery};

/// What of the configuration matters here.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) name: Arc<str>,
    pub(crate) program: Program,
    pub(crate) startup_timeout: Duration,
}

/// One server that runs as a child process.
pub(crate) struct StdioUpstream {
    settings: Arc<Settings>,
    env: Arc<BTreeMap<OsString, OsString>>,
    tasks: Tasks,
    limit: usize,
    tell_callers: bool,
    guard: Option<Guard>,
    /// The last process, also when it has ended.
    child: Mutex<Option<Arc<Child>>>,
    closed: AtomicBool,
}

impl StdioUpstream {
    pub(crate) fn new(settings: Settings, parts: &Parts) -> Self {
        Self {
            settings: Arc::new(settings),
            env: Arc::clone(&parts.env),
            tasks: parts.tasks.clone(),
            limit: parts.response_limit,
            tell_callers: parts.tell_callers,
            guard: parts.guard.clone(),
            child: Mutex::new(None),
            closed: AtomicBool::new(false),
        }
    }

    /// The process that answers now.
    fn live(&self) -> Result<Arc<Child>, Fault> {
        match &*self.child() {
            Some(child) => match child.exit() {
                None => Ok(Arc::clone(child)),
                Some(exit) => Err(Fault::NotRunning(Some(Arc::clone(exit)))),
            },
            None => Err(Fault::NotRunning(None)),
        }
    }

    /// The process that answers now, started where there is none.
    async fn ensure(&self) -> Result<Arc<Child>, Fault> {
        if let Ok(child) = self.live() {
            return Ok(child);
        }
        let (started, outcome) = oneshot::channel();
        let (settings, env) = (Arc::clone(&self.settings), Arc::clone(&self.env));
        let (limit, tell_callers, guard) = (self.limit, self.tell_callers, self.guard.clone());
        // A process belongs to the runtime that it was started on.
        self.tasks.spawn(move |stop| async move {
            if stop.is_cancelled() {
                return;
            }
            match start(&settings, &env, limit, tell_callers) {
                Ok((child, running)) => {
                    // Nobody to give it to: it is stopped like any other.
                    if started.send(Ok(Arc::clone(&child))).is_err() {
                        child.close();
                    }
                    child.run(running, stop, guard).await;
                }
                Err(fault) => drop(started.send(Err(fault))),
            }
        });
        let child = outcome.await.unwrap_or(Err(Fault::Stopping))?;
        let child = self.keep(child);
        if self.closed.load(Ordering::SeqCst) {
            child.close();
            return Err(Fault::Stopping);
        }
        Ok(child)
    }

    /// Makes a new process the one that answers, unless somebody was quicker: there is one.
    fn keep(&self, new: Arc<Child>) -> Arc<Child> {
        let mut kept = self.child();
        match &*kept {
            Some(other) if other.exit().is_none() => {
                new.close();
                Arc::clone(other)
            }
            _ => {
                *kept = Some(Arc::clone(&new));
                new
            }
        }
    }

    async fn ask(&self) -> Result<Discovery, CallError> {
        let fail = |fault: Fault| fault.into_call(&self.settings.name);
        let child = self.ensure().await.map_err(fail)?;
        let send = |call| {
            let child = &child;
            async move {
                child.call(call).await.map(|reply| Answered {
                    status: None,
                    reply,
                })
            }
        };
        // A server of the session era may never answer what comes before `initialize`. Half the
        // time is left for that.
        let patience = self.settings.startup_timeout / 2;
        let discovery = match timeout(patience, probe::discover(&self.settings.name, send)).await {
            Ok(discovery) => discovery?,
            Err(_) if child.modern.load(Ordering::Relaxed) => {
                child.close();
                return Err(fail(Fault::Silent(patience)));
            }
            // It stays: it may only be slow to start, and then answers the next time.
            Err(_) => return Ok(Discovery::Unrecognised(silence(patience))),
        };
        match &discovery {
            Discovery::Modern(_) => child.modern.store(true, Ordering::Relaxed),
            // It has answered, and nothing here can talk to it.
            Discovery::Legacy => child.close(),
            // Tasks of a server that is known to be modern would die with it.
            Discovery::Unrecognised(_) => {}
        }
        Ok(discovery)
    }

    fn child(&self) -> MutexGuard<'_, Option<Arc<Child>>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn silence(patience: Duration) -> String {
    format!("did not answer `server/discover` within {patience:?}")
}

fn start(
    settings: &Settings,
    env: &BTreeMap<OsString, OsString>,
    limit: usize,
    tell_callers: bool,
) -> Result<(Arc<Child>, super::process::Running), Fault> {
    let program = &settings.program;
    let env = program.environment(env);
    let redactor = program.redactor(&env);
    let command = program.command(&env);
    let (command, path) = command.map_err(|fault| Fault::Spawn(fault.clean(&redactor)))?;
    let start = Start {
        upstream: Arc::clone(&settings.name),
        redactor,
        limit,
        tell_callers,
    };
    Child::start(command, &path, start)
}

impl Upstream for StdioUpstream {
    fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
        Box::pin(async move { self.ask().await?.modern(&self.settings.name) })
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            let fail = |fault: Fault| fault.into_call(&self.settings.name);
            let child = self.live().map_err(fail)?;
            child.call(call).await.map_err(fail)
        })
    }

    fn instance(&self, _: &Principal, _: Option<&Session>) -> Option<Arc<str>> {
        self.live().ok().map(|child| Arc::clone(child.instance()))
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        let child = self.child().clone();
        Box::pin(async move {
            match child {
                Some(child) => child.lost().await,
                None => std::future::pending().await,
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closed.store(true, Ordering::SeqCst);
        let child = self.child().clone();
        Box::pin(async move {
            if let Some(child) = child {
                child.close();
                child.reaped().await;
            }
        })
    }
}

impl Drop for StdioUpstream {
    fn drop(&mut self) {
        if let Some(child) = &*self.child() {
            child.close();
        }
    }
}

impl fmt::Debug for StdioUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments may carry secrets.
        f.debug_struct("StdioUpstream")
            .field("name", &self.settings.name)
            .finish_non_exhaustive()
    }
}
