//! A child process that is spoken to without a session; processes come and go, this stays.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;
use waypost_hub::call::Call;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::Reply;
use waypost_hub::upstream::Facts;
use waypost_wire::id::Id;
use waypost_wire::message;

use super::calls::Calls;
use super::child::Child;
use super::launcher::Launcher;
use super::waiter::Waiter;
use super::writer::Outgoing;
use crate::backoff::Backoff;
use crate::door::Came;
use crate::fault::{Fault, How};
use crate::flight::{Flight, Opened, Want};
use crate::outcome::{in_todays_codes, unknown_task};

/// One process and the calls in flight at it.
#[derive(Clone, Debug)]
pub(crate) struct Speaker {
    pub(crate) child: Arc<Child>,
    pub(crate) calls: Arc<Calls>,
    /// What it said of itself last.
    facts: Arc<Mutex<Option<Facts>>>,
}

impl Speaker {
    /// Starts a process.
    pub(crate) async fn start(upstream: &Arc<str>, launcher: &Launcher) -> Result<Self, Fault> {
        let calls = Arc::new(Calls::new(upstream));
        let cancels = Arc::clone(&calls.cancels);
        let child = launcher.launch(Arc::clone(&calls) as _, cancels).await?;
        Ok(Self {
            child,
            calls,
            facts: Arc::default(),
        })
    }

    /// It has described itself.
    pub(crate) fn describe(&self, facts: &Facts) {
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = Some(facts.clone());
    }

    /// Whether it has.
    pub(crate) fn is_described(&self) -> bool {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        facts.is_some()
    }

    /// What it said of itself last.
    pub(crate) fn facts(&self) -> Option<Facts> {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        facts.clone()
    }

    /// Sends `call` and waits for the first answer.
    pub(crate) async fn call(&self, mut call: Call) -> Result<Reply, Fault> {
        if !call.carrier.admits(Some(self.child.instance())) {
            return Ok(unknown_task());
        }
        let place = self.calls.open(&call)?;
        let id = place.id;
        call.meta.put(&mut call.params);
        let request = message::encode_request(&Id::number(id), &call.method, &call.params);
        let waiter = Waiter::at(Arc::clone(&self.calls), place);
        self.child.send(Outgoing::Call(id, request)).await;
        let reply = waiter.reply().await?;
        let version = &call.meta.protocol_version;
        Ok(in_todays_codes(&call.method, Came::Line { version }, reply))
    }
}

impl Opened for Speaker {
    fn serves(&self) -> bool {
        self.child.exit().is_none()
    }

    fn over(&self) -> Option<Fault> {
        let exit = self.child.exit()?;
        (exit.how != How::Stopped).then(|| Fault::NotRunning(Some(Arc::clone(exit))))
    }

    fn discard(&self) {
        self.child.close();
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.child, &other.child)
    }
}

/// The process that answers calls without a session.
#[derive(Debug)]
pub(crate) struct ModernStdio {
    upstream: Arc<str>,
    launcher: Launcher,
    tasks: Tasks,
    flight: Flight<Speaker>,
    backoff: Backoff,
}

impl ModernStdio {
    /// `backoff` may be shared with other processes of the program.
    pub(crate) fn new(
        upstream: &Arc<str>,
        launcher: &Launcher,
        tasks: &Tasks,
        backoff: Backoff,
    ) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            launcher: launcher.clone(),
            tasks: tasks.clone(),
            flight: Flight::new(backoff.clone()),
            backoff,
        }
    }

    /// The process that answers now, started where there is none.
    pub(crate) async fn speaker(&self, want: Want) -> Result<Speaker, Fault> {
        let (upstream, launcher) = (Arc::clone(&self.upstream), self.launcher.clone());
        let (tasks, backoff) = (self.tasks.clone(), self.backoff.clone());
        let open = || async move {
            let speaker = Speaker::start(&upstream, &launcher).await?;
            // Who starts another of the program has to know at once.
            let (started, watched) = (Instant::now(), speaker.clone());
            tasks.spawn(|_| async move {
                watched.child.lost().await;
                if let Some(fault) = watched.over() {
                    backoff.ended(started, Some(fault));
                }
            });
            Ok(speaker)
        };
        self.flight.get(&self.tasks, want, open).await
    }

    /// The process that answers now, if there is one.
    pub(crate) fn current(&self) -> Option<Speaker> {
        self.flight.current()
    }

    /// Whether nothing runs nor is being started.
    pub(crate) fn is_nothing(&self) -> bool {
        self.flight.current().is_none() && !self.flight.is_opening()
    }

    /// Resolves when nothing is being started.
    pub(crate) async fn settled(&self) {
        self.flight.settled().await;
    }

    /// The last process, also when it has ended.
    pub(crate) fn last(&self) -> Option<Speaker> {
        self.flight.last()
    }

    /// Lets go of `speaker`, which turned out to speak otherwise; the process goes on.
    pub(crate) fn let_go(&self, speaker: &Speaker) {
        self.flight.forget(speaker);
    }

    /// Takes back a process that was let go of.
    pub(crate) fn adopt(&self, speaker: Speaker) {
        if let Err(speaker) = self.flight.adopt(speaker) {
            speaker.discard();
        }
    }

    /// Sends `call` to the process, which is started where there is none.
    pub(crate) async fn call(&self, call: Call) -> Result<Reply, Fault> {
        self.speaker(Want::Call).await?.call(call).await
    }

    /// Starts nothing any more and ends what runs; resolves when that is gone.
    pub(crate) fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        let speaker = self.flight.close();
        async move {
            if let Some(Speaker { child, .. }) = speaker {
                child.close();
                child.reaped().await;
            }
        }
    }
}

impl Drop for ModernStdio {
    fn drop(&mut self) {
        if let Some(speaker) = self.flight.close() {
            speaker.discard();
        }
    }
}
