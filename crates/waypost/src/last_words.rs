//! An answer for callers whose calls outlive the drain: without it they would only see their
//! connection end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt as _};
use waypost_hub::call::Call;
use waypost_hub::error::CallError;
use waypost_hub::hub::Hub;
use waypost_hub::reply::{Event, EventStream, Reply};
use waypost_hub::upstream::CallFuture;

/// A call through the hub that ends with an error once the hub has given up. It is not woken for
/// that: whoever polls it has to.
pub(crate) struct LastWords {
    hub: Arc<Hub>,
    call: CallFuture<'static>,
    begun: bool,
}

impl LastWords {
    /// Sends the call.
    pub(crate) fn call(hub: &Arc<Hub>, call: Call) -> Self {
        Self {
            hub: Arc::clone(hub),
            call: hub.call(call),
            begun: false,
        }
    }
}

impl Future for LastWords {
    type Output = Result<Reply, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let given_up = self.hub.has_given_up();
        // Nothing begins any more.
        if given_up && !self.begun {
            return Poll::Ready(Err(CallError::stopped()));
        }
        self.begun = true;
        Poll::Ready(match self.call.as_mut().poll(cx) {
            Poll::Pending if given_up => Err(CallError::stopped()),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Reply::Stream(events))) => Ok(Reply::Stream(
                LastEvents {
                    hub: Arc::clone(&self.hub),
                    events: Some(events),
                }
                .boxed(),
            )),
            Poll::Ready(other) => other,
        })
    }
}

struct LastEvents {
    hub: Arc<Hub>,
    /// `None` after the last.
    events: Option<EventStream>,
}

impl Stream for LastEvents {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let given_up = self.hub.has_given_up();
        let Some(events) = &mut self.events else {
            return Poll::Ready(None);
        };
        match events.poll_next_unpin(cx) {
            Poll::Pending if given_up => {
                self.events = None;
                Poll::Ready(Some(Err(CallError::stopped())))
            }
            other => other,
        }
    }
}
