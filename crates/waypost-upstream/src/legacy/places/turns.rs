//! Who has the places and who is next.
//!
//! Askers stand in the orders in which something can become of them, so that no step looks at all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Ask, Asker, Who};

/// Requests of one who asks that are begun at once; those that are older than a turn do not count.
pub(super) const SIDE_BY_SIDE: usize = 16;

/// How long a request has its place for itself where others of its own need it, or others who have
/// as much. One that has lost its place as often as that: twice as long each time.
pub(super) const TURN: Duration = Duration::from_secs(5);
const DOUBLED: u32 = 7;

/// The same where those who need it have less.
pub(super) const GRACE: Duration = Duration::from_millis(250);

/// Since when a request counts as waiting, and its number: who comes first. For each place that it
/// has lost it lets others pass for a turn, and no longer.
type Rank = (Instant, u64);

#[derive(Debug)]
pub(super) struct All {
    pub(super) most: usize,
    pub(super) taken: usize,
    /// The last number of a place.
    number: u64,
    pub(super) askers: HashMap<Asker, Asking>,
    /// By the numbers of their requests.
    pub(super) waiting: HashMap<u64, Waiting>,
    orders: Orders,
}

/// The requests of one who asks.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The oldest first.
    pub(super) open: BTreeMap<u64, Open>,
    waiting: BTreeSet<Rank>,
    /// When the last answer came.
    heard: Option<Instant>,
    /// Where it stands in the orders.
    stands: Standing,
}

#[derive(Debug)]
pub(super) struct Open {
    since: Instant,
    vain: u32,
    lost: CancellationToken,
}

/// One that waits, for whoever of its askers has a place first.
#[derive(Debug)]
pub(super) struct Waiting {
    askers: HashSet<Asker>,
    rank: Rank,
    vain: u32,
    granted: oneshot::Sender<Granted>,
}

#[derive(Debug)]
pub(super) struct Granted {
    pub(super) asker: Asker,
    pub(super) number: u64,
    pub(super) lost: CancellationToken,
}

/// The end of the turn of an open request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    ends: Instant,
    number: u64,
    since: Instant,
}

/// All askers, in order.
#[derive(Debug, Default)]
struct Orders {
    /// Who may begin one more: the first has fewest places, and waits longest of those.
    next: BTreeSet<(usize, Rank, Asker)>,
    /// Who may not, as enough of its own are in their turn, and until when.
    busy: BTreeSet<(Instant, Asker)>,
    /// The last has most places, and of those the one whose turn ends first.
    holders: BTreeSet<(usize, Reverse<Turn>, Asker)>,
    /// Who may begin one more in place of one of its own, and when.
    own: BTreeSet<(Turn, Asker)>,
}

/// Where one stands in each.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    next: Option<(usize, Rank)>,
    busy: Option<Instant>,
    holds: Option<(usize, Reverse<Turn>)>,
    own: Option<Turn>,
}

impl All {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            taken: 0,
            number: 0,
            askers: HashMap::new(),
            waiting: HashMap::new(),
            orders: Orders::default(),
        }
    }

    pub(super) fn queue(
        &mut self,
        askers: HashSet<Asker>,
        Ask { number, vain }: Ask,
        granted: oneshot::Sender<Granted>,
        now: Instant,
    ) {
        let rank = (now + TURN * vain.min(DOUBLED), number);
        for asker in &askers {
            self.wants(asker, rank, now);
        }
        let waiting = Waiting {
            askers,
            rank,
            vain,
            granted,
        };
        self.waiting.insert(number, waiting);
        self.settle(now);
    }

    pub(super) fn join(&mut self, request: u64, asker: &Asker, now: Instant) {
        let Some(waiting) = self.waiting.get_mut(&request) else {
            return;
        };
        if waiting.askers.insert(asker.clone()) {
            let rank = waiting.rank;
            self.wants(asker, rank, now);
            self.settle(now);
        }
    }

    pub(super) fn part(&mut self, request: u64, asker: &Asker, now: Instant) {
        let Some(waiting) = self.waiting.get_mut(&request) else {
            return;
        };
        if waiting.askers.remove(asker) {
            let rank = waiting.rank;
            self.wants_no_more(asker, rank, now);
        }
    }

    pub(super) fn heard(&mut self, asker: &Asker, now: Instant) {
        if let Some(asking) = self.askers.get_mut(asker) {
            asking.heard = Some(now);
        }
        self.stand(asker, now);
    }

    /// Gives places to those that wait, as far as there are any for them.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(asker) = self.orders.free(now) {
            self.stand(&asker, now);
        }
        while let Some((asker, victim)) = self.choose(now) {
            if let Some((victim, number)) = victim {
                self.displace(&victim, number, now);
            }
            self.grant(asker, now);
        }
    }

    /// Who comes next, and whose request it displaces.
    fn choose(&self, now: Instant) -> Option<(Asker, Option<(Asker, u64)>)> {
        let (count, _, first) = self.orders.next.first()?;
        if self.taken < self.most {
            return Some((first.clone(), None));
        }
        // Where there is nothing for whoever has fewest, there is nothing for others.
        if let Some((most, Reverse(turn), holder)) = self.orders.holders.last()
            && ((*most > count + 1 && now >= turn.since + GRACE)
                || (most > count && now >= turn.ends))
        {
            return Some((first.clone(), Some((holder.clone(), turn.number))));
        }
        let (turn, asker) = self.orders.own.first()?;
        let own = || (asker.clone(), Some((asker.clone(), turn.number)));
        (now >= turn.ends).then(own)
    }

    fn displace(&mut self, victim: &Asker, number: u64, now: Instant) {
        if let Some(asking) = self.askers.get_mut(victim)
            && let Some(open) = asking.open.remove(&number)
        {
            self.taken -= 1;
            open.lost.cancel();
        }
        self.stand(victim, now);
    }

    /// The first that waits for this one has a place.
    fn grant(&mut self, asker: Asker, now: Instant) {
        let Some(asking) = self.askers.get_mut(&asker) else {
            return;
        };
        let Some((_, request)) = asking.waiting.first().copied() else {
            return;
        };
        let lost = CancellationToken::new();
        self.number += 1;
        let number = self.number;
        let open = Open {
            since: now,
            vain: self.waiting.get(&request).map_or(0, |one| one.vain),
            lost: lost.clone(),
        };
        asking.open.insert(number, open);
        self.taken += 1;
        if let Some(waiting) = self.leave(request, now) {
            // It is there: it takes its ticket out first.
            drop(waiting.granted.send(Granted {
                asker,
                number,
                lost,
            }));
        }
    }

    /// A request waits no more.
    pub(super) fn leave(&mut self, request: u64, now: Instant) -> Option<Waiting> {
        let waiting = self.waiting.remove(&request)?;
        for asker in &waiting.askers {
            self.wants_no_more(asker, waiting.rank, now);
        }
        Some(waiting)
    }

    pub(super) fn release(&mut self, asker: &Asker, number: u64, now: Instant) {
        if let Some(asking) = self.askers.get_mut(asker)
            && asking.open.remove(&number).is_some()
        {
            self.taken -= 1;
        }
        self.stand(asker, now);
        self.settle(now);
    }

    fn wants(&mut self, asker: &Asker, rank: Rank, now: Instant) {
        let asking = self.askers.entry(asker.clone()).or_default();
        asking.waiting.insert(rank);
        self.stand(asker, now);
    }

    fn wants_no_more(&mut self, asker: &Asker, rank: Rank, now: Instant) {
        if let Some(asking) = self.askers.get_mut(asker) {
            asking.waiting.remove(&rank);
        }
        self.stand(asker, now);
    }

    /// Puts one whose requests have changed in its place in the orders.
    fn stand(&mut self, asker: &Asker, now: Instant) {
        let Some(asking) = self.askers.get_mut(asker) else {
            return;
        };
        let stands = asking.standing(asker, now);
        let before = std::mem::replace(&mut asking.stands, stands);
        let is_done = asking.open.is_empty() && asking.waiting.is_empty();
        self.orders.shift(asker, before, stands);
        if is_done {
            self.askers.remove(asker);
        }
    }
}

impl Asking {
    fn standing(&self, asker: &Asker, now: Instant) -> Standing {
        let keeps = asker.who == Who::Nobody;
        let (count, first) = (self.open.len(), self.waiting.first());
        let busy = self.busy_until().filter(|until| *until > now);
        let next = first.filter(|_| busy.is_none());
        // Not while answers come.
        let own = next.and_then(|_| self.first_to_end(self.heard));
        Standing {
            next: next.map(|rank| (count, *rank)),
            busy: busy.filter(|_| first.is_some()),
            holds: self
                .first_to_end(None)
                .filter(|_| !keeps)
                .map(|turn| (count, Reverse(turn))),
            own: own.filter(|_| !keeps),
        }
    }

    /// Until when as many as may be begun at once are in their turn.
    fn busy_until(&self) -> Option<Instant> {
        let last = self.open.values().rev().nth(SIDE_BY_SIDE - 1)?;
        Some(last.since + TURN)
    }

    /// The request that has had its turn first, where none begins before that.
    fn first_to_end(&self, begins: Option<Instant>) -> Option<Turn> {
        let turns = self.open.iter().map(|(number, open)| {
            let since = begins.map_or(open.since, |begins| begins.max(open.since));
            Turn {
                ends: since + TURN * (1 << open.vain.min(DOUBLED)),
                number: *number,
                since: open.since,
            }
        });
        turns.min()
    }
}

impl Orders {
    /// Takes out one that may begin another by now.
    fn free(&self, now: Instant) -> Option<Asker> {
        let (until, asker) = self.busy.first()?;
        (*until <= now).then(|| asker.clone())
    }

    fn shift(&mut self, asker: &Asker, from: Standing, to: Standing) {
        let own = |turn| (turn, asker.clone());
        if let Some((count, rank)) = from.next {
            self.next.remove(&(count, rank, asker.clone()));
        }
        if let Some(until) = from.busy {
            self.busy.remove(&(until, asker.clone()));
        }
        if let Some((count, turn)) = from.holds {
            self.holders.remove(&(count, turn, asker.clone()));
        }
        if let Some(turn) = from.own {
            self.own.remove(&own(turn));
        }
        self.next
            .extend(to.next.map(|(count, rank)| (count, rank, asker.clone())));
        self.busy
            .extend(to.busy.map(|until| (until, asker.clone())));
        self.holders
            .extend(to.holds.map(|(count, turn)| (count, turn, asker.clone())));
        self.own.extend(to.own.map(own));
    }
}
