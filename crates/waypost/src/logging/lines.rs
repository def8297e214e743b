//! A thread that writes lines, so that nobody else waits for whoever reads them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait. More are dropped and counted: no request waits for a log.
const QUEUE: usize = 8_192;

/// Bytes written at once, about.
const BATCH: usize = 64 * 1024;

/// Pause after what waited was written. What comes meanwhile goes out together: a wake-up and a
/// system call for each line would cost more than the line.
const BREATH: Duration = Duration::from_millis(5);

/// Longest wait at the end for the last lines to be taken.
const LAST: Duration = Duration::from_secs(1);

/// Where log lines go in.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// Waits, when dropped, until what was logged is written, but not long.
#[derive(Debug)]
#[must_use = "dropping it waits for the lines so far"]
pub(crate) struct LastLines(SyncSender<Message>);

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// Everything before it is written when this is answered.
    Mark(SyncSender<()>),
}

/// Starts the thread that writes to `out`.
pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<(Lines, LastLines)> {
    let (queue, lines) = sync_channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&dropped);
    thread::Builder::new()
        .name("waypost-log".to_owned())
        .spawn(move || write(&lines, &counted, out))?;
    let last = LastLines(queue.clone());
    Ok((Lines { queue, dropped }, last))
}

/// Writes until nobody can log any more.
fn write(lines: &Receiver<Message>, dropped: &AtomicU64, mut out: impl Write) {
    let (mut batch, mut marks) = (Vec::new(), Vec::new());
    while let Ok(first) = lines.recv() {
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => batch.extend_from_slice(&line),
                Message::Mark(mark) => marks.push(mark),
            }
            next = (batch.len() < BATCH)
                .then(|| lines.try_recv().ok())
                .flatten();
        }
        let is_behind = batch.len() >= BATCH;
        // There is nowhere left to say that nobody can read this.
        drop(out.write_all(&batch).and_then(|()| out.flush()));
        batch.clear();
        for mark in marks.drain(..) {
            // Whoever wanted to know may have stopped waiting.
            mark.try_send(()).ok();
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(
                lost,
                "log lines were dropped: standard error is read too slowly"
            );
        }
        if !is_behind {
            thread::sleep(BREATH);
        }
    }
}

impl Write for &Lines {
    /// Takes a whole line, or drops it. Never waits and never fails.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Message::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            metrics::counter!("waypost_log_lines_dropped_total").increment(1);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Drop for LastLines {
    fn drop(&mut self) {
        let until = Instant::now() + LAST;
        let (mark, written) = sync_channel(1);
        let mut message = Message::Mark(mark);
        while let Err(TrySendError::Full(back)) = self.0.try_send(message) {
            if Instant::now() >= until {
                return;
            }
            message = back;
            thread::sleep(BREATH);
        }
        let left = until.saturating_duration_since(Instant::now());
        // Late or not, this is the end.
        written.recv_timeout(left).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;

    /// Keeps what is written, once it is let.
    struct Gated {
        gate: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Open for good once the other end has gone.
            self.gate.recv().ok();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated() -> (mpsc::Sender<()>, Arc<Mutex<Vec<u8>>>, Lines, LastLines) {
        let (open, gate) = mpsc::channel();
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let out = Gated {
            gate,
            written: Arc::clone(&written),
        };
        let (lines, last) = start(out).unwrap();
        (open, written, lines, last)
    }

    #[test]
    fn who_logs_does_not_wait_for_who_reads() {
        let (open, written, lines, last) = gated();
        let sent = 2 * QUEUE + BATCH;
        for _ in 0..sent {
            (&lines).write_all(b"line\n").unwrap();
        }
        let lost = lines.dropped.load(Ordering::Relaxed);
        assert!(lost > 0);
        drop(open);
        drop(last);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(text.lines().all(|line| line == "line"), "whole lines only");
        assert_eq!(text.lines().count(), sent - usize::try_from(lost).unwrap());
    }

    #[test]
    fn the_last_lines_are_written_before_the_end() {
        let (open, written, lines, last) = gated();
        drop(open);
        (&lines).write_all(b"one\n").unwrap();
        (&lines).write_all(b"two\n").unwrap();
        drop(last);
        assert_eq!(*written.lock().unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn a_reader_that_has_stopped_does_not_hold_up_the_end_for_long() {
        let (_shut, _, lines, last) = gated();
        (&lines).write_all(b"one\n").unwrap();
        let before = Instant::now();
        drop(last);
        assert!(before.elapsed() < LAST * 5);
    }
}
