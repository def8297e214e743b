//! The rounds of collapsed tasks that wait for their caller, and the answers just given.
//!
//! A request state is good for one retry. A client that did not get the answer repeats it: for
//! a minute it gets the same answer, and while the first is still worked on it takes part in
//! that, so that the work goes on for as long as any of them waits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::limit::{Limit, Permit};
use crate::member::Member;
use crate::shared::{Answer, Shared, WeakShared, size};
use crate::tasks::progress::Progress;
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
    /// The work on the round, which has just begun.
    Begun(Shared),
    /// Somebody is at it: the same work.
    Joined(Shared),
    /// The answer that was given.
    Given(Answer),
    /// Used, expired or never made here.
    Gone,
}

/// The right to answer one round. Dropped without an answer, the round is gone.
#[derive(Debug)]
pub(crate) struct Ticket {
    parked: Arc<Parked>,
    id: RoundId,
    turn: u64,
    /// When the process that made the round forgets it; `None` for one of our own, which is
    /// known as used by being unknown.
    remember_until: Option<Instant>,
    /// What its caller was asked, as in [`Asked`].
    asked: Vec<String>,
    marks: Marks,
}

/// What the store says by us that it is used: questions of the round, by name. What that was for
/// may not have been done, and the round waited again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks(Arc<Mutex<HashMap<String, Recorded>>>);

/// Whether the store says of something, by us, that it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Recorded {
    #[default]
    No,
    /// It was given up, and may have done it all the same.
    Perhaps,
    Yes,
}

/// A round that waits for its caller.
#[derive(Debug)]
pub(crate) struct Waiting {
    parked: Arc<Parked>,
    id: RoundId,
    turn: u64,
    over: CancellationToken,
}

/// What the caller of a round that waits has got.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Those of the questions; none stands for any.
    pub(crate) keys: Vec<String>,
    pub(crate) progress: Progress,
}

/// Room for one more waiting round.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: Permit,
    /// As its upstream counts it.
    _asking: Arc<()>,
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
    /// Waits for its caller.
    Waiting {
        turn: u64,
        /// Tells the timer, and who listens, when it waits no longer.
        over: DropGuard,
        parking: Parking,
    },
    Running {
        turn: u64,
        work: WeakShared,
        /// As in its [`Ticket`].
        remember_until: Option<Instant>,
        marks: Marks,
    },
    Given(Answer, Option<Instant>),
    Used,
}

/// What is kept of a round that waits.
#[derive(Debug)]
struct Parking {
    asked: Asked,
    _place: Place,
    /// As in the [`Ticket`] of whoever put it back.
    remember_until: Option<Instant>,
    marks: Marks,
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

    /// Room for one more, a call of this upstream; `None` when all is taken.
    pub(crate) fn place(&self, member: &Member) -> Option<Place> {
        Some(Place {
            _permit: self.room.permit()?,
            _asking: member.asks(),
        })
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.room.used()
    }

    /// Lets a round wait, for the first time or again.
    pub(crate) fn park(self: &Arc<Self>, id: RoundId, place: Place, asked: Asked) -> Waiting {
        let mut table = self.table();
        let (remember_until, marks) = match table.slots.get(&id) {
            Some(Slot::Running {
                remember_until,
                marks,
                ..
            }) => (*remember_until, marks.clone()),
            _ => (None, Marks::default()),
        };
        self.insert(
            &mut table,
            id,
            Parking {
                asked,
                _place: place,
                remember_until,
                marks,
            },
        )
    }

    fn insert(self: &Arc<Self>, table: &mut Table, id: RoundId, parking: Parking) -> Waiting {
        let over = CancellationToken::new();
        let turn = table.turn();
        let slot = Slot::Waiting {
            turn,
            over: over.clone().drop_guard(),
            parking,
        };
        table.slots.insert(id, slot);
        Waiting {
            parked: Arc::clone(self),
            id,
            turn,
            over,
        }
    }

    /// The round as it waits now, and what its caller has got; it waits on.
    pub(crate) fn look(self: &Arc<Self>, id: RoundId) -> Option<(Waiting, Asked)> {
        match self.table().slots.get(&id)? {
            Slot::Waiting {
                turn,
                over,
                parking,
            } => {
                let waiting = Waiting {
                    parked: Arc::clone(self),
                    id,
                    turn: *turn,
                    over: over.token().clone(),
                };
                Some((waiting, parking.asked.clone()))
            }
            Slot::Running { .. } | Slot::Given(..) | Slot::Used => None,
        }
    }

    /// Somebody came back with the state of a round. `foreign_until` is given for a round that
    /// another process made and that is still good until then: nothing is known of it here, and
    /// it may be used.
    ///
    /// `begin` makes the work on the round where it has to be done. It must not look at any round,
    /// nor drop the ticket.
    pub(crate) fn claim(
        self: &Arc<Self>,
        id: RoundId,
        foreign_until: Option<Instant>,
        begin: impl FnOnce(Ticket) -> Shared,
    ) -> Claim {
        let mut table = self.table();
        table.sweep(Instant::now());
        match table.slots.get(&id) {
            Some(Slot::Given(answer, _)) => Claim::Given(Arc::clone(answer)),
            // Nobody has it any more who is just giving it up.
            Some(Slot::Running { work, .. }) => work.join().map_or(Claim::Gone, Claim::Joined),
            Some(Slot::Used) => Claim::Gone,
            None if foreign_until.is_none() => Claim::Gone,
            waits @ (Some(Slot::Waiting { .. }) | None) => {
                let (asked, marks) = match waits {
                    Some(Slot::Waiting { parking, .. }) => {
                        (parking.asked.keys.clone(), parking.marks.clone())
                    }
                    _ => (Vec::new(), Marks::default()),
                };
                let turn = table.turn();
                let work = begin(Ticket {
                    parked: Arc::clone(self),
                    id,
                    turn,
                    remember_until: foreign_until,
                    asked,
                    marks: marks.clone(),
                });
                let running = Slot::Running {
                    turn,
                    work: work.downgrade(),
                    remember_until: foreign_until,
                    marks,
                };
                table.slots.insert(id, running);
                Claim::Begun(work)
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

// === impl Marks ===

impl Marks {
    pub(crate) fn of(&self, name: &str) -> Recorded {
        self.all().get(name).copied().unwrap_or_default()
    }

    pub(crate) fn set(&self, name: String, now: Recorded) {
        self.all().insert(name, now);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Recorded>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Ticket ===

impl Ticket {
    /// What its caller was asked, by key; none where that is not known.
    pub(crate) fn asked(&self) -> &[String] {
        &self.asked
    }

    /// What the store says by us.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Keeps the answer for all who will ask again.
    pub(crate) fn give(self, answer: &Answer) {
        let mut table = self.parked.table();
        table.give(self.id, Arc::clone(answer), self.remember_until);
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
    /// Resolves as soon as the round waits no longer, or for other answers: somebody has come back
    /// with its state, say.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Takes the round because nobody came back; `None` when somebody just did.
    pub(crate) fn expire(&self) -> Option<Asked> {
        let mut table = self.parked.table();
        let parking = self.take(&mut table)?;
        if let Some(until) = parking.remember_until {
            table.mark_used(self.id, until);
        }
        Some(parking.asked)
    }

    /// Answers the round though nobody came back; `false` when somebody just did.
    pub(crate) fn give(&self, answer: &Answer) -> bool {
        let mut table = self.parked.table();
        let Some(parking) = self.take(&mut table) else {
            return false;
        };
        table.give(self.id, Arc::clone(answer), parking.remember_until);
        true
    }

    /// Lets the round wait anew, for answers to other questions; `None` when somebody just came
    /// back.
    pub(crate) fn ask(&self, asked: Asked) -> Option<Self> {
        let mut table = self.parked.table();
        let parking = self.take(&mut table)?;
        let parking = Parking { asked, ..parking };
        Some(self.parked.insert(&mut table, self.id, parking))
    }

    fn take(&self, table: &mut Table) -> Option<Parking> {
        let slot = table.slots.remove(&self.id)?;
        match slot {
            Slot::Waiting { turn, parking, .. } if turn == self.turn => Some(parking),
            other => {
                table.slots.insert(self.id, other);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::call::Call;
    use crate::error::CallError;
    use crate::shared::answer;
    use crate::upstream::{BoxFuture, CallFuture, Facts, Upstream};

    const ROUND: RoundId = 7;

    fn member() -> Member {
        let yaml = "upstreams: { up: { command: x } }";
        let config = waypost_config::parse_str(yaml).unwrap().config;
        Member::new(config.upstreams[0].clone(), Arc::new(Nobody))
    }

    #[derive(Debug)]
    struct Nobody;

    impl Upstream for Nobody {
        fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
            Box::pin(std::future::pending())
        }

        fn call(&self, _: Call) -> CallFuture<'_> {
            Box::pin(std::future::pending())
        }
    }

    fn asked() -> Asked {
        Asked {
            keys: Vec::new(),
            progress: Progress::new(None),
        }
    }

    fn parked() -> (Arc<Parked>, Waiting) {
        let parked = Parked::new(9);
        let waiting = parked.park(ROUND, parked.place(&member()).unwrap(), asked());
        (parked, waiting)
    }

    /// Work that holds the ticket, and what makes it give an answer.
    #[track_caller]
    fn claim(parked: &Arc<Parked>) -> (Shared, oneshot::Sender<()>) {
        let (go, gone) = oneshot::channel();
        let begin = |ticket: Ticket| {
            Shared::new(1, move |_| async move {
                gone.await.unwrap();
                let answer = answer(Err(CallError::unknown("x")));
                ticket.give(&answer);
                answer
            })
        };
        match parked.claim(ROUND, None, begin) {
            Claim::Begun(work) => (work, go),
            other => panic!("{other:?}"),
        }
    }

    fn again(parked: &Arc<Parked>) -> Claim {
        parked.claim(ROUND, None, |_| panic!("begun twice"))
    }

    #[tokio::test]
    async fn a_claim_outlives_an_earlier_one_whose_round_was_put_back() {
        let (parked, _) = parked();
        let earlier = claim(&parked);
        let _waiting = parked.park(ROUND, parked.place(&member()).unwrap(), asked());
        let (later, go) = claim(&parked);
        drop(earlier);
        assert!(matches!(again(&parked), Claim::Joined(_)));
        go.send(()).unwrap();
        later.end().await.unwrap_err();
        assert!(matches!(again(&parked), Claim::Given(_)));
    }

    #[tokio::test]
    async fn a_round_is_gone_with_the_last_who_works_on_it() {
        let (parked, _) = parked();
        let (first, _go) = claim(&parked);
        let Claim::Joined(second) = again(&parked) else {
            panic!("not joined");
        };
        drop(first);
        let third = again(&parked);
        assert!(matches!(third, Claim::Joined(_)));
        drop((second, third));
        assert!(matches!(again(&parked), Claim::Gone));
    }

    #[tokio::test]
    async fn a_late_timer_does_not_take_a_round_that_waits_again() {
        let (parked, first) = parked();
        let work = claim(&parked);
        first.over().await;
        let second = parked.park(ROUND, parked.place(&member()).unwrap(), asked());
        drop(work);
        assert!(first.expire().is_none());
        assert!(second.expire().is_some());
        assert!(matches!(again(&parked), Claim::Gone));
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_of_another_process_that_was_put_back_is_used_once() {
        for ends in ["answered", "asked anew and answered", "expired"] {
            let parked = Parked::new(9);
            let good_for = Duration::from_secs(600);
            let foreign = Some(Instant::now() + good_for);
            let begin = |ticket: Ticket| {
                Shared::new(1, |_| async move {
                    let _ticket = ticket;
                    std::future::pending().await
                })
            };
            let Claim::Begun(_work) = parked.claim(ROUND, foreign, begin) else {
                panic!("not begun");
            };
            let waiting = parked.park(ROUND, parked.place(&member()).unwrap(), asked());
            let given = answer(Err(CallError::unknown("x")));
            match ends {
                "expired" => assert!(waiting.expire().is_some()),
                "answered" => assert!(waiting.give(&given)),
                _ => assert!(waiting.ask(asked()).unwrap().give(&given)),
            }
            tokio::time::advance(REPEATABLE * 2).await;
            let again = parked.claim(ROUND, foreign, |_| panic!("begun twice"));
            assert!(matches!(again, Claim::Gone), "{ends}: {again:?}");
        }
    }
}
