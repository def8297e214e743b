use bytes::Bytes;

use super::*;

fn call(method: &str, logs: bool) -> Call {
    let mut call = Call::own(method, Object::new());
    call.meta.log_level = logs.then(|| Raw::string("info"));
    call
}

/// A call whose request was written.
fn sent(calls: &Calls, method: &str, logs: bool) -> Place {
    let outlet = calls.open(&call(method, logs)).unwrap();
    assert!(calls.sending(outlet.id));
    outlet
}

fn leave(calls: &Calls, place: &mut Place) {
    place.end.close();
    let unread = place.end.try_recv().ok().and_then(Result::ok);
    calls.leave(place.id, place.sort, unread);
}

fn calls() -> Calls {
    Calls::new(&"u".into())
}

/// A line of the child.
fn says(calls: &Calls, line: &str) {
    let message = Message::parse(&Bytes::from(line.to_owned())).unwrap();
    calls.hear(Heard::aloud(message));
}

fn answers(calls: &Calls, id: u64, result: &str) {
    says(
        calls,
        &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
    );
}

const RESULT: &str = r#"{"jsonrpc":"2.0","id":null,"result":{"secret":1}}"#;
const ERROR: &str = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}"#;
const LOG: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;

#[test]
fn a_result_without_id_is_nobodys() {
    let calls = calls();
    let mut one = sent(&calls, "tools/call", false);
    says(&calls, RESULT);
    says(&calls, r#"{"jsonrpc":"2.0","result":{"secret":1}}"#);
    assert!(one.end.try_recv().is_err());
    answers(&calls, one.id, "{}");
    assert!(one.end.try_recv().unwrap().is_ok());
}

#[test]
fn an_error_without_id_is_nobodys_while_a_call_given_up_may_be_answered() {
    let calls = calls();
    let mut gone = sent(&calls, "tools/call", false);
    leave(&calls, &mut gone);
    let mut one = sent(&calls, "tools/call", false);
    says(&calls, ERROR);
    assert!(one.end.try_recv().is_err());
    answers(&calls, gone.id, "{}");
    assert!(one.end.try_recv().is_err());
    says(&calls, ERROR);
    assert!(matches!(one.end.try_recv(), Ok(Ok(Outcome::Error(_)))));
}

#[test]
fn an_error_without_id_is_about_a_request_that_was_written() {
    let calls = calls();
    let mut waits = calls.open(&call("tools/call", false)).unwrap();
    says(&calls, ERROR);
    assert!(waits.end.try_recv().is_err());
    let mut one = sent(&calls, "tools/call", false);
    says(&calls, ERROR);
    assert!(waits.end.try_recv().is_err());
    assert!(one.end.try_recv().is_ok());
}

#[test]
fn a_log_message_passes_only_where_it_can_be_no_other_calls() {
    let calls = calls();
    let _listens = sent(&calls, method::LISTEN, false);
    let mut one = sent(&calls, "tools/call", true);
    let mut arrives = || {
        says(&calls, LOG);
        one.events.try_recv().is_ok()
    };
    assert!(arrives());
    let mut silent = sent(&calls, "tools/call", false);
    assert!(!arrives(), "another call runs, which asked for no log");
    leave(&calls, &mut silent);
    assert!(!arrives(), "another call may still run");
    answers(&calls, silent.id, "{}");
    assert!(arrives());
}

#[test]
fn a_call_that_wants_no_log_gets_none() {
    let calls = calls();
    let mut one = sent(&calls, "tools/call", false);
    says(&calls, LOG);
    assert!(one.events.try_recv().is_err());
}

const TASK: &str = r#"{"resultType":"task","taskId":"t","status":"working"}"#;

/// Ids of the tasks that the server is told to stop.
fn stopped(calls: &Calls) -> Vec<String> {
    let tasks = calls.cancels.take().into_iter();
    let tasks = tasks.filter_map(|stop| match stop {
        Stop::Task { task, .. } => Some(task.to_string()),
        Stop::Call(_) | Stop::Request(_) => None,
    });
    tasks.collect()
}

#[test]
fn r82_a_task_made_after_its_caller_has_gone_is_cancelled_once() {
    let calls = calls();
    let mut gone = sent(&calls, "tools/call", false);
    leave(&calls, &mut gone);
    answers(&calls, gone.id, TASK);
    assert_eq!(stopped(&calls), ["\"t\""]);
    answers(&calls, gone.id, TASK);
    // The answer to the cancellation.
    answers(&calls, gone.id + 1, TASK);
    assert_eq!(stopped(&calls), [""; 0]);
}

#[test]
fn r82_a_task_whose_caller_goes_this_moment_is_cancelled() {
    let calls = calls();
    let mut going = sent(&calls, "tools/call", false);
    going.end.close();
    answers(&calls, going.id, TASK);
    assert_eq!(stopped(&calls), ["\"t\""]);

    let mut unread = sent(&calls, "tools/call", false);
    answers(&calls, unread.id, TASK);
    leave(&calls, &mut unread);
    assert_eq!(stopped(&calls), ["\"t\""]);
}

#[test]
fn a_task_that_was_only_asked_about_goes_on() {
    let calls = calls();
    let mut poll = sent(&calls, method::TASKS_GET, false);
    leave(&calls, &mut poll);
    answers(&calls, poll.id, TASK);
    let mut other = sent(&calls, "tools/call", false);
    leave(&calls, &mut other);
    answers(&calls, other.id, r#"{"taskId":"t"}"#);
    assert_eq!(stopped(&calls), [""; 0]);
}
