//! Keeps calls from trying what has just failed. Several that open the same kind of thing can
//! share one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::fault::Fault;
use crate::flight::Want;

/// Between attempts, doubling.
const FIRST: Duration = Duration::from_millis(500);
const MOST: Duration = Duration::from_secs(10);

/// What lived so long has proven itself: what follows it begins a new backoff.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);

/// What the last attempts came to. Cloned, it is the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    state: Arc<Mutex<State>>,
    /// Who comes too early after an end is told so, rather than waiting.
    shared: bool,
    /// The end of what was open says nothing of the next attempt.
    proven: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Attempts in a row that failed, or whose outcome did not last.
    failures: u32,
    /// No attempt for a call before that.
    not_before: Option<Instant>,
    failed: Option<Fault>,
    /// When the last failure was counted: what had begun before says nothing new.
    counted: Option<Instant>,
}

impl Backoff {
    /// One for several: calls of many would wait together, and then try at once.
    pub(crate) fn shared() -> Self {
        Self {
            shared: true,
            ..Self::default()
        }
    }

    /// The same for what has proven itself once it is open, as a session has by its handshake:
    /// what one caller's call breaks then must keep no other from opening its own.
    pub(crate) fn of_proven() -> Self {
        Self {
            proven: true,
            ..Self::shared()
        }
    }

    /// When the next attempt may be made, if not at once.
    ///
    /// # Errors
    /// The last failure, where that stands for now.
    pub(crate) fn wait(&self, want: Want) -> Result<Option<Instant>, Fault> {
        let state = self.state();
        let early = state.not_before.filter(|at| *at > Instant::now());
        match (want, early, &state.failed) {
            (Want::Look, ..) => Ok(None),
            (Want::Call, Some(_), Some(fault)) => Err(fault.clone()),
            (Want::Call, early, _) => Ok(early),
        }
    }

    /// An attempt has come out well, so far.
    pub(crate) fn opened(&self) {
        self.state().failed = None;
    }

    /// The attempt that was begun then has failed.
    pub(crate) fn failed(&self, begun: Instant, fault: &Fault) {
        let mut state = self.state();
        state.failed = Some(fault.clone());
        state.postpone(begun);
    }

    /// What was opened then has ended; `fault` is what calls are told where it is too early for
    /// another. The first such end is no pattern.
    pub(crate) fn ended(&self, opened: Instant, fault: Option<Fault>) {
        if self.proven {
            return;
        }
        let mut state = self.state();
        if opened.elapsed() >= HEALTHY_AFTER {
            state.failures = 0;
            return;
        }
        state.postpone(opened);
        if self.shared && fault.is_some() {
            state.failed = fault;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Keeps calls from trying again at once.
    fn postpone(&mut self, begun: Instant) {
        if self.counted.is_some_and(|at| begun < at) {
            return;
        }
        let now = Instant::now();
        self.counted = Some(now);
        let wait = FIRST.saturating_mul(1 << self.failures.min(5));
        if self.failures > 0 || self.failed.is_some() {
            self.not_before = Some(now + wait.min(MOST));
        }
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_side_by_side_count_once_and_later_ones_double() {
        let backoff = Backoff::default();
        let begun = Instant::now();
        sleep(Duration::from_millis(10)).await;
        for _ in 0..5 {
            backoff.failed(begun, &Fault::NoEnd);
        }
        assert!(backoff.wait(Want::Call).is_err());
        assert!(backoff.wait(Want::Look).is_ok());
        for wait in [FIRST, FIRST * 2, FIRST * 4] {
            sleep(wait - Duration::from_millis(1)).await;
            assert!(backoff.wait(Want::Call).is_err(), "{wait:?}");
            sleep(Duration::from_millis(1)).await;
            assert!(backoff.wait(Want::Call).is_ok(), "{wait:?}");
            backoff.failed(Instant::now(), &Fault::NoEnd);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_lived_long_begins_anew() {
        let backoff = Backoff::shared();
        for _ in 0..4 {
            backoff.ended(Instant::now(), Some(Fault::Closed));
        }
        assert!(backoff.wait(Want::Call).is_err());
        let opened = Instant::now();
        backoff.opened();
        sleep(HEALTHY_AFTER).await;
        backoff.ended(opened, Some(Fault::Closed));
        backoff.ended(Instant::now(), Some(Fault::Closed));
        assert_eq!(backoff.wait(Want::Call).unwrap(), None);
    }
}
