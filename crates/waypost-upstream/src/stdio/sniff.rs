//! Guesses whose answer a line was that cannot be read.
//!
//! Such a line must fail its call rather than let it wait for its timeout. A server that lies here
//! fails a call of its own.

use waypost_wire::error::Malformed;
use waypost_wire::id::Id;
use waypost_wire::line;
use waypost_wire::message::Unreadable;

/// Whose answer a whole message was meant to be.
pub(crate) fn whose(unreadable: &Unreadable, text: &[u8]) -> Option<u64> {
    match (&unreadable.id, &unreadable.reason) {
        // JSON, but none of the protocol's: a log line with an `id` is no answer.
        (
            _,
            Malformed::Wrong {
                member: "jsonrpc", ..
            }
            | Malformed::NotObject,
        ) => None,
        (Some(own), _) => number(own),
        (None, _) => id(text, text),
    }
}

/// The id of a response, from the first and the last bytes of its line.
pub(crate) fn id(head: &[u8], tail: &[u8]) -> Option<u64> {
    number(&line::id(head, tail)?)
}

/// Ours are numbers.
fn number(id: &Id) -> Option<u64> {
    id.as_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_where_servers_put_them() {
        let check = |text: &str, expected| {
            assert_eq!(id(text.as_bytes(), text.as_bytes()), expected, "{text}")
        };
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"id":9,"#, Some(7));
        check(r#"{"id": 7, "jsonrpc": "2.0", "result":{}"#, Some(7));
        check(r#"{"result":{"id":9},"jsonrpc":"2.0","id":7}"#, Some(7));
        check(
            r#"{"result":{"id":9}, "id": 7, "jsonrpc": "2.0" }"#,
            Some(7),
        );
        check(r#"{"jsonrpc":"2.0","method":"a","params":{"id":7}}"#, None);
        check(r#"{"level":"info","id":7}"#, None);
        check(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, Some(7));
        check(r#"{"jsonrpc":"2.0","id":"a7","result":{}}"#, None);
        check("Server v1.0 running", None);
    }
}
