//! The standard output of a child: messages, and what only looks like them.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;
use waypost_wire::line::{Line, Lines};
use waypost_wire::message::Message;

use super::child::Child;
use super::sniff;
use crate::ear::Heard;
use crate::event::StrayLine;
use crate::fault::Fault;

impl Child {
    /// Reads the process's messages until there are no more.
    pub(super) async fn read(&self, mut stdout: ChildStdout) {
        let mut lines = Lines::new(self.limit);
        while let Ok(1..) = stdout.read_buf(lines.space()).await {
            while let Some(line) = lines.next_line() {
                self.line(line);
            }
        }
        if let Some(line) = lines.rest() {
            self.line(line);
        }
    }

    fn line(&self, line: Line) {
        let line = match line {
            Line::Whole(line) => line,
            Line::TooLong { head, tail } => {
                let fault = Fault::TooLarge { limit: self.limit };
                return self.spoiled(sniff::id(&head, &tail), &head, fault);
            }
        };
        if line.trim_ascii().is_empty() {
            return;
        }
        match Message::parse(&line) {
            Ok(message) => self.ear().hear(Heard::aloud(message)),
            Err(unreadable) => {
                let id = sniff::whose(&unreadable, &line);
                self.spoiled(id, &line, Fault::Malformed(unreadable.reason));
            }
        }
    }

    /// A line that cannot be read fails the call that it answers, if that can be told.
    fn spoiled(&self, id: Option<u64>, line: &Bytes, fault: Fault) {
        let first = !self.warned.swap(true, Ordering::Relaxed);
        let sample = if first {
            self.redactor.clean(line.get(..2048).unwrap_or(line), 120)
        } else {
            String::new()
        };
        StrayLine {
            upstream: self.upstream(),
            sample: first.then_some(&sample),
        }
        .emit();
        if let Some(id) = id {
            self.ear().spoiled(id, fault);
        }
    }
}
