//! Calls that nobody waits for any more and whose answers may still come.

use std::collections::BTreeMap;

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

/// Calls whose requests were written and which were given up before their answers came.
///
/// While there are any, what a server says without naming a call may be theirs.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    sorts: BTreeMap<u64, Sort>,
    /// A call was forgotten: from then on there is always one.
    forgot: bool,
}

impl Abandoned {
    /// Adds one; beyond the limit the oldest is forgotten.
    pub(crate) fn remember(&mut self, id: u64, sort: Sort) {
        self.sorts.insert(id, sort);
        if self.sorts.len() > REMEMBERED
            && let Some((_, oldest)) = self.sorts.pop_first()
        {
            self.forgot |= oldest.is_call();
        }
    }

    /// Takes out the one that was answered.
    pub(crate) fn answered(&mut self, id: u64) -> Option<Sort> {
        self.sorts.remove(&id)
    }

    /// Whether any answer may still come.
    pub(crate) fn any(&self) -> bool {
        self.forgot || !self.sorts.is_empty()
    }

    /// Whether any may still come to something that a caller wanted, subscriptions apart.
    pub(crate) fn any_call(&self) -> bool {
        self.forgot || self.sorts.values().any(|sort| sort.is_call())
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
        assert_eq!(abandoned.sorts.len(), REMEMBERED);
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
}
