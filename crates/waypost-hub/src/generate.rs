//! A stream of events written by a future, as a generator would.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::sync::{broadcast, mpsc};
use waypost_wire::message::Notification;

use crate::error::CallError;
use crate::reply::{End, Event, EventStream};
use crate::upstream::BoxFuture;

/// Notifications between future and stream. The future is polled by the stream, so more would
/// only delay the moment in which it feels a slow reader.
const ROOM: usize = 4;

/// Where the future writes notifications to.
#[derive(Clone, Debug)]
pub enum Notifier {
    /// The one reader that polls the future.
    Reader(mpsc::Sender<Notification>),
    /// Readers that share the future. None of them holds up the others: a slow one misses some.
    Readers(broadcast::Sender<Notification>),
}

impl Notifier {
    /// Hands a notification to the reader; waits while a single one is slow.
    pub async fn send(&self, notification: Notification) {
        match self {
            // The other half lives as long as the future that calls this.
            Self::Reader(reader) => drop(reader.send(notification).await),
            // They may all have left.
            Self::Readers(readers) => drop(readers.send(notification)),
        }
    }
}

/// The notifications that the future writes, then its output as the end. Dropping the stream
/// drops the future with all that it holds.
pub fn generate<F>(write: impl FnOnce(Notifier) -> F) -> EventStream
where
    F: Future<Output = Result<End, CallError>> + Send + 'static,
{
    let (sender, notifications) = mpsc::channel(ROOM);
    let future = Box::pin(write(Notifier::Reader(sender)));
    Generated {
        future: Some(future),
        notifications,
        end: None,
    }
    .boxed()
}

struct Generated {
    future: Option<BoxFuture<'static, Result<End, CallError>>>,
    notifications: mpsc::Receiver<Notification>,
    end: Option<Result<End, CallError>>,
}

impl Stream for Generated {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(future) = &mut this.future
            && let Poll::Ready(end) = future.poll_unpin(cx)
        {
            this.end = Some(end);
            // Drops its notifier: the channel ends once it is empty.
            this.future = None;
        }
        match this.notifications.poll_recv(cx) {
            Poll::Ready(Some(notification)) => {
                Poll::Ready(Some(Ok(Event::Notification(notification))))
            }
            // The future may drop its notifier and go on.
            Poll::Ready(None) | Poll::Pending if this.future.is_some() => Poll::Pending,
            Poll::Ready(None) | Poll::Pending => {
                Poll::Ready(this.end.take().map(|end| end.map(Event::End)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use waypost_wire::object::Object;

    use super::*;

    fn notification(number: usize) -> Notification {
        Notification {
            method: number.to_string(),
            params: Object::new(),
        }
    }

    #[tokio::test]
    async fn a_slow_reader_gets_everything_in_order_and_the_end_last() {
        let many = 10 * ROOM;
        let mut events = generate(move |notifier| async move {
            for number in 0..many {
                notifier.send(notification(number)).await;
                tokio::task::yield_now().await;
            }
            Ok(End::Complete(Object::new()))
        });
        for number in 0..many {
            let event = events.next().await.unwrap().unwrap();
            assert_eq!(event, Event::Notification(notification(number)));
        }
        let end = events.next().await.unwrap().unwrap();
        assert_eq!(end, Event::End(End::Complete(Object::new())));
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn a_future_that_wants_no_notifier_still_has_its_end() {
        let mut events = generate(|_| async {
            tokio::task::yield_now().await;
            Ok(End::Complete(Object::new()))
        });
        let end = events.next().await.unwrap().unwrap();
        assert_eq!(end, Event::End(End::Complete(Object::new())));
        assert!(events.next().await.is_none());
    }
}
