//! The messages of one stream, kept for a reader that may come, go and come again.
//!
//! What is written stays until it was read and room is needed: a client that lost its
//! connection names the last event it saw and gets the rest (2025-11-25: transports,
//! resumability). A ring is bounded; whoever writes for a reader that is too slow waits, and
//! while nobody reads, the oldest notifications give way. Questions and the answer never do; a
//! question that is taken back before it was read goes with what takes it back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::time::Instant;
use waypost_hub::upstream::BoxFuture;

use crate::encode::Pieces;
use crate::outlet::{Class, Outlet};

/// Messages of one stream.
const MOST: usize = 256;
/// Bytes of one stream; a single message may be larger.
const MOST_BYTES: usize = 1 << 20;

/// Bytes in all rings of the process.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// From here on nothing is kept only because somebody might ask for it again.
const SCARCE: usize = 256 << 20;

/// Whether all rings together hold so much that there should be less.
pub(crate) fn is_scarce() -> bool {
    HELD.load(Ordering::Relaxed) > SCARCE
}

/// One stream's messages.
#[derive(Debug)]
pub(crate) struct Ring {
    state: Mutex<State>,
    /// Something was read, or the reader left.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    /// The number of the last message written; the first is 1.
    last: u64,
    /// Up to here the reader has them.
    taken: u64,
    /// Which reader counts: the newest.
    turn: u64,
    attached: bool,
    waker: Option<Waker>,
    ended: Option<Instant>,
}

/// One message and its number in the stream.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) number: u64,
    pub(crate) class: Class,
    pub(crate) message: Pieces,
}

/// Reads a ring until another reader takes over.
#[derive(Debug)]
pub(crate) struct Reader {
    ring: Arc<Ring>,
    turn: u64,
    at: u64,
}

// === impl Ring ===

impl Ring {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            room: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads on after message `from`, or after what the last reader took. Ends that reader.
    pub(crate) fn read(self: &Arc<Self>, from: Option<u64>) -> Reader {
        let mut state = self.lock();
        state.turn += 1;
        state.attached = true;
        let at = from.unwrap_or(state.taken).min(state.last);
        state.taken = at;
        if let Some(earlier) = state.waker.take() {
            earlier.wake();
        }
        Reader {
            ring: Arc::clone(self),
            turn: state.turn,
            at,
        }
    }

    /// Since when nothing comes any more.
    pub(crate) fn ended(&self) -> Option<Instant> {
        self.lock().ended
    }

    /// Whether somebody reads what there is, be it the rest of an ended stream.
    pub(crate) fn is_attached(&self) -> bool {
        self.lock().attached
    }

    /// Whether nothing is left to read after message `from`, now and later.
    pub(crate) fn is_over(&self, from: u64) -> bool {
        let state = self.lock();
        state.ended.is_some() && state.items.iter().all(|item| item.number <= from)
    }

    /// Whether all there was has been read, though perhaps it did not arrive.
    pub(crate) fn is_taken(&self) -> bool {
        let state = self.lock();
        state.ended.is_some() && state.taken == state.last
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Writes without waiting. A notification that is still unread is not written twice.
    pub(crate) fn coalesce(&self, message: Pieces) {
        let mut state = self.lock();
        let taken = state.taken;
        let unread = |item: &&Item| item.number > taken;
        if state
            .items
            .iter()
            .filter(unread)
            .any(|i| i.message == message)
        {
            return;
        }
        state.make_room(true);
        state.write(Class::Note, message);
    }

    /// Writes unless it must wait for the reader.
    fn try_write(&self, class: Class, message: Pieces) -> Result<(), Pieces> {
        let mut state = self.lock();
        let forced = !state.attached;
        if !state.make_room(forced) && class == Class::Note {
            return Err(message);
        }
        state.write(class, message);
        Ok(())
    }
}

impl Outlet for Ring {
    fn send(&self, class: Class, message: Pieces) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut message = message;
            loop {
                // Asked for before looking, so that nothing is missed in between.
                let room = self.room.notified();
                match self.try_write(class, message) {
                    Ok(()) => return,
                    Err(back) => message = back,
                }
                room.await;
            }
        })
    }

    fn post(&self, class: Class, message: Pieces) {
        let mut state = self.lock();
        state.make_room(true);
        state.write(class, message);
    }

    fn offer(&self, class: Class, message: Pieces) -> bool {
        let mut state = self.lock();
        if state.ended.is_some() {
            return false;
        }
        state.make_room(true);
        state.write(class, message);
        true
    }

    fn is_read(&self) -> bool {
        let state = self.lock();
        state.attached && state.ended.is_none()
    }

    fn close(&self) {
        let mut state = self.lock();
        state.ended.get_or_insert_with(Instant::now);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

// === impl State ===

impl State {
    fn write(&mut self, class: Class, message: Pieces) {
        if self.ended.is_some() || self.is_unasked(class) {
            return;
        }
        self.last += 1;
        self.bytes += size(&message);
        HELD.fetch_add(size(&message), Ordering::Relaxed);
        self.items.push_back(Item {
            number: self.last,
            class,
            message,
        });
        if class == Class::End {
            self.ended = Some(Instant::now());
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Whether this takes back what nobody has read, which is gone then.
    fn is_unasked(&mut self, class: Class) -> bool {
        let Class::TakeBack(number) = class else {
            return false;
        };
        let taken = self.taken;
        let asked = |item: &Item| item.number > taken && item.class == Class::Ask(number);
        let at = self.items.iter().rposition(asked);
        at.map(|at| self.remove(at)).is_some()
    }

    fn remove(&mut self, at: usize) {
        if let Some(item) = self.items.remove(at) {
            self.bytes -= size(&item.message);
            HELD.fetch_sub(size(&item.message), Ordering::Relaxed);
        }
    }

    fn is_full(&self) -> bool {
        self.items.len() >= MOST || self.bytes >= MOST_BYTES
    }

    /// Drops what was read, and with `forced` the oldest notifications too, while it is full.
    fn make_room(&mut self, forced: bool) -> bool {
        let taken = self.taken;
        while self.is_full() {
            let read = |item: &Item| item.number <= taken;
            let goes = |item: &Item| read(item) || (forced && item.class == Class::Note);
            let Some(at) = self.items.iter().position(goes) else {
                return false;
            };
            self.remove(at);
        }
        true
    }
}

impl Drop for State {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn size(message: &Pieces) -> usize {
    message.iter().map(bytes::Bytes::len).sum()
}

// === impl Reader ===

impl Reader {
    /// The ring.
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// The number of the last message read.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next message; `None` at the end and once another reader took over.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let mut state = self.ring.lock();
        if state.turn != self.turn {
            return Poll::Ready(None);
        }
        let next = state.items.iter().find(|item| item.number > self.at);
        if let Some(item) = next.cloned() {
            self.at = item.number;
            state.taken = item.number;
            drop(state);
            self.ring.room.notify_waiters();
            return Poll::Ready(Some(item));
        }
        if state.ended.is_some() {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// [`Reader::poll_next`] as a future.
    pub(crate) async fn next(&mut self) -> Option<Item> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Puts the last message back, to be read again.
    pub(crate) fn unread(&mut self, item: &Item) {
        let mut state = self.ring.lock();
        if state.turn == self.turn {
            self.at = item.number.saturating_sub(1);
            state.taken = self.at;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.ring.lock();
        if state.turn == self.turn {
            state.attached = false;
            state.waker = None;
            drop(state);
            self.ring.room.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn message(text: &str) -> Pieces {
        [bytes::Bytes::from(text.to_owned())].into()
    }

    fn texts(reader: &mut Reader) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(Some(item)) = reader.next().now_or_never() {
            let bytes: Vec<u8> = item.message.iter().flatten().copied().collect();
            all.push(String::from_utf8(bytes).unwrap());
        }
        all
    }

    #[test]
    fn a_later_reader_gets_what_the_first_did_not() {
        let ring = Ring::new();
        for text in ["a", "b", "c"] {
            ring.post(Class::Note, message(text));
        }
        let mut first = ring.read(None);
        assert!(first.next().now_or_never().flatten().is_some());
        drop(first);
        assert_eq!(texts(&mut ring.read(None)), ["b", "c"]);
        assert_eq!(
            texts(&mut ring.read(Some(1))),
            ["b", "c"],
            "asked for again"
        );
        assert_eq!(texts(&mut ring.read(Some(99))), [""; 0]);
    }

    #[test]
    fn r49_the_newest_reader_wins() {
        let ring = Ring::new();
        let mut old = ring.read(None);
        assert!(old.next().now_or_never().is_none(), "waits");
        let mut new = ring.read(None);
        assert!(old.next().now_or_never().unwrap().is_none(), "is over");
        ring.post(Class::Note, message("a"));
        drop(old);
        assert_eq!(texts(&mut new), ["a"], "arrives once");
    }

    #[test]
    fn while_nobody_reads_notifications_give_way_and_the_rest_stays() {
        let ring = Ring::new();
        ring.post(Class::Ask(1), message("ask"));
        for n in 0..MOST * 2 {
            ring.post(Class::Note, message(&n.to_string()));
        }
        ring.post(Class::End, message("end"));
        let all = texts(&mut ring.read(None));
        assert!(all.len() <= MOST);
        assert_eq!(all.first().unwrap(), "ask");
        assert_eq!(all.last().unwrap(), "end");
        assert_eq!(all[all.len() - 2], (MOST * 2 - 1).to_string());
    }

    #[test]
    fn a_question_that_nobody_has_read_goes_with_what_takes_it_back() {
        let ring = Ring::new();
        let mut reader = ring.read(None);
        ring.post(Class::Ask(1), message("read"));
        assert_eq!(texts(&mut reader), ["read"]);
        for n in 2..10_000 {
            ring.post(Class::Ask(n), message("unread"));
            ring.post(Class::TakeBack(n), message("of unread"));
        }
        ring.post(Class::Ask(10_000), message("open"));
        ring.post(Class::TakeBack(1), message("of read"));
        assert_eq!(ring.bytes(), "readopenof read".len());
        assert_eq!(texts(&mut reader), ["open", "of read"]);
        assert_eq!(texts(&mut ring.read(Some(0))), ["read", "open", "of read"]);
    }

    #[tokio::test]
    async fn whoever_writes_for_a_slow_reader_waits() {
        let ring = Ring::new();
        let mut reader = ring.read(None);
        for n in 0..MOST {
            ring.send(Class::Note, message(&n.to_string())).await;
        }
        let mut write = ring.send(Class::Note, message("late"));
        assert!((&mut write).now_or_never().is_none());
        assert!(reader.next().await.is_some());
        write.await;
        // And not for ever, should it leave.
        let mut write = ring.send(Class::Note, message("later"));
        assert!((&mut write).now_or_never().is_none());
        drop(reader);
        write.await;
    }

    #[test]
    fn what_is_unread_is_not_written_twice() {
        let ring = Ring::new();
        ring.coalesce(message("changed"));
        ring.coalesce(message("changed"));
        let mut reader = ring.read(None);
        assert_eq!(texts(&mut reader), ["changed"]);
        ring.coalesce(message("changed"));
        assert_eq!(texts(&mut reader), ["changed"]);
    }
}
