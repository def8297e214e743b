//! Tells a stateless server that has become one with sessions from a call that failed.
//!
//! A server of the session era refuses what belongs to no session at its door, each library in
//! words of its own, and a proxy may use the same words. So a failure is only reason to ask the
//! server anew what it is; what it says then decides.

use waypost_hub::reply::{End, Reply};
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::method;

use crate::fault::Fault;
use crate::legacy::unopened;
use crate::probe::Answered;

/// What a failure is worth once the server has turned out to want sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The call may have run.
    MayHaveRun,
    /// It was refused at the door, or does nothing that could be done twice.
    MaySendAgain,
}

impl Doubt {
    /// Whether a call of `called` that was answered so is reason to ask the server anew.
    pub(super) fn of(called: &str, answered: &Result<Answered, Fault>) -> Option<Self> {
        let refused_unread = match answered {
            Err(Fault::Status { status, .. }) if is_refusal(*status) => {
                // A 400 or a 422 may be about what was read.
                !matches!(status, 400 | 422)
            }
            Ok(answered) => Self::of_error(called, answered)?,
            Err(_) => return None,
        };
        Some(match refused_unread || only_reads(called) {
            true => Self::MaySendAgain,
            false => Self::MayHaveRun,
        })
    }

    /// Whether an error is reason, and then whether it says that the request was not taken up.
    fn of_error(called: &str, answered: &Answered) -> Option<bool> {
        let Reply::End(End::Error(error)) = &answered.reply else {
            return None;
        };
        let status = answered.status.map_or(200, |status| status.as_u16());
        let doubtful = match error.said().unwrap_or(error.code()) {
            // Servers of today say these, the last one of what is wrong with a request.
            code::HEADER_MISMATCH
            | code::MISSING_CAPABILITY
            | code::UNSUPPORTED_VERSION
            | code::INVALID_PARAMS => false,
            // What every one of them has.
            code::METHOD_NOT_FOUND => is_usual(called),
            code::INVALID_REQUEST => true,
            _ if is_refusal(status) => true,
            -32001 | -32000 => only_reads(called) || unopened::says_so(error),
            _ => false,
        };
        doubtful.then(|| is_of_the_door(error, answered, status))
    }
}

/// Whether the server certainly had not begun with the request: it did not even read its id, or
/// says that there was no `initialize`.
fn is_of_the_door(error: &ErrorObject, answered: &Answered, status: u16) -> bool {
    unopened::says_so(error) || (answered.nameless && is_refusal(status))
}

/// The statuses that a server gives which has no idea of a request.
fn is_refusal(status: u16) -> bool {
    matches!(status, 400 | 404 | 405 | 406 | 415 | 422)
}

/// Methods that every server has which is asked for them.
fn is_usual(called: &str) -> bool {
    only_reads(called) || matches!(called, method::TOOLS_CALL | method::PROMPTS_GET)
}

/// Methods that may be sent any number of times.
fn only_reads(called: &str) -> bool {
    matches!(
        called,
        method::DISCOVER
            | method::TOOLS_LIST
            | method::PROMPTS_LIST
            | method::RESOURCES_LIST
            | method::RESOURCES_READ
    )
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn check(called: &str, status: u16, code: i64, nameless: bool, expected: Option<Doubt>) {
        let error = ErrorObject::new(code, "Missing session ID");
        let answered = Answered {
            status: Some(StatusCode::from_u16(status).unwrap()),
            nameless,
            reply: Reply::error(error),
        };
        let got = Doubt::of(called, &Ok(answered));
        assert_eq!(got, expected, "{called} {status} {code} {nameless}");
    }

    const AGAIN: Option<Doubt> = Some(Doubt::MaySendAgain);
    const RAN: Option<Doubt> = Some(Doubt::MayHaveRun);

    #[test]
    fn what_no_server_of_today_says_to_a_proper_request_is_doubtful() {
        // TypeScript v1, Python v1, and one that fills the id in.
        check("tools/call", 400, -32000, true, AGAIN);
        check("tools/call", 400, -32600, true, AGAIN);
        check("tools/call", 400, -32600, false, RAN);
        check("tools/call", 200, -32601, false, RAN);
        check("tools/list", 200, -32601, false, AGAIN);
        check("tools/list", 200, -32000, false, AGAIN);
    }

    #[test]
    fn what_servers_of_today_say_is_not() {
        for code in [-32020, -32021, -32022, -32602] {
            check("tools/list", 400, code, false, None);
        }
        check("tools/call", 200, -32000, false, None);
        check("tools/call", 200, 7, false, None);
        check("completion/complete", 404, -32601, false, None);
        check("tasks/get", 404, -32601, false, None);
        check("resources/templates/list", 404, -32601, false, None);
    }

    #[test]
    fn a_status_alone_may_come_from_anything() {
        let of = |status| {
            let fault = Fault::Status {
                status,
                retry_after: None,
            };
            Doubt::of("tools/call", &Err(fault))
        };
        assert_eq!([404, 405, 406, 415].map(of), [AGAIN; 4]);
        assert_eq!([400, 422].map(of), [RAN; 2]);
        assert_eq!([401, 403, 429, 500, 502].map(of), [None; 5]);
        assert_eq!(Doubt::of("tools/call", &Err(Fault::Closed)), None);
    }
}
