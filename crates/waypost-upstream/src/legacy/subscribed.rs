//! The resources that a session is subscribed to, each once however many listen to it.
//!
//! Each has a task of its own that asks the server, so that one which is not answered holds up no
//! other, and whoever asked may leave before the answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, watch};
use waypost_wire::message::Outcome;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::session::Session;
use crate::fault::Fault;

/// Requests that are asked at once.
const SIDE_BY_SIDE: usize = 16;

/// All of one session.
#[derive(Debug)]
pub(crate) struct Subscribed {
    all: Mutex<HashMap<String, Arc<Entry>>>,
    turns: Semaphore,
}

#[derive(Debug)]
struct Entry {
    /// How many listen.
    wanted: watch::Sender<usize>,
    /// Whether the server has agreed, once that is known.
    agreed: watch::Sender<Option<bool>>,
}

/// One listener's part. Dropped, it is one listener less.
#[derive(Debug)]
pub(crate) struct Subscription {
    session: Arc<Session>,
    entry: Arc<Entry>,
}

impl Default for Subscribed {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            turns: Semaphore::new(SIDE_BY_SIDE),
        }
    }
}

impl Subscribed {
    /// Subscribes to a resource for one more listener.
    pub(crate) fn add(session: &Arc<Session>, uri: &str) -> Subscription {
        let mut all = session.subscribed.all();
        let entry = if let Some(entry) = all.get(uri) {
            entry.wanted.send_modify(|count| *count += 1);
            Arc::clone(entry)
        } else {
            let entry = Arc::new(Entry {
                wanted: watch::Sender::new(1),
                agreed: watch::Sender::new(None),
            });
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
    async fn keep(&self, session: &Session, entry: &Arc<Entry>, uri: &str) {
        loop {
            let answer = self.ask(session, "resources/subscribe", uri).await;
            let agreed = matches!(answer, Ok(Outcome::Result(_)));
            let refused = matches!(answer, Ok(Outcome::Error(_)));
            if refused {
                // The next who wants it asks anew.
                self.all().remove(uri);
            }
            entry.agreed.send_replace(Some(agreed));
            if refused {
                return;
            }
            self.until_unwanted(entry).await;
            // Also where it did not answer: it may have subscribed.
            drop(self.ask(session, "resources/unsubscribe", uri).await);
            let mut all = self.all();
            if *entry.wanted.borrow() == 0 {
                all.remove(uri);
                return;
            }
            // Somebody came meanwhile.
        }
    }

    /// Resolves when nobody listens; who comes from then on waits for what is asked next.
    async fn until_unwanted(&self, entry: &Entry) {
        let mut wanted = entry.wanted.subscribe();
        loop {
            drop(wanted.wait_for(|count| *count == 0).await);
            let _all = self.all();
            if *entry.wanted.borrow() == 0 {
                entry.agreed.send_replace(None);
                return;
            }
        }
    }

    async fn ask(&self, session: &Session, method: &str, uri: &str) -> Result<Outcome, Fault> {
        let _turn = self.turns.acquire().await;
        let params = Object::from_iter([("uri", Raw::string(uri))]);
        session.ask(method, &params).await
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// Resolves when the server has said whether it agrees; `false` also when it never will.
    pub(crate) async fn stands(&self) -> bool {
        let mut agreed = self.entry.agreed.subscribe();
        let known = agreed.wait_for(Option::is_some);
        tokio::select! {
            known = known => known.is_ok_and(|agreed| *agreed == Some(true)),
            () = self.session.table.went() => false,
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
