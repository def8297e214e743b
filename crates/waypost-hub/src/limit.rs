//! How much may be in flight at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::Kind;

/// A bound on what is in flight. Nothing ever waits for room, so a counter is enough: a semaphore
/// would take a lock that all cores share each time a permit is given back.
#[derive(Debug)]
pub struct Limit {
    used: AtomicUsize,
    most: AtomicUsize,
}

/// Room for one; given back when dropped.
#[derive(Debug)]
pub struct Permit(Arc<Limit>);

/// The room that several share of which each takes the place of the one before: they count as one.
#[derive(Clone, Debug, Default)]
pub struct SharedPermit(Arc<Mutex<Weak<Permit>>>);

/// Room for a request of which it is yet to be read whether it is let in. Until then it counts
/// within a bound of its own.
#[derive(Debug)]
pub struct Entry {
    limit: Arc<Limit>,
    held: Mutex<Arc<Permit>>,
}

/// Says of a response what was refused in it for want of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnedAway {
    /// Why.
    pub no_room: NoRoom,
    /// How many requests; a batch has several.
    pub count: usize,
}

/// Says of a request that nothing may begin for it, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// There is no room for more: only what makes some may be done.
    Full,
    /// Waypost ends: only what goes on with what has begun may be done.
    Draining,
}

impl NoRoom {
    /// Why, for whoever counts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "in_flight",
            Self::Draining => "draining",
        }
    }

    /// Why, for the caller.
    pub fn message(self) -> &'static str {
        match self {
            Self::Full => "too many requests at once",
            Self::Draining => "Waypost is shutting down",
        }
    }

    /// The `data` of the error that says so: kind, and what can be done.
    pub fn data(self) -> serde_json::Value {
        let (kind, hint) = match self {
            Self::Full => (Kind::Throttled, "the operator can raise `limits.in_flight`"),
            Self::Draining => (Kind::Unavailable, "try again soon, it may be restarting"),
        };
        serde_json::json!({ "kind": kind.as_str(), "retryable": true, "hint": hint })
    }
}

impl Limit {
    /// A bound of `most`.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            most: AtomicUsize::new(most),
        })
    }

    /// How much is in flight.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// From now on `most` is the bound; what is in flight beyond it goes on.
    pub fn set(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.used() == 0
    }

    /// Room for one, if there is any.
    pub fn permit(self: &Arc<Self>) -> Option<Permit> {
        if self.used.fetch_add(1, Ordering::Relaxed) < self.most.load(Ordering::Relaxed) {
            return Some(Permit(Arc::clone(self)));
        }
        self.used.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Permit {
    /// Room for one more within the same bound, if there is any: for one of several that came as
    /// one.
    pub fn another(&self) -> Option<Self> {
        self.0.permit()
    }
}

impl SharedPermit {
    /// The room that one of them still has, else room within this bound, if there is any.
    pub fn permit(&self, limit: &Arc<Limit>) -> Option<Arc<Permit>> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permit) = held.upgrade() {
            return Some(permit);
        }
        let permit = Arc::new(limit.permit()?);
        *held = Arc::downgrade(&permit);
        Some(permit)
    }
}

impl Entry {
    /// One that counts within `reading`, if there is room, and is to count within `limit`.
    pub fn begin(reading: &Arc<Limit>, limit: &Arc<Limit>) -> Option<Self> {
        let held = Mutex::new(Arc::new(reading.permit()?));
        let limit = Arc::clone(limit);
        Some(Self { limit, held })
    }

    /// It is let in: from now on it counts as all do. `false` when there is no room.
    pub fn enter(&self) -> bool {
        let Some(permit) = self.limit.permit() else {
            return false;
        };
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(permit);
        true
    }

    /// What it holds now.
    pub fn held(&self) -> Arc<Permit> {
        Arc::clone(&self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_are_given_out_and_each_comes_back() {
        let limit = Limit::new(2);
        let (first, second) = (limit.permit(), limit.permit());
        assert!(first.is_some() && second.is_some() && limit.permit().is_none());
        drop(first);
        assert!(!limit.is_idle());
        assert!(limit.permit().is_some());
        let one = Limit::new(1).permit();
        assert!(
            one.as_ref().and_then(Permit::another).is_none(),
            "its bound is the same"
        );
        assert!(Limit::new(0).permit().is_none());
    }

    #[test]
    fn who_follows_on_another_takes_its_room() {
        let (limit, seat) = (Limit::new(1), SharedPermit::default());
        let first = seat.permit(&limit);
        let next = seat.permit(&limit);
        assert!(
            first.is_some() && next.is_some() && SharedPermit::default().permit(&limit).is_none()
        );
        drop(first);
        assert_eq!(limit.used(), 1);
        drop(next);
        assert!(limit.is_idle() && seat.permit(&limit).is_some());
    }

    #[test]
    fn another_bound_counts_for_what_comes_then() {
        let limit = Limit::new(2);
        let held = [limit.permit(), limit.permit()];
        limit.set(1);
        assert!(limit.permit().is_none());
        drop(held);
        let one = limit.permit();
        assert!(one.is_some() && limit.permit().is_none());
        limit.set(2);
        assert!(limit.permit().is_some());
    }

    #[test]
    fn what_is_let_in_counts_from_then_on() {
        let (reading, limit) = (Limit::new(2), Limit::new(1));
        let entry = Entry::begin(&reading, &limit).unwrap();
        let other = Entry::begin(&reading, &limit).unwrap();
        assert!(limit.is_idle() && Entry::begin(&reading, &limit).is_none());
        assert!(entry.enter());
        assert_eq!((reading.used(), limit.used()), (1, 1));
        assert!(!other.enter(), "there is no room");
        let held = entry.held();
        drop((entry, other));
        assert_eq!((reading.used(), limit.used()), (0, 1));
        drop(held);
        assert!(limit.is_idle());
    }
}
