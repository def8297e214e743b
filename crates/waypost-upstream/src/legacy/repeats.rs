//! What came of a state, for the caller that brings it again because the answer was lost.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::watch;
use tokio::time::Instant;
use waypost_hub::reply::{End, Event, Reply};

/// How long an answer is kept.
const REPEATABLE: Duration = Duration::from_secs(60);

/// Once the call has ended: when, and how; `None` for one that was given up.
type Ended = Option<(Instant, Option<End>)>;

/// The calls that went on with a state not long ago.
#[derive(Debug, Default)]
pub(crate) struct Repeats(Mutex<HashMap<String, watch::Receiver<Ended>>>);

/// Notes how a call ends that went on with a state.
#[derive(Debug)]
pub(crate) struct Recorder(watch::Sender<Ended>);

impl Repeats {
    /// A call goes on with this state.
    pub(crate) fn begin(&self, state: &str) -> Recorder {
        let (recorder, ended) = watch::channel(None);
        let mut all = self.all();
        all.retain(|_, ended| match &*ended.borrow() {
            Some((at, _)) => at.elapsed() < REPEATABLE,
            None => true,
        });
        all.insert(state.to_owned(), ended);
        Recorder(recorder)
    }

    /// Waits for what came of this state; `None` when that is not known.
    pub(crate) async fn end(&self, state: &str) -> Option<End> {
        let mut ended = self.all().get(state).cloned()?;
        let ended = ended.wait_for(Option::is_some).await.ok()?;
        let (at, end) = ended.as_ref()?;
        end.clone().filter(|_| at.elapsed() < REPEATABLE)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Ended>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder {
    /// Notes the end of this reply when it passes.
    pub(crate) fn watch(self, reply: Reply) -> Reply {
        match reply {
            Reply::End(end) => {
                self.note(&end);
                Reply::End(end)
            }
            Reply::Stream(events) => Reply::Stream(Box::pin(events.map(move |event| {
                if let Ok(Event::End(end)) = &event {
                    self.note(end);
                }
                event
            }))),
        }
    }

    fn note(&self, end: &End) {
        let end = Some(end.clone());
        self.0.send_replace(Some((Instant::now(), end)));
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.0.borrow().is_none() {
            self.0.send_replace(Some((Instant::now(), None)));
        }
    }
}
