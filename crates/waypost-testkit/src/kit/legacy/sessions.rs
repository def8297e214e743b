//! The sessions of a server, and what tests want to know about them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::session::Session;

/// The sessions of one server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Sessions {
    inner: Arc<Mutex<Inner>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    live: HashMap<String, Arc<Session>>,
    opened: usize,
    deleted: usize,
    gets: usize,
    early: usize,
    outside: Vec<Value>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            inner: Arc::default(),
            changed: watch::channel(0).0,
        }
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// How many were ever opened by `initialize`.
    pub fn opened(&self) -> usize {
        self.lock().opened
    }

    /// How many DELETEs ended one.
    pub fn deleted(&self) -> usize {
        self.lock().deleted
    }

    /// How many are open.
    pub fn live(&self) -> usize {
        self.lock().live.len()
    }

    /// How many GETs came, whatever they got.
    pub fn gets(&self) -> usize {
        self.lock().gets
    }

    /// How many requests came before `notifications/initialized` was accepted.
    pub fn early(&self) -> usize {
        self.lock().early
    }

    /// What clients answered to questions outside of any call, whole messages.
    pub fn outside(&self) -> Vec<Value> {
        self.lock().outside.clone()
    }

    /// Forgets every session, as a restart does: their streams end, their ids are unknown.
    pub fn forget_all(&self) {
        let all = self.change(|inner| std::mem::take(&mut inner.live));
        for session in all.values() {
            session.end();
        }
    }

    /// Waits until `done` holds; `false` when it does not within ten seconds.
    pub async fn wait_for(&self, done: impl Fn(&Self) -> bool + Send) -> bool {
        let mut changed = self.changed.subscribe();
        let wait = async {
            while !done(self) {
                if changed.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(Duration::from_secs(10), wait)
            .await
            .unwrap_or(false)
    }

    pub(super) fn open(&self, session: &Arc<Session>) {
        self.change(|inner| {
            inner.opened += 1;
            inner.live.insert(session.id.clone(), Arc::clone(session));
        });
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().live.get(id).cloned()
    }

    /// Ends a session at its client's wish.
    pub(super) fn delete(&self, session: &Session) {
        self.change(|inner| {
            if inner.live.remove(&session.id).is_some() {
                inner.deleted += 1;
            }
        });
        session.end();
    }

    /// Ends a session whose connection is gone.
    pub(super) fn close(&self, session: &Session) {
        self.change(|inner| inner.live.remove(&session.id));
        session.end();
    }

    pub(super) fn keep_outside(&self, answer: Value) {
        self.change(|inner| inner.outside.push(answer));
    }

    pub(super) fn count_get(&self) {
        self.change(|inner| inner.gets += 1);
    }

    pub(super) fn count_early(&self) {
        self.change(|inner| inner.early += 1);
    }
}
