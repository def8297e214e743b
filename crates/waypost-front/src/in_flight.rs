//! The requests of one client in flight, by the ids that it gave them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use waypost_wire::id::Id;

use crate::refusal::Refusal;

/// Requests at once: a client that leaves them behind pays itself.
pub(crate) const MOST_CALLS: usize = 256;

/// The requests in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    table: Arc<Mutex<Table>>,
    /// Gives up all there are, and all that still come.
    over: CancellationToken,
}

type Table = HashMap<Id, CancellationToken>;

/// The place of one; its id is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    id: Id,
    cancelled: CancellationToken,
    table: Arc<Mutex<Table>>,
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InFlight {
    /// None yet; all are given up when `over` fires.
    pub(crate) fn until(over: CancellationToken) -> Self {
        Self {
            table: Arc::default(),
            over,
        }
    }

    /// Takes the id of a request.
    ///
    /// # Errors
    /// [`Refusal::DuplicateId`] while another with this id is in flight, and
    /// [`Refusal::SessionBusy`] when there are too many.
    pub(crate) fn begin(&self, id: &Id) -> Result<Slot, Refusal> {
        let mut table = lock(&self.table);
        if table.contains_key(id) {
            return Err(Refusal::DuplicateId);
        }
        if table.len() >= MOST_CALLS {
            return Err(Refusal::SessionBusy);
        }
        let cancelled = self.over.child_token();
        table.insert(id.clone(), cancelled.clone());
        Ok(Slot {
            id: id.clone(),
            cancelled,
            table: Arc::clone(&self.table),
        })
    }

    /// Gives up a request; one that is over, or never was, is no error.
    pub(crate) fn cancel(&self, id: &Id) {
        let call = lock(&self.table).get(id).cloned();
        if let Some(call) = call {
            call.cancel();
        }
    }

    /// Gives up all.
    pub(crate) fn cancel_all(&self) {
        self.over.cancel();
    }
}

impl Slot {
    /// Fires when the request is given up.
    pub(crate) fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.table).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_until_its_place_is_given_back() {
        let calls = InFlight::default();
        let id = Id::number(1);
        let first = calls.begin(&id).unwrap();
        assert_eq!(calls.begin(&id).unwrap_err(), Refusal::DuplicateId);
        drop(first);
        let again = calls.begin(&id).unwrap();
        calls.cancel(&Id::number(2));
        assert!(!again.cancelled().is_cancelled());
        calls.cancel(&id);
        assert!(again.cancelled().is_cancelled());
    }

    #[test]
    fn there_is_a_bound_and_an_end_for_all() {
        let over = CancellationToken::new();
        let calls = InFlight::until(over.clone());
        let begin = |n| calls.begin(&Id::number(n));
        let slots: Vec<_> = (0..256).map(|n| begin(n).unwrap()).collect();
        assert_eq!(begin(256).unwrap_err(), Refusal::SessionBusy);
        over.cancel();
        assert!(slots.iter().all(|slot| slot.cancelled().is_cancelled()));
    }
}
