//! The one session that a pipe may have (2025-11-25 and earlier: transports, stdio), and a stream
//! of HTTP+SSE, which is one to it.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Notification, Outcome, Request};

use crate::encode;
use crate::event::Finish;
use crate::legacy::serve::{self, Incoming, PING};
use crate::legacy::session::{Hold, Session};
use crate::legacy::{initialize, listen};
use crate::modern::Asker;
use crate::outlet::{Class, Outlet};
use crate::refusal::Refusal;
use crate::stdio::Host;
use crate::stdio::lane::Lane;
use crate::stdio::outbox::Outbox;

/// The session, once there is one.
#[derive(Debug)]
pub(crate) struct Place {
    host: Host,
    outbox: Arc<Outbox>,
    hold: Option<Hold>,
    /// A client of an earlier session here went on after `initialize`.
    was_confirmed: bool,
    /// Kept free for the session among those that may be open.
    reserved: Option<OwnedSemaphorePermit>,
}

impl Place {
    pub(crate) fn new(host: &Host, outbox: &Arc<Outbox>) -> Self {
        Self {
            host: host.clone(),
            outbox: Arc::clone(outbox),
            hold: None,
            was_confirmed: false,
            reserved: None,
        }
    }

    /// Keeps a place for the session, which then cannot be refused for want of one.
    pub(crate) fn reserve(&mut self, permit: OwnedSemaphorePermit) {
        self.reserved = Some(permit);
    }

    /// The session, once there is one.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.hold.as_ref().map(|hold| &**hold.session())
    }

    /// Whether its client has ever gone on after `initialize`. One that begins anew does not owe
    /// that again.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.was_confirmed || self.session().is_some_and(Session::is_confirmed)
    }

    /// Answers `initialize`. A later one begins anew: its client says that it forgot all before.
    ///
    /// # Errors
    /// Why there is no session, on record already.
    pub(crate) async fn initialize(
        &mut self,
        request: &Request,
        asker: &Asker,
        lane: Lane,
        mut finish: Finish,
    ) -> Result<(), Refusal> {
        finish.method(&request.method);
        let calls = &self.host.parts.calls;
        let greeting = match initialize::answer(calls, asker, &request.params, true).await {
            Ok(greeting) => greeting,
            Err(error) => {
                finish.outcome("error");
                lane.post(Class::End, encode::error(Some(&request.id), &error));
                return Ok(());
            }
        };
        self.leave();
        let Some(sessions) = &self.host.parts.sessions else {
            return Err(refused(Refusal::NotOpened, finish));
        };
        let (who, view) = (&asker.principal, &asker.view);
        match sessions.attach(greeting.ticket, who, view, self.reserved.take()) {
            Ok(hold) => self.hold = Some(hold),
            Err(refusal) => return Err(refused(refusal, finish)),
        }
        finish.outcome("complete");
        let message = message::encode_result(&request.id, &greeting.result);
        lane.post(Class::End, [message].into());
        self.relay_changes();
        Ok(())
    }

    /// What belongs to no request goes out as it comes; nothing comes before the client is ready.
    fn relay_changes(&self) {
        let Some(hold) = &self.hold else { return };
        let mut standing = hold.session().standing.read(None);
        let outbox = Arc::clone(&self.outbox);
        self.host.tasks.spawn_here(|stop| async move {
            let relay = async {
                while let Some(item) = standing.next().await {
                    outbox.send(item.message).await;
                }
            };
            stop.run_until_cancelled(relay).await;
        });
    }

    /// Answers a request of the session.
    ///
    /// # Errors
    /// Why it was not taken, on record already.
    pub(crate) fn request(&self, mut incoming: Incoming) -> Result<(), Refusal> {
        let Some(sessions) = &self.host.parts.sessions else {
            return Err(refused(Refusal::NotOpened, incoming.finish));
        };
        incoming.hold = self.hold.clone();
        // The only request that may come before `initialize`.
        if incoming.hold.is_none() && incoming.request.method != PING {
            return Err(refused(Refusal::NotOpened, incoming.finish));
        }
        serve::request(sessions, &self.host.parts.calls, incoming)
    }

    /// Takes note of a notification.
    pub(crate) fn notification(&self, notification: &Notification) {
        let Some(hold) = &self.hold else { return };
        serve::notification(hold.session(), notification);
        if notification.method == serve::INITIALIZED
            && let Some(sessions) = &self.host.parts.sessions
        {
            listen::start(sessions, &self.host.parts.calls, hold.session());
        }
    }

    /// Takes an answer to a question; one that nobody waits for comes too late.
    pub(crate) fn answer(&self, id: &Id, outcome: Outcome) {
        if let Some(hold) = &self.hold {
            hold.session().answer(id, outcome);
        }
    }

    /// The client sends no more: nobody waits for its answers.
    pub(crate) fn give_up_questions(&self) {
        if let Some(hold) = &self.hold {
            hold.session().give_up_questions();
        }
    }

    /// The session is over, and with it what is in flight in it.
    pub(crate) fn leave(&mut self) {
        self.was_confirmed = self.is_confirmed();
        if let (Some(hold), Some(sessions)) = (self.hold.take(), &self.host.parts.sessions) {
            sessions.detach(hold);
        }
    }
}

/// Puts a refusal on record.
fn refused(refusal: Refusal, mut finish: Finish) -> Refusal {
    finish.refused(&refusal);
    refusal
}
