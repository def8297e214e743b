//! The body of a stream: what its ring holds and will hold, comments while nothing comes.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio_util::sync::{DropGuard, WaitForCancellationFutureOwned};
use waypost_wire::sse;

use crate::body::Idle;
use crate::encode::{self, Pieces};
use crate::event::OpenStream;
use crate::legacy::place::Marks;
use crate::legacy::ring::Reader;
use crate::legacy::session::Hold;
use crate::outlet::Class;

/// How long a client waits before it reconnects, in milliseconds: a lost connection should not
/// delay an answer, nor a restart meet all clients at once.
const RETRY_MS: u32 = 1_000;

/// A view of one stream of a session. A client that goes away only takes the view with it.
pub(crate) struct RingBody {
    ready: Pieces,
    reader: Reader,
    /// Makes the ids of events; without it they have none.
    marks: Option<Marks>,
    idle: Option<Idle>,
    until: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    _hold: Option<Hold>,
    _guard: Option<DropGuard>,
    _open: OpenStream,
}

impl RingBody {
    /// What `reader` reads. A `keep_alive` of zero sends no comments.
    pub(crate) fn new(reader: Reader, keep_alive: Duration) -> Self {
        Self {
            ready: Pieces::new(),
            reader,
            marks: None,
            idle: Idle::of(keep_alive),
            until: None,
            _hold: None,
            _guard: None,
            _open: OpenStream::new(),
        }
    }

    /// What it is a view of.
    pub(crate) fn ring(&self) -> &std::sync::Arc<crate::legacy::ring::Ring> {
        self.reader.ring()
    }

    /// Keeps the session open. Events get ids of `marks`; with `priming`, the client gets one
    /// before the first event.
    pub(crate) fn of_session(mut self, hold: Hold, marks: Marks, priming: bool) -> Self {
        if priming {
            let id = marks.at(self.reader.at(), false);
            let text = format!("id: {id}\nretry: {RETRY_MS}\ndata: \n\n");
            self.ready.push_back(text.into());
        }
        self.marks = Some(marks);
        self._hold = Some(hold);
        self
    }

    /// Gives up the request when the client goes away.
    pub(crate) fn cancelling(mut self, guard: DropGuard) -> Self {
        self._guard = Some(guard);
        self
    }

    /// Ends when `stop` fires.
    pub(crate) fn until(mut self, stop: tokio_util::sync::CancellationToken) -> Self {
        self.until = Some(Box::pin(stop.cancelled_owned()));
        self
    }

    /// Sees to it that something is sent at once: what waits in front learns that the stream is
    /// open.
    pub(crate) fn opened(mut self) -> Self {
        if self.ready.is_empty() {
            self.ready.push_back(sse::KEEP_ALIVE);
        }
        self
    }
}

impl Body for RingBody {
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
            match this.reader.poll_next(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(item)) => {
                    if let Some(idle) = &mut this.idle {
                        idle.restart();
                    }
                    if let Some(marks) = &this.marks {
                        let id = marks.at(item.number, item.class == Class::End);
                        this.ready.push_back(format!("id: {id}\n").into());
                    }
                    this.ready.extend(encode::event(item.message));
                    continue;
                }
                Poll::Pending => {}
            }
            let stopped = this.until.as_mut();
            if stopped.is_some_and(|until| until.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(None);
            }
            if !this.idle.as_mut().is_some_and(|idle| idle.is_over(cx)) {
                return Poll::Pending;
            }
            this.ready.push_back(sse::KEEP_ALIVE);
        }
    }
}

impl fmt::Debug for RingBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingBody")
            .field("marks", &self.marks)
            .finish_non_exhaustive()
    }
}
