//! Messages on their way to the host.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use waypost_wire::message::one_line;

use crate::encode::Pieces;
use crate::outlet::Class;

/// Messages that wait for the host before their senders do.
const MOST: usize = 256;
/// Their bytes; a single message may be larger.
const MOST_BYTES: usize = 1 << 20;

/// Smaller pieces are written together.
const TOGETHER: usize = 16 * 1024;

/// The one queue of a pipe, or of a stream that is one to its client. A host that does not read makes senders wait, then the reader of its
/// requests: what waits here never grows without bound.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    filled: Notify,
    room: Notify,
    gone: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<(Class, Pieces)>,
    bytes: usize,
    /// The first is being written.
    writing: bool,
    closed: bool,
}

impl State {
    fn is_full(&self) -> bool {
        self.queue.len() >= MOST || self.bytes >= MOST_BYTES
    }

    /// Whether this takes back what is not being written yet, which is gone then.
    fn is_unasked(&mut self, class: Class) -> bool {
        let Class::TakeBack(number) = class else {
            return false;
        };
        let asked = |(class, _): &(Class, Pieces)| *class == Class::Ask(number);
        let at = self.queue.iter().rposition(asked);
        let at = at.filter(|at| *at > 0 || !self.writing);
        let Some((_, message)) = at.and_then(|at| self.queue.remove(at)) else {
            return false;
        };
        self.bytes -= size(&message);
        true
    }
}

impl Outbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            filled: Notify::new(),
            room: Notify::new(),
            gone: CancellationToken::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends, and waits while the host is too slow.
    pub(crate) async fn send(&self, message: Pieces) {
        self.send_as(Class::Note, message).await;
    }

    /// The same of something that may be taken back.
    pub(crate) async fn send_as(&self, class: Class, message: Pieces) {
        self.until(|state| !state.is_full()).await;
        self.push(class, message);
    }

    /// Sends without waiting; a notification that finds no room is lost.
    pub(crate) fn post(&self, class: Class, message: Pieces) {
        if class == Class::Note && self.lock().is_full() {
            return;
        }
        self.push(class, message);
    }

    /// Waits until another request may be taken: those that are answered and wait here with
    /// their answers hold no place among the ones in flight.
    pub(crate) async fn room_for_more(&self) {
        self.until(|state| !state.is_full()).await;
    }

    /// Waits until `fine`, or nobody reads any more.
    async fn until(&self, fine: impl Fn(&State) -> bool) {
        loop {
            // Asked for before looking, so that nothing is missed in between.
            let room = self.room.notified();
            if fine(&self.lock()) {
                return;
            }
            tokio::select! {
                () = room => {}
                () = self.gone.cancelled() => return,
            }
        }
    }

    fn push(&self, class: Class, message: Pieces) {
        if self.gone.is_cancelled() {
            return;
        }
        let mut state = self.lock();
        if state.closed {
            return;
        }
        if state.is_unasked(class) {
            drop(state);
            return self.room.notify_waiters();
        }
        state.bytes += size(&message);
        state.queue.push_back((class, message));
        drop(state);
        self.filled.notify_one();
    }

    /// Nothing more is taken; what is there is still written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// Nothing is written any more.
    pub(crate) fn give_up(&self) {
        self.gone.cancel();
    }

    /// Returns once nothing is written any more: all was, or the host is gone.
    pub(crate) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// Takes the next message out, for the one who carries them in place of [`Outbox::run`]; `None`
    /// once it is closed and empty, or nobody reads any more.
    pub(crate) async fn next(&self) -> Option<Pieces> {
        loop {
            {
                let mut state = self.lock();
                if let Some((_, message)) = state.queue.pop_front() {
                    state.bytes -= size(&message);
                    drop(state);
                    self.room.notify_waiters();
                    return Some(message);
                }
                if state.closed {
                    return None;
                }
            }
            tokio::select! {
                () = self.filled.notified() => {}
                () = self.gone.cancelled() => return None,
            }
        }
    }

    /// Writes what is sent, one message a line, until it is closed and empty.
    pub(crate) async fn run(&self, mut to: impl AsyncWrite + Unpin) {
        let all = self.gone.run_until_cancelled(self.write_all(&mut to)).await;
        if let Some(Err(error)) = all {
            tracing::debug!(%error, "cannot write to the host");
        }
        self.gone.cancel();
    }

    async fn write_all(&self, to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        loop {
            let (next, closed) = {
                let mut state = self.lock();
                let next = state.queue.front().map(|(_, message)| message.clone());
                state.writing = next.is_some();
                (next, state.closed)
            };
            match next {
                Some(message) => {
                    let size = size(&message);
                    write(to, message).await?;
                    let mut state = self.lock();
                    // It counted until now, for it was held until now.
                    state.queue.pop_front();
                    state.writing = false;
                    state.bytes -= size;
                    drop(state);
                    self.room.notify_waiters();
                }
                None if closed => return to.shutdown().await,
                None => {
                    to.flush().await?;
                    self.filled.notified().await;
                }
            }
        }
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), message: Pieces) -> std::io::Result<()> {
    let mut text = Vec::with_capacity(1024);
    // A piece ends at a token's end, so that line breaks in it are white space there as well.
    for piece in message.into_iter().map(one_line) {
        if piece.len() < TOGETHER {
            text.extend_from_slice(&piece);
            continue;
        }
        to.write_all(&text).await?;
        text.clear();
        to.write_all(&piece).await?;
    }
    text.push(b'\n');
    to.write_all(&text).await
}

fn size(message: &Pieces) -> usize {
    message.iter().map(Bytes::len).sum()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn message(text: &str) -> Pieces {
        [Bytes::from(text.to_owned())].into()
    }

    #[tokio::test]
    async fn each_message_is_one_line_whatever_its_breaks() {
        let outbox = Outbox::new();
        outbox.post(Class::End, message("{\r\n\"a\":1}"));
        let pieces = [
            Bytes::from("[\n".to_owned()),
            Bytes::from(format!("\"{}\"\n", "x".repeat(TOGETHER))),
            Bytes::from("]"),
        ];
        outbox.send(pieces.into()).await;
        outbox.close();
        let mut to = std::io::Cursor::new(Vec::new());
        outbox.run(&mut to).await;
        let text = String::from_utf8(to.into_inner()).unwrap();
        let expected = format!("{{  \"a\":1}}\n[ \"{}\" ]\n", "x".repeat(TOGETHER));
        assert_eq!(text, expected);
    }

    #[tokio::test]
    async fn whoever_sends_to_a_slow_host_waits_and_notes_give_way() {
        let outbox = Outbox::new();
        for n in 0..MOST {
            outbox.send(message(&n.to_string())).await;
        }
        let mut late = Box::pin(outbox.send(message("late")));
        assert!((&mut late).now_or_never().is_none());
        outbox.post(Class::Note, message("lost"));
        outbox.post(Class::End, message("kept"));
        assert_eq!(outbox.lock().queue.len(), MOST + 1);
        let (to, mut from) = tokio::io::duplex(64);
        let writer = outbox.run(to);
        let reader = async {
            let mut text = String::new();
            tokio::io::AsyncReadExt::read_to_string(&mut from, &mut text)
                .await
                .unwrap();
            text
        };
        let rest = async {
            late.await;
            outbox.close();
        };
        let ((), text, ()) = tokio::join!(writer, reader, rest);
        assert!(text.contains("\nkept\n") && text.contains("\nlate\n"));
        assert!(!text.contains("lost"));
    }

    #[tokio::test]
    async fn a_question_that_was_not_written_goes_with_what_takes_it_back() {
        let outbox = Outbox::new();
        let long = "x".repeat(100);
        outbox.send_as(Class::Ask(1), message(&long)).await;
        outbox.send_as(Class::Ask(2), message("never")).await;
        let (to, mut from) = tokio::io::duplex(64);
        let mut writer = Box::pin(outbox.run(to));
        assert!((&mut writer).now_or_never().is_none(), "in the midst");
        outbox.post(Class::TakeBack(1), message("taken back"));
        outbox.post(Class::TakeBack(2), message("nor this"));
        assert_eq!(outbox.lock().bytes, long.len() + "taken back".len());
        outbox.close();
        let mut text = String::new();
        let read = tokio::io::AsyncReadExt::read_to_string(&mut from, &mut text);
        let ((), read) = tokio::join!(writer, read);
        read.unwrap();
        assert_eq!(text, format!("{long}\ntaken back\n"));
    }

    #[tokio::test]
    async fn a_host_that_left_holds_nobody_up() {
        let outbox = Outbox::new();
        let (to, from) = tokio::io::duplex(64);
        drop(from);
        for n in 0..MOST {
            outbox.send(message(&n.to_string())).await;
        }
        let late = outbox.send(message("late"));
        tokio::join!(outbox.run(to), late);
        outbox.gone().await;
    }
}
