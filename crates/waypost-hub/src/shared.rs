//! Work on one answer that several callers wait for.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use waypost_wire::message::Notification;

use crate::error::{CallError, Kind, Origin};
use crate::generate::{Notifier, generate};
use crate::reply::{End, EventStream};
use crate::upstream::BoxFuture;

/// An answer that can be given again.
pub type Answer = Arc<Result<End, Failure>>;

/// What is kept of a [`CallError`] to say it again.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: Kind,
    origin: Origin,
    detail: Option<Cow<'static, str>>,
    retryable: bool,
    http_status: Option<u16>,
    retry_after: Option<Duration>,
    disconnected: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The work, and a part in it: it runs while somebody waits for it, and is dropped with the last.
#[derive(Clone)]
pub struct Shared {
    work: future::Shared<BoxFuture<'static, Answer>>,
    told: broadcast::Sender<Notification>,
}

/// The same without a part in it.
pub struct WeakShared {
    /// `None` for work that was over.
    work: Option<future::WeakShared<BoxFuture<'static, Answer>>>,
    told: broadcast::Sender<Notification>,
}

/// An answer in the form in which it can be given again.
pub fn answer(answer: Result<End, CallError>) -> Answer {
    Arc::new(answer.map_err(Failure::of))
}

/// The same answer once more.
///
/// # Errors
/// When it is none.
pub fn again(answer: &Answer) -> Result<End, CallError> {
    match &**answer {
        Ok(end) => Ok(end.clone()),
        Err(failure) => Err(failure.error()),
    }
}

/// Bytes that an answer takes, about.
pub fn size(answer: &Answer) -> usize {
    match &**answer {
        Ok(End::Complete(object) | End::InputRequired(object) | End::Task(object)) => {
            object.encoded_len()
        }
        Ok(End::Error(error)) => error.as_bytes().len(),
        Err(failure) => failure.size(),
    }
}

// === impl Shared ===

impl Shared {
    /// Work that has yet to run. A slow caller is yet to be told at most `room` notifications; of
    /// more it misses the oldest.
    pub fn new<F>(room: usize, work: impl FnOnce(Notifier) -> F) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let (told, _) = broadcast::channel(room);
        let work: BoxFuture<'static, Answer> = Box::pin(work(Notifier::Readers(told.clone())));
        Self {
            work: work.shared(),
            told,
        }
    }

    /// The same without a part in it.
    pub fn downgrade(&self) -> WeakShared {
        WeakShared {
            work: self.work.downgrade(),
            told: self.told.clone(),
        }
    }

    /// What one who waits gets of it: the notifications as `hear` gives them back, and the end.
    pub fn events(
        self,
        hear: impl FnMut(Notification) -> Option<Notification> + Send + 'static,
    ) -> EventStream {
        let told = self.told.subscribe();
        generate(move |notifier| self.follow(hear, told, notifier))
    }

    /// Its end alone.
    #[cfg(test)]
    pub(crate) async fn end(self) -> Result<End, CallError> {
        again(&self.work.await)
    }

    async fn follow(
        self,
        mut hear: impl FnMut(Notification) -> Option<Notification>,
        mut told: broadcast::Receiver<Notification>,
        notifier: Notifier,
    ) -> Result<End, CallError> {
        let mut work = self.work;
        let mut tell = async |notification| {
            if let Some(notification) = hear(notification) {
                notifier.send(notification).await;
            }
        };
        let answer = loop {
            tokio::select! {
                biased;
                said = told.recv() => match said {
                    Ok(notification) => tell(notification).await,
                    Err(RecvError::Lagged(_) | RecvError::Closed) => {}
                },
                answer = &mut work => break answer,
            }
        };
        while let Ok(notification) = told.try_recv() {
            tell(notification).await;
        }
        again(&answer)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared(..)")
    }
}

// === impl WeakShared ===

impl WeakShared {
    /// Whether somebody waits for it.
    pub fn is_wanted(&self) -> bool {
        self.join().is_some()
    }

    /// A part in the work; `None` when nobody is left that waits for it.
    pub fn join(&self) -> Option<Shared> {
        Some(Shared {
            work: self.work.as_ref()?.upgrade()?,
            told: self.told.clone(),
        })
    }
}

impl fmt::Debug for WeakShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakShared(..)")
    }
}

// === impl Failure ===

impl Failure {
    fn of(error: CallError) -> Self {
        Self {
            kind: error.kind,
            origin: error.origin,
            detail: error.detail,
            retryable: error.retryable,
            http_status: error.http_status,
            retry_after: error.retry_after,
            disconnected: error.disconnected,
            source: error.source.map(Arc::from),
        }
    }

    fn error(&self) -> CallError {
        let source = self.source.clone();
        CallError {
            kind: self.kind,
            origin: self.origin.clone(),
            detail: self.detail.clone(),
            retryable: self.retryable,
            http_status: self.http_status,
            retry_after: self.retry_after,
            disconnected: self.disconnected,
            source: source.map(|source| Box::new(source) as Box<_>),
        }
    }

    /// Bytes that it takes, about.
    fn size(&self) -> usize {
        self.detail.as_deref().map_or(0, str::len)
    }
}
