//! The standard error stream of a child: logged, and its end kept for when the child dies.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;
use tokio::time::Instant;

use super::redact::Redactor;

/// Lines kept for an error message.
const TAIL_LINES: usize = 8;
/// Characters kept of each.
const TAIL_WIDTH: usize = 200;
/// Bytes read of one line before it is cut.
const LINE: usize = 8 * 1024;
/// Lines logged in each [`WINDOW`]; what is more is counted.
const BURST: u32 = 20;
const WINDOW: Duration = Duration::from_secs(1);

/// The last lines of the stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    /// The lines as one text, oldest first.
    pub(crate) fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Vec::from_iter(lines.iter().map(String::as_str)).join(" | ")
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Reads the stream to its end.
pub(crate) async fn drain(
    mut stderr: ChildStderr,
    upstream: &str,
    redactor: &Redactor,
    tail: &Tail,
) {
    let mut log = Log::new(upstream);
    let mut line = Vec::new();
    let mut chunk = vec![0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
        for byte in chunk.iter().take(read) {
            match byte {
                b'\n' => take(&mut line, redactor, tail, &mut log),
                _ if line.len() < LINE => line.push(*byte),
                // The rest of a line this long helps nobody.
                _ => {}
            }
        }
    }
    take(&mut line, redactor, tail, &mut log);
    log.summary();
}

fn take(line: &mut Vec<u8>, redactor: &Redactor, tail: &Tail, log: &mut Log<'_>) {
    let text = redactor.clean(line, TAIL_WIDTH);
    line.clear();
    if !text.is_empty() {
        log.line(&text);
        tail.push(text);
    }
}

/// Writes lines to the log, but not a flood of them.
struct Log<'a> {
    upstream: &'a str,
    since: Instant,
    lines: u32,
}

impl<'a> Log<'a> {
    fn new(upstream: &'a str) -> Self {
        Self {
            upstream,
            since: Instant::now(),
            lines: 0,
        }
    }

    fn line(&mut self, text: &str) {
        if self.since.elapsed() >= WINDOW {
            self.summary();
            self.since = Instant::now();
            self.lines = 0;
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines <= BURST {
            tracing::info!(upstream = self.upstream, text, "stderr");
        }
    }

    fn summary(&self) {
        let dropped = self.lines.saturating_sub(BURST);
        if dropped > 0 {
            tracing::info!(
                upstream = self.upstream,
                dropped,
                "more stderr than is logged"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Written {
        type Writer = Self;
        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    impl Written {
        fn count(&self, what: &str) -> usize {
            let written = self.0.lock().unwrap();
            let text = String::from_utf8_lossy(&written);
            text.lines().filter(|line| line.contains(what)).count()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_logged_in_part_and_counted() {
        let written = Written::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(written.clone())
            .with_ansi(false)
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let mut log = Log::new("u");
        for _ in 0..BURST + 5 {
            log.line("much");
        }
        let most = usize::try_from(BURST).unwrap();
        assert_eq!(written.count("much"), most);
        assert_eq!(written.count("dropped"), 0);
        tokio::time::advance(WINDOW).await;
        log.line("more of it");
        assert_eq!(written.count("dropped=5"), 1);
        assert_eq!(written.count("more of it"), 1);
        log.summary();
        assert_eq!(written.count("dropped"), 1, "nothing was dropped since");
    }
}
