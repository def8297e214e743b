//! Tells a server that wants no sessions any more from a call that failed.
//!
//! Such a server reads a request of a session as one of its own protocol and misses what every
//! one of those carries (specification: base protocol, `_meta`). It refuses it before it does
//! anything.

use waypost_wire::code;
use waypost_wire::error::ErrorObject;

use crate::door::is_about_a_hop;

/// The names of what is missed, in small letters and without what is between their words.
const MISSED: &[&str] = &["protocolversion", "clientcapabilities"];

/// Whether `initialize` is refused as only a server of the other era does.
pub(crate) fn refuses_sessions(error: &ErrorObject) -> bool {
    is_about_a_hop(error.code()) || says_so(error, false)
}

/// Whether a request of a session is refused as only a server of the other era does.
/// `at_the_door` where the refusal itself says that nothing ran (HTTP 400): elsewhere a server of
/// the session era may mean by a code what it likes.
pub(crate) fn says_so(error: &ErrorObject, at_the_door: bool) -> bool {
    match error.code() {
        code if is_about_a_hop(code) => at_the_door,
        code::INVALID_PARAMS | code::INVALID_REQUEST => {
            let text = error.message().to_ascii_lowercase();
            let words = text.replace([' ', '-'], "");
            // Tools may want something of `_meta` too, but never these.
            text.contains("_meta")
                && (at_the_door || MISSED.iter().any(|missed| words.contains(missed)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: i64, message: &str, elsewhere: bool, at_the_door: bool) {
        let error = ErrorObject::new(code, message);
        assert_eq!(says_so(&error, false), elsewhere, "{message}");
        assert_eq!(says_so(&error, true), at_the_door, "{message}");
    }

    #[test]
    fn only_what_a_session_never_needs_counts() {
        for code in [-32020, -32022] {
            check(code, "whatever", false, true);
            assert!(refuses_sessions(&ErrorObject::new(code, "whatever")));
        }
        let key = "`_meta` needs `io.modelcontextprotocol/protocolVersion`";
        check(-32602, key, true, true);
        check(-32600, "missing client capabilities in _meta", true, true);
        check(-32602, "_meta: required", false, true);
        check(-32602, "`_meta.tenant` is required", false, true);
        check(-32602, "unknown protocolVersion", false, false);
        check(-32603, key, false, false);
    }
}
