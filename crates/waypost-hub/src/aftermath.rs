//! What becomes of the answer to a call that nobody waits for any more.
//!
//! Over HTTP a request is cancelled by closing its stream, and whoever has closed it does not hear
//! that the server made a task of it. So where the answer may be a task, the stream stays open for
//! a moment after its caller has gone: a task that comes is cancelled, and without an answer the
//! stream is closed. Transports that can say both, that a call is cancelled and that its task is,
//! have no use for this.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::call::Carrier;
use crate::limit::Permit;
use crate::reply::End;
use crate::tasks::event::Reason;
use crate::tasks::passthrough::TASK_ID;
use crate::tasks::remote::{Guard, Remote};
use crate::tasks::{Desk, Job};

/// So long an answer is waited for that nobody wants. To make a task is a write or two; a server
/// that takes longer is at the work itself, and is to hear soon that it may stop.
pub const LINGER: Duration = Duration::from_secs(2);

/// How many are waited for at once, all upstreams together. Each holds a connection and counts in
/// no other bound; beyond it streams are closed at once.
pub(crate) const ROOM: usize = 128;

/// How many of those may be of one upstream: callers that leave many calls there leave room for
/// those of others.
pub(crate) const SHARE: usize = ROOM / 4;

/// Room to wait for one answer; given back when dropped.
#[derive(Debug)]
pub struct Room {
    _all: Permit,
    _share: Permit,
}

/// What a call's answer means when nobody waits for it: nothing, unless it may be a task.
#[derive(Clone, Default)]
pub struct Aftermath(Option<Arc<Kept>>);

/// What is needed to cancel the task.
struct Kept {
    desk: Arc<Desk>,
    job: Arc<Job>,
    carrier: Carrier,
}

impl Aftermath {
    /// That of a call which goes out with tasks declared, and which `carrier` follows.
    pub(crate) fn of(desk: &Arc<Desk>, job: &Arc<Job>, carrier: &Carrier) -> Self {
        Self(Some(Arc::new(Kept {
            desk: Arc::clone(desk),
            job: Arc::clone(job),
            carrier: carrier.clone(),
        })))
    }

    /// Whether the answer may be a task, which would be nobody's.
    pub fn matters(&self) -> bool {
        self.0.is_some()
    }

    /// Room to wait for the answer though nobody wants it, by means of one's own: for at most
    /// [`LINGER`]. `None` where the answer means nothing, or too many are waited for.
    pub fn room(&self) -> Option<Room> {
        let kept = self.0.as_ref()?;
        Some(Room {
            _share: kept.job.member.lingering().permit()?,
            _all: kept.desk.lingering.permit()?,
        })
    }

    /// The call was dropped after its request went out: `rest` is the way to its answer. It is
    /// polled for at most [`LINGER`] and then dropped, or at once where it cannot be waited for.
    pub fn linger(&self, rest: impl Future<Output = Option<End>> + Send + 'static) {
        let Some(kept) = self.0.clone() else { return };
        // Outside a runtime the process is ending.
        if Handle::try_current().is_err() {
            return;
        }
        let Some(room) = self.room() else { return };
        let background = kept.desk.background.clone();
        background.spawn_here(move |stop| async move {
            let end = stop.run_until_cancelled(timeout(LINGER, rest)).await;
            if let Some(Ok(Some(End::Task(created)))) = end
                && let Some(id) = created.string(TASK_ID)
            {
                kept.cancel(id);
            }
            drop(room);
        });
    }
}

impl Kept {
    fn cancel(&self, task: String) {
        let Job { member, call, .. } = &*self.job;
        let remote = Remote::new(member, self.carrier.instance(), task, call);
        Guard::new(remote, &self.desk.cancels).cancel(Reason::CallerGone);
    }
}

impl fmt::Debug for Aftermath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Aftermath").field(&self.matters()).finish()
    }
}
