//! Exchanges whose answers may be tasks: given up, they go on for a moment, so that a task that was
//! made meanwhile is heard of.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::Request;
use http_body_util::Full;
use waypost_hub::aftermath::Aftermath;
use waypost_hub::error::CallError;
use waypost_hub::reply::{Event, EventStream, Reply};
use waypost_hub::upstream::BoxFuture;
use waypost_wire::id::Id;

use super::pool::Sent;
use super::upstream::HttpUpstream;
use crate::fault::Fault;
use crate::probe::Answered;

/// Sends `request` and reads the head of its answer, or the whole when that is one piece. Dropped
/// before the end, it is `aftermath`'s.
pub(super) async fn exchange(
    http: &Arc<HttpUpstream>,
    request: Request<Full<Bytes>>,
    id: Id,
    aftermath: &Aftermath,
) -> Result<Answered, Fault> {
    let sent = Arc::new(Sent::default());
    let head = Head {
        work: Some(Box::pin({
            let (http, sent) = (Arc::clone(http), Arc::clone(&sent));
            let pool = Arc::clone(http.pool());
            async move {
                let response = pool.send_noting(request, &sent).await?;
                http.read(response, id).await
            }
        })),
        sent,
        aftermath: aftermath.clone(),
    };
    let answered = head.await?;
    let reply = match answered.reply {
        Reply::Stream(events) => Reply::Stream(Box::pin(Tail {
            events: Some(events),
            aftermath: aftermath.clone(),
        })),
        end @ Reply::End(_) => end,
    };
    Ok(Answered { reply, ..answered })
}

/// Until there is something of the answer.
struct Head {
    /// `None` once there is.
    work: Option<BoxFuture<'static, Result<Answered, Fault>>>,
    sent: Arc<Sent>,
    aftermath: Aftermath,
}

impl Future for Head {
    type Output = Result<Answered, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else {
            return Poll::Pending;
        };
        let answered = ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(answered)
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        // Of what was not sent no server makes a task, and now it shall not be sent.
        if let Some(work) = self.work.take().filter(|_| self.sent.get()) {
            let rest = async move { work.await.ok()?.reply.into_end().await.ok() };
            self.aftermath.linger(rest);
        }
    }
}

/// A stream whose end may be a task.
struct Tail {
    /// `None` once the end has come.
    events: Option<EventStream>,
    aftermath: Aftermath,
}

impl Stream for Tail {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(events) = &mut self.events else {
            return Poll::Ready(None);
        };
        let event = ready!(events.poll_next_unpin(cx));
        if !matches!(event, Some(Ok(Event::Notification(_)))) {
            self.events = None;
        }
        Poll::Ready(event)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        if let Some(events) = self.events.take() {
            let rest = async move { Reply::Stream(events).into_end().await.ok() };
            self.aftermath.linger(rest);
        }
    }
}
