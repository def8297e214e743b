//! Tells a server that wants a session first from a call that failed.
//!
//! A child that comes back as one of the session era gets the first calls without a session, and
//! refuses them before it does anything.

use waypost_wire::code;
use waypost_wire::error::ErrorObject;

/// How such refusals begin, in small letters.
const WORDS: &[&str] = &[
    "server not initialized",
    "server is not initialized",
    "session not initialized",
    "client not initialized",
    "not initialized",
    "received request before initialization",
];

/// The codes that they have: none with a meaning of its own in the protocol.
const CODES: &[i64] = &[code::INVALID_REQUEST, -32000, -32001, -32002];

/// Whether a request is refused because there was no `initialize` before.
pub(crate) fn says_so(error: &ErrorObject) -> bool {
    let text = error.message().to_ascii_lowercase();
    let text = text.strip_prefix("bad request: ").unwrap_or(&text);
    CODES.contains(&error.code()) && WORDS.iter().any(|words| text.starts_with(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_want_of_a_session_counts() {
        let check = |code, message, expected| {
            let error = ErrorObject::new(code, message);
            assert_eq!(says_so(&error), expected, "{code} {message}");
        };
        check(-32600, "Server not initialized", true);
        check(-32000, "Bad Request: Server not initialized", true);
        check(-32002, "Not initialized yet", true);
        check(-32603, "Server not initialized", false);
        check(-32602, "Server not initialized", false);
        check(-32000, "the database server not initialized", false);
    }
}
