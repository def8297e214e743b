//! Opens one thing when it is wanted, in one attempt at a time that all who want it share.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use waypost_hub::lifecycle::Tasks;

use crate::backoff::Backoff;
use crate::fault::Fault;

/// Something that is opened, serves for a time, and ends.
pub(crate) trait Opened: Clone + Send + Sync + 'static {
    /// Whether it still serves.
    fn serves(&self) -> bool;

    /// Why it does not serve any more, where nobody wanted that.
    fn over(&self) -> Option<Fault>;

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
    backoff: Backoff,
    opened_at: Option<Instant>,
    closed: bool,
}

enum Now<T> {
    Nothing,
    Opening(watch::Receiver<Outcome<T>>),
    Open(T),
}

impl<T: Opened> Flight<T> {
    /// `backoff` may be shared with others that open the same kind of thing.
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                now: Now::Nothing,
                backoff,
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

    /// Resolves when no attempt is under way.
    pub(crate) async fn settled(&self) {
        let outcome = match &self.state().now {
            Now::Opening(outcome) => outcome.clone(),
            Now::Nothing | Now::Open(_) => return,
        };
        let mut outcome = outcome;
        drop(outcome.wait_for(Option::is_some).await);
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
                    let open = open();
                    let (done, outcome) = watch::channel(None);
                    state.now = Now::Opening(outcome.clone());
                    let shared = Arc::clone(&self.state);
                    tasks.spawn(|stop| async move {
                        if let Some(until) = wait {
                            tokio::select! {
                                () = sleep_until(until) => {}
                                () = stop.cancelled() => {}
                            }
                        }
                        let begun = Instant::now();
                        let opened = async {
                            tokio::select! {
                                opened = open => opened,
                                () = stop.cancelled() => Err(Fault::Stopping),
                            }
                        };
                        // What failed inside leaves room for another attempt too.
                        let opened = AssertUnwindSafe(opened).catch_unwind().await;
                        let opened = opened.unwrap_or(Err(Fault::Unheard));
                        let opened = lock(&shared).opened(begun, opened);
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

    /// The same of one that its server has forgotten, which is no failure.
    pub(crate) fn replace(&self, old: &T) {
        let mut state = self.state();
        if matches!(&state.now, Now::Open(value) if value.is(old)) {
            state.now = Now::Nothing;
            state.opened_at = None;
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
            let over = match &self.now {
                Now::Open(value) => value.over(),
                Now::Nothing | Now::Opening(_) => None,
            };
            self.backoff.ended(opened, over);
        }
        self.backoff.wait(want)
    }

    fn opened(&mut self, begun: Instant, opened: Result<T, Fault>) -> Result<T, Fault> {
        self.now = Now::Nothing;
        match opened {
            Ok(value) if self.closed => {
                value.discard();
                Err(Fault::Stopping)
            }
            Ok(value) => {
                self.backoff.opened();
                self.opened_at = Some(Instant::now());
                self.now = Now::Open(value.clone());
                Ok(value)
            }
            Err(fault) => {
                self.backoff.failed(begun, &fault);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Thing;

    impl Opened for Thing {
        fn serves(&self) -> bool {
            true
        }
        fn over(&self) -> Option<Fault> {
            None
        }
        fn discard(&self) {}
        fn is(&self, _: &Self) -> bool {
            true
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_fails_inside_leaves_room_for_the_next() {
        let (flight, tasks) = (Flight::new(Backoff::default()), Tasks::default());
        let fails = || async { panic!("told so") };
        let fault = flight.get(&tasks, Want::Call, fails).await.err();
        assert!(matches!(fault, Some(Fault::Unheard)), "{fault:?}");
        assert!(!flight.is_opening());
        let opens = || async { Ok(Thing) };
        assert!(flight.get(&tasks, Want::Look, opens).await.is_ok());
    }
}
