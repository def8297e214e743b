//! A connection whose peer has to take what it asked for, and is missed when it leaves.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Between two looks at whether a peer has left of which nothing is read.
const LOOK: Duration = Duration::from_secs(1);

/// Something of which one can see, without reading it to its end, that its peer has left.
pub(super) trait Leaves {
    /// Whether no more will come than is there already.
    fn has_left(&self) -> bool;
}

/// Fails a write of which the peer takes nothing for too long: one that stopped reading would
/// otherwise hold its connection, its call and what waits for it for ever.
///
/// Fails also when the peer has left behind bytes that nobody reads: behind a request that is
/// being answered, the HTTP side reads nothing once there is more, and would not notice.
///
/// There are timers only while a write waits or nothing is read, so ordinary traffic costs
/// nothing.
#[derive(Debug)]
pub(super) struct Patient<T> {
    io: T,
    limit: Duration,
    /// When the write that waits is given up. Kept for the next one that has to wait.
    timer: Option<Pin<Box<Sleep>>>,
    waits: bool,
    /// Set whenever the peer takes something.
    takes: Arc<AtomicBool>,
    /// A read waits for more, and so would see the end.
    reads: bool,
    /// When it is looked for next.
    look: Option<Pin<Box<Sleep>>>,
}

impl<T> Patient<T> {
    pub(super) fn new(io: T, limit: Duration) -> Self {
        Self {
            io,
            limit,
            timer: None,
            waits: false,
            takes: Arc::default(),
            reads: true,
            look: None,
        }
    }

    /// Set whenever the peer takes something.
    pub(super) fn takes(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.takes)
    }

    /// What becomes of a write that ended so.
    fn judge(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waits = false;
            self.takes.store(true, Ordering::Relaxed);
            return written;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !self.waits {
            self.waits = true;
            timer.as_mut().reset(Instant::now() + limit);
        }
        timer
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        self.reads = read.is_pending();
        read
    }
}

impl<T: AsyncWrite + Leaves + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.misses(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<T: Leaves> Patient<T> {
    /// Whether the peer has left while nothing was read; looked at again after a while.
    fn misses(&mut self, cx: &mut Context<'_>) -> bool {
        if self.reads {
            self.look = None;
            return false;
        }
        loop {
            let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
            if look.as_mut().poll(cx).is_pending() {
                return false;
            }
            if self.io.has_left() {
                return true;
            }
            self.look = None;
        }
    }
}

impl Leaves for TcpStream {
    fn has_left(&self) -> bool {
        let ready = self.ready(Interest::READABLE).now_or_never();
        matches!(ready, Some(Ok(ready)) if ready.is_read_closed())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    impl Leaves for tokio::io::DuplexStream {
        fn has_left(&self) -> bool {
            false
        }
    }

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn r74_a_peer_that_takes_nothing_fails_the_write() {
        let (ours, _theirs) = duplex(16);
        let mut ours = Patient::new(ours, LIMIT);
        let before = Instant::now();
        let error = ours.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(before.elapsed(), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn r74_a_slow_peer_is_waited_for_while_it_takes_something() {
        let (ours, mut theirs) = duplex(16);
        let mut ours = Patient::new(ours, LIMIT);
        let before = Instant::now();
        let slow = async {
            let mut piece = [0; 20];
            for _ in 0..5 {
                sleep(LIMIT - Duration::from_secs(1)).await;
                theirs.read_exact(&mut piece).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[0; 100]), slow);
        written.unwrap();
        assert!(before.elapsed() > LIMIT * 4);
    }
}
