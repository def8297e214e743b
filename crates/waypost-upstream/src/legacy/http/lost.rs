//! Tells a session that is gone from a call that failed.
//!
//! A call may be repeated in a new session only when it certainly did not run. What servers say
//! then differs: the specification's 404 needs no reading; some send 400, and some an error in a
//! 200, with codes that they use for other things too. Only there do words decide.

use bytes::Bytes;
use http::StatusCode;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{Message, Outcome};

/// How servers in use begin to say it, in small letters. Seen with the SDKs for TypeScript
/// ("Server not initialized", "Mcp-Session-Id header is required") and the servers of its
/// examples ("No valid session ID provided"), Python ("Missing session ID"), Go ("session not
/// found", "Invalid session ID") and Java ("Session ID required"; "Session not found").
const WORDS: &[&str] = &[
    "session not found",
    "session id not found",
    "no valid session",
    "invalid session",
    "invalid or missing session",
    "missing session id",
    "missing mcp-session-id",
    "mcp-session-id header is required",
    "session id required",
    "session id is required",
    "unknown session",
    "session expired",
    "session has expired",
    "session terminated",
    "session has been terminated",
    "session does not exist",
    "session not initialized",
    "server not initialized",
];

/// The codes that such an error has at HTTP 200: none with a meaning of its own.
pub(super) const CODES: &[i64] = &[code::INVALID_REQUEST, -32000, -32001];

/// A plain body that says something says it within this.
const PLAIN: usize = 1024;

/// What may follow them: all else is about a session of another kind, which some tools have too.
const FILLERS: &[&str] = &[
    "again",
    "and",
    "expired",
    "for",
    "has",
    "header",
    "id",
    "in",
    "initialize",
    "is",
    "mcp",
    "missing",
    "not",
    "or",
    "please",
    "provided",
    "reinitialize",
    "request",
    "required",
    "session",
    "the",
    "this",
];

/// Whether this response refuses the request `id` because the session is gone. `session` is what
/// the request named.
pub(super) fn refused(
    status: StatusCode,
    session: Option<&str>,
    id: Option<u64>,
    body: &Bytes,
) -> bool {
    let Some(session) = session else { return false };
    let error = match response(body) {
        // Whoever has read the request may have done what it says.
        Some((Some(of), error)) if id.is_some() && of.as_number() == id => {
            let refusal = matches!(status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST);
            return refusal && says_so(&error, session);
        }
        Some((_, error)) => Some(error),
        None => None,
    };
    match status {
        // Whatever stands in it, but for a server that says so of a method.
        StatusCode::NOT_FOUND => error.is_none_or(|e| e.code() != code::METHOD_NOT_FOUND),
        StatusCode::BAD_REQUEST => match error {
            Some(error) => has_words(&error.message()),
            None => has_words(&String::from_utf8_lossy(body.get(..PLAIN).unwrap_or(body))),
        },
        _ => false,
    }
}

/// Whether the answer to a request that named `session` refuses it because that is gone.
/// Stricter: an answer to a call that ran looks the same.
pub(super) fn says_so(error: &ErrorObject, session: &str) -> bool {
    let text = error.message().to_ascii_lowercase();
    let text = text.strip_prefix("bad request: ").unwrap_or(&text);
    let Some(rest) = WORDS.iter().find_map(|words| text.strip_prefix(words)) else {
        return false;
    };
    let rest = match session {
        "" => rest.to_owned(),
        session => rest.replace(&session.to_ascii_lowercase(), ""),
    };
    let mut rest = rest.split(|c: char| !c.is_alphanumeric());
    CODES.contains(&error.code()) && rest.all(|word| word.is_empty() || FILLERS.contains(&word))
}

fn response(body: &Bytes) -> Option<(Option<Id>, ErrorObject)> {
    match Message::parse(body) {
        Ok(Message::Response(id, Outcome::Error(error))) => Some((id, error)),
        _ => None,
    }
}

fn has_words(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    WORDS.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, named: bool, body: &str, expected: bool) {
        let status = StatusCode::from_u16(status).unwrap();
        let body_ = Bytes::from(body.to_owned());
        let got = refused(status, named.then_some("s-1"), Some(7), &body_);
        assert_eq!(got, expected, "{status} {named} {body}");
    }

    fn body(id: &str, code: i64, message: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
    }

    #[test]
    fn r2_not_found_counts_whatever_is_in_it_when_a_session_was_named() {
        check(404, true, "", true);
        check(404, true, "<h1>404</h1>", true);
        check(404, true, &body("null", -32001, "weg"), true);
        check(
            404,
            false,
            &body("null", -32001, "Session not found"),
            false,
        );
        check(404, true, &body("7", -32601, "tools/list"), false);
    }

    #[test]
    fn r2_a_bad_request_counts_when_it_says_so() {
        let typescript = "Bad Request: Server not initialized";
        check(400, true, &body("null", -32000, typescript), true);
        let python = "Bad Request: No valid session ID provided";
        check(400, true, &body("\"server-error\"", -32600, python), true);
        check(400, true, "Invalid session ID\n", true);
        check(400, true, &body("7", -32602, "Invalid arguments"), false);
        check(400, true, "Bad Request", false);
        check(500, true, "Session not found", false);
    }

    #[test]
    fn a_refusal_that_names_the_request_counts_only_when_it_can_mean_nothing_else() {
        for status in [400, 404] {
            let sure = "Bad Request: No valid session ID provided";
            check(status, true, &body("7", -32000, sure), true);
            let tool = "Session not found: tab-7";
            check(status, true, &body("7", -32001, tool), false);
            check(status, true, &body("8", -32001, tool), true);
            check(status, true, &body("null", -32001, tool), true);
            check(status, false, &body("null", -32001, tool), false);
        }
        check(404, true, &body("7", -32002, "no such page"), false);
    }

    #[test]
    fn an_error_in_an_answer_counts_only_with_a_code_of_its_own() {
        let check = |code, message, expected| {
            let error = ErrorObject::new(code, message);
            assert_eq!(says_so(&error, "S-1"), expected, "{message}");
        };
        check(-32001, "Session not found", true);
        check(-32001, "Session not found: s-1", true);
        check(-32000, "Invalid or missing session ID.", true);
        check(-32600, "Bad Request: Missing session ID", true);
        check(-32001, "Session not found: tab-7", false);
        check(-32000, "Unknown session of the browser", false);
        check(-32603, "Session not found", false);
        check(-32000, "the chat's session not found", false);
        check(-32000, "Connection closed", false);
    }
}
