//! Stateless calls in the words of a session, and answers of a session in today's words.

use waypost_hub::call::Call;
use waypost_hub::reply::End;
use waypost_wire::code;
use waypost_wire::error::{ErrorObject, Malformed};
use waypost_wire::message::Outcome;
use waypost_wire::meta::{META, PROGRESS_TOKEN};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{CACHE_SCOPE, TTL_MS, ensure_complete};

use crate::fault::Fault;

/// For how many milliseconds a list may be cached. The servers of that era announce changes, or
/// have none.
const LIST_TTL: u64 = 60_000;

/// The params as they go out: without what only the stateless protocol says in each request.
pub(crate) fn params(call: &Call) -> Object {
    let mut params = call.params.clone();
    params.remove("inputResponses");
    params.remove("requestState");
    let mut meta = call.meta.rest.clone();
    if let Some(token) = &call.meta.progress_token {
        meta.set(PROGRESS_TOKEN, token.clone());
    }
    if !meta.is_empty() {
        params.set(META, meta.into());
    }
    params
}

/// The end that an answer stands for.
pub(crate) fn end(called: &str, outcome: Outcome) -> Result<End, Fault> {
    let raw = match outcome {
        Outcome::Error(error) => return Ok(End::Error(refusal(called, &error))),
        Outcome::Result(raw) => raw,
    };
    if !raw.is_object() {
        return Err(Fault::Malformed(Malformed::Wrong {
            member: "result",
            expected: "an object",
        }));
    }
    let mut result = raw.as_object().map_err(Fault::Malformed)?;
    ensure_complete(&mut result);
    if let Some(ttl) = ttl(called) {
        result.set(TTL_MS, Raw::from_serialize(&ttl));
        result.set(CACHE_SCOPE, Raw::string("private"));
    }
    Ok(End::Complete(result))
}

/// How long what this method answers may be cached; `None` where nothing says so.
fn ttl(called: &str) -> Option<u64> {
    match called {
        method::TOOLS_LIST
        | method::PROMPTS_LIST
        | method::RESOURCES_LIST
        | method::RESOURCES_TEMPLATES_LIST => Some(LIST_TTL),
        method::RESOURCES_READ => Some(0),
        _ => None,
    }
}

/// The error under a code that means the same today. It keeps the server's own for clients that
/// know what that means.
pub(super) fn refusal(called: &str, error: &ErrorObject) -> ErrorObject {
    error.meaning(match error.code() {
        // Of anything but a resource it is a code of the server's own.
        code::FORMER_RESOURCE_NOT_FOUND if called == method::RESOURCES_READ => code::INVALID_PARAMS,
        // These have meanings today that no server of that era can have meant.
        -32099..=-32020 => code::INTERNAL_ERROR,
        code => code,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[track_caller]
    fn check(called: &str, result: &'static str, expected: &str) {
        let raw = Raw::parse(&Bytes::from_static(result.as_bytes())).unwrap();
        let Ok(End::Complete(got)) = end(called, Outcome::Result(raw)) else {
            panic!("{result}");
        };
        assert_eq!(Raw::from(got).text(), expected);
    }

    #[test]
    fn results_get_what_today_s_schema_wants() {
        check(
            "tools/call",
            r#"{"content":[],"n":1.0}"#,
            r#"{"content":[],"n":1.0,"resultType":"complete"}"#,
        );
        check(
            "tools/list",
            r#"{"tools":[]}"#,
            r#"{"tools":[],"resultType":"complete","ttlMs":60000,"cacheScope":"private"}"#,
        );
        check(
            "resources/read",
            r#"{"contents":[],"resultType":"task"}"#,
            r#"{"contents":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#,
        );
    }

    #[test]
    fn codes_mean_today_what_they_meant() {
        let codes = [-32002, -32021, -32601, 7];
        let read = |called| {
            codes.map(
                |code| match end(called, Outcome::Error(ErrorObject::new(code, "m"))) {
                    Ok(End::Error(error)) => {
                        assert_eq!(error.said(), Some(code));
                        error.code()
                    }
                    other => panic!("{other:?}"),
                },
            )
        };
        assert_eq!(read("resources/read"), [-32602, -32603, -32601, 7]);
        assert_eq!(read("tools/call"), [-32002, -32603, -32601, 7]);
    }

    #[test]
    fn a_request_says_only_what_a_session_knows() {
        let mut call = Call::own("tools/call", Object::new());
        call.params.set("name", Raw::string("t"));
        call.params.set("requestState", Raw::string("s"));
        assert_eq!(Raw::from(params(&call)).text(), r#"{"name":"t"}"#);
        call.meta.progress_token = Some(Raw::from_serialize(&7));
        call.meta.rest.set("traceparent", Raw::string("00-x"));
        let expected = r#"{"name":"t","_meta":{"traceparent":"00-x","progressToken":7}}"#;
        assert_eq!(Raw::from(params(&call)).text(), expected);
    }
}
