//! What comes back for a call: notifications, then exactly one end.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream::{self, StreamExt as _};
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Notification;
use waypost_wire::object::Object;

use crate::error::CallError;

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The result, as the server sent it.
    Complete(Object),
    /// The server asks; the caller retries with the answers.
    InputRequired(Object),
    /// The call goes on as a task.
    Task(Object),
    /// The server's JSON-RPC error: an answer, not a failure of the gateway.
    Error(ErrorObject),
}

impl End {
    /// The word for it in logs and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Complete(_) => "complete",
            Self::InputRequired(_) => "input_required",
            Self::Task(_) => "task",
            Self::Error(_) => "error",
        }
    }

    /// The result's members; `None` for an error.
    pub fn result_mut(&mut self) -> Option<&mut Object> {
        match self {
            Self::Complete(object) | Self::InputRequired(object) | Self::Task(object) => {
                Some(object)
            }
            Self::Error(_) => None,
        }
    }
}

/// Marks a response, among its extensions, as a stream that lasts as long as its client listens.
/// It waits nearly always, so it does not count as work in flight.
#[derive(Clone, Copy, Debug)]
pub struct Lasting;

/// One message on the way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Progress, a log message, or what a subscription brings.
    Notification(Notification),
    /// The last one.
    End(End),
}

/// Notifications, then one [`Event::End`], then nothing. Dropping it cancels the call.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Event, CallError>> + Send>>;

/// The answer to a call.
pub enum Reply {
    /// Only the end.
    End(End),
    /// Something may come before the end.
    Stream(EventStream),
}

impl Reply {
    /// A complete result.
    pub fn complete(result: Object) -> Self {
        Self::End(End::Complete(result))
    }

    /// The answer to a call that comes to listen where nothing is to be heard
    /// ([`crate::call::Comeback::Listens`]).
    pub fn nothing_to_hear() -> Self {
        Self::End(End::InputRequired(Object::new()))
    }

    /// An error answer.
    pub fn error(error: ErrorObject) -> Self {
        Self::End(End::Error(error))
    }

    /// The messages one by one.
    pub fn into_stream(self) -> EventStream {
        match self {
            Self::End(end) => stream::once(async { Ok(Event::End(end)) }).boxed(),
            Self::Stream(events) => events,
        }
    }

    /// The same reply with another end, wherever it comes; what is before it stays.
    ///
    /// # Errors
    /// What `change` makes of an end that is there already.
    pub fn map_end(
        self,
        mut change: impl FnMut(End) -> Result<End, CallError> + Send + 'static,
    ) -> Result<Self, CallError> {
        let events = match self {
            Self::End(end) => return change(end).map(Self::End),
            Self::Stream(events) => events,
        };
        let events = events.map(move |event| match event {
            Ok(Event::End(end)) => change(end).map(Event::End),
            other => other,
        });
        Ok(Self::Stream(events.boxed()))
    }

    /// Waits for the end and drops what comes before it.
    ///
    /// # Errors
    /// The failure that took the end's place; a stream that stops without one is
    /// [`crate::error::Kind::BadUpstream`].
    pub async fn into_end(self) -> Result<End, CallError> {
        self.end_or(CallError::no_end).await
    }

    /// The same for a reply that came from this upstream.
    ///
    /// # Errors
    /// The same; a stream that stops without an end is this upstream's.
    pub async fn into_end_of(self, upstream: &Arc<str>) -> Result<End, CallError> {
        self.end_or(|| CallError::no_end_of(upstream)).await
    }

    async fn end_or(self, missing: impl FnOnce() -> CallError) -> Result<End, CallError> {
        let mut events = match self {
            Self::End(end) => return Ok(end),
            Self::Stream(events) => events,
        };
        while let Some(event) = events.next().await {
            if let Event::End(end) = event? {
                return Ok(end);
            }
        }
        Err(missing())
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End(end) => f.debug_tuple("End").field(end).finish(),
            Self::Stream(_) => f.write_str("Stream(..)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification() -> Event {
        Event::Notification(Notification {
            method: "x/y".to_owned(),
            params: Object::new(),
        })
    }

    #[tokio::test]
    async fn an_end_is_changed_wherever_it_comes() {
        let task = |_| Ok(End::Task(Object::new()));
        let whole = Reply::complete(Object::new()).map_end(task).unwrap();
        assert!(matches!(whole, Reply::End(End::Task(_))));
        let events = || {
            let end = Event::End(End::Complete(Object::new()));
            Reply::Stream(stream::iter([Ok(notification()), Ok(end)]).boxed())
        };
        let mut streamed = events().map_end(task).unwrap().into_stream();
        assert_eq!(streamed.next().await.unwrap().unwrap(), notification());
        let end = Event::End(End::Task(Object::new()));
        assert_eq!(streamed.next().await.unwrap().unwrap(), end);
        let fail = |_| Err(CallError::unknown_task());
        assert!(Reply::complete(Object::new()).map_end(fail).is_err());
        let failed = events().map_end(fail).unwrap().into_end().await;
        assert!(failed.is_err());
    }
}
