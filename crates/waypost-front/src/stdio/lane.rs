//! The pipe as the way of one request.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use waypost_hub::upstream::BoxFuture;

use super::outbox::Outbox;
use crate::encode::Pieces;
use crate::outlet::{Class, Outlet};

/// Where the answer to one request goes, and what comes before it.
#[derive(Debug)]
pub(crate) struct Lane {
    outbox: Arc<Outbox>,
    _open: TaskTrackerToken,
}

impl Lane {
    /// A way into `outbox`, which `open` counts.
    pub(crate) fn new(outbox: &Arc<Outbox>, open: &TaskTracker) -> Self {
        Self {
            outbox: Arc::clone(outbox),
            _open: open.token(),
        }
    }

    /// Sends, and waits while the host is too slow.
    pub(crate) async fn send(&self, message: Pieces) {
        self.outbox.send(message).await;
    }
}

impl Outlet for Lane {
    fn send(&self, class: Class, message: Pieces) -> BoxFuture<'_, ()> {
        Box::pin(self.outbox.send_as(class, message))
    }

    fn post(&self, class: Class, message: Pieces) {
        self.outbox.post(class, message);
    }

    fn close(&self) {
        // A pipe has no sign for it: a request that was cancelled just gets no answer.
    }
}
