//! Event ids: where in which stream of a session a client is (2025-11-25: transports,
//! resumability).
//!
//! An id also says which request its stream answers. What is in flight is lost with a process that
//! is killed; a client that comes back to another one for the answer is told so, instead of waiting
//! for ever. It tells nobody anything new: the client chose the request's id.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use waypost_wire::id::Id;
use waypost_wire::raw::Raw;

/// Longer ids of requests are not repeated with every event.
const MOST_CALL: usize = 128;

/// What an event id says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of one life of the session, in one process.
    pub(crate) mark: u32,
    /// Of the stream; 0 is the standing one.
    pub(crate) number: u64,
    /// The last message that was seen.
    pub(crate) at: u64,
    /// The request that is still to be answered on the stream.
    pub(crate) call: Option<Id>,
}

/// Makes the event ids of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    stem: String,
    call: String,
}

impl Place {
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let mut parts = id.splitn(4, '-');
        Some(Self {
            mark: u32::from_str_radix(parts.next()?, 16).ok()?,
            number: parts.next()?.parse().ok()?,
            at: parts.next()?.parse().ok()?,
            call: match parts.next() {
                Some(text) => Some(call(text)?),
                None => None,
            },
        })
    }
}

fn call(text: &str) -> Option<Id> {
    let text = URL_SAFE_NO_PAD.decode(text).ok()?;
    Id::new(Raw::parse(&Bytes::from(text)).ok()?).ok()
}

impl Marks {
    /// Ids for the stream with this number, which is to bring the answer to `call`.
    pub(crate) fn new(mark: u32, number: u64, call: Option<&Id>) -> Self {
        let call = call.map(|call| call.raw().as_bytes());
        let call = call.filter(|call| call.len() <= MOST_CALL);
        Self {
            stem: format!("{mark:08x}-{number}-"),
            call: call.map_or_else(String::new, |call| {
                format!("-{}", URL_SAFE_NO_PAD.encode(call))
            }),
        }
    }

    /// The id of a message; after the `last` one nothing is to be answered any more.
    pub(crate) fn at(&self, at: u64, last: bool) -> String {
        let call = if last { "" } else { &*self.call };
        format!("{}{at}{call}", self.stem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &'static str) -> Id {
        Id::new(Raw::parse(&Bytes::from_static(text.as_bytes())).unwrap()).unwrap()
    }

    #[test]
    fn an_event_id_names_its_place_and_what_is_to_be_answered() {
        for call in [None, Some("7"), Some("\"a-b\""), Some("\"???>>>~~~\"")] {
            let call = call.map(id);
            let marks = Marks::new(0x00c0_ffee, 12, call.as_ref());
            let place = Place {
                mark: 0x00c0_ffee,
                number: 12,
                at: 3,
                call,
            };
            assert_eq!(Place::parse(&marks.at(3, false)), Some(place.clone()));
            let answered = Place {
                call: None,
                ..place
            };
            assert_eq!(Place::parse(&marks.at(3, true)), Some(answered));
        }
        let long = format!("\"{}\"", "x".repeat(MOST_CALL));
        let long = Id::new(Raw::parse(&Bytes::from(long)).unwrap()).unwrap();
        let marks = Marks::new(1, 1, Some(&long));
        assert_eq!(marks.at(1, false), "00000001-1-1");
        for odd in [
            "",
            "1",
            "zz-1-1",
            "00c0ffee--1",
            "00c0ffee-1-1-",
            "00c0ffee-1-1-!",
            "00c0ffee-1-1-e30",
        ] {
            assert_eq!(Place::parse(odd), None, "{odd}");
        }
    }
}
