//! The rounds of collapsed tasks that wait for their caller, and the answers just given.
//!
//! A request state is good for one retry. A client that did not get the answer repeats it: for
//! a minute it gets the same answer, and while the first is still worked on it waits for that.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::error::{CallError, Kind, Origin};
use crate::limit::{Limit, Permit};
use crate::reply::End;
use crate::tasks::state::RoundId;

/// How long a repeat gets the stored answer.
pub(crate) const REPEATABLE: Duration = Duration::from_secs(60);
/// Bytes of all stored answers; over it the oldest go first.
const ROOM: usize = 64 << 20;
/// Rounds of other processes that are remembered as used.
const REMEMBERED: usize = 10_000;

/// All rounds of this process.
#[derive(Debug)]
pub(crate) struct Parked {
    room: Arc<Limit>,
    table: Mutex<Table>,
}

/// What a state gets.
#[derive(Debug)]
pub(crate) enum Claim {
    /// The round is yours: answer it.
    Yours(Ticket),
    /// Somebody is at it; wait for the same answer.
    Wait(Waiter),
    /// The answer that was given.
    Given(Answer),
    /// Used, expired or never made here.
    Gone,
}

/// An answer that can be given again.
pub(crate) type Answer = Arc<Result<End, Failure>>;

/// What is kept of a [`CallError`] to say it again.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: Kind,
    origin: Origin,
    detail: String,
}

/// The right to answer one round. Dropped without an answer, the round is gone.
#[derive(Debug)]
pub(crate) struct Ticket {
    parked: Arc<Parked>,
    id: RoundId,
    turn: u64,
    answer: watch::Sender<Option<Answer>>,
    /// When the process that made the round forgets it; `None` for one of our own, which is
    /// known as used by being unknown.
    remember_until: Option<Instant>,
}

/// Waits for another's answer.
#[derive(Debug)]
pub(crate) struct Waiter(watch::Receiver<Option<Answer>>);

/// A round that waits for its caller.
#[derive(Debug)]
pub(crate) struct Waiting {
    parked: Arc<Parked>,
    id: RoundId,
    turn: u64,
    claimed: oneshot::Receiver<()>,
}

/// Room for one more waiting round.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: Permit,
}

#[derive(Debug, Default)]
struct Table {
    slots: HashMap<RoundId, Slot>,
    /// Rounds with a stored answer, oldest first.
    given: VecDeque<(Instant, RoundId, usize)>,
    /// Used rounds of other processes, oldest first.
    used: VecDeque<(Instant, RoundId)>,
    bytes: usize,
    turns: u64,
}

/// A round may wait and be claimed several times. Each time is a turn of its own, so that
/// whoever is late with an earlier one leaves the later alone.
#[derive(Debug)]
enum Slot {
    /// Waits for its caller. Dropping the sender tells the timer.
    Waiting {
        turn: u64,
        _timer: oneshot::Sender<()>,
        _place: Place,
    },
    Running {
        turn: u64,
        answer: watch::Receiver<Option<Answer>>,
    },
    Given(Answer, Option<Instant>),
    Used,
}

// === impl Parked ===

impl Parked {
    /// With room for so many waiting rounds.
    pub(crate) fn new(room: usize) -> Arc<Self> {
        Arc::new(Self {
            room: Limit::new(room),
            table: Mutex::default(),
        })
    }

    /// Room for one more; `None` when all is taken.
    pub(crate) fn place(&self) -> Option<Place> {
        let permit = self.room.permit()?;
        Some(Place { _permit: permit })
    }

    /// Lets a round wait, for the first time or again.
    pub(crate) fn park(self: &Arc<Self>, id: RoundId, place: Place) -> Waiting {
        let (timer, claimed) = oneshot::channel();
        let mut table = self.table();
        let turn = table.turn();
        let slot = Slot::Waiting {
            turn,
            _timer: timer,
            _place: place,
        };
        table.slots.insert(id, slot);
        Waiting {
            parked: Arc::clone(self),
            id,
            turn,
            claimed,
        }
    }

    /// Somebody came back with the state of a round. `foreign_until` is given for a round that
    /// another process made and that is still good until then: nothing is known of it here, and
    /// it may be used.
    pub(crate) fn claim(self: &Arc<Self>, id: RoundId, foreign_until: Option<Instant>) -> Claim {
        let mut table = self.table();
        table.sweep(Instant::now());
        match table.slots.get(&id) {
            Some(Slot::Given(answer, _)) => Claim::Given(Arc::clone(answer)),
            Some(Slot::Running { answer, .. }) => Claim::Wait(Waiter(answer.clone())),
            Some(Slot::Used) => Claim::Gone,
            None if foreign_until.is_none() => Claim::Gone,
            Some(Slot::Waiting { .. }) | None => {
                let (sender, answer) = watch::channel(None);
                let turn = table.turn();
                table.slots.insert(id, Slot::Running { turn, answer });
                Claim::Yours(Ticket {
                    parked: Arc::clone(self),
                    id,
                    turn,
                    answer: sender,
                    remember_until: foreign_until,
                })
            }
        }
    }

    /// Drops the answers that are too old to be asked for.
    pub(crate) fn sweep(&self) {
        self.table().sweep(Instant::now());
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code under the lock can panic half-way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Table ===

impl Table {
    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    fn give(&mut self, id: RoundId, answer: Answer, remember_until: Option<Instant>) {
        let bytes = size(&answer);
        self.slots.insert(id, Slot::Given(answer, remember_until));
        self.given
            .push_back((Instant::now() + REPEATABLE, id, bytes));
        self.bytes += bytes;
        while self.bytes > ROOM {
            self.forget_oldest();
        }
    }

    fn sweep(&mut self, now: Instant) {
        while self.given.front().is_some_and(|(until, ..)| *until <= now) {
            self.forget_oldest();
        }
        while self.used.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_used();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, id, bytes)) = self.given.pop_front() else {
            return;
        };
        self.bytes -= bytes;
        if let Some(Slot::Given(_, Some(until))) = self.slots.remove(&id) {
            self.mark_used(id, until);
        }
    }

    fn mark_used(&mut self, id: RoundId, until: Instant) {
        self.slots.insert(id, Slot::Used);
        self.used.push_back((until, id));
        if self.used.len() > REMEMBERED {
            self.forget_used();
        }
    }

    fn forget_used(&mut self) {
        if let Some((_, id)) = self.used.pop_front()
            && matches!(self.slots.get(&id), Some(Slot::Used))
        {
            self.slots.remove(&id);
        }
    }
}

fn size(answer: &Answer) -> usize {
    match &**answer {
        Ok(End::Complete(object) | End::InputRequired(object) | End::Task(object)) => {
            object.encoded_len()
        }
        Ok(End::Error(error)) => error.as_bytes().len(),
        Err(failure) => failure.detail.len(),
    }
}

// === impl Ticket ===

impl Ticket {
    /// Gives the answer to all who wait or will ask again.
    pub(crate) fn give(self, answer: &Result<End, CallError>) {
        let answer: Answer = Arc::new(match answer {
            Ok(end) => Ok(end.clone()),
            Err(error) => Err(Failure::of(error)),
        });
        let mut table = self.parked.table();
        table.give(self.id, Arc::clone(&answer), self.remember_until);
        drop(table);
        self.answer.send_replace(Some(answer));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut table = self.parked.table();
        let ours = |slot: &Slot| matches!(slot, Slot::Running { turn, .. } if *turn == self.turn);
        if table.slots.get(&self.id).is_some_and(ours) {
            table.slots.remove(&self.id);
            if let Some(until) = self.remember_until {
                table.mark_used(self.id, until);
            }
        }
    }
}

// === impl Waiting ===

impl Waiting {
    /// Resolves as soon as somebody comes back with the round's state.
    pub(crate) async fn claimed(&mut self) {
        // Only ever dropped: with the slot.
        drop((&mut self.claimed).await);
    }

    /// Takes the round because nobody came back; `false` when somebody just did.
    pub(crate) fn expire(&self) -> bool {
        let mut table = self.parked.table();
        let ours = |slot: &Slot| matches!(slot, Slot::Waiting { turn, .. } if *turn == self.turn);
        let waiting = table.slots.get(&self.id).is_some_and(ours);
        if waiting {
            table.slots.remove(&self.id);
        }
        waiting
    }
}

// === impl Waiter ===

impl Waiter {
    /// The other's answer.
    ///
    /// # Errors
    /// When the other gave up without one.
    pub(crate) async fn answer(mut self) -> Result<End, CallError> {
        let answer = match self.0.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone(),
            Err(_) => None,
        };
        answer.map_or_else(
            || {
                Err(CallError::unknown(
                    "the call that first used this request state was given up",
                ))
            },
            |answer| again(&answer),
        )
    }
}

/// The same answer once more.
pub(crate) fn again(answer: &Answer) -> Result<End, CallError> {
    match &**answer {
        Ok(end) => Ok(end.clone()),
        Err(failure) => {
            Err(CallError::new(failure.kind, failure.origin.clone()).detail(failure.detail.clone()))
        }
    }
}

// === impl Failure ===

impl Failure {
    fn of(error: &CallError) -> Self {
        let detail = error.detail.as_deref();
        Self {
            kind: error.kind,
            origin: error.origin.clone(),
            detail: detail.map_or_else(|| error.kind.to_string(), str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: RoundId = 7;

    fn parked() -> (Arc<Parked>, Waiting) {
        let parked = Parked::new(9);
        let waiting = parked.park(ROUND, parked.place().unwrap());
        (parked, waiting)
    }

    #[track_caller]
    fn claim(parked: &Arc<Parked>) -> Ticket {
        match parked.claim(ROUND, None) {
            Claim::Yours(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_claim_outlives_an_earlier_one_whose_round_was_put_back() {
        let (parked, _) = parked();
        let earlier = claim(&parked);
        let _waiting = parked.park(ROUND, parked.place().unwrap());
        let later = claim(&parked);
        drop(earlier);
        assert!(matches!(parked.claim(ROUND, None), Claim::Wait(_)));
        later.give(&Err(CallError::unknown("x")));
        assert!(matches!(parked.claim(ROUND, None), Claim::Given(_)));
    }

    #[tokio::test]
    async fn a_late_timer_does_not_take_a_round_that_waits_again() {
        let (parked, mut first) = parked();
        let ticket = claim(&parked);
        first.claimed().await;
        let second = parked.park(ROUND, parked.place().unwrap());
        drop(ticket);
        assert!(!first.expire());
        assert!(second.expire());
        assert!(matches!(parked.claim(ROUND, None), Claim::Gone));
    }
}
