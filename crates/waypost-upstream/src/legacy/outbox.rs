//! What a session has to tell its server beside requests, in order.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

/// A server that asks faster than it takes answers gets no more of them.
const MOST: usize = 1024;

/// Messages to be sent; putting one in never waits.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    messages: Mutex<VecDeque<Bytes>>,
    wake: Notify,
}

impl Outbox {
    /// Adds one; `false` when there is no room.
    pub(crate) fn put(&self, message: Bytes) -> bool {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() >= MOST {
            return false;
        }
        messages.push_back(message);
        drop(messages);
        self.wake.notify_one();
        true
    }

    /// The next one.
    pub(crate) async fn next(&self) -> Bytes {
        loop {
            let woken = self.wake.notified();
            let next = {
                let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
                messages.pop_front()
            };
            match next {
                Some(message) => return message,
                None => woken.await,
            }
        }
    }
}
