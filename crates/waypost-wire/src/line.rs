//! Messages on a pipe, one a line (specification: transports, stdio): cut without a bound on how
//! they are chunked and with one on how much is held.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::id::Id;
use crate::raw::Raw;

/// Room made for each read.
const READ: usize = 64 * 1024;

/// Shorter lines are copied out, so that a small message does not keep a whole buffer alive.
const COPY: usize = 16 * 1024;

/// How much is kept of each end of a line that is too long: its id is in one of them.
const ENDS: usize = 1024;

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// All of it.
    Whole(Bytes),
    /// Longer than the limit; only its ends are known.
    TooLong {
        /// Its first bytes.
        head: Bytes,
        /// Its last bytes; both overlap in a line that is hardly longer than what is kept.
        tail: Bytes,
    },
}

/// The bytes read so far that are not yet lines.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// How much of `buffer` is known to hold no line end.
    scanned: usize,
    limit: usize,
    skipping: Option<Skipping>,
}

/// The ends of a line that is already known to be too long.
#[derive(Debug)]
struct Skipping {
    head: Bytes,
    tail: Vec<u8>,
}

impl Lines {
    /// Lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            limit,
            skipping: None,
        }
    }

    /// Where the next bytes go; there is room.
    pub fn space(&mut self) -> &mut BytesMut {
        self.buffer.reserve(READ);
        &mut self.buffer
    }

    /// The next line that is complete.
    pub fn next_line(&mut self) -> Option<Line> {
        let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(at) = memchr::memchr(b'\n', unseen) else {
            self.scanned = self.buffer.len();
            if self.scanned > self.limit || self.skipping.is_some() {
                self.skip(self.scanned);
            }
            return None;
        };
        let length = self.scanned + at;
        self.scanned = 0;
        if length > self.limit || self.skipping.is_some() {
            self.skip(length);
            self.buffer.advance(1);
            return self.skipping.take().map(Line::from);
        }
        let line = if length < COPY {
            let line = Bytes::copy_from_slice(self.buffer.get(..length).unwrap_or_default());
            self.buffer.advance(length + 1);
            line
        } else {
            let line = self.buffer.split_to(length).freeze();
            self.buffer.advance(1);
            line
        };
        Some(Line::Whole(line))
    }

    /// What was written after the last line end, when nothing more will come.
    pub fn rest(&mut self) -> Option<Line> {
        self.scanned = 0;
        let rest = self.buffer.split().freeze();
        match self.skipping.take() {
            Some(skipping) => Some(skipping.into()),
            None if rest.is_empty() => None,
            None => Some(Line::Whole(rest)),
        }
    }

    /// Forgets `length` bytes of the line, but for its ends.
    fn skip(&mut self, length: usize) {
        let part = self.buffer.split_to(length);
        self.scanned = 0;
        if self.buffer.is_empty() {
            // Gives back what the line has taken so far.
            self.buffer = BytesMut::new();
        }
        let ends = |from: usize, to: usize| part.get(from..to).unwrap_or_default();
        let skipping = self.skipping.get_or_insert_with(|| Skipping {
            head: Bytes::copy_from_slice(ends(0, ENDS.min(length))),
            tail: Vec::new(),
        });
        skipping
            .tail
            .extend_from_slice(ends(length.saturating_sub(ENDS), length));
        let surplus = skipping.tail.len().saturating_sub(ENDS);
        skipping.tail.drain(..surplus);
    }
}

impl From<Skipping> for Line {
    fn from(skipping: Skipping) -> Self {
        Self::TooLong {
            head: skipping.head,
            tail: skipping.tail.into(),
        }
    }
}

/// Guesses the id of a message of which only the first and the last bytes are known: that of a
/// line that is too long, or broken. Who lies here spoils a request of their own.
pub fn id(head: &[u8], tail: &[u8]) -> Option<Id> {
    let envelope = before_body(head);
    in_head(envelope).or_else(|| in_tail(envelope, tail))
}

/// Guesses whether a message of which the first bytes are known is a notification.
pub fn is_notification(head: &[u8]) -> bool {
    has_method(head) && in_head(before_body(head)).is_none()
}

/// Guesses whether a message of which the first bytes are known is no response.
pub fn has_method(head: &[u8]) -> bool {
    let find = |key: &[u8]| memchr::memmem::find(head, key).unwrap_or(usize::MAX);
    find(b"\"method\"") < find(b"\"result\"").min(find(b"\"error\""))
}

/// What is known to belong to the envelope: all before the first member of another kind.
fn before_body(head: &[u8]) -> &[u8] {
    let body = [
        &b"\"result\""[..],
        b"\"error\"",
        b"\"params\"",
        b"\"method\"",
    ]
    .iter()
    .filter_map(|key| memchr::memmem::find(head, key))
    .min()
    .unwrap_or(head.len());
    head.get(..body).unwrap_or_default()
}

/// `{"jsonrpc":"2.0","id":7,"result":…`
fn in_head(envelope: &[u8]) -> Option<Id> {
    memchr::memmem::find(envelope, b"\"jsonrpc\"")?;
    let at = memchr::memmem::find(envelope, b"\"id\"")?;
    Some(value(envelope.get(at + 4..)?)?.0)
}

/// `…,"jsonrpc":"2.0","id":7}`, `…,"id":7,"jsonrpc":"2.0"}`, or `…,"id":7}` where it began with
/// `{"jsonrpc":"2.0",`: what the last brace closes is the message.
fn in_tail(envelope: &[u8], tail: &[u8]) -> Option<Id> {
    let at = memchr::memmem::rfind(tail, b"\"id\"")?;
    let (id, rest) = value(tail.get(at + 4..)?)?;
    let rest: Vec<u8> = rest
        .iter()
        .copied()
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    let before = [tail, envelope]
        .iter()
        .any(|text| memchr::memmem::find(text, b"\"jsonrpc\"").is_some());
    match &*rest {
        b"}" if before => Some(id),
        b",\"jsonrpc\":\"2.0\"}" => Some(id),
        _ => None,
    }
}

/// `: 7` or `: "a"`, and what follows it.
fn value(text: &[u8]) -> Option<(Id, &[u8])> {
    let text = text
        .trim_ascii_start()
        .strip_prefix(b":")?
        .trim_ascii_start();
    let end = match text.strip_prefix(b"\"") {
        // One with escapes is not guessed at.
        Some(inner) => memchr::memchr2(b'"', b'\\', inner)? + 2,
        None => text.iter().position(|b| !matches!(b, b'-' | b'0'..=b'9'))?,
    };
    let raw = Raw::parse(&Bytes::copy_from_slice(text.get(..end)?)).ok()?;
    let rest = text.get(end..)?;
    // `1.5` is no id.
    matches!(rest.trim_ascii_start().first(), Some(b',' | b'}'))
        .then_some((Id::new(raw).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r55_ids_are_found_where_peers_put_them() {
        let check = |text: &str, expected: Option<&str>| {
            let found = id(text.as_bytes(), text.as_bytes());
            let found = found.as_ref().map(|id| id.raw().text());
            assert_eq!(found, expected, "{text}");
        };
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"id":9,"#, Some("7"));
        check(r#"{"id": "a", "jsonrpc": "2.0", "method":"#, Some("\"a\""));
        check(r#"{"method":"m","jsonrpc":"2.0","id":-1}"#, Some("-1"));
        check(
            r#"{"params":{"id":9},"id":"x","jsonrpc":"2.0"}"#,
            Some("\"x\""),
        );
        check(r#"{"jsonrpc":"2.0","result":{"id":9},"id":7}"#, Some("7"));
        check(r#"{"jsonrpc":"2.0","result":{"a":[{"id":9}]}}"#, None);
        check(r#"{"jsonrpc":"2.0","id":"a\"b","method":"m"}"#, None);
        check(r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, None);
        check(r#"{"jsonrpc":"2.0","method":"a","params":{"id":7}}"#, None);
    }

    #[test]
    fn a_notification_is_known_by_how_it_begins() {
        let check = |text: &str, expected| {
            assert_eq!(is_notification(text.as_bytes()), expected, "{text}");
        };
        check(r#"{"jsonrpc":"2.0","method":"n","params":{"result":"#, true);
        check(r#"{"method":"n","jsonrpc":"2.0","params":{"result":"#, true);
        check(r#"{"jsonrpc":"2.0","id":1,"method":"n","params":{"#, false);
        check(r#"{"jsonrpc":"2.0","result":{"method":"n","#, false);
        check(r#"{"jsonrpc":"2.0","id":1,"result":{"#, false);
    }

    #[test]
    fn r55_an_id_behind_the_result_is_found_although_only_the_ends_are_known() {
        let mut input = br#"{"jsonrpc":"2.0","result":{"content":[{"text":""#.to_vec();
        input.resize(50_000, b'y');
        input.extend(b"\"}]},\"id\":7}\n");
        let (got, _) = cut(&input, 4096, 10_000);
        let Line::TooLong { head, tail } = &got[0] else {
            panic!("{got:?}");
        };
        assert_eq!(id(head, tail), Some(Id::number(7)));
    }

    /// All lines of `input` fed in pieces of `size`, and the most bytes held between them.
    fn cut(input: &[u8], size: usize, limit: usize) -> (Vec<Line>, usize) {
        let mut lines = Lines::new(limit);
        let (mut got, mut most) = (Vec::new(), 0);
        for piece in input.chunks(size) {
            lines.space().extend_from_slice(piece);
            while let Some(line) = lines.next_line() {
                got.push(line);
            }
            most = most.max(lines.buffer.len());
        }
        got.extend(lines.rest());
        (got, most)
    }

    fn whole(text: &str) -> Line {
        Line::Whole(Bytes::from(text.to_owned()))
    }

    #[test]
    fn r54_how_the_bytes_are_cut_does_not_matter() {
        let long = "語🦀".repeat(4000);
        let input = format!("a\n\nb\r\n{long}\nlast");
        for size in [1, 3, 7, 4096, 100_000] {
            let (got, _) = cut(input.as_bytes(), size, 1 << 20);
            let expected = [
                whole("a"),
                whole(""),
                whole("b\r"),
                whole(&long),
                whole("last"),
            ];
            assert_eq!(got, expected, "{size}");
        }
    }

    #[test]
    fn r55_a_line_at_the_limit_passes_and_one_over_it_never_does() {
        let input = format!("{}\n{}\nz\n", "x".repeat(100), "y".repeat(101));
        for size in [1, 33, 1000] {
            let (got, _) = cut(input.as_bytes(), size, 100);
            assert_eq!(got[0], whole(&"x".repeat(100)), "{size}");
            let Line::TooLong { head, tail } = &got[1] else {
                panic!("{got:?}");
            };
            assert!(head.starts_with(b"y") && tail.ends_with(b"y"));
            assert_eq!(got[2], whole("z"));
        }
    }

    #[test]
    fn r55_an_endless_line_keeps_only_its_ends() {
        let mut input = b"{\"id\":1,".to_vec();
        input.resize(3_000_000, b'x');
        input.extend(b"END}\n{}\n");
        let (got, most) = cut(&input, 4096, 10_000);
        let Line::TooLong { head, tail } = &got[0] else {
            panic!("{}", got.len());
        };
        assert!(head.starts_with(b"{\"id\":1,x") && tail.ends_with(b"xEND}"));
        assert_eq!((head.len(), tail.len()), (ENDS, ENDS));
        assert_eq!(got[1], whole("{}"));
        assert!(most < 20_000, "{most}");
    }
}
