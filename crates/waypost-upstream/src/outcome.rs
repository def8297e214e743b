//! From a JSON-RPC response to the end of a call.

use waypost_hub::reply::{End, Reply};
use waypost_wire::code;
use waypost_wire::error::{ErrorObject, Malformed};
use waypost_wire::message::Outcome;
use waypost_wire::object::Object;
use waypost_wire::result::ResultType;

use crate::fault::Fault;

/// The end that a response stands for. Only `resultType` decides: some servers add members of one
/// kind of result to another.
pub(crate) fn end(outcome: Outcome) -> Result<End, Fault> {
    let raw = match outcome {
        Outcome::Error(error) => return Ok(End::Error(refusal(error))),
        Outcome::Result(raw) => raw,
    };
    if !raw.is_object() {
        return Err(Fault::Malformed(Malformed::Wrong {
            member: "result",
            expected: "an object",
        }));
    }
    of_result(raw.as_object().map_err(Fault::Malformed)?)
}

/// The same of a result that has been read.
pub(crate) fn of_result(result: Object) -> Result<End, Fault> {
    match ResultType::of(&result) {
        ResultType::Complete => Ok(End::Complete(result)),
        ResultType::InputRequired => Ok(End::InputRequired(result)),
        ResultType::Task => Ok(End::Task(result)),
        ResultType::Unknown => Err(Fault::ResultType),
    }
}

/// The answer to a call about a task of a process or session that is gone.
pub(crate) fn unknown_task() -> Reply {
    Reply::error(ErrorObject::new(code::INVALID_PARAMS, "unknown task"))
}

/// The error under a code that means today what the server means: some libraries speak the
/// stateless protocol and still send the code that a missing resource had before.
fn refusal(error: ErrorObject) -> ErrorObject {
    match error.code() {
        code::FORMER_RESOURCE_NOT_FOUND => error.with_code(code::INVALID_PARAMS),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use waypost_wire::raw::Raw;

    use super::*;

    #[track_caller]
    fn check(result: &'static str, expected: &str) {
        let raw = Raw::parse(&Bytes::from_static(result.as_bytes())).unwrap();
        let got = match end(Outcome::Result(raw)) {
            Ok(End::Complete(_)) => "complete".to_owned(),
            Ok(End::InputRequired(_)) => "input".to_owned(),
            Ok(End::Task(_)) => "task".to_owned(),
            Ok(End::Error(_)) => "error".to_owned(),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(got, expected, "{result}");
    }

    #[test]
    fn only_the_result_type_decides() {
        check(r#"{"content":[],"taskId":"t"}"#, "complete");
        check(
            r#"{"resultType":"complete","inputRequests":{}}"#,
            "complete",
        );
        check(r#"{"resultType":"task","content":[]}"#, "task");
        check(r#"{"resultType":"input_required"}"#, "input");
        check(r#"{"resultType":"partial"}"#, "unknown `resultType`");
        check(r#"{"resultType":null}"#, "unknown `resultType`");
        let not = "the answer is not valid: `result` must be an object";
        check("[]", not);
        check("null", not);
    }

    #[test]
    fn r72_a_missing_resource_has_the_code_of_today() {
        let text =
            r#"{"code":-32002,"message":"no such file","data":{"uri":"file:///x", "n":1.0}}"#;
        let raw = Raw::parse(&Bytes::from_static(text.as_bytes())).unwrap();
        let error = ErrorObject::parse(&raw).unwrap();
        let Ok(End::Error(error)) = end(Outcome::Error(error)) else {
            panic!("no error")
        };
        assert_eq!(error.code(), -32602);
        assert_eq!(error.message(), "no such file");
        let data = error.data().unwrap();
        assert_eq!(data.text(), r#"{"uri":"file:///x", "n":1.0}"#);
    }
}
