//! A connection of HTTP/2 on whose way out the streams are counted that were reset.
//!
//! The library ends a connection that had too many of its streams reset, with everything else on
//! it, and tells nobody how many there were.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

/// Bytes before each frame (RFC 9113, section 4.1).
const HEAD: usize = 9;

/// The type of `RST_STREAM` (section 6.4).
const RST_STREAM: u8 = 3;

/// Cancels a token once so many streams were reset.
#[derive(Debug)]
pub(super) struct Resets<T> {
    io: T,
    frames: Frames,
    left: usize,
    enough: CancellationToken,
}

/// Where in the frames what is written has got to.
#[derive(Debug, Default)]
struct Frames {
    head: Vec<u8>,
    /// Of the frame that is being written.
    payload: usize,
}

impl<T> Resets<T> {
    pub(super) fn new(io: T, most: usize, enough: CancellationToken) -> Self {
        Self {
            io,
            frames: Frames::default(),
            left: most,
            enough,
        }
    }

    fn wrote(&mut self, bytes: &[u8]) {
        let resets = self.frames.resets(bytes);
        if resets == 0 || self.left == 0 {
            return;
        }
        self.left = self.left.saturating_sub(resets);
        if self.left == 0 {
            self.enough.cancel();
        }
    }
}

impl Frames {
    /// How many of the frames whose heads end in these bytes reset a stream.
    fn resets(&mut self, mut bytes: &[u8]) -> usize {
        let mut resets = 0;
        while !bytes.is_empty() {
            let wanted = match self.payload {
                0 => HEAD - self.head.len(),
                payload => payload,
            };
            let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.payload > 0 {
                self.payload -= part.len();
                continue;
            }
            self.head.extend_from_slice(part);
            if let [a, b, c, kind, _, _, _, _, _] = *self.head {
                resets += usize::from(kind == RST_STREAM);
                self.payload = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.head.clear();
            }
        }
        resets
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Resets<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Resets<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.wrote(bytes.get(..count).unwrap_or_default());
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        if let Poll::Ready(Ok(mut left)) = written {
            for piece in pieces {
                let count = left.min(piece.len());
                self.wrote(piece.get(..count).unwrap_or_default());
                left -= count;
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_found_wherever_the_pieces_end() {
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let data = [0, 0, 3, 0, 1, 0, 0, 0, 1, 3, 3, 3];
        let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8];
        let all = [&settings[..], &reset, &data, &reset, &settings].concat();
        for size in 1..=all.len() {
            let mut frames = Frames::default();
            let resets: usize = all.chunks(size).map(|part| frames.resets(part)).sum();
            assert_eq!(resets, 2, "pieces of {size}");
        }
    }
}
