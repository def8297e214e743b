//! Opens one thing when it is wanted, in one attempt at a time that all who want it share.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use waypost_hub::lifecycle::Tasks;

use crate::fault::Fault;

/// Between attempts, doubling.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MOST: Duration = Duration::from_secs(10);

/// What lived so long has proven itself: what follows it begins a new backoff.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);

/// Something that is opened, serves for a time, and ends.
pub(crate) trait Opened: Clone + Send + Sync + 'static {
    /// Whether it still serves.
    fn serves(&self) -> bool;

    /// Nobody will use it: ends it, without waiting.
    fn discard(&self);

    /// Whether both are the same one.
    fn is(&self, other: &Self) -> bool;
}

/// Why something is wanted, and so how patient the one who wants it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// For a call: after a failed attempt there is none for a while, and the failure stands.
    Call,
    /// To see whether it works now: always tries.
    Look,
}

type Outcome<T> = Option<Result<T, Fault>>;

/// One thing of which there is at most one.
pub(crate) struct Flight<T: Opened> {
    state: Arc<Mutex<State<T>>>,
}

struct State<T> {
    now: Now<T>,
    /// Attempts in a row that failed, or whose outcome did not last.
    failures: u32,
    /// No attempt for a call before that.
    not_before: Option<Instant>,
    failed: Option<Fault>,
    opened_at: Option<Instant>,
    closed: bool,
}

enum Now<T> {
    Nothing,
    Opening(watch::Receiver<Outcome<T>>),
    Open(T),
}

impl<T: Opened> Flight<T> {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                now: Now::Nothing,
                failures: 0,
                not_before: None,
                failed: None,
                opened_at: None,
                closed: false,
            })),
        }
    }

    /// What serves now.
    pub(crate) fn current(&self) -> Option<T> {
        self.state().serving()
    }

    /// What was opened last, whether it still serves or not.
    pub(crate) fn last(&self) -> Option<T> {
        match &self.state().now {
            Now::Open(value) => Some(value.clone()),
            Now::Nothing | Now::Opening(_) => None,
        }
    }

    /// Whether an attempt is under way.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.state().now, Now::Opening(_))
    }

    /// What serves now, opened where there is nothing. The attempt goes on when the one who
    /// wanted it has gone.
    ///
    /// # Errors
    /// Why the attempt failed, the one before it where it is too early for another, or
    /// [`Fault::Stopping`].
    pub(crate) async fn get<F>(
        &self,
        tasks: &Tasks,
        want: Want,
        open: impl FnOnce() -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let mut outcome = {
            let mut state = self.state();
            if state.closed {
                return Err(Fault::Stopping);
            }
            if let Some(value) = state.serving() {
                return Ok(value);
            }
            match &state.now {
                Now::Opening(outcome) => outcome.clone(),
                Now::Nothing | Now::Open(_) => {
                    let wait = state.wait(want)?;
                    let (done, outcome) = watch::channel(None);
                    state.now = Now::Opening(outcome.clone());
                    let open = open();
                    let shared = Arc::clone(&self.state);
                    tasks.spawn(|stop| async move {
                        let opened = async {
                            if let Some(until) = wait {
                                sleep_until(until).await;
                            }
                            open.await
                        };
                        let opened = tokio::select! {
                            opened = opened => opened,
                            () = stop.cancelled() => Err(Fault::Stopping),
                        };
                        let opened = lock(&shared).opened(opened);
                        done.send_replace(Some(opened));
                    });
                    outcome
                }
            }
        };
        let outcome = outcome.wait_for(Option::is_some).await;
        outcome
            .ok()
            .and_then(|outcome| (*outcome).clone())
            .unwrap_or(Err(Fault::Stopping))
    }

    /// Takes `value`, opened elsewhere, for the one that serves. Given back where there is one.
    pub(crate) fn adopt(&self, value: T) -> Result<(), T> {
        let mut state = self.state();
        if state.closed || state.serving().is_some() || matches!(state.now, Now::Opening(_)) {
            return Err(value);
        }
        state.opened_at = Some(Instant::now());
        state.now = Now::Open(value);
        Ok(())
    }

    /// Forgets `old`, if that is the one that serves: the next who wants one opens another.
    pub(crate) fn forget(&self, old: &T) {
        let mut state = self.state();
        if matches!(&state.now, Now::Open(value) if value.is(old)) {
            state.now = Now::Nothing;
        }
    }

    /// Opens nothing any more; gives what there is, to be ended.
    pub(crate) fn close(&self) -> Option<T> {
        let mut state = self.state();
        state.closed = true;
        match std::mem::replace(&mut state.now, Now::Nothing) {
            Now::Open(value) => Some(value),
            Now::Nothing | Now::Opening(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }
}

impl<T: Opened> State<T> {
    fn serving(&self) -> Option<T> {
        match &self.now {
            Now::Open(value) if value.serves() => Some(value.clone()),
            Now::Nothing | Now::Opening(_) | Now::Open(_) => None,
        }
    }

    /// When the next attempt may be made, if not at once.
    fn wait(&mut self, want: Want) -> Result<Option<Instant>, Fault> {
        // The last one has ended, or was given up, since this was looked at before.
        if let Some(opened) = self.opened_at.take() {
            if opened.elapsed() >= HEALTHY_AFTER {
                self.failures = 0;
            } else {
                self.postpone();
            }
        }
        let early = self.not_before.filter(|at| *at > Instant::now());
        match (want, early, &self.failed) {
            (Want::Look, ..) => Ok(None),
            (Want::Call, Some(_), Some(fault)) => Err(fault.clone()),
            (Want::Call, early, _) => Ok(early),
        }
    }

    /// Keeps calls from trying again at once. The first end is no pattern.
    fn postpone(&mut self) {
        let wait = BACKOFF_FIRST.saturating_mul(1 << self.failures.min(5));
        if self.failures > 0 || self.failed.is_some() {
            self.not_before = Some(Instant::now() + wait.min(BACKOFF_MOST));
        }
        self.failures = self.failures.saturating_add(1);
    }

    fn opened(&mut self, opened: Result<T, Fault>) -> Result<T, Fault> {
        self.now = Now::Nothing;
        match opened {
            Ok(value) if self.closed => {
                value.discard();
                Err(Fault::Stopping)
            }
            Ok(value) => {
                self.failed = None;
                self.opened_at = Some(Instant::now());
                self.now = Now::Open(value.clone());
                Ok(value)
            }
            Err(fault) => {
                self.failed = Some(fault.clone());
                self.postpone();
                Err(fault)
            }
        }
    }
}

impl<T: Opened> fmt::Debug for Flight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").finish_non_exhaustive()
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
