//! The events of one call, whether its answer is still to come or already streams.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::{Stream, StreamExt as _};
use tower::{Service as _, ServiceExt as _};
use waypost_hub::call::Call;
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Event, EventStream, Reply};
use waypost_hub::upstream::CallFuture;

use crate::Calls;

/// Notifications, then one end or one failure, then nothing. Dropping it cancels the call.
pub(crate) enum Events {
    Calling(CallFuture<'static>),
    Streaming(EventStream),
    Over,
}

impl Events {
    /// Makes the call.
    pub(crate) async fn of(mut calls: Calls, call: Call) -> Result<Self, CallError> {
        Ok(Self::Calling(calls.ready().await?.call(call)))
    }

    /// Waits for the end and drops what comes before it.
    pub(crate) async fn into_end(mut self) -> Result<End, CallError> {
        while let Some(event) = self.next().await {
            if let Event::End(end) = event? {
                return Ok(end);
            }
        }
        Err(CallError::no_end())
    }

    /// Waits until the call was taken up: until there is a stream, or an end.
    pub(crate) async fn begin(&mut self) -> Result<(), CallError> {
        if let Self::Calling(future) = self {
            *self = match future.await? {
                Reply::Stream(events) => Self::Streaming(events),
                Reply::End(_) => Self::Over,
            };
        }
        Ok(())
    }
}

impl Stream for Events {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let event = match &mut *self {
                Self::Over => return Poll::Ready(None),
                Self::Calling(future) => match ready!(future.as_mut().poll(cx)) {
                    Err(error) => Err(error),
                    Ok(Reply::End(end)) => Ok(Event::End(end)),
                    Ok(Reply::Stream(events)) => {
                        *self = Self::Streaming(events);
                        continue;
                    }
                },
                Self::Streaming(events) => {
                    let event = ready!(events.poll_next_unpin(cx));
                    event.unwrap_or_else(|| Err(CallError::no_end()))
                }
            };
            if !matches!(event, Ok(Event::Notification(_))) {
                *self = Self::Over;
            }
            return Poll::Ready(Some(event));
        }
    }
}
