//! Calls that went on with a state, for the caller that brings it again because it lost its
//! connection: it waits with whoever waits still, or gets the answer that there was.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use waypost_hub::call::Carrier;
use waypost_hub::error::CallError;
use waypost_hub::generate::Notifier;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::{End, Event};
use waypost_hub::shared::{self, Answer, Shared, WeakShared};

use super::exchange::QUEUE;
use super::legs::Outlet;
use super::parked::Waiting;
use super::url_mode::Visits;

/// How long an answer is kept.
const REPEATABLE: Duration = Duration::from_secs(60);

/// Bytes of all answers that are kept; over it the oldest go first.
const ROOM: usize = 64 << 20;

/// The calls that went on with a state not long ago.
#[derive(Debug)]
pub(crate) struct Repeats {
    slots: Arc<Mutex<Slots>>,
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct Slots {
    all: HashMap<String, Slot>,
    /// Those that have ended, with the bytes of their answers, oldest first.
    ended: VecDeque<(Instant, String, usize)>,
    bytes: usize,
    /// Somebody drops them in time.
    swept: bool,
}

#[derive(Debug)]
enum Slot {
    /// Given up with the last who waits for it.
    Going(WeakShared, Carrier),
    Ended(Answer, Carrier),
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
    pub(crate) fn new(tasks: &Tasks) -> Self {
        Self {
            slots: Arc::default(),
            tasks: tasks.clone(),
        }
    }

    /// Somebody comes with this state. `begin` lets the call go on that waits for that, if there
    /// is one.
    pub(crate) fn claim(
        &self,
        state: &str,
        begin: impl FnOnce() -> Option<Going>,
    ) -> Option<Claim> {
        let mut slots = lock(&self.slots);
        slots.sweep();
        match slots.all.get(state) {
            Some(Slot::Going(work, carrier)) => {
                return work.join().map(|work| Claim::Going(work, carrier.clone()));
            }
            Some(Slot::Ended(answer, carrier)) => {
                return Some(Claim::Ended(Arc::clone(answer), carrier.clone()));
            }
            None => {}
        }
        let going = begin()?;
        slots.all.retain(|_, slot| match slot {
            Slot::Going(work, _) => work.is_wanted(),
            Slot::Ended(..) => true,
        });
        let (all, key, tasks) = (
            Arc::clone(&self.slots),
            state.to_owned(),
            self.tasks.clone(),
        );
        let (carrier, kept) = (going.carrier.clone(), going.carrier.clone());
        let work = Shared::new(QUEUE, |notifier| async move {
            let answer = shared::answer(going.end(notifier).await);
            if lock(&all).end(key, &answer, kept) {
                tasks.spawn(|stop| async move {
                    tokio::select! {
                        () = sweep(&all) => {}
                        () = stop.cancelled() => {}
                    }
                });
            }
            answer
        });
        let slot = Slot::Going(work.downgrade(), carrier.clone());
        slots.all.insert(state.to_owned(), slot);
        Some(Claim::Going(work, carrier))
    }
}

impl Slots {
    /// Keeps an answer; `true` where somebody has to drop it in time.
    fn end(&mut self, state: String, answer: &Answer, carrier: Carrier) -> bool {
        let bytes = shared::size(answer);
        self.bytes += bytes;
        self.ended.push_back((Instant::now(), state.clone(), bytes));
        let slot = Slot::Ended(Arc::clone(answer), carrier);
        self.all.insert(state, slot);
        while self.bytes > ROOM {
            self.forget_oldest();
        }
        !std::mem::replace(&mut self.swept, true)
    }

    /// Drops what is too old to be asked for; when the next will be.
    fn sweep(&mut self) -> Option<Instant> {
        loop {
            let until = self.ended.front()?.0 + REPEATABLE;
            if until > Instant::now() {
                return Some(until);
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, state, bytes)) = self.ended.pop_front() {
            self.bytes -= bytes;
            self.all.remove(&state);
        }
    }
}

/// Drops answers in time until none is left.
async fn sweep(slots: &Mutex<Slots>) {
    loop {
        let next = {
            let mut slots = lock(slots);
            let next = slots.sweep();
            slots.swept = next.is_some();
            next
        };
        match next {
            Some(next) => sleep_until(next).await,
            None => return,
        }
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

#[cfg(test)]
mod tests {
    use tokio::time::sleep;
    use waypost_hub::reply::End;
    use waypost_wire::object::Object;
    use waypost_wire::raw::Raw;

    use super::*;

    fn big(bytes: usize) -> Answer {
        let text = Raw::string(&"x".repeat(bytes));
        shared::answer(Ok(End::Complete(Object::from_iter([("text", text)]))))
    }

    #[test]
    fn only_so_many_bytes_of_answers_are_kept_and_the_newest_of_them() {
        let mut slots = Slots::default();
        for state in ["a", "b", "c"] {
            slots.end(state.to_owned(), &big(ROOM / 2 - 100), Carrier::watched());
        }
        assert!(slots.bytes <= ROOM);
        assert_eq!(slots.all.len(), 2);
        assert!(!slots.all.contains_key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_goes_in_time_though_nobody_comes() {
        let slots = Arc::new(Mutex::new(Slots::default()));
        let end = |state: &str| lock(&slots).end(state.to_owned(), &big(9), Carrier::watched());
        assert!(end("a"));
        let tasks = Tasks::default();
        let swept = Arc::clone(&slots);
        tasks.spawn(|_| async move { sweep(&swept).await });
        sleep(REPEATABLE / 2).await;
        assert!(!end("b"), "somebody sweeps already");
        sleep(REPEATABLE / 2 + Duration::from_millis(1)).await;
        assert_eq!(lock(&slots).all.len(), 1);
        sleep(REPEATABLE / 2 + Duration::from_millis(1)).await;
        assert!(lock(&slots).all.is_empty() && lock(&slots).bytes == 0);
        assert!(end("c"), "nobody sweeps any more");
    }
}
