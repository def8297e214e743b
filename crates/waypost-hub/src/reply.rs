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
