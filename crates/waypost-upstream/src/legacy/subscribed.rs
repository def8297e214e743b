//! The resources that a session is subscribed to, each once however many listen to it.
//!
//! Each has a task of its own that asks the server, so that one which is not answered holds up no
//! other, and whoever asked may leave before the answer.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{AcquireError, Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::{sleep, timeout};
use waypost_hub::backoff::Backoff;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Outcome;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::session::Session;
use crate::fault::Fault;

/// Resources of one session; further ones are refused.
const MOST: usize = 8_192;

/// Requests that are asked at once.
const SIDE_BY_SIDE: usize = 16;

/// Requests that are not answered yet, be their turn over or not.
const UNANSWERED: usize = 64;

/// One that takes longer makes room for another, and its answer is waited for all the same.
const TURN: Duration = Duration::from_secs(5);

/// A request that is not answered by then is asked again; the server may have lost it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// What failed is asked again after this, and after twice as long each further time.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// All of one session.
#[derive(Debug)]
pub(crate) struct Subscribed {
    all: Mutex<HashMap<String, Arc<Entry>>>,
    turns: Semaphore,
    room: Semaphore,
}

#[derive(Debug)]
struct Entry {
    /// How many listen.
    wanted: watch::Sender<usize>,
    /// What came of the last request, once that is known.
    said: watch::Sender<Option<Said>>,
    /// Somebody waits for an answer, and would not for the backoff.
    hurry: Notify,
}

/// What came of asking the server.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Agreed,
    /// For good: it is not asked again.
    Refused(ErrorObject),
    /// It is asked again for as long as anybody listens.
    Failed(Fault),
}

/// One listener's part. Dropped, it is one listener less.
#[derive(Debug)]
pub(crate) struct Subscription {
    session: Arc<Session>,
    entry: Arc<Entry>,
}

/// What one request has of the bounds; the semaphores are never closed.
struct Turn<'a> {
    turn: Result<SemaphorePermit<'a>, AcquireError>,
    _room: Result<SemaphorePermit<'a>, AcquireError>,
}

impl Entry {
    fn new(said: Option<Said>) -> Self {
        Self {
            wanted: watch::Sender::new(1),
            said: watch::Sender::new(said),
            hurry: Notify::new(),
        }
    }
}

impl Default for Subscribed {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            turns: Semaphore::new(SIDE_BY_SIDE),
            room: Semaphore::new(UNANSWERED),
        }
    }
}

impl Subscribed {
    /// Subscribes to a resource for one more listener. One that `awaits` what is said of it is
    /// not told of an earlier failure.
    pub(crate) fn add(session: &Arc<Session>, uri: &str, awaits: bool) -> Subscription {
        let mut all = session.subscribed.all();
        let entry = if let Some(entry) = all.get(uri) {
            entry.wanted.send_modify(|count| *count += 1);
            if awaits && matches!(*entry.said.borrow(), Some(Said::Failed(_))) {
                entry.said.send_replace(None);
                entry.hurry.notify_one();
            }
            Arc::clone(entry)
        } else if all.len() >= MOST {
            let text = format!("more than {MOST} subscriptions in one session");
            let error = ErrorObject::new(code::INTERNAL_ERROR, &text);
            Arc::new(Entry::new(Some(Said::Refused(error))))
        } else {
            let entry = Arc::new(Entry::new(None));
            all.insert(uri.to_owned(), Arc::clone(&entry));
            let (kept, kept_entry) = (Arc::clone(session), Arc::clone(&entry));
            let uri = uri.to_owned();
            let keeps = async move { kept.subscribed.keep(&kept, &kept_entry, &uri).await };
            Arc::clone(session).spawn(keeps);
            entry
        };
        drop(all);
        Subscription {
            session: Arc::clone(session),
            entry,
        }
    }

    /// Asks for one resource for as long as anybody listens.
    async fn keep(&self, session: &Session, entry: &Entry, uri: &str) {
        let mut again = Backoff::new(AGAIN_FIRST, AGAIN_MOST);
        loop {
            // Who leaves before its turn causes nothing.
            let turn = tokio::select! {
                biased;
                () = self.until_unwanted(entry) => None,
                turn = self.turn() => Some(turn),
            };
            let Some(turn) = turn else {
                if self.forget(entry, uri) {
                    return;
                }
                continue;
            };
            let said = match self.subscribe(session, uri, turn).await {
                Ok(Outcome::Result(_)) => Said::Agreed,
                Ok(Outcome::Error(error)) => Said::Refused(error),
                Err(fault) => Said::Failed(fault),
            };
            let refused = matches!(said, Said::Refused(_));
            if refused {
                // The next who wants it asks anew.
                self.all().remove(uri);
            }
            if matches!(said, Said::Failed(Fault::SessionLost)) {
                // Whoever listens does so in the next one.
                session.retire();
            }
            let failed = matches!(said, Said::Failed(_));
            entry.said.send_replace(Some(said));
            if refused {
                return;
            }
            let wait = async {
                if !failed {
                    std::future::pending::<()>().await;
                }
                tokio::select! {
                    () = sleep(again.failed()) => {}
                    () = entry.hurry.notified() => {}
                }
            };
            tokio::select! {
                biased;
                () = self.until_unwanted(entry) => {}
                () = wait => {
                    entry.said.send_replace(None);
                    continue;
                }
            }
            // Also where it did not answer: it may have subscribed.
            drop(self.unsubscribe(session, uri).await);
            if self.forget(entry, uri) {
                return;
            }
            // Somebody came meanwhile.
            again.reset();
        }
    }

    /// Forgets one that nobody listens to; `false` when somebody does.
    fn forget(&self, entry: &Entry, uri: &str) -> bool {
        let mut all = self.all();
        let is_unwanted = *entry.wanted.borrow() == 0;
        if is_unwanted {
            all.remove(uri);
        }
        is_unwanted
    }

    /// Resolves when nobody listens; who comes from then on waits for what is asked next.
    async fn until_unwanted(&self, entry: &Entry) {
        let mut wanted = entry.wanted.subscribe();
        loop {
            drop(wanted.wait_for(|count| *count == 0).await);
            let _all = self.all();
            if *entry.wanted.borrow() == 0 {
                entry.said.send_replace(None);
                return;
            }
        }
    }

    async fn turn(&self) -> Turn<'_> {
        let room = self.room.acquire().await;
        let turn = self.turns.acquire().await;
        Turn { turn, _room: room }
    }

    async fn subscribe(
        &self,
        session: &Session,
        uri: &str,
        turn: Turn<'_>,
    ) -> Result<Outcome, Fault> {
        let Turn { turn, _room } = turn;
        let params = Object::from_iter([("uri", Raw::string(uri))]);
        let asked = session.ask_within("resources/subscribe", &params, ANSWERED_WITHIN);
        let mut asked = pin!(asked);
        if let Ok(answer) = timeout(TURN, &mut asked).await {
            return answer;
        }
        drop(turn);
        asked.await
    }

    async fn unsubscribe(&self, session: &Session, uri: &str) -> Result<Outcome, Fault> {
        let _turn = self.turns.acquire().await;
        let params = Object::from_iter([("uri", Raw::string(uri))]);
        session.ask("resources/unsubscribe", &params).await
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// What comes of the request that is open or was the last; [`Fault::Forgotten`] when nothing
    /// will.
    pub(crate) async fn said(&self) -> Said {
        let mut said = self.entry.said.subscribe();
        let known = said.wait_for(Option::is_some);
        let gone = Said::Failed(Fault::Forgotten);
        tokio::select! {
            known = known => known.map_or(None, |known| known.clone()).unwrap_or(gone),
            () = self.session.table.went() => gone,
        }
    }

    /// How the server refuses, or that it agrees, in the end; pending while it cannot be asked.
    pub(crate) fn settled(&self) -> impl Future<Output = Option<ErrorObject>> + Send + use<> {
        let mut said = self.entry.said.subscribe();
        async move {
            let known = said.wait_for(|said| matches!(said, Some(Said::Agreed | Said::Refused(_))));
            let known = known.await.map(|known| known.clone());
            match known {
                Ok(Some(Said::Refused(error))) => Some(error),
                Ok(_) => None,
                // Its session is over, and so is the listener.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Under the lock, so that who comes this moment finds the entry as it will be.
        let _all = self.session.subscribed.all();
        self.entry.wanted.send_modify(|count| *count -= 1);
    }
}
