//! The part of a call that one caller waits for.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use tokio::sync::{mpsc, oneshot};
use waypost_hub::call::Call;
use waypost_hub::error::CallError;
use waypost_hub::reply::{Event, Reply};
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::message::Notification;
use waypost_wire::raw::Raw;

use super::exchange::{Ending, Exchange};
use super::level::Level;
use super::translate;
use crate::fault::Fault;

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

/// The outer end. Dropped before the end has come out, it gives the call up.
#[derive(Debug)]
pub(crate) struct Outlet {
    exchange: Arc<Exchange>,
    leg: u64,
    events: mpsc::Receiver<Notification>,
    end: oneshot::Receiver<End>,
    /// Read before anybody asked.
    ahead: Option<Notification>,
    done: bool,
}

impl Outlet {
    pub(super) fn new(
        exchange: Arc<Exchange>,
        leg: u64,
        events: mpsc::Receiver<Notification>,
        end: oneshot::Receiver<End>,
    ) -> Self {
        Self {
            exchange,
            leg,
            events,
            end,
            ahead: None,
            done: false,
        }
    }

    /// Waits for the first message; alone, it is the whole reply.
    pub(crate) async fn reply(mut self) -> Result<Reply, Fault> {
        match std::future::poll_fn(|cx| self.poll_event(cx)).await {
            Some(Ok(Event::End(end))) => Ok(Reply::End(end)),
            Some(Ok(Event::Notification(notification))) => {
                self.ahead = Some(notification);
                Ok(Reply::Stream(Box::pin(self)))
            }
            Some(Err(fault)) => Err(fault),
            None => Err(Fault::NoEnd),
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event, Fault>>> {
        if self.done {
            return Poll::Ready(None);
        }
        // The queue is let go of together with giving the end, after the last notification. Read
        // until it closes, so that the end overtakes none.
        if let Some(notification) = ready!(self.events.poll_recv(cx)) {
            return Poll::Ready(Some(Ok(Event::Notification(notification))));
        }
        let end = ready!(Pin::new(&mut self.end).poll(cx));
        self.done = true;
        let end = end.unwrap_or(Err(Fault::NoEnd)).and_then(|end| match end {
            // Read here, on the caller's core, and not where all answers of the server pass.
            Ending::Answer(outcome) => translate::end(self.exchange.method(), outcome),
            Ending::Ours(end) => Ok(end),
        });
        Poll::Ready(Some(end.map(Event::End)))
    }
}

impl Stream for Outlet {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(notification) = self.ahead.take() {
            return Poll::Ready(Some(Ok(Event::Notification(notification))));
        }
        let event = ready!(self.poll_event(cx));
        let upstream = self.exchange.upstream();
        Poll::Ready(event.map(|event| event.map_err(|fault| fault.into_call(upstream))))
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        // Closed first: who gives the end from here on sees that nobody takes it.
        self.end.close();
        match self.end.try_recv() {
            Ok(Ok(ending)) => self.exchange.unread(ending),
            _ => self.exchange.leave(self.leg),
        }
    }
}
