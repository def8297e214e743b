//! The bodies of answers: one message in pieces, or a stream of events.

use std::convert::Infallible;
use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use waypost_hub::error::CallError;
use waypost_hub::reply::Event;
use waypost_wire::id::Id;
use waypost_wire::message;
use waypost_wire::sse;

use crate::encode::{self, Pieces};
use crate::event::{Finish, OpenStream};
use crate::events::Events;
use crate::rescue;

/// One message.
#[derive(Debug)]
pub(crate) struct Whole(pub(crate) Pieces);

/// A stream of events, comments while nothing comes. It holds the call: a client that goes away
/// drops it, and that cancels.
pub(crate) struct EventBody {
    ready: Pieces,
    events: Events,
    id: Id,
    idle: Option<Idle>,
    finish: Finish,
    _open: OpenStream,
}

/// Measures silence.
pub(crate) struct Idle {
    period: Duration,
    sleep: Pin<Box<Sleep>>,
    running: bool,
}

// === impl Whole ===

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let bytes: usize = self.0.iter().map(Bytes::len).sum();
        SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

// === impl EventBody ===

impl EventBody {
    /// The events of a call, of which none has been taken yet. A `keep_alive` of zero sends no
    /// comments.
    pub(crate) fn new(events: Events, id: Id, keep_alive: Duration, finish: Finish) -> Self {
        Self {
            ready: Pieces::new(),
            events,
            id,
            idle: Idle::of(keep_alive),
            finish,
            _open: OpenStream::new(),
        }
    }

    /// Puts a comment first: what waits in front learns that the stream is open.
    pub(crate) fn comment(&mut self) {
        self.ready.push_back(sse::KEEP_ALIVE);
    }

    /// Puts an event next.
    pub(crate) fn push(&mut self, event: Result<Event, CallError>) {
        let message = match event {
            Ok(Event::Notification(notification)) => [message::encode_notification(
                &notification.method,
                &notification.params,
            )]
            .into(),
            Ok(Event::End(end)) => {
                self.finish.outcome(end.word());
                encode::end(&self.id, &end)
            }
            Err(error) => {
                self.finish.failed(&error);
                let (_, object) = rescue::call_error(&error);
                encode::error(Some(&self.id), &object)
            }
        };
        self.ready.extend(encode::event(message));
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        loop {
            if let Some(piece) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            match this.events.poll_next_unpin(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(event)) => {
                    if let Some(idle) = &mut this.idle {
                        idle.restart();
                    }
                    this.push(event);
                }
                Poll::Pending => {
                    if !this.idle.as_mut().is_some_and(|idle| idle.is_over(cx)) {
                        return Poll::Pending;
                    }
                    this.comment();
                }
            }
        }
    }
}

impl fmt::Debug for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBody")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

// === impl Idle ===

impl Idle {
    /// Silence of so long; zero is never.
    pub(crate) fn of(period: Duration) -> Option<Self> {
        (!period.is_zero()).then(|| Self {
            period,
            sleep: Box::pin(tokio::time::sleep(period)),
            running: false,
        })
    }

    /// Something came.
    pub(crate) fn restart(&mut self) {
        self.running = false;
    }

    /// Whether nothing came for a whole period, counted from the last time something did.
    pub(crate) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.running {
            self.sleep.as_mut().reset(Instant::now() + self.period);
            self.running = true;
        }
        let over = self.sleep.as_mut().poll(cx).is_ready();
        if over {
            self.running = false;
        }
        over
    }
}
