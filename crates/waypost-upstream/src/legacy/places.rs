//! Places for requests that servers may leave unanswered, in fair shares.
//!
//! A `resources/subscribe` hangs for as long as its server likes, and over HTTP each has a
//! connection. There are so many at once, for all servers together, and what hangs of one who asks
//! holds up no other: who has fewest places comes first, if need be in the place of one of those
//! who have most. What loses its place is asked again later, and keeps the next one longer.

mod turns;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use self::turns::{All, GRACE, Granted};

/// This part of the file descriptors that the process may have, within bounds.
const PART: u64 = 8;
const LEAST: usize = 16;
const MOST: usize = 256;

/// How often it is looked whose time is over.
const LOOK: Duration = Duration::from_secs(1);

/// All places of the process. Clones are the same.
#[derive(Clone, Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The last number of a request or a session.
    number: AtomicU64,
    all: Mutex<All>,
}

/// Who asks: only requests of one wait for each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Asker {
    /// The session with the server.
    pub(crate) session: u64,
    pub(crate) who: Who,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Who {
    /// A client with a session: what it waits for, or what is kept for it.
    Client { id: Arc<str>, awaits: bool },
    /// A listener without one.
    Listener(u64),
    /// What nobody wants any more is taken back. That is short, and keeps its place.
    Nobody,
}

/// One request that is to have a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Tells it from others.
    pub(crate) number: u64,
    /// How often it has lost its place.
    pub(crate) vain: u32,
}

/// The place of one request, until it is dropped or lost.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    of: Granted,
}

/// One that waits. Dropped, it waits no more.
#[derive(Debug)]
pub(crate) struct Ticket {
    places: Places,
    request: u64,
    granted: oneshot::Receiver<Granted>,
}

impl Places {
    /// So many, at least one.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Shared {
            number: AtomicU64::new(0),
            all: Mutex::new(All::new(most.max(1))),
        }))
    }

    /// As many as the process can spare of the descriptors that it may have.
    pub fn of_process() -> Self {
        let files = getrlimit(Resource::Nofile).current;
        let part = files.and_then(|files| usize::try_from(files / PART).ok());
        Self::new(part.unwrap_or(MOST).clamp(LEAST, MOST))
    }

    /// A number that nothing else has.
    pub(crate) fn number(&self) -> u64 {
        self.0.number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A request waits from now on, for whichever of its askers has a place first.
    pub(crate) fn queue(&self, askers: impl IntoIterator<Item = Asker>, ask: Ask) -> Ticket {
        let (sender, granted) = oneshot::channel();
        let askers: HashSet<_> = askers.into_iter().collect();
        self.all().queue(askers, ask, sender, Instant::now());
        Ticket {
            places: self.clone(),
            request: ask.number,
            granted,
        }
    }

    /// One more asks for a request, should that wait.
    pub(crate) fn join(&self, request: u64, asker: &Asker) {
        self.all().join(request, asker, Instant::now());
    }

    /// One less.
    pub(crate) fn part(&self, request: u64, asker: &Asker) {
        self.all().part(request, asker, Instant::now());
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Waits for the place.
    pub(crate) async fn place(mut self) -> Place {
        match (&mut self.granted).await {
            Ok(of) => Place {
                places: self.places.clone(),
                of,
            },
            // Whatever waits is kept until it is granted.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Place {
    /// The request has its answer.
    pub(crate) fn answered(&self) {
        self.places.all().heard(&self.of.asker, Instant::now());
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
        let mut all = self.places.all();
        all.release(&self.of.asker, self.of.number, Instant::now());
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut all = self.places.all();
        drop(all.leave(self.request, now));
        // Granted, and nobody knows yet.
        if let Ok(granted) = self.granted.try_recv() {
            all.release(&granted.asker, granted.number, now);
        }
    }
}

#[cfg(test)]
mod tests;
