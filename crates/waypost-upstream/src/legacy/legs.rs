//! The part of a call that one caller waits for.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use waypost_hub::call::Call;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::level::Level;
use waypost_wire::message::Notification;
use waypost_wire::raw::Raw;

use super::exchange::{Ending, Exchange};
use super::translate;
use crate::fault::Fault;
use crate::outlet::Awaited;

type End = Result<Ending, Fault>;

/// The inner end: where what is for the caller goes in.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) number: u64,
    pub(super) events: mpsc::Sender<Notification>,
    end: oneshot::Sender<End>,
    pub(super) token: Option<Raw>,
    /// The least level of log messages that is wanted.
    pub(super) level: Option<Level>,
    pub(super) declared: ClientCapabilities,
    /// Its caller has a session.
    pub(super) in_session: bool,
}

impl Leg {
    pub(super) fn new(
        number: u64,
        call: &Call,
        events: mpsc::Sender<Notification>,
        end: oneshot::Sender<End>,
    ) -> Self {
        Self {
            number,
            events,
            end,
            token: call.meta.progress_token.clone(),
            level: call.meta.log_level.as_ref().and_then(Level::read),
            declared: call.meta.capabilities.clone(),
            in_session: call.session.is_some(),
        }
    }

    /// Gives the end, or gives it back when nobody is there any more.
    pub(super) fn end(self, end: End) -> Option<End> {
        self.end.send(end).err()
    }
}

/// Who waits at the outer end.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(super) exchange: Arc<Exchange>,
    pub(super) leg: u64,
}

/// The outer end. Dropped before the end has come out, it gives the call up.
pub(crate) type Outlet = crate::outlet::Outlet<Seat>;

impl Awaited for Seat {
    type Ending = Ending;

    fn upstream(&self) -> &Arc<str> {
        self.exchange.upstream()
    }

    fn read(&self, ending: Ending) -> Result<waypost_hub::reply::End, Fault> {
        match ending {
            Ending::Answer(outcome) => translate::end(self.exchange.method(), outcome),
            Ending::Ours(end) => Ok(end),
        }
    }

    fn leave(&self, unread: Option<Ending>) {
        match unread {
            Some(ending) => self.exchange.unread(ending),
            None => self.exchange.leave(self.leg),
        }
    }
}
