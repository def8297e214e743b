//! The side of a call that waits for its answers.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use tokio::sync::{mpsc, oneshot};
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Event, Reply};
use waypost_wire::message::Notification;

use crate::fault::Fault;

/// The call behind an outlet.
pub(crate) trait Awaited: Send + Unpin + 'static {
    /// How it ends, as it came.
    type Ending: Send;

    /// The upstream's name.
    fn upstream(&self) -> &Arc<str>;

    /// What the ending says. Read here, on the caller's core, and not where all answers of the
    /// server pass.
    ///
    /// # Errors
    /// Why it is none.
    fn read(&self, ending: Self::Ending) -> Result<End, Fault>;

    /// Nobody waits any more; `unread` is the end that came this moment.
    fn leave(&self, unread: Option<Self::Ending>);
}

/// Notifications, then the end. Dropped before it has come out, it gives the call up.
pub(crate) struct Outlet<C: Awaited> {
    call: C,
    events: mpsc::Receiver<Notification>,
    end: oneshot::Receiver<Result<C::Ending, Fault>>,
    /// Read before anybody asked.
    ahead: Option<Notification>,
    done: bool,
}

impl<C: Awaited> Outlet<C> {
    pub(crate) fn new(
        call: C,
        events: mpsc::Receiver<Notification>,
        end: oneshot::Receiver<Result<C::Ending, Fault>>,
    ) -> Self {
        Self {
            call,
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
        let end = end.unwrap_or(Err(Fault::NoEnd));
        let end = end.and_then(|ending| self.call.read(ending));
        Poll::Ready(Some(end.map(Event::End)))
    }
}

impl<C: Awaited> Stream for Outlet<C> {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(notification) = self.ahead.take() {
            return Poll::Ready(Some(Ok(Event::Notification(notification))));
        }
        let event = ready!(self.poll_event(cx));
        let upstream = self.call.upstream();
        Poll::Ready(event.map(|event| event.map_err(|fault| fault.into_call(upstream))))
    }
}

impl<C: Awaited> Drop for Outlet<C> {
    fn drop(&mut self) {
        if !self.done {
            // Closed first: who gives the end from here on sees that nobody takes it.
            self.end.close();
            let unread = self.end.try_recv().ok().and_then(Result::ok);
            self.call.leave(unread);
        }
    }
}
