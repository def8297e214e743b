//! Processes of one server that are spoken to without a session: one for everybody, or one for
//! each who is to be kept apart.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use waypost_config::config::Isolation;
use waypost_hub::call::{Call, Principal, Session};
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::Reply;

use super::launcher::Launcher;
use super::modern::{ModernStdio, Speaker};
use crate::backoff::Backoff;
use crate::ear::Ear as _;
use crate::fault::Fault;
use crate::flight::Want;
use crate::legacy::Key;

/// What of the configuration matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Apart {
    /// Who shares a process.
    pub(crate) isolation: Isolation,
    /// Unused for so long, a process that is not everybody's is ended.
    pub(crate) idle_timeout: Duration,
    /// Without the one of Waypost's own calls.
    pub(crate) most: usize,
}

/// All processes of one server.
#[derive(Debug)]
pub(crate) struct Processes {
    upstream: Arc<str>,
    launcher: Launcher,
    tasks: Tasks,
    apart: Apart,
    home: ModernStdio,
    kept: Arc<Mutex<Kept>>,
    /// Of all but that of Waypost's own calls: what does not start for one does not for others.
    backoff: Backoff,
}

#[derive(Debug, Default)]
struct Kept {
    all: HashMap<Key, Arc<One>>,
    closed: bool,
}

/// The process of one caller or session.
#[derive(Debug)]
struct One {
    stdio: ModernStdio,
    used: Mutex<Instant>,
    /// Calls that wait for the process. Goes up only under the lock of all.
    waiting: AtomicUsize,
    over: CancellationToken,
}

impl Processes {
    pub(crate) fn new(
        upstream: &Arc<str>,
        launcher: &Launcher,
        tasks: &Tasks,
        apart: Apart,
    ) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            launcher: launcher.clone(),
            tasks: tasks.clone(),
            apart,
            home: ModernStdio::new(upstream, launcher, tasks, Backoff::default()),
            kept: Arc::default(),
            backoff: Backoff::shared(),
        }
    }

    /// The process of Waypost's own calls: everybody's, where nobody is kept apart.
    pub(crate) fn home(&self) -> &ModernStdio {
        &self.home
    }

    /// Sends `call` to the process it belongs to, which is started where there is none.
    ///
    /// # Errors
    /// Why it does not start or answer, [`Fault::Sessions`] when there are too many.
    pub(crate) async fn call(&self, call: Call) -> Result<Reply, Fault> {
        let key = Key::of(&call, self.apart.isolation);
        if key.is_home() {
            return self.home.call(call).await;
        }
        let one = self.one(&key, call.session.as_ref())?;
        let speaker = {
            let waits = Waits {
                all: self,
                key: &key,
                one: &one,
            };
            let speaker = one.stdio.speaker(Want::Call).await;
            drop(waits);
            speaker?
        };
        let reply = speaker.call(call).await;
        one.touch();
        reply
    }

    /// The process that answers this caller now, if there is one.
    pub(crate) fn current(
        &self,
        principal: &Principal,
        session: Option<&Session>,
    ) -> Option<Speaker> {
        let key = Key::of_caller(principal, session, self.apart.isolation);
        if key.is_home() {
            return self.home.current();
        }
        let one = self.kept().all.get(&key).cloned();
        one.and_then(|one| one.stdio.current())
    }

    /// Starts nothing any more and ends what runs; resolves when that is gone.
    pub(crate) fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        let all = {
            let mut kept = self.kept();
            kept.closed = true;
            std::mem::take(&mut kept.all)
        };
        let home = self.home.close();
        let others: Vec<_> = all
            .into_values()
            .map(|one| {
                one.over.cancel();
                one.stdio.close()
            })
            .collect();
        async move {
            home.await;
            join_all(others).await;
        }
    }

    /// Its process, for a call that waits for that from now on.
    fn one(&self, key: &Key, session: Option<&Session>) -> Result<Arc<One>, Fault> {
        let mut kept = self.kept();
        if kept.closed {
            return Err(Fault::Stopping);
        }
        if let Some(one) = kept.all.get(key) {
            one.touch();
            one.waiting.fetch_add(1, Ordering::Relaxed);
            return Ok(Arc::clone(one));
        }
        if kept.all.len() >= self.apart.most {
            return Err(Fault::Sessions {
                most: self.apart.most,
            });
        }
        let one = Arc::new(One {
            stdio: ModernStdio::new(
                &self.upstream,
                &self.launcher,
                &self.tasks,
                self.backoff.clone(),
            ),
            used: Mutex::new(Instant::now()),
            waiting: AtomicUsize::new(1),
            over: CancellationToken::new(),
        });
        kept.all.insert(key.clone(), Arc::clone(&one));
        drop(kept);
        let released = match (key, session) {
            (Key::Session(_), Some(session)) => session.released().clone(),
            _ => CancellationToken::new(),
        };
        self.end_in_time(key.clone(), Arc::clone(&one), released);
        Ok(one)
    }

    /// Ends a process when its session is released or nobody uses it.
    fn end_in_time(&self, key: Key, one: Arc<One>, released: CancellationToken) {
        let (kept, idle) = (Arc::clone(&self.kept), self.apart.idle_timeout);
        self.tasks.spawn(move |stop| async move {
            tokio::select! {
                () = one.unused(idle) => {}
                () = released.cancelled() => {}
                () = one.over.cancelled() => return,
                () = stop.cancelled() => return,
            }
            lock(&kept).remove(&key, &one);
            one.stdio.close().await;
        });
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }
}

impl Kept {
    /// Gives the place of what does not run and nobody waits for to others.
    fn vacate(&mut self, key: &Key, one: &Arc<One>) {
        if one.waiting.load(Ordering::Relaxed) == 0 && one.stdio.is_nothing() {
            self.remove(key, one);
            one.over.cancel();
        }
    }

    fn remove(&mut self, key: &Key, one: &Arc<One>) {
        if self.all.get(key).is_some_and(|now| Arc::ptr_eq(now, one)) {
            self.all.remove(key);
        }
    }
}

/// A call that waits for a process.
struct Waits<'a> {
    all: &'a Processes,
    key: &'a Key,
    one: &'a Arc<One>,
}

impl Drop for Waits<'_> {
    /// What could not be started takes no place.
    fn drop(&mut self) {
        let Self { all, key, one } = self;
        one.waiting.fetch_sub(1, Ordering::Relaxed);
        if one.stdio.is_nothing() {
            all.kept().vacate(key, one);
        } else if one.stdio.current().is_none() {
            // Its caller has gone, and it may still fail to start.
            let (kept, key, one) = (Arc::clone(&all.kept), (*key).clone(), Arc::clone(one));
            all.tasks.spawn(|_| async move {
                one.stdio.settled().await;
                lock(&kept).vacate(&key, &one);
            });
        }
    }
}

impl One {
    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves once nothing was asked for so long, and nothing is still being answered.
    async fn unused(&self, idle: Duration) {
        loop {
            sleep_until(self.used() + idle).await;
            if let Some(speaker) = self.stdio.current() {
                speaker.calls.idle().await;
            }
            if self.used().elapsed() >= idle {
                return;
            }
        }
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
