//! Finds out what a process speaks.
//!
//! One of the session era may never answer what comes before `initialize`, and one of the other
//! may only be slow to start. So after half of its time a silent one is asked for a session too,
//! on the same pipe, and the first word that decides counts.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::timeout;
use waypost_hub::error::CallError;
use waypost_hub::upstream::Facts;
use waypost_wire::message::Message;

use super::Server;
use crate::ear::{Ear, Heard, SharedEar};
use crate::fault::Fault;
use crate::flight::Want;
use crate::legacy::HandOver;
use crate::probe::{self, Answered, Discovery};
use crate::stdio::{Child, ModernStdio, Speaker};

impl Server {
    /// Asks a process that is known to speak without sessions what it is.
    pub(super) async fn described(
        &self,
        stdio: &ModernStdio,
        want: Want,
    ) -> Result<Discovery, CallError> {
        let fail = |fault: Fault| fault.into_call(&self.name);
        let speaker = stdio.speaker(want).await.map_err(fail)?;
        // One that has answered before is not slow to start.
        let before = speaker.facts();
        let patience = if before.is_some() {
            self.startup_timeout / 2
        } else {
            self.startup_timeout
        };
        let Ok(discovery) = timeout(patience, self.discover(&speaker)).await else {
            // It may be at work on a call and answer nothing else meanwhile.
            if speaker.calls.is_busy() {
                let silent = || fail(Fault::Silent(patience));
                return before.map(Discovery::Modern).ok_or_else(silent);
            }
            speaker.child.close();
            return Err(fail(Fault::Silent(patience)));
        };
        let discovery = discovery?;
        match &discovery {
            Discovery::Modern(facts) => speaker.describe(facts),
            // It goes on as another process, which has its session from the beginning.
            Discovery::Legacy => speaker.child.close(),
            // Tasks of a server that is known to be modern would die with it.
            Discovery::Unrecognised(_) => {}
        }
        Ok(discovery)
    }

    /// Finds out what a process of which nothing is known speaks.
    pub(super) async fn probe_process(
        &self,
        stdio: &ModernStdio,
        want: Want,
    ) -> Result<Facts, CallError> {
        let fail = |fault: Fault| fault.into_call(&self.name);
        let speaker = stdio.speaker(want).await.map_err(fail)?;
        let mut discover = pin!(self.discover(&speaker));
        let said = timeout(self.startup_timeout / 2, &mut discover).await;
        match said {
            Ok(Ok(Discovery::Modern(facts))) => {
                speaker.describe(&facts);
                return Ok(facts);
            }
            Ok(Ok(Discovery::Legacy | Discovery::Unrecognised(_))) | Err(_) => {}
            Ok(Err(error)) => return Err(error),
        }
        let silent = said.is_err();
        stdio.let_go(&speaker);
        let mut ours = Ours::new(&speaker.child);
        let mut session = pin!(self.legacy.begin(Arc::new(hand_over(&speaker))));
        let begun = if silent {
            tokio::select! {
                begun = &mut session => begun,
                facts = modern(&mut discover) => {
                    ours.let_go();
                    speaker.describe(&facts);
                    self.give_back(stdio, &speaker);
                    return Ok(facts);
                }
            }
        } else {
            session.await
        };
        match begun {
            Ok((facts, instance)) => {
                // Where a call has opened the session meanwhile, this process is nobody's.
                if instance == *speaker.child.instance() {
                    ours.let_go();
                }
                Ok(facts)
            }
            Err(Fault::Modern) if silent => {
                ours.let_go();
                self.give_back(stdio, &speaker);
                let facts = discover.await?.modern(&self.name)?;
                speaker.describe(&facts);
                Ok(facts)
            }
            Err(fault) => Err(fail(fault)),
        }
    }

    /// Asks another process of a server that is spoken to in sessions whether those are of the
    /// past; what it says of itself then. Processes that run already are what they were.
    pub(super) async fn successor(&self, stdio: &ModernStdio) -> Option<Facts> {
        let speaker = stdio.speaker(Want::Call).await.ok()?;
        let mut ours = Ours::new(&speaker.child);
        let said = timeout(self.startup_timeout / 2, self.discover(&speaker)).await;
        if let Ok(Ok(Discovery::Modern(facts))) = said {
            ours.let_go();
            speaker.describe(&facts);
            return Some(facts);
        }
        stdio.let_go(&speaker);
        None
    }

    fn give_back(&self, stdio: &ModernStdio, speaker: &Speaker) {
        let calls: SharedEar = Arc::clone(&speaker.calls) as _;
        speaker.child.hand_to(&calls);
        stdio.adopt(speaker.clone());
    }

    async fn discover(&self, speaker: &Speaker) -> Result<Discovery, CallError> {
        let send = |call| async {
            let reply = speaker.call(call).await?;
            Ok(Answered {
                nameless: false,
                status: None,
                reply,
            })
        };
        probe::discover(&self.name, send).await
    }
}

/// Resolves only when the server describes itself as modern.
async fn modern(discover: impl Future<Output = Result<Discovery, CallError>>) -> Facts {
    match discover.await {
        Ok(Discovery::Modern(facts)) => facts,
        Ok(Discovery::Legacy | Discovery::Unrecognised(_)) | Err(_) => std::future::pending().await,
    }
}

/// A process that belongs to nobody else while it is asked.
struct Ours<'a>(Option<&'a Child>);

impl<'a> Ours<'a> {
    fn new(child: &'a Child) -> Self {
        Self(Some(child))
    }

    fn let_go(&mut self) {
        self.0 = None;
    }
}

impl Drop for Ours<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.0 {
            child.close();
        }
    }
}

fn hand_over(speaker: &Speaker) -> HandOver<impl Fn(SharedEar) -> SharedEar + use<>> {
    let probe = Arc::clone(&speaker.calls);
    let ear = move |session: SharedEar| -> SharedEar {
        let probe: SharedEar = Arc::clone(&probe) as _;
        Arc::new(Both { probe, session })
    };
    HandOver {
        child: Arc::clone(&speaker.child),
        ear,
    }
}

/// Hears a process that is asked both ways.
#[derive(Debug)]
struct Both {
    probe: SharedEar,
    session: SharedEar,
}

impl Both {
    /// Whoever sent request `id`.
    fn of(&self, id: u64) -> &SharedEar {
        if self.session.sending(id) {
            &self.session
        } else {
            &self.probe
        }
    }
}

impl Ear for Both {
    fn hear(&self, heard: Heard) {
        let id = match &heard.message {
            Message::Response(Some(id), _) => id.as_number(),
            Message::Response(None, _) | Message::Request(_) | Message::Notification(_) => None,
        };
        match id {
            Some(id) => self.of(id).hear(heard),
            None => self.session.hear(heard),
        }
    }

    fn spoiled(&self, id: u64, fault: Fault) {
        self.of(id).spoiled(id, fault);
    }

    fn gone(&self, fault: &Fault) {
        self.probe.gone(fault);
        self.session.gone(fault);
    }

    fn sending(&self, id: u64) -> bool {
        self.session.sending(id) || self.probe.sending(id)
    }

    fn idle(&self) -> waypost_hub::upstream::BoxFuture<'_, ()> {
        self.session.idle()
    }
}
