//! Places for requests that servers may leave unanswered, in fair shares.
//!
//! A `resources/subscribe` hangs for as long as its server likes, and over HTTP each has a
//! connection. There are so many at once, for all servers together, and what hangs of one who asks
//! holds up no other: who has fewest places comes first, if need be in the place of the oldest of
//! those who have most. What loses its place is asked again later.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// This part of the file descriptors that the process may have, within bounds.
const PART: u64 = 8;
const LEAST: usize = 16;
const MOST: usize = 256;

/// Requests of one who asks that are begun at once; those that are older than a turn do not count.
const SIDE_BY_SIDE: usize = 16;

/// How long a request has its place for itself where others of its own need it, or others who have
/// as much. For one that lost its own as often as that, twice as long each time.
const TURN: Duration = Duration::from_secs(5);
const DOUBLED: u32 = 7;

/// The same where those who need it have less.
const GRACE: Duration = Duration::from_millis(250);

/// How often it is looked whose time is over.
const LOOK: Duration = Duration::from_secs(1);

/// All places of the process. Clones are the same.
#[derive(Clone, Debug)]
pub struct Places(Arc<Mutex<All>>);

/// Who asks: only requests of one wait for each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asker {
    /// The session with the server.
    pub(crate) session: u64,
    pub(crate) who: Who,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// A client with a session: what it waits for, or what is kept for it.
    Client { id: Arc<str>, awaits: bool },
    /// A listener without one.
    Listener(u64),
    /// What nobody wants any more is taken back.
    Nobody,
}

/// How often a request has been asked in vain, and its number: who comes first.
pub(crate) type Rank = (u32, u64);

#[derive(Debug)]
struct All {
    most: usize,
    taken: usize,
    /// Numbers of requests, places and sessions.
    next: u64,
    askers: HashMap<Asker, Asking>,
    /// By the numbers of their requests.
    waiting: HashMap<u64, Waiting>,
}

/// The requests of one who asks.
#[derive(Debug, Default)]
struct Asking {
    /// The oldest first.
    open: BTreeMap<u64, Open>,
    waiting: BTreeSet<Rank>,
    /// When the last answer came.
    heard: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    since: Instant,
    lost: CancellationToken,
}

/// One that waits, for whoever of its askers has a place first.
#[derive(Debug)]
struct Waiting {
    askers: Vec<Asker>,
    rank: Rank,
    granted: oneshot::Sender<Granted>,
}

#[derive(Debug)]
struct Granted {
    asker: Asker,
    number: u64,
    lost: CancellationToken,
}

/// The place of one request, until it is dropped or lost.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    of: Granted,
}

/// One that waits. Dropped, it waits no more.
struct Ticket {
    places: Places,
    request: u64,
    granted: oneshot::Receiver<Granted>,
}

impl Places {
    /// So many, at least one.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(All {
            most: most.max(1),
            taken: 0,
            next: 0,
            askers: HashMap::new(),
            waiting: HashMap::new(),
        })))
    }

    /// As many as the process can spare of the descriptors that it may have.
    pub fn of_process() -> Self {
        let files = getrlimit(Resource::Nofile).current;
        let part = files.and_then(|files| usize::try_from(files / PART).ok());
        Self::new(part.unwrap_or(MOST).clamp(LEAST, MOST))
    }

    /// A number that nothing else has.
    pub(crate) fn number(&self) -> u64 {
        self.all().number()
    }

    /// Waits for a place for the request with this rank.
    pub(crate) async fn place(&self, askers: &[Asker], rank: Rank) -> Place {
        let mut ticket = self.queue(askers, rank);
        match (&mut ticket.granted).await {
            Ok(of) => Place {
                places: self.clone(),
                of,
            },
            // Whatever waits is kept until it is granted.
            Err(_) => std::future::pending().await,
        }
    }

    fn queue(&self, askers: &[Asker], rank: Rank) -> Ticket {
        let (sender, granted) = oneshot::channel();
        let mut all = self.all();
        for asker in askers {
            let asking = all.askers.entry(asker.clone()).or_default();
            asking.waiting.insert(rank);
        }
        let waiting = Waiting {
            askers: askers.to_vec(),
            rank,
            granted: sender,
        };
        all.waiting.insert(rank.1, waiting);
        all.settle(Instant::now());
        Ticket {
            places: self.clone(),
            request: rank.1,
            granted,
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The request has its answer.
    pub(crate) fn answered(&self) {
        let mut all = self.places.all();
        if let Some(asking) = all.askers.get_mut(&self.of.asker) {
            asking.heard = Some(Instant::now());
        }
    }

    /// Resolves when another has it.
    pub(crate) async fn lost(&self) {
        let mut wait = GRACE;
        loop {
            tokio::select! {
                biased;
                () = self.of.lost.cancelled() => return,
                () = sleep(wait) => self.places.all().settle(Instant::now()),
            }
            wait = LOOK;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.all().release(&self.of.asker, self.of.number);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut all = self.places.all();
        all.leave(self.request);
        // Granted, and nobody knows yet.
        if let Ok(granted) = self.granted.try_recv() {
            all.release(&granted.asker, granted.number);
        }
    }
}

impl All {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Gives places to those that wait, as far as there are any for them.
    fn settle(&mut self, now: Instant) {
        while let Some((asker, request, victim)) = self.choose(now) {
            if let Some(victim) = victim {
                self.displace(&victim);
            }
            self.grant(asker, request, now);
        }
    }

    /// Who comes next: for whom, which request, and whose oldest request it displaces.
    fn choose(&self, now: Instant) -> Option<(Asker, u64, Option<Asker>)> {
        if self.waiting.is_empty() {
            return None;
        }
        let fullest = self.askers.iter().filter_map(|(asker, asking)| {
            let (number, since) = asking.oldest()?;
            Some((asking.open.len(), Reverse(number), since, asker))
        });
        let fullest = fullest.max_by_key(|(count, number, ..)| (*count, *number));
        let candidates = self.askers.iter().filter_map(|(asker, asking)| {
            let rank = *asking.waiting.first()?;
            if asking.young(now) >= SIDE_BY_SIDE {
                return None;
            }
            let count = asking.open.len();
            let own = Some(asker).filter(|_| asking.gives_way(rank, now));
            let other = fullest.filter(|(most, _, since, _)| {
                let age = now - *since;
                (*most > count + 1 && age >= GRACE) || (*most > count && age >= turn(rank))
            });
            let victim = match (self.taken < self.most, other, own) {
                (true, ..) => None,
                (false, Some((.., other)), _) => Some(other),
                (false, None, Some(own)) => Some(own),
                (false, None, None) => return None,
            };
            Some(((count, rank), asker, victim))
        });
        let ((_, rank), asker, victim) = candidates.min_by_key(|(order, ..)| *order)?;
        Some((asker.clone(), rank.1, victim.cloned()))
    }

    fn displace(&mut self, victim: &Asker) {
        if let Some(asking) = self.askers.get_mut(victim)
            && let Some((_, open)) = asking.open.pop_first()
        {
            self.taken -= 1;
            open.lost.cancel();
        }
    }

    fn grant(&mut self, asker: Asker, request: u64, now: Instant) {
        let number = self.number();
        let lost = CancellationToken::new();
        let open = Open {
            since: now,
            lost: lost.clone(),
        };
        let asking = self.askers.entry(asker.clone()).or_default();
        asking.open.insert(number, open);
        self.taken += 1;
        if let Some(waiting) = self.leave(request) {
            // It is there: it takes its ticket out first.
            drop(waiting.granted.send(Granted {
                asker,
                number,
                lost,
            }));
        }
    }

    /// A request waits no more.
    fn leave(&mut self, request: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&request)?;
        for asker in &waiting.askers {
            if let Some(asking) = self.askers.get_mut(asker) {
                asking.waiting.remove(&waiting.rank);
            }
            self.tidy(asker);
        }
        Some(waiting)
    }

    fn release(&mut self, asker: &Asker, number: u64) {
        if let Some(asking) = self.askers.get_mut(asker)
            && asking.open.remove(&number).is_some()
        {
            self.taken -= 1;
        }
        self.tidy(asker);
        self.settle(Instant::now());
    }

    fn tidy(&mut self, asker: &Asker) {
        let is_done = |asking: &Asking| asking.open.is_empty() && asking.waiting.is_empty();
        if self.askers.get(asker).is_some_and(is_done) {
            self.askers.remove(asker);
        }
    }
}

impl Asking {
    fn oldest(&self) -> Option<(u64, Instant)> {
        let (number, open) = self.open.first_key_value()?;
        Some((*number, open.since))
    }

    /// How many are in their turn, as far as it matters.
    fn young(&self, now: Instant) -> usize {
        let newest = self.open.values().rev().take(SIDE_BY_SIDE);
        newest.filter(|open| now - open.since < TURN).count()
    }

    /// Whether its oldest makes room for another of its own: not while answers come.
    fn gives_way(&self, rank: Rank, now: Instant) -> bool {
        let Some((_, since)) = self.oldest() else {
            return false;
        };
        let heard = self.heard.unwrap_or(since);
        now - since.max(heard) >= turn(rank)
    }
}

/// How long what one of this rank displaces must have had its place.
fn turn((vain, _): Rank) -> Duration {
    TURN * (1 << vain.min(DOUBLED))
}

#[cfg(test)]
mod tests;
