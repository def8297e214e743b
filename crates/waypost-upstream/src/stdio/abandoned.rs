//! Calls that nobody waits for any more and whose answers may still come.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use waypost_wire::message::Outcome;
use waypost_wire::method;
use waypost_wire::raw::Raw;
use waypost_wire::result::ResultType;

/// How many of one child are remembered. Most are never answered: a server that was told in time
/// says nothing more.
const REMEMBERED: usize = 1024;

/// What the answer to a call can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// It may leave a task behind.
    Work,
    /// It is about a task that somebody else may hold.
    AboutTask,
    /// It goes on until somebody ends it.
    Listen,
    /// It is an answer to Waypost alone.
    Aside,
}

impl Sort {
    pub(crate) fn of(method: &str) -> Self {
        match method {
            method::LISTEN => Self::Listen,
            method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => Self::AboutTask,
            _ => Self::Work,
        }
    }

    fn is_call(self) -> bool {
        matches!(self, Self::Work | Self::AboutTask)
    }

    /// The id of the task that a call of this sort has made.
    pub(crate) fn made(self, outcome: &Outcome) -> Option<Raw> {
        let (Self::Work, Outcome::Result(raw)) = (self, outcome) else {
            return None;
        };
        let result = raw.as_object().ok()?;
        let task = result.get("taskId").filter(|id| id.is_string())?;
        (ResultType::of(&result) == ResultType::Task).then(|| task.clone())
    }
}

/// How long a server may go on with a call that it was told to stop. One that obeys never answers,
/// so nothing else tells when it has stopped.
const RUNS_ON: Duration = Duration::from_secs(120);

/// Calls whose requests were written and which were given up before their answers came.
///
/// While any may still run, what a server says without naming a call may be theirs.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    calls: BTreeMap<u64, (Sort, Instant)>,
    /// When the last of the calls that were forgotten was given up.
    forgot: Option<Instant>,
}

impl Abandoned {
    /// Adds one; beyond the limit the one that was sent first is forgotten.
    pub(crate) fn remember(&mut self, id: u64, sort: Sort) {
        self.calls.insert(id, (sort, Instant::now()));
        if self.calls.len() > REMEMBERED
            && let Some((_, (first, since))) = self.calls.pop_first()
            && first.is_call()
        {
            self.forgot = self.forgot.max(Some(since));
        }
    }

    /// Takes out the one that was answered.
    pub(crate) fn answered(&mut self, id: u64) -> Option<Sort> {
        self.calls.remove(&id).map(|(sort, _)| sort)
    }

    /// Whether any answer may still come.
    pub(crate) fn any(&self) -> bool {
        self.some(|_| true)
    }

    /// Whether any may still come to something that a caller wanted, subscriptions apart.
    pub(crate) fn any_call(&self) -> bool {
        self.some(Sort::is_call)
    }

    fn some(&self, counts: impl Fn(Sort) -> bool) -> bool {
        let runs = |since: Instant| since.elapsed() < RUNS_ON;
        let mut calls = self.calls.values();
        self.forgot.is_some_and(runs) || calls.any(|(sort, since)| counts(*sort) && runs(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_still_count() {
        let mut abandoned = Abandoned::default();
        let count = u64::try_from(REMEMBERED).unwrap() + 1;
        for id in 0..count {
            abandoned.remember(id, Sort::Work);
        }
        assert_eq!(abandoned.calls.len(), REMEMBERED);
        assert_eq!(abandoned.answered(0), None);
        for id in 1..count {
            assert_eq!(abandoned.answered(id), Some(Sort::Work));
        }
        assert!(abandoned.any() && abandoned.any_call());
    }

    #[test]
    fn a_subscription_does_not_count_as_a_call() {
        let mut abandoned = Abandoned::default();
        abandoned.remember(1, Sort::of(method::LISTEN));
        assert!(abandoned.any() && !abandoned.any_call());
        assert_eq!(abandoned.answered(1), Some(Sort::Listen));
        assert!(!abandoned.any());
        abandoned.remember(2, Sort::Aside);
        assert!(abandoned.any() && !abandoned.any_call());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_never_answered_is_taken_to_have_stopped() {
        let mut abandoned = Abandoned::default();
        abandoned.remember(1, Sort::Work);
        tokio::time::advance(RUNS_ON.mul_f32(0.9)).await;
        assert!(abandoned.any_call());
        tokio::time::advance(RUNS_ON).await;
        assert!(!abandoned.any_call() && !abandoned.any());
        let made = abandoned.answered(1);
        assert_eq!(made, Some(Sort::Work), "a task that it made is still known");
    }
}
