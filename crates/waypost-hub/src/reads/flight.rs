//! What several want at once, and only the first asks for.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// What is being asked for.
pub(crate) struct Flights<K: Eq + Hash>(Arc<Mutex<HashMap<K, Flight>>>);

/// What somebody asks for, for others to wait for.
#[derive(Clone)]
pub(crate) struct Flight {
    landed: CancellationToken,
    is_over: Arc<AtomicBool>,
}

/// The place of the one who asks. The others go on when the last of it is dropped.
pub(crate) struct Lead<K: Eq + Hash>(Arc<Held<K>>);

struct Held<K: Eq + Hash> {
    flights: Flights<K>,
    key: K,
    flight: Flight,
}

/// Who one is among those that want the same.
pub(crate) enum Joined<K: Eq + Hash> {
    First(Lead<K>),
    Behind(Flight),
}

impl<K: Eq + Hash + Clone> Flights<K> {
    /// Wants what has this key.
    pub(crate) fn join(&self, key: &K) -> Joined<K> {
        let mut all = self.all();
        if let Some(flight) = all.get(key) {
            return Joined::Behind(flight.clone());
        }
        let flight = Flight {
            landed: CancellationToken::new(),
            is_over: Arc::default(),
        };
        all.insert(key.clone(), flight.clone());
        Joined::First(Lead(Arc::new(Held {
            flights: self.clone(),
            key: key.clone(),
            flight,
        })))
    }
}

impl<K: Eq + Hash> Flights<K> {
    fn all(&self) -> MutexGuard<'_, HashMap<K, Flight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// Waits for its end. Whether there was an answer, of whatever kind; otherwise the one who asked
    /// has left.
    pub(crate) async fn ended(&self) -> bool {
        self.landed.cancelled().await;
        self.is_over.load(Ordering::Acquire)
    }
}

impl<K: Eq + Hash> Lead<K> {
    /// There is an answer.
    pub(crate) fn end(&self) {
        self.0.flight.is_over.store(true, Ordering::Release);
    }
}

impl<K: Eq + Hash> Drop for Held<K> {
    fn drop(&mut self) {
        self.flights.all().remove(&self.key);
        self.flight.landed.cancel();
    }
}

impl<K: Eq + Hash> Clone for Lead<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Eq + Hash> Clone for Flights<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Eq + Hash> Default for Flights<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash> fmt::Debug for Lead<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lead")
    }
}
