//! Calls that went on with a state, for the caller that brings it again because it lost its
//! connection: it waits with whoever waits still, or gets the answer that there was.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::task::yield_now;
use tokio::time::Instant;
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
    Going(WeakShared),
    Ended(Instant, Answer),
}

/// What a state gets.
#[derive(Debug)]
pub(crate) enum Claim {
    /// A part in the wait for the call.
    Going(Shared),
    /// What came of it.
    Ended(Answer),
}

/// A call that goes on.
pub(crate) struct Going {
    pub(crate) outlet: Outlet,
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
            Some(Slot::Going(work)) => return work.join().map(Claim::Going),
            Some(Slot::Ended(at, answer)) => {
                let is_kept = at.elapsed() < REPEATABLE;
                return is_kept.then(|| Claim::Ended(Arc::clone(answer)));
            }
            None => {}
        }
        let going = begin()?;
        slots.retain(|_, slot| match slot {
            Slot::Going(work) => work.is_wanted(),
            Slot::Ended(at, _) => at.elapsed() < REPEATABLE,
        });
        let (all, key) = (Arc::clone(&self.0), state.to_owned());
        let work = Shared::new(QUEUE, |notifier| async move {
            let answer = shared::answer(going.end(notifier).await);
            let ended = Slot::Ended(Instant::now(), Arc::clone(&answer));
            lock(&all).insert(key, ended);
            answer
        });
        slots.insert(state.to_owned(), Slot::Going(work.downgrade()));
        Some(Claim::Going(work))
    }
}

impl Going {
    async fn end(self, notifier: Notifier) -> Result<End, CallError> {
        let Self { mut outlet, visits } = self;
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
