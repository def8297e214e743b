//! What the host sends, line by line.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use waypost_wire::id::Id;
use waypost_wire::line::{self, Lines};

/// One line that is not empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// What should be a message.
    Message(Bytes),
    /// More than is taken.
    TooLong {
        /// Its id, if that could be told.
        id: Option<Id>,
        /// Whether it answers a question of ours.
        answer: bool,
    },
}

/// Reads lines.
#[derive(Debug)]
pub(crate) struct Input<R> {
    from: R,
    lines: Lines,
    over: bool,
}

impl<R: AsyncRead + Unpin> Input<R> {
    /// Lines of at most `limit` bytes.
    pub(crate) fn new(from: R, limit: usize) -> Self {
        Self {
            from,
            lines: Lines::new(limit),
            over: false,
        }
    }

    /// The next line; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Line> {
        loop {
            let line = match self.lines.next_line() {
                Some(line) => line,
                None if self.over => return None,
                None => match self.from.read_buf(self.lines.space()).await {
                    Ok(1..) => continue,
                    Ok(0) | Err(_) => {
                        self.over = true;
                        self.lines.rest()?
                    }
                },
            };
            match line {
                line::Line::Whole(line) if line.trim_ascii().is_empty() => {}
                line::Line::Whole(line) => return Some(Line::Message(line)),
                line::Line::TooLong { head, tail } => return Some(too_long(&head, &tail)),
            }
        }
    }
}

fn too_long(head: &[u8], tail: &[u8]) -> Line {
    const METHOD: &[u8] = b"\"method\"";
    let has = |text: &[u8]| text.windows(METHOD.len()).any(|part| part == METHOD);
    Line::TooLong {
        id: line::id(head, tail),
        answer: !has(head) && !has(tail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn empty_lines_are_passed_over_and_the_last_needs_no_end() {
        let text = "\n{\"a\":1}\r\n   \n\n語".as_bytes();
        let mut input = Input::new(text, 100);
        let mut got = Vec::new();
        while let Some(line) = input.next().await {
            got.push(line);
        }
        let message = |text: &'static str| Line::Message(Bytes::from(text));
        assert_eq!(got, [message("{\"a\":1}\r"), message("語")]);
    }

    #[tokio::test]
    async fn r55_a_line_that_is_too_long_tells_whose_it_is() {
        let long = "x".repeat(3000);
        let text = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"m\",\"params\":{{\"x\":\"{long}\"}}}}\n\
             {{\"result\":{{\"x\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":7}}\nend\n"
        );
        let mut input = Input::new(text.as_bytes(), 1000);
        for (id, answer) in [("\"a\"", false), ("7", true)] {
            let Some(Line::TooLong {
                id: Some(found),
                answer: is,
            }) = input.next().await
            else {
                panic!("{id}")
            };
            assert_eq!((found.raw().text(), is), (id, answer));
        }
        assert_eq!(input.next().await, Some(Line::Message(Bytes::from("end"))));
        assert_eq!(input.next().await, None);
    }
}
