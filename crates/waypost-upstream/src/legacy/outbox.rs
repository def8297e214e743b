//! What a session has to tell its server beside requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::exchange::Exchange;

/// A server that asks faster than it takes answers gets no more of them.
const MOST: usize = 1024;

/// Messages to be sent; putting one in never waits.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    words: Mutex<VecDeque<Word>>,
    wake: Notify,
}

/// One message that is no request which somebody waits for.
#[derive(Debug)]
pub(crate) struct Word {
    pub(crate) message: Bytes,
    /// The call that waits for the server to have it.
    pub(crate) about: Option<Arc<Exchange>>,
}

impl Outbox {
    /// Adds one; `false` when there is no room.
    pub(crate) fn put(&self, word: Word) -> bool {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() >= MOST {
            return false;
        }
        words.push_back(word);
        drop(words);
        self.wake.notify_one();
        true
    }

    /// The first that may go now.
    pub(crate) async fn next(&self, may_go: impl Fn(&Word) -> bool) -> Word {
        loop {
            let woken = self.wake.notified();
            let next = {
                let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
                let at = words.iter().position(&may_go);
                at.and_then(|at| words.remove(at))
            };
            match next {
                Some(word) => return word,
                None => woken.await,
            }
        }
    }
}
