//! Answers as pieces of bytes: large values of a result are handed on as they were received
//! instead of being copied together.

use std::collections::VecDeque;

use bytes::Bytes;
use waypost_hub::reply::End;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{self, one_line};
use waypost_wire::object::{Object, write_string};

/// The bytes of one message, in order.
pub(crate) type Pieces = VecDeque<Bytes>;

/// From this size on a value is a piece of its own; below, copying it costs less than a write.
const OWN_PIECE: usize = 8 * 1024;

/// The answer to the request `id`.
pub(crate) fn end(id: &Id, end: &End) -> Pieces {
    match end {
        End::Complete(object) | End::InputRequired(object) | End::Task(object) => {
            result(id, object)
        }
        End::Error(object) => error(Some(id), object),
    }
}

/// An answer with an error.
pub(crate) fn error(id: Option<&Id>, error: &ErrorObject) -> Pieces {
    [message::encode_error(id, error)].into()
}

fn result(id: &Id, object: &Object) -> Pieces {
    if object.encoded_len() < OWN_PIECE {
        return [message::encode_result(id, object)].into();
    }
    let mut pieces = Pieces::new();
    let mut text = Vec::with_capacity(1024);
    text.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    text.extend_from_slice(id.raw().as_bytes());
    text.extend_from_slice(b",\"result\":{");
    for (index, (key, value)) in object.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        write_string(&mut text, key);
        text.push(b':');
        let value = value.as_bytes();
        if value.len() < OWN_PIECE {
            text.extend_from_slice(value);
        } else {
            pieces.push_back(std::mem::take(&mut text).into());
            pieces.push_back(value.clone());
        }
    }
    text.extend_from_slice(b"}}");
    pieces.push_back(text.into());
    pieces
}

/// Makes one server-sent event of a message.
pub(crate) fn event(message: Pieces) -> Pieces {
    const HEAD: &[u8] = b"event: message\ndata: ";
    const TAIL: &[u8] = b"\n\n";
    if message.len() == 1 {
        return message.iter().map(waypost_wire::sse::encode).collect();
    }
    let mut pieces = Pieces::with_capacity(message.len() + 2);
    pieces.push_back(Bytes::from_static(HEAD));
    // A piece ends at a token's end, so that line breaks in it are white space there as well.
    pieces.extend(message.into_iter().map(one_line));
    pieces.push_back(Bytes::from_static(TAIL));
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use waypost_wire::raw::Raw;

    use super::*;

    fn joined(pieces: &Pieces) -> Vec<u8> {
        pieces.iter().flatten().copied().collect()
    }

    #[test]
    fn a_large_value_is_passed_on_without_a_copy() {
        let large = Raw::parse(&Bytes::from(format!("\"{}\"", "x".repeat(OWN_PIECE)))).unwrap();
        let object: Object = [("a", Raw::bool(true)), ("content", large.clone())]
            .into_iter()
            .collect();
        let pieces = result(&Id::number(1), &object);
        assert!(
            pieces
                .iter()
                .any(|piece| piece.as_ptr() == large.as_bytes().as_ptr())
        );
    }

    proptest! {
        #[test]
        fn pieces_make_the_same_text(sizes in proptest::collection::vec(0_usize..20_000, 0..6)) {
            let object: Object = sizes
                .iter()
                .enumerate()
                .map(|(i, size)| (format!("k\"{i}"), Raw::string(&"é\n".repeat(size / 3))))
                .collect();
            let id = Id::number(7);
            let expected = message::encode_result(&id, &object);
            let pieces = result(&id, &object);
            prop_assert_eq!(joined(&pieces), expected.to_vec());
            prop_assert_eq!(joined(&event(pieces)), waypost_wire::sse::encode(&expected).to_vec());
        }
    }
}
