//! The server-sent events of one response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Body as _;
use http_body_util::BodyExt as _;
use waypost_hub::lifecycle::Tasks;
use waypost_wire::sse::{Decoder, Item};

use super::pool::Lent;
use crate::fault::Fault;

/// How long a stream may stay open behind its answer before its connection is given up.
const LINGER: Duration = Duration::from_secs(1);

/// Reads a response's body as events. Dropped, it takes the connection with it.
#[derive(Debug)]
pub(crate) struct Frames {
    body: Lent,
    decoder: Decoder,
    limit: usize,
}

impl Frames {
    /// Events of at most `limit` bytes each.
    pub(crate) fn new(body: Lent, limit: usize) -> Self {
        Self {
            body,
            decoder: Decoder::new(limit),
            limit,
        }
    }

    /// The next event, or the ends of one over the limit, behind which the stream goes on; `None`
    /// when it has ended properly. Which are worth reading to their end, `skips` tells from how
    /// their data begins.
    ///
    /// # Errors
    /// [`Fault::Closed`] when it broke, [`Fault::TooLarge`] for an event that is not skipped.
    pub(crate) async fn next_item(
        &mut self,
        skips: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Item>, Fault> {
        std::future::poll_fn(|cx| self.poll_item(cx, &skips)).await
    }

    /// As [`Self::next_item`].
    pub(crate) fn poll_item(
        &mut self,
        cx: &mut Context<'_>,
        skips: impl Fn(&[u8]) -> bool,
    ) -> Poll<Result<Option<Item>, Fault>> {
        loop {
            let item = self.decoder.next_item();
            let head = match &item {
                Some(Item::Oversized { head, .. }) => Some(head),
                Some(Item::Event(_)) => None,
                None => self.decoder.skipped(),
            };
            if head.is_some_and(|head| !skips(head)) {
                let limit = self.limit;
                return Poll::Ready(Err(Fault::TooLarge { limit }));
            }
            if let Some(item) = item {
                return Poll::Ready(Ok(Some(item)));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        // Too much is no error here but an item.
                        self.decoder.push(&data).unwrap_or_default();
                    }
                }
                Some(Err(_)) => return Poll::Ready(Err(Fault::Closed)),
                None => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Reads the body's last bytes behind the answer, so that the connection can be used again.
    pub(crate) fn let_go(self, tasks: &Tasks) {
        drain(self.body, tasks);
    }
}

/// Reads the rest of a body of no interest, so that the connection can be used again.
pub(crate) fn drain(mut body: Lent, tasks: &Tasks) {
    if body.is_end_stream() {
        return;
    }
    tasks.spawn_here(|stop| async move {
        let drain = async { while let Some(Ok(_)) = body.frame().await {} };
        tokio::select! {
            () = drain => {}
            () = tokio::time::sleep(LINGER) => {}
            () = stop.cancelled() => {}
        }
    });
}
