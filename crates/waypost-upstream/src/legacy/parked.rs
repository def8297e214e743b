//! Calls whose servers wait for an answer of the caller, by the state that the caller brings.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use waypost_wire::result::OWN_STATE;

use super::exchange::Exchange;
use super::table::Table;

/// The parked calls of one upstream.
#[derive(Debug)]
pub(crate) struct Parked {
    waiting: Mutex<HashMap<String, Waiting>>,
    room: Arc<Semaphore>,
    patience: Duration,
}

/// One parked call and where it is open.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) table: Arc<Table>,
}

impl Parked {
    /// `room` is shared with other upstreams; each call waits as long as `patience`.
    pub(crate) fn new(room: Arc<Semaphore>, patience: Duration) -> Self {
        Self {
            waiting: Mutex::default(),
            room,
            patience,
        }
    }

    /// When a call that begins to wait now is given up.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// A place, if there is one.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// Adds a call; gives its state, which nobody can guess.
    pub(crate) fn add(&self, waiting: Waiting) -> String {
        // The hub seals it, binds it to its caller and gives it back as it was.
        let state = format!("{OWN_STATE}{:032x}", rand::random::<u128>());
        self.waiting().insert(state.clone(), waiting);
        state
    }

    /// Takes the call with this state out; a state is good once.
    pub(crate) fn take(&self, state: &str) -> Option<Waiting> {
        self.waiting().remove(state)
    }

    /// The call with this state, which stays good.
    pub(crate) fn get(&self, state: &str) -> Option<Waiting> {
        self.waiting().get(state).cloned()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.waiting().len()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
