//! The part of a call that one caller waits for.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use waypost_hub::call::{Call, Carrier, Comeback};
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::level::Level;
use waypost_wire::message::Notification;
use waypost_wire::meta;
use waypost_wire::method;
use waypost_wire::raw::Raw;

use super::exchange::{Ending, Exchange};
use super::{tasks, translate, url_mode};
use crate::fault::Fault;
use crate::outlet::Awaited;

type End = Result<Ending, Fault>;

/// The inner end: where what is for the caller goes in.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) number: u64,
    events: mpsc::Sender<Notification>,
    end: oneshot::Sender<End>,
    pub(super) wants: Wants,
    pub(super) declared: ClientCapabilities,
    pub(super) carrier: Carrier,
    /// Its caller waits beside the questions that it was given.
    pub(super) listens: bool,
}

/// What a caller wants to hear of its call before the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Wants {
    token: Option<Raw>,
    /// The least level of log messages.
    level: Option<Level>,
    in_session: bool,
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
            wants: Wants::of(call),
            declared: call.meta.capabilities.clone(),
            carrier: call.carrier.clone(),
            listens: call.comeback == Comeback::Listens,
        }
    }

    /// Passes a notification on, where its caller wants it and has room.
    pub(super) fn pass(&self, notification: Notification) -> bool {
        let notification = self.wants.hear(notification);
        notification.is_some_and(|notification| self.events.try_send(notification).is_ok())
    }

    /// Gives the end, or gives it back when nobody is there any more.
    pub(super) fn end(self, end: End) -> Option<End> {
        self.end.send(end).err()
    }
}

impl Wants {
    /// What the caller of `call` wants.
    pub(super) fn of(call: &Call) -> Self {
        Self {
            token: call.meta.progress_token.clone(),
            level: call.meta.log_level.as_ref().and_then(Level::read),
            in_session: call.session.is_some(),
        }
    }

    /// Whether the caller has a session.
    pub(super) fn in_session(&self) -> bool {
        self.in_session
    }

    /// Whether log messages are wanted.
    pub(super) fn log(&self) -> bool {
        self.level.is_some()
    }

    /// The notification as the caller gets it, if it would have it.
    pub(super) fn hear(&self, mut notification: Notification) -> Option<Notification> {
        if !self.covers(&notification) {
            return None;
        }
        if let (method::PROGRESS, Some(token)) = (&*notification.method, &self.token) {
            notification.params.set(meta::PROGRESS_TOKEN, token.clone());
        }
        Some(notification)
    }

    /// Whether the caller would have this one.
    pub(super) fn covers(&self, notification: &Notification) -> bool {
        match &*notification.method {
            method::PROGRESS => self.token.is_some(),
            method::MESSAGE => {
                let level = notification.params.get("level").and_then(Level::read);
                let both = self.level.zip(level);
                both.is_some_and(|(least, level)| level >= least)
            }
            // Only sessions know it (2025-11-25: elicitation).
            url_mode::COMPLETE => self.in_session,
            _ => true,
        }
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
            Ending::Answer(outcome) => {
                let end = translate::end(self.exchange.method(), outcome);
                let creates = self.exchange.creates_task();
                end.map(|end| if creates { tasks::created(end) } else { end })
            }
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
