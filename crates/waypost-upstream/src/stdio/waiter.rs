//! Who waits for the answers to a call.

use std::sync::Arc;

use waypost_hub::reply::End;
use waypost_wire::message::Outcome;

use super::abandoned::Sort;
use super::calls::{Calls, Place};
use crate::fault::Fault;
use crate::outcome;
use crate::outlet::{Awaited, Outlet};

/// One call in flight. Given up, the server is told to stop it.
#[derive(Debug)]
pub(crate) struct Waiter {
    calls: Arc<Calls>,
    id: u64,
    sort: Sort,
}

impl Waiter {
    /// Where the answers come out.
    pub(crate) fn at(calls: Arc<Calls>, place: Place) -> Outlet<Self> {
        let Place {
            id,
            sort,
            events,
            end,
        } = place;
        Outlet::new(Self { calls, id, sort }, events, end)
    }
}

impl Awaited for Waiter {
    type Ending = Outcome;

    fn upstream(&self) -> &Arc<str> {
        self.calls.upstream()
    }

    fn read(&self, ending: Outcome) -> Result<End, Fault> {
        outcome::end(ending)
    }

    fn leave(&self, unread: Option<Outcome>) {
        self.calls.leave(self.id, self.sort, unread);
    }
}
