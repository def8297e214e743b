//! Tasks of callers that know them: ids become handles, and handles ids again.

use std::future::Future;
use std::sync::Arc;

use waypost_wire::capability::{ClientCapabilities, TASKS};
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{ResultType, ensure_complete};

use crate::call::{Call, CallHeaders, Carrier};
use crate::error::{CallError, Kind};
use crate::reply::{End, Reply};
use crate::tasks::Job;
use crate::tasks::handle::{Opened, Seals};

pub(crate) const TASK_ID: &str = "taskId";

/// An upstream's mistake: the task it answers with is not the one it was asked about.
pub(crate) const ANOTHER_TASK: &str = "answered about another task than the one it was asked for";
/// An upstream's mistake: what a completed task holds can only be a final result.
pub(crate) const UNFINISHED: &str = "completed a task with a result that is not `complete`";

/// Errors that are longer keep the upstream's id: no words about one task are, and the handle is
/// many times as long as an id may be.
const RENAMED_MOST: usize = 64 * 1024;
/// What is nested deeper in an error keeps the id too. Each level is read anew.
const RENAMED_DEPTH: usize = 64;

/// Refuses a caller that did not declare the Tasks extension on this request.
///
/// # Errors
/// `-32021` with the extension in its data.
pub(crate) fn demand_tasks(capabilities: &ClientCapabilities) -> Result<(), ErrorObject> {
    if capabilities.has_tasks() {
        return Ok(());
    }
    Err(ErrorObject::missing_capability(
        "the request does not declare the tasks extension",
        &serde_json::json!({ "extensions": { TASKS: {} } }),
    ))
}

/// The handle that a `tasks/*` call is about; empty when it gives none.
pub(crate) fn handle_of(call: &Call) -> String {
    call.params.string(TASK_ID).unwrap_or_default()
}

/// Sends, by `send`, a `tasks/*` call with the id that its handle stands for, and puts the
/// handle back into the answer.
///
/// # Errors
/// What `send` reports; [`CallError::unknown_task`] for one that the upstream does not know or
/// that has gone with what had it, [`Kind::BadUpstream`] for an answer about another task or with
/// a result that is not final.
pub(crate) async fn serve<F: Future<Output = Result<Reply, CallError>>>(
    task: &Opened,
    handle: String,
    mut call: Call,
    send: impl FnOnce(Call) -> F,
) -> Result<Reply, CallError> {
    call.params.set(TASK_ID, Raw::string(&task.id));
    // The next process or session may give the same id to another caller's task.
    call.carrier = Carrier::only(task.instance.as_ref());
    // The headers named the handle; the transport makes those of the id.
    call.headers = CallHeaders::default();
    let asked = Asked {
        upstream: Arc::clone(&task.member.name),
        id: task.id.clone(),
        handle,
        is_get: call.method == method::TASKS_GET,
        is_update: call.method == method::TASKS_UPDATE,
        carrier: call.carrier.clone(),
    };
    let reply = send(call).await?;
    reply.map_end(move |end| answer(end, &asked))
}

/// Puts the handle into a `CreateTaskResult`; all else in it stays as it came.
pub(crate) fn wrap_created(
    seals: &Seals,
    job: &Job,
    instance: Option<&str>,
    created: &mut Object,
) -> Result<(), CallError> {
    let Job { member, tool, call } = job;
    let id = created.string(TASK_ID).ok_or_else(|| {
        CallError::upstream(Kind::BadUpstream, &member.name)
            .detail("answered with a task that has no `taskId`")
    })?;
    let handle = seals.wrap(member, instance, tool, &id, &call.principal)?;
    created.set(TASK_ID, Raw::string(&handle));
    Ok(())
}

/// What a `tasks/*` call was about.
struct Asked {
    upstream: Arc<str>,
    id: String,
    handle: String,
    is_get: bool,
    /// It brings answers, which may be wrong too.
    is_update: bool,
    carrier: Carrier,
}

impl Asked {
    /// Whether the upstream does not know the task: its own words would tell its own id.
    fn is_about_the_id(&self, error: &ErrorObject) -> bool {
        if error.code() != code::INVALID_PARAMS {
            return false;
        }
        // The others bring nothing else.
        !self.is_update || says_unknown(&self.put(&error.message()))
    }

    /// The error with the handle wherever it names the task: a caller whose answers are wrong
    /// learns what is wrong with them.
    fn renamed(&self, error: ErrorObject) -> ErrorObject {
        match self.put_into(error.raw(), RENAMED_DEPTH) {
            Some(raw) => ErrorObject::parse(&raw).unwrap_or(error),
            None => error,
        }
    }

    /// `None` where there is nothing to put.
    fn put_into(&self, raw: &Raw, depth: usize) -> Option<Raw> {
        if !self.may_be_in(raw) {
            return None;
        }
        if let Some(text) = raw.as_str() {
            let put = self.put(&text);
            return (put != text).then(|| Raw::string(&put));
        }
        let depth = depth.checked_sub(1)?;
        let mut any = false;
        let mut put = |value: &Raw| {
            let put = self.put_into(value, depth);
            any |= put.is_some();
            put.unwrap_or_else(|| value.clone())
        };
        let all = if let Some(items) = raw.as_array() {
            let items: Vec<_> = items.iter().map(put).collect();
            Raw::array(&items)
        } else {
            let object = raw.as_object().ok()?;
            let members = object.iter().map(|(key, value)| (key, put(value)));
            members.collect::<Object>().into()
        };
        any.then_some(all)
    }

    /// Whether a string in there may hold the id. What is escaped is not looked through for that.
    fn may_be_in(&self, raw: &Raw) -> bool {
        raw.as_bytes().len() <= RENAMED_MOST && {
            let text = raw.text();
            text.contains(&self.id) || text.contains('\\')
        }
    }

    /// The text with the handle for the id, where that stands as a word.
    fn put(&self, text: &str) -> String {
        if text.len() > RENAMED_MOST {
            return text.to_owned();
        }
        let inside = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(&*self.id).filter(|_| !self.id.is_empty())
        {
            let goes_on = before.ends_with(inside) || before.is_empty() && out.ends_with(inside);
            let is_word = !goes_on && !after.starts_with(inside);
            out.push_str(before);
            out.push_str(if is_word { &self.handle } else { &self.id });
            rest = after;
        }
        out + rest
    }
}

/// Whether a message says that there is no such task.
fn says_unknown(message: &str) -> bool {
    let text = message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let unknown = [
        "unknown",
        "not found",
        "no such",
        "no task",
        "not exist",
        "expired",
        "invalid task",
    ];
    says(&["task"]) && says(&unknown) && !says(&["input", "response", "answer", "key"])
}

/// The answer to a `tasks/*` call as its caller gets it.
fn answer(end: End, asked: &Asked) -> Result<End, CallError> {
    let bad = |what| Err(CallError::upstream(Kind::BadUpstream, &asked.upstream).detail(what));
    if asked.carrier.is_astray() {
        return Err(CallError::unknown_task());
    }
    Ok(match end {
        End::Error(error) if asked.is_about_the_id(&error) => {
            return Err(CallError::unknown_task());
        }
        End::Error(error) => End::Error(asked.renamed(error)),
        // Some servers give the task's own type here; to clients only `complete` is right.
        End::Complete(mut result) | End::Task(mut result) | End::InputRequired(mut result) => {
            if result.contains(TASK_ID) {
                if result.string(TASK_ID).as_ref() != Some(&asked.id) {
                    return bad(ANOTHER_TASK);
                }
                result.set(TASK_ID, Raw::string(&asked.handle));
            }
            ensure_complete(&mut result);
            if asked.is_get && !ensure_complete_inside(&mut result) {
                return bad(UNFINISHED);
            }
            End::Complete(result)
        }
    })
}

/// Ensures `resultType: "complete"` in the final result that a task holds; `false` when that says
/// that it is something else.
pub(crate) fn ensure_complete_inside(task: &mut Object) -> bool {
    let Some(Ok(mut inner)) = task.get("result").map(Raw::as_object) else {
        return true;
    };
    if ResultType::of(&inner) != ResultType::Complete {
        return false;
    }
    // Rewriting it only where something changes keeps the bytes of the others.
    if ensure_complete(&mut inner) {
        task.set("result", inner.into());
    }
    true
}

/// Whether the upstream refused the call for want of the Tasks extension, be it among others;
/// under the code of today or of the drafts.
pub(crate) fn demands_tasks(error: &ErrorObject) -> bool {
    let extensions = error
        .required_capabilities()
        .and_then(|required| required.get("extensions")?.as_object().ok());
    extensions.is_some_and(|extensions| extensions.get(TASKS).is_some_and(Raw::is_object))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn object(text: &str) -> Object {
        Object::parse(&Bytes::from(text.to_owned())).unwrap()
    }

    /// The answer to `tasks/get` for the task `1`.
    fn got(from_upstream: &str) -> Result<End, CallError> {
        let asked = Asked {
            upstream: "up".into(),
            id: "1".to_owned(),
            handle: "H".to_owned(),
            is_get: true,
            is_update: false,
            carrier: Carrier::default(),
        };
        answer(End::Task(object(from_upstream)), &asked)
    }

    #[track_caller]
    fn check(from_upstream: &str, to_caller: &str) {
        let end = got(from_upstream);
        let Ok(End::Complete(result)) = end else {
            panic!("{end:?}")
        };
        assert_eq!(Raw::from(result).text(), to_caller);
    }

    #[test]
    fn a_task_gets_its_handle_back_and_keeps_all_else() {
        check(
            r#"{"resultType":"complete","taskId":"1","x":1.0,"inputRequests":{"1":{"taskId":"1"}}}"#,
            r#"{"resultType":"complete","taskId":"H","x":1.0,"inputRequests":{"1":{"taskId":"1"}}}"#,
        );
    }

    #[test]
    fn result_type_is_ensured_outside_and_inside() {
        check(
            r#"{"taskId":"1","result":{"content":[ ]},"resultType":"task"}"#,
            r#"{"taskId":"H","result":{"content":[ ],"resultType":"complete"},"resultType":"complete"}"#,
        );
        check(
            r#"{"taskId":"1","result":{"resultType":"complete", "n":1e5}}"#,
            r#"{"taskId":"H","result":{"resultType":"complete", "n":1e5},"resultType":"complete"}"#,
        );
    }

    #[track_caller]
    fn check_bad(from_upstream: &str, what: &str) {
        let error = got(from_upstream).unwrap_err();
        assert_eq!(error.kind, Kind::BadUpstream);
        assert_eq!(error.detail.as_deref(), Some(what));
    }

    #[track_caller]
    fn check_update(error: &str, to_caller: Option<&str>) {
        let asked = Asked {
            upstream: "up".into(),
            id: "t1".to_owned(),
            handle: "up~H".to_owned(),
            is_get: false,
            is_update: true,
            carrier: Carrier::default(),
        };
        let raw = Raw::parse(&Bytes::from(error.to_owned())).unwrap();
        let end = End::Error(ErrorObject::parse(&raw).unwrap());
        let got = match answer(end, &asked) {
            Ok(End::Error(error)) => Some(error.raw().text().to_owned()),
            Err(error) => {
                assert_eq!(error.kind, Kind::UnknownTarget);
                None
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(got.as_deref(), to_caller, "{error}");
    }

    #[test]
    fn what_is_wrong_with_answers_is_told_under_the_handle() {
        check_update(
            r#"{"code":-32602,"message":"t1: `k` must be a number, not t12","data":{"n":1.0,"of":["t1"," t1-b"],"t1":1}}"#,
            Some(
                r#"{"code":-32602,"message":"up~H: `k` must be a number, not t12","data":{"n":1.0,"of":["up~H"," t1-b"],"t1":1}}"#,
            ),
        );
        let other = r#"{"code":-32602,"message":"unknown key `k` in inputResponses of the task"}"#;
        check_update(other, Some(other));
        let other = r#"{"code":-32603,"message":"unknown task"}"#;
        check_update(other, Some(other));
        for unknown in [
            "no task `t1`",
            "Task not found: t1",
            "Unknown task",
            "task t1 has expired",
        ] {
            let error = format!(r#"{{"code":-32602,"message":"{unknown}"}}"#);
            check_update(&error, None);
        }
    }

    #[test]
    fn an_error_of_any_depth_and_length_is_passed_on() {
        let error = |data: &str| format!(r#"{{"code":-32603,"message":"t1","data":{data}}}"#);
        for levels in [60, 10_000, 200_000] {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            let other = error(&format!(r#"{open}"t1"{close}"#));
            let put = other.replace("t1", "up~H");
            let fits = levels < RENAMED_DEPTH;
            // Where it is not looked through, the message is.
            let half = other.replacen("t1", "up~H", 1);
            let is_long = other.len() > RENAMED_MOST;
            let expected = if fits {
                &put
            } else if is_long {
                &other
            } else {
                &half
            };
            check_update(&other, Some(expected));
        }
        let long = error(&format!(r#""{}""#, "t1 ".repeat(RENAMED_MOST)));
        check_update(&long, Some(&long));
    }

    #[test]
    fn an_answer_about_another_task_is_the_upstreams_fault() {
        check_bad(r#"{"taskId":"2","status":"working"}"#, ANOTHER_TASK);
        check_bad(r#"{"taskId":1,"status":"working"}"#, ANOTHER_TASK);
    }

    #[test]
    fn a_result_inside_that_is_not_final_is_the_upstreams_fault() {
        for other in ["input_required", "task", "odd"] {
            let text = format!(r#"{{"taskId":"1","result":{{"resultType":"{other}"}}}}"#);
            check_bad(&text, UNFINISHED);
        }
    }

    #[test]
    fn r81_the_drafts_code_is_read() {
        let required = serde_json::json!({ "extensions": { TASKS: {} } });
        let data = serde_json::json!({ "requiredCapabilities": required });
        for code in [-32003, -32021] {
            let error = ErrorObject::with_data(code, "tasks please", &data);
            assert!(demands_tasks(&error));
        }
        let other = ErrorObject::new(-32003, "something of the server's own");
        assert!(!demands_tasks(&other));
        let other = ErrorObject::with_data(-32603, "another code", &data);
        assert!(!demands_tasks(&other));
    }
}
