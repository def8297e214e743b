//! An event stream as the answer to a request.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use waypost_hub::error::CallError;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::{End, Event};
use waypost_wire::id::Id;
use waypost_wire::line;
use waypost_wire::message::{Message, Outcome};
use waypost_wire::sse::{self, Item};

use super::frames::Frames;
use super::pool::Lent;
use crate::event::Ignored;
use crate::fault::Fault;
use crate::outcome;

/// The notifications of one request and its end. Dropped before the end, it takes the connection
/// with it, which is how a request is cancelled (specification: transports, cancellation).
pub(crate) struct Events {
    /// `None` once the end was read.
    frames: Option<Frames>,
    id: Id,
    upstream: Arc<str>,
    tasks: Tasks,
    /// Read before anybody asked.
    ahead: VecDeque<Event>,
}

impl Events {
    pub(crate) fn new(
        body: Lent,
        id: Id,
        limit: usize,
        upstream: &Arc<str>,
        tasks: &Tasks,
    ) -> Self {
        Self {
            frames: Some(Frames::new(body, limit)),
            id,
            upstream: Arc::clone(upstream),
            tasks: tasks.clone(),
            ahead: VecDeque::new(),
        }
    }

    /// Reads what is there already: most calls have their whole answer in the first chunk.
    pub(crate) async fn glance(&mut self) -> Result<Option<End>, Fault> {
        let now = std::future::poll_fn(|cx| {
            Poll::Ready(match self.poll_event(cx) {
                Poll::Ready(event) => event,
                Poll::Pending => None,
            })
        });
        match now.await.transpose()? {
            Some(Event::End(end)) => Ok(Some(end)),
            Some(event) => {
                self.ahead.push_back(event);
                Ok(None)
            }
            None => Ok(None),
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event, Fault>>> {
        while let Some(frames) = &mut self.frames {
            let id = &self.id;
            let event = match ready!(frames.poll_item(cx, |head| can_be_missed(head, id))) {
                Ok(Some(Item::Event(event))) => event,
                Ok(Some(Item::Oversized { .. })) => {
                    self.ignore("too_large");
                    continue;
                }
                Ok(None) => return self.fail(Fault::NoEnd),
                Err(fault) => return self.fail(fault),
            };
            match self.read(event) {
                Ok(Some(Event::End(end))) => {
                    if let Some(frames) = self.frames.take() {
                        frames.let_go(&self.tasks);
                    }
                    return Poll::Ready(Some(Ok(Event::End(end))));
                }
                Ok(Some(event)) => return Poll::Ready(Some(Ok(event))),
                Ok(None) => {}
                Err(fault) => return self.fail(fault),
            }
        }
        Poll::Ready(None)
    }

    fn fail(&mut self, fault: Fault) -> Poll<Option<Result<Event, Fault>>> {
        self.frames = None;
        Poll::Ready(Some(Err(fault)))
    }

    fn read(&self, event: sse::Event) -> Result<Option<Event>, Fault> {
        // Priming events have an id and no data; keep-alive comments are no events at all.
        if event.data.is_empty() || event.kind.is_some_and(|kind| kind != "message") {
            return Ok(None);
        }
        let message = Message::parse(&event.data);
        let message = message.map_err(|unreadable| Fault::Malformed(unreadable.reason))?;
        match message {
            Message::Notification(notification) => Ok(Some(Event::Notification(notification))),
            Message::Response(Some(id), outcome) if id.is_answer_to(&self.id) => {
                outcome::end(outcome).map(|end| Some(Event::End(end)))
            }
            Message::Response(None, error @ Outcome::Error(_)) => {
                outcome::end(error).map(|end| Some(Event::End(end)))
            }
            Message::Response(..) => Ok(self.ignore("other_answer")),
            // A modern server asks in its result; nothing here could answer this.
            Message::Request(_) => Ok(self.ignore("request")),
        }
    }

    fn ignore(&self, reason: &'static str) -> Option<Event> {
        let upstream = &self.upstream;
        Ignored { upstream, reason }.emit();
        None
    }
}

/// Whether the call `id` can do without a message that begins so: a notification, or what answers
/// another. Anything else may be the answer.
fn can_be_missed(head: &[u8], id: &Id) -> bool {
    let others = |of: Id| !of.is_answer_to(id);
    line::is_notification(head) || line::id(head, &[]).is_some_and(others)
}

impl Stream for Events {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(event) = self.ahead.pop_front() {
            return Poll::Ready(Some(Ok(event)));
        }
        let event = ready!(self.poll_event(cx));
        Poll::Ready(event.map(|event| event.map_err(|fault| fault.into_call(&self.upstream))))
    }
}
