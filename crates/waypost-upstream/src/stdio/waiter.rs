//! The side of a call that waits for its answers.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use waypost_hub::error::CallError;
use waypost_hub::reply::{Event, Reply};
use waypost_wire::message::Notification;

use super::calls::{Calls, Outlet};
use crate::fault::Fault;
use crate::outcome;

/// Notifications, then the end. Dropped before it, it tells the server to stop.
pub(crate) struct Waiter {
    calls: Arc<Calls>,
    outlet: Outlet,
    /// Read before anybody asked.
    ahead: Option<Notification>,
    done: bool,
}

impl Waiter {
    pub(crate) fn new(calls: Arc<Calls>, outlet: Outlet) -> Self {
        Self {
            calls,
            outlet,
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
        if let Some(notification) = ready!(self.outlet.events.poll_recv(cx)) {
            return Poll::Ready(Some(Ok(Event::Notification(notification))));
        }
        let end = ready!(Pin::new(&mut self.outlet.end).poll(cx));
        self.done = true;
        // Read here, on the caller's core, and not where all answers of the child pass.
        let end = end.unwrap_or(Err(Fault::NoEnd)).and_then(outcome::end);
        Poll::Ready(Some(end.map(Event::End)))
    }
}

impl Stream for Waiter {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(notification) = self.ahead.take() {
            return Poll::Ready(Some(Ok(Event::Notification(notification))));
        }
        let event = ready!(self.poll_event(cx));
        let upstream = self.calls.upstream();
        Poll::Ready(event.map(|event| event.map_err(|fault| fault.into_call(upstream))))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.done {
            self.calls.leave(&mut self.outlet);
        }
    }
}
