//! Guesses whose answer a line was that cannot be read.
//!
//! Such a line must fail its call rather than let it wait for its timeout. A server that lies here
//! fails a call of its own.

use waypost_wire::error::Malformed;
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
        (Some(own), _) => own.raw().as_i64().and_then(|id| u64::try_from(id).ok()),
        (None, _) => id(text, text),
    }
}

/// The id of a response, from the first and the last bytes of its line.
pub(crate) fn id(head: &[u8], tail: &[u8]) -> Option<u64> {
    in_head(head).or_else(|| in_tail(tail))
}

/// `{"jsonrpc":"2.0","id":7,"result":…`
fn in_head(head: &[u8]) -> Option<u64> {
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
    let envelope = head.get(..body)?;
    memchr::memmem::find(envelope, b"\"jsonrpc\"")?;
    let at = memchr::memmem::find(envelope, b"\"id\"")?;
    Some(number(envelope.get(at + 4..)?)?.0)
}

/// `…,"jsonrpc":"2.0","id":7}` or `…,"id":7,"jsonrpc":"2.0"}`
fn in_tail(tail: &[u8]) -> Option<u64> {
    let at = memchr::memmem::rfind(tail, b"\"id\"")?;
    let (id, rest) = number(tail.get(at + 4..)?)?;
    let rest: Vec<u8> = rest
        .iter()
        .copied()
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    let before = memchr::memmem::rfind(tail, b"\"jsonrpc\"").is_some();
    match &*rest {
        b"}" if before => Some(id),
        b",\"jsonrpc\":\"2.0\"}" => Some(id),
        _ => None,
    }
}

/// `: 7` and what follows it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text
        .trim_ascii_start()
        .strip_prefix(b":")?
        .trim_ascii_start();
    let end = text.iter().position(|b| !b.is_ascii_digit())?;
    let digits = std::str::from_utf8(text.get(..end)?).ok()?;
    Some((digits.parse().ok()?, text.get(end..)?))
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
        check(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, None);
        check("Server v1.0 running", None);
    }
}
