//! Server-sent events, as MCP uses them.

use bytes::{Bytes, BytesMut};

/// One event. Comments and events without data are not events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event` field; `None` means `message`.
    pub kind: Option<String>,
    /// The `id` field.
    pub id: Option<String>,
    /// The `retry` field, in milliseconds.
    pub retry: Option<u64>,
    /// The `data` lines, joined by LF. Empty for id-only and priming events.
    pub data: Bytes,
}

/// What a decoder that skips gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// One larger than the limit.
    Oversized {
        /// The event without its data.
        event: Event,
        /// How the data began.
        head: Bytes,
        /// How it ended.
        tail: Bytes,
    },
}

/// How much is kept of each end of the data of an event that is skipped.
const ENDS: usize = 1024;

/// The ends of an event that is already known to be too large.
#[derive(Debug)]
struct Skipping {
    head: Bytes,
    tail: Vec<u8>,
    /// Part of the line that comes next is gone already.
    in_line: bool,
}

/// An event larger than the decoder's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {limit} bytes")]
pub struct TooLarge {
    /// What the decoder was told to allow, in bytes.
    pub limit: usize,
}

/// Turns chunks of bytes into events. How the bytes are cut does not matter.
#[derive(Debug)]
pub struct Decoder {
    /// Bytes not yet made into lines.
    buffer: BytesMut,
    /// How much of `buffer` is known to hold no line end.
    scanned: usize,
    event: Event,
    data: BytesMut,
    has_data: bool,
    limit: usize,
    skipping: Option<Skipping>,
    /// The last byte was CR: an LF right after it belongs to it.
    after_cr: bool,
    started: bool,
}

impl Decoder {
    /// A decoder that refuses an event of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            event: Event::default(),
            data: BytesMut::new(),
            has_data: false,
            limit,
            skipping: None,
            after_cr: false,
            started: false,
        }
    }

    /// Takes more bytes.
    ///
    /// # Errors
    /// [`TooLarge`] when what is held for one event exceeds the limit.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), TooLarge> {
        self.buffer.extend_from_slice(chunk);
        // An event that is complete in the buffer is judged by `next`; this bounds the rest.
        if self.buffer.len() - self.scanned > chunk.len().max(self.limit)
            || self.data.len() > self.limit
        {
            return Err(TooLarge { limit: self.limit });
        }
        Ok(())
    }

    /// The next event that is complete.
    ///
    /// # Errors
    /// [`TooLarge`] when an event exceeds the limit.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLarge> {
        while let Some(line) = self.line() {
            if line.is_empty() {
                if let Some(event) = self.dispatch() {
                    return Ok(Some(event));
                }
                continue;
            }
            self.field(&line);
            if self.data.len() > self.limit {
                return Err(TooLarge { limit: self.limit });
            }
        }
        if self.buffer.len() + self.data.len() > self.limit {
            return Err(TooLarge { limit: self.limit });
        }
        Ok(None)
    }

    /// The next event that is complete, or the ends of one that is too large: the stream goes on
    /// behind it. Not to be mixed with [`Self::next_event`], after whose error nothing follows.
    pub fn next_item(&mut self) -> Option<Item> {
        loop {
            if self.skipping.is_some() {
                return self.skip();
            }
            match self.next_event() {
                Ok(event) => return event.map(Item::Event),
                Err(TooLarge { .. }) => self.begin_skipping(),
            }
        }
    }

    /// How the data begins of an event that is too large and has not ended yet.
    pub fn skipped(&self) -> Option<&Bytes> {
        self.skipping.as_ref().map(|skipping| &skipping.head)
    }

    fn begin_skipping(&mut self) {
        // Without a line end in the buffer, a line was being read.
        let in_line = !self.buffer.is_empty() && self.scanned == self.buffer.len();
        let mut held = std::mem::take(&mut self.data);
        if in_line {
            let part = std::mem::take(&mut self.buffer);
            self.scanned = 0;
            held.extend_from_slice(data_of(&part).unwrap_or_default());
        }
        self.has_data = false;
        let mut skipping = Skipping {
            head: Bytes::copy_from_slice(held.get(..ENDS).unwrap_or(&held)),
            tail: Vec::new(),
            in_line,
        };
        skipping.note(&held);
        self.skipping = Some(skipping);
    }

    /// Reads on to the end of an event that is too large.
    fn skip(&mut self) -> Option<Item> {
        while let Some(line) = self.line() {
            let skipping = self.skipping.as_mut()?;
            if std::mem::take(&mut skipping.in_line) {
                skipping.note(&line);
            } else if line.is_empty() {
                let skipped = self.skipping.take()?;
                return Some(Item::Oversized {
                    event: std::mem::take(&mut self.event),
                    head: skipped.head,
                    tail: skipped.tail.into(),
                });
            } else if let Some(data) = data_of(&line) {
                skipping.note(data);
            } else {
                self.field(&line);
            }
        }
        let skipping = self.skipping.as_mut()?;
        // A short line may still be another field.
        if skipping.in_line || self.buffer.len() > ENDS {
            let part = std::mem::take(&mut self.buffer);
            self.scanned = 0;
            let data = if skipping.in_line {
                Some(&*part)
            } else {
                data_of(&part)
            };
            skipping.note(data.unwrap_or_default());
            skipping.in_line |= !part.is_empty();
        }
        None
    }

    fn line(&mut self) -> Option<BytesMut> {
        if self.after_cr && !self.buffer.is_empty() {
            self.after_cr = false;
            if self.buffer.first() == Some(&b'\n') {
                drop(self.buffer.split_to(1));
                self.scanned = 0;
            }
        }
        let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(at) = memchr::memchr2(b'\n', b'\r', unseen) else {
            self.scanned = self.buffer.len();
            return None;
        };
        let at = self.scanned + at;
        self.after_cr = self.buffer.get(at) == Some(&b'\r');
        let mut line = self.buffer.split_to(at + 1);
        line.truncate(at);
        self.scanned = 0;
        if !self.started {
            self.started = true;
            if line.starts_with(b"\xEF\xBB\xBF") {
                drop(line.split_to(3));
            }
        }
        Some(line)
    }

    fn field(&mut self, line: &[u8]) {
        let (name, value) = match memchr::memchr(b':', line) {
            Some(at) => line.split_at(at),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"data" => {
                if self.has_data {
                    self.data.extend_from_slice(b"\n");
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.event.kind = Some(text()),
            b"id" => self.event.id = Some(text()),
            b"retry" => self.event.retry = text().parse().ok(),
            // A comment has an empty name; other fields are to be ignored.
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        let mut event = std::mem::take(&mut self.event);
        self.has_data = false;
        event.data = self.data.split().freeze();
        let something = !event.data.is_empty() || event.id.is_some() || event.retry.is_some();
        something.then_some(event)
    }
}

impl Skipping {
    fn note(&mut self, data: &[u8]) {
        let from = data.len().saturating_sub(ENDS);
        self.tail
            .extend_from_slice(data.get(from..).unwrap_or_default());
        let surplus = self.tail.len().saturating_sub(ENDS);
        drop(self.tail.drain(..surplus));
    }
}

/// The data in a line, or in the beginning of one.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let value = line.strip_prefix(b"data:")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

/// A comment line: keeps proxies from cutting an idle stream.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// The bytes of an event with `data`; line breaks in valid JSON are white space and become spaces.
pub fn encode(data: &Bytes) -> Bytes {
    let data = crate::message::one_line(data.clone());
    let mut out = Vec::with_capacity(data.len() + 24);
    out.extend_from_slice(b"event: message\ndata: ");
    out.extend_from_slice(&data);
    out.extend_from_slice(b"\n\n");
    out.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Event> {
        let mut decoder = Decoder::new(1 << 20);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk).unwrap();
            while let Some(event) = decoder.next_event().unwrap() {
                events.push(event);
            }
        }
        events
    }

    fn data(text: &str) -> Vec<String> {
        let events = decode(std::iter::once(text.as_bytes()));
        events
            .iter()
            .map(|e| String::from_utf8(e.data.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn r29_every_line_end_is_accepted() {
        for end in ["\n", "\r\n", "\r"] {
            let text = [
                "event: message",
                "data: {\"a\":",
                "data:1}",
                "",
                ": c",
                "",
                "data: 2",
                "",
                "",
            ]
            .join(end);
            let mut want = data(&text);
            // A lone CR at the very end may be half of a CRLF: the event is given all the same.
            want.truncate(2);
            assert_eq!(want, ["{\"a\":\n1}", "2"], "{end:?}");
        }
    }

    #[test]
    fn priming_events_carry_id_and_no_data() {
        let events = decode(std::iter::once(&b"id: 7\nretry: 500\ndata:\n\n"[..]));
        let want = Event {
            kind: None,
            id: Some("7".into()),
            retry: Some(500),
            data: Bytes::new(),
        };
        assert_eq!(events, [want]);
    }

    #[test]
    fn an_endless_line_is_refused_and_bounded() {
        let mut decoder = Decoder::new(100);
        let mut refused = false;
        for _ in 0..50 {
            refused = decoder.push(b"data: xxxxxxxxxx").is_err() || decoder.next_event().is_err();
            if refused {
                break;
            }
        }
        assert!(refused);
        assert!(decoder.buffer.len() < 300);
    }

    #[test]
    fn r55_an_event_over_the_limit_leaves_its_ends_and_the_stream_goes_on() {
        for ends in ["\n", "\r\n", "\r"] {
            for size in [1, 2, 7, 100_000] {
                let long = "x".repeat(30_000);
                let text = format!(
                    "data: 1\n\nid: 4\ndata: {{\"id\":7,{long}\ndata: {long}}}\nretry: 5\n\ndata: 2\n\nid: 9\n\n"
                );
                let text = text.replace('\n', ends);
                let mut decoder = Decoder::new(10_000);
                let (mut got, mut most) = (Vec::new(), 0);
                for piece in text.as_bytes().chunks(size) {
                    decoder.push(piece).unwrap();
                    while let Some(item) = decoder.next_item() {
                        got.push(item);
                    }
                    most = most.max(decoder.buffer.len() + decoder.data.len());
                }
                let plain = |item: &Item| match item {
                    Item::Event(event) => String::from_utf8(event.data.to_vec()).unwrap(),
                    Item::Oversized { .. } => panic!("{item:?}"),
                };
                assert_eq!((plain(&got[0]), plain(&got[2])), ("1".into(), "2".into()));
                assert_eq!(got.len(), 4, "{ends:?} {size}");
                let Item::Oversized { event, head, tail } = &got[1] else {
                    panic!("{ends:?} {size}: {:?}", got[1]);
                };
                assert_eq!(event.id.as_deref(), Some("4"));
                assert_eq!(event.retry, Some(5));
                assert!(head.starts_with(b"{\"id\":7,xx"), "{size}: {head:?}");
                assert!(tail.ends_with(b"xx}"), "{size}: {tail:?}");
                assert!(most <= 10_000 + size.max(100), "{size}: {most}");
            }
        }
    }

    #[test]
    fn a_message_with_line_breaks_stays_one_event() {
        assert_eq!(
            data(std::str::from_utf8(&encode(&Bytes::from_static(b"{\n\"a\":\r\n1}"))).unwrap()),
            ["{ \"a\":  1}"]
        );
    }

    proptest! {
        #[test]
        fn chunking_does_not_matter(text in "((data|id|event): [a-zé\u{1F600}{}\":]{0,20}(\n|\r\n|\r)){0,9}\n\n", size in 1_usize..9) {
            let whole = decode(std::iter::once(text.as_bytes()));
            prop_assert_eq!(decode(text.as_bytes().chunks(size)), whole);
        }
    }
}
