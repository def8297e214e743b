//! From a JSON-RPC response to the end of a call.

use futures_util::StreamExt as _;
use http::StatusCode;
use waypost_hub::reply::{End, Event, Reply};
use waypost_wire::code;
use waypost_wire::error::{ErrorObject, Malformed};
use waypost_wire::message::Outcome;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::result::ResultType;

use crate::door::Came;
use crate::fault::Fault;

/// The end that a response stands for. Only `resultType` decides: some servers add members of one
/// kind of result to another.
pub(crate) fn end(outcome: Outcome) -> Result<End, Fault> {
    let raw = match outcome {
        Outcome::Error(error) => return Ok(End::Error(error)),
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

/// The reply to a call of `called` with codes that mean today what the server means.
///
/// Some libraries speak the stateless protocol and still send the code that a missing resource had
/// before. Of anything but a resource it is a code of the server's own. And what is not said at the
/// door is not about the hop, least of all at the end of a stream.
pub(crate) fn in_todays_codes(called: &str, came: Came<'_>, reply: Reply) -> Reply {
    // What it says of itself is read by whoever asks.
    let reads = called == method::RESOURCES_READ;
    match reply {
        Reply::End(end) if called == method::DISCOVER => Reply::End(end),
        Reply::End(end) => Reply::End(of_today(reads, came.own_words(end))),
        Reply::Stream(events) => Reply::Stream(Box::pin(events.map(move |event| match event {
            Ok(Event::End(end)) => {
                let end = Came::Http(StatusCode::OK).own_words(end);
                Ok(Event::End(of_today(reads, end)))
            }
            other => other,
        }))),
    }
}

fn of_today(reads: bool, end: End) -> End {
    match end {
        End::Error(error) if reads && error.code() == code::FORMER_RESOURCE_NOT_FOUND => {
            End::Error(error.with_code(code::INVALID_PARAMS))
        }
        end => end,
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

    #[tokio::test]
    async fn r72_a_missing_resource_has_the_code_of_today_and_nothing_else_is_changed() {
        for (called, code, expected) in [
            ("resources/read", -32002, -32602),
            ("resources/read", -32003, -32003),
            ("resources/templates/list", -32002, -32002),
            ("tools/call", -32002, -32002),
            ("prompts/get", -32002, -32002),
            ("tasks/get", -32002, -32002),
        ] {
            let text = format!(
                r#"{{"code":{code},"message":"gone","data":{{"uri":"file:///x", "n":1.0}}}}"#
            );
            let raw = Raw::parse(&Bytes::from(text)).unwrap();
            let error = ErrorObject::parse(&raw).unwrap();
            let end = end(Outcome::Error(error)).unwrap();
            let late = futures_util::stream::iter([Ok(Event::End(end.clone()))]);
            for reply in [Reply::End(end), Reply::Stream(Box::pin(late))] {
                let reply = in_todays_codes(called, Came::Http(StatusCode::OK), reply);
                let Ok(End::Error(error)) = reply.into_end().await else {
                    panic!("no error")
                };
                assert_eq!(error.code(), expected, "{called}");
                assert_eq!(error.message(), "gone");
                let data = error.data().unwrap();
                assert_eq!(data.text(), r#"{"uri":"file:///x", "n":1.0}"#);
            }
        }
    }
}
