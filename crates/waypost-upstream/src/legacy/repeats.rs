//! Calls that went on with a state, for the caller that brings it again because it lost its
//! connection: it waits with whoever waits still, or gets the answer that there was.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::task::yield_now;
use tokio::time::Instant;
use waypost_hub::call::Carrier;
use waypost_hub::error::CallError;
use waypost_hub::generate::Notifier;
use waypost_hub::reply::{End, Event};
use waypost_hub::shared::{self, Answer, Shared, WeakShared};

use super::exchange::QUEUE;
use super::legs::Outlet;
use super::parked::Waiting;
use super::url_mode::Visits;

/// How long an answer is kept.
const REPEATABLE: Duration = Duration::from_secs(60);

/// The calls that went on with a state not long ago.
#[derive(Debug, Default)]
pub(crate) struct Repeats(Arc<Mutex<Slots>>);

type Slots = HashMap<String, Slot>;

#[derive(Debug)]
enum Slot {
    /// Given up with the last who waits for it.
    Going(WeakShared, Carrier),
    Ended(Instant, Answer, Carrier),
}

/// What a state gets; and what knows which session the answer comes from, once it is there.
#[derive(Debug)]
pub(crate) enum Claim {
    /// A part in the wait for the call.
    Going(Shared, Carrier),
    /// What came of it.
    Ended(Answer, Carrier),
}

/// A call that goes on.
pub(crate) struct Going {
    pub(crate) outlet: Outlet,
    pub(crate) carrier: Carrier,
    /// What is to be seen to first.
    pub(crate) visits: Option<(Visits, Waiting)>,
}

impl Repeats {
    /// Somebody comes with this state. `begin` lets the call go on that waits for that, if there
    /// is one.
    pub(crate) fn claim(
        &self,
        state: &str,
        begin: impl FnOnce() -> Option<Going>,
    ) -> Option<Claim> {
        let mut slots = lock(&self.0);
        match slots.get(state) {
            Some(Slot::Going(work, carrier)) => {
                return work.join().map(|work| Claim::Going(work, carrier.clone()));
            }
            Some(Slot::Ended(at, answer, carrier)) => {
                let is_kept = at.elapsed() < REPEATABLE;
                return is_kept.then(|| Claim::Ended(Arc::clone(answer), carrier.clone()));
            }
            None => {}
        }
        let going = begin()?;
        slots.retain(|_, slot| match slot {
            Slot::Going(work, _) => work.is_wanted(),
            Slot::Ended(at, ..) => at.elapsed() < REPEATABLE,
        });
        let (all, key) = (Arc::clone(&self.0), state.to_owned());
        let (carrier, kept) = (going.carrier.clone(), going.carrier.clone());
        let work = Shared::new(QUEUE, |notifier| async move {
            let answer = shared::answer(going.end(notifier).await);
            let ended = Slot::Ended(Instant::now(), Arc::clone(&answer), kept);
            lock(&all).insert(key, ended);
            answer
        });
        let slot = Slot::Going(work.downgrade(), carrier.clone());
        slots.insert(state.to_owned(), slot);
        Some(Claim::Going(work, carrier))
    }
}

impl Going {
    async fn end(self, notifier: Notifier) -> Result<End, CallError> {
        let Self {
            mut outlet, visits, ..
        } = self;
        if let Some((visits, waiting)) = visits {
            visits.pay(&waiting).await;
        }
        while let Some(event) = outlet.next().await {
            match event? {
                Event::End(end) => return Ok(end),
                Event::Notification(notification) => {
                    notifier.send(notification).await;
                    // Each is heard before the next: of more at once the oldest would be missed.
                    yield_now().await;
                }
            }
        }
        Err(CallError::no_end())
    }
}

fn lock(slots: &Mutex<Slots>) -> MutexGuard<'_, Slots> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}
