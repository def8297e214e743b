//! A stream of messages that can be read again from any place.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

/// How many delivered messages can be read once more.
const KEEP: usize = 256;
/// How many may wait for a reader that does not come.
const WAITING: usize = 10_000;

/// Messages in order, numbered from 1; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Log {
    inner: Arc<Mutex<Inner>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Value>,
    /// How many were dropped from the front.
    dropped: u64,
    delivered: u64,
    ended: bool,
    /// Readers opened before the latest cut end.
    cuts: u64,
}

/// One reading of a log.
#[derive(Debug)]
pub(super) struct Reader {
    log: Log,
    /// The number of the last message read.
    at: u64,
    cuts: u64,
    changed: watch::Receiver<u64>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            inner: Arc::default(),
            changed: watch::channel(0).0,
        }
    }
}

impl Inner {
    fn last(&self) -> u64 {
        self.dropped + length(&self.entries)
    }

    fn trim(&mut self) {
        let delivered = self.delivered.saturating_sub(self.dropped);
        let surplus = usize::try_from(delivered)
            .unwrap_or(usize::MAX)
            .saturating_sub(KEEP)
            .max(self.entries.len().saturating_sub(WAITING));
        for _ in 0..surplus {
            if self.entries.pop_front().is_some() {
                self.dropped += 1;
            }
        }
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    pub(super) fn push(&self, message: Value) {
        self.change(|inner| {
            inner.entries.push_back(message);
            inner.trim();
        });
    }

    /// Nothing comes after what is there.
    pub(super) fn end(&self) {
        self.change(|inner| inner.ended = true);
    }

    /// Ends every reader, not the log.
    pub(super) fn cut(&self) {
        self.change(|inner| inner.cuts += 1);
    }

    /// Reads on after message `after`; without one after what was delivered before.
    pub(super) fn read(&self, after: Option<u64>) -> Reader {
        let changed = self.changed.subscribe();
        let inner = self.lock();
        Reader {
            log: self.clone(),
            at: after.unwrap_or(inner.delivered),
            cuts: inner.cuts,
            changed,
        }
    }
}

impl Reader {
    /// The number of the last message read.
    pub(super) fn place(&self) -> u64 {
        self.at
    }

    /// The next message and its number; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<(u64, Value)> {
        loop {
            if let Some(found) = self.look() {
                return found;
            }
            self.changed.changed().await.ok()?;
        }
    }

    /// The message there is; `Some(None)` at the end; `None` while there is none yet.
    fn look(&mut self) -> Option<Option<(u64, Value)>> {
        let mut inner = self.log.lock();
        if inner.cuts > self.cuts {
            return Some(None);
        }
        self.at = self.at.max(inner.dropped);
        if self.at < inner.last() {
            let place = usize::try_from(self.at - inner.dropped).unwrap_or(usize::MAX);
            let message = inner.entries.get(place).cloned()?;
            self.at += 1;
            inner.delivered = inner.delivered.max(self.at);
            inner.trim();
            return Some(Some((self.at, message)));
        }
        inner.ended.then_some(None)
    }
}

fn length(entries: &VecDeque<Value>) -> u64 {
    u64::try_from(entries.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn what_was_read_can_be_read_again_from_its_number() {
        let log = Log::default();
        log.push(json!("a"));
        log.push(json!("b"));
        log.end();
        let mut first = log.read(None);
        assert_eq!(first.next().await, Some((1, json!("a"))));
        let mut second = log.read(None);
        assert_eq!(second.next().await, Some((2, json!("b"))));
        assert_eq!(second.next().await, None);
        let mut again = log.read(Some(1));
        assert_eq!(again.next().await, Some((2, json!("b"))));
    }

    #[tokio::test]
    async fn a_cut_ends_readers_and_not_the_log() {
        let log = Log::default();
        let mut before = log.read(None);
        log.cut();
        log.push(json!("a"));
        assert_eq!(before.next().await, None);
        assert_eq!(log.read(None).next().await, Some((1, json!("a"))));
    }

    #[tokio::test]
    async fn only_the_most_recent_of_the_delivered_are_kept() {
        let log = Log::default();
        let mut reader = log.read(None);
        for number in 0..1000 {
            log.push(json!(number));
            assert!(reader.next().await.is_some());
        }
        let kept = log.read(Some(0)).next().await.map(|(at, _)| at);
        assert!(kept.is_some_and(|at| at > 700), "{kept:?}");
    }
}
