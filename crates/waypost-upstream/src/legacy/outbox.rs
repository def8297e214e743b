//! What a session has to tell its server beside requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::exchange::Exchange;

/// A server that asks faster than it takes answers gets no more of them.
const MOST: usize = 1024;

/// What must be told has room of its own: the server works on for nothing where it is not.
const MOST_URGENT: usize = 4096;

/// Messages to be sent; putting one in never waits.
#[derive(Debug)]
pub(crate) struct Outbox {
    words: Mutex<VecDeque<Word>>,
    wake: Notify,
    /// What tells the server to stop something, until it has been told. Always closed, that who
    /// waits need not close it.
    stops: TaskTracker,
}

/// One message that is no request which somebody waits for.
#[derive(Debug)]
pub(crate) struct Word {
    pub(crate) message: Bytes,
    /// The call that waits for the server to have it.
    pub(crate) about: Option<Arc<Exchange>>,
    /// It tells the server to stop something.
    pub(crate) stops: bool,
    /// Held until it was told, where it `stops`.
    pub(crate) untold: Option<TaskTrackerToken>,
}

impl Default for Outbox {
    fn default() -> Self {
        let stops = TaskTracker::new();
        stops.close();
        Self {
            words: Mutex::default(),
            wake: Notify::new(),
            stops,
        }
    }
}

impl Outbox {
    /// Adds one; `false` when there is no room.
    pub(crate) fn put(&self, mut word: Word) -> bool {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = words.iter().filter(|other| other.stops == word.stops);
        if alike.count() >= (if word.stops { MOST_URGENT } else { MOST }) {
            return false;
        }
        word.untold = word.stops.then(|| self.stops.token());
        words.push_back(word);
        drop(words);
        self.wake.notify_one();
        true
    }

    /// Waits until there is nothing that the server is yet to be told to stop.
    pub(crate) async fn stopped(&self) {
        self.stops.wait().await;
    }

    /// The first that may go now; what ends work that no queued word is about, before all others.
    pub(crate) async fn next(&self, may_go: impl Fn(&Word) -> bool) -> Word {
        loop {
            let woken = self.wake.notified();
            let next = {
                let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
                let ends = |word: &Word| word.stops && word.about.is_none();
                let first = words.iter().position(|word| ends(word) && may_go(word));
                let at = first.or_else(|| words.iter().position(&may_go));
                at.and_then(|at| words.remove(at))
            };
            match next {
                Some(word) => return word,
                None => woken.await,
            }
        }
    }
}
