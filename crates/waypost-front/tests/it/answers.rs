//! Ends and failures as HTTP answers while headers are unsent.

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_hub::error::{CallError, Kind, Origin};
use waypost_hub::reply::{End, Reply};
use waypost_wire::error::ErrorObject;
use waypost_wire::raw::Raw;

use crate::fake::{Answer, Front, Post, object};

async fn ends_with(end: impl Fn() -> End + Send + Sync + Clone + 'static, accept: &str) -> Answer {
    let front = Front::new(move |_| Ok(Reply::End(end())));
    front.send(Post::call().set("accept", accept).build()).await
}

async fn fails_with(
    error: impl Fn() -> CallError + Send + Sync + Clone + 'static,
) -> (u16, Value, Answer) {
    let front = Front::new(move |_| Err(error()));
    let answer = front.send(Post::call().build()).await;
    (
        answer.status.as_u16(),
        answer.json()["error"].clone(),
        answer,
    )
}

#[tokio::test]
async fn an_error_answer_passes_as_it_came_and_its_code_gives_the_status() {
    for (code, status) in [
        (-32700, 200),
        (-32600, 200),
        (-32601, 404),
        (-32602, 200),
        (-32603, 200),
        (-32020, 400),
        (-32021, 400),
        (-32022, 400),
        (-32002, 200),
        (42, 200),
    ] {
        let text = format!(r#"{{"code":{code},"message":"é","data":{{"n":1.0}},"x":1}}"#);
        let raw = Raw::parse(&text.clone().into()).unwrap();
        let error = ErrorObject::parse(&raw).unwrap();
        for accept in ["application/json", "*/*"] {
            let error = error.clone();
            let answer = ends_with(move || End::Error(error.clone()), accept).await;
            assert_eq!(answer.status, status, "{code}");
            let expected = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{text}}}"#);
            assert_eq!(answer.text, expected);
        }
    }
}

#[tokio::test]
async fn a_call_without_an_answer_says_what_and_which_upstream_but_not_why() {
    let builds: Arc<str> = "builds".into();
    for (kind, status, code) in [
        (Kind::Unavailable, 200, -32603),
        (Kind::Timeout, 200, -32603),
        (Kind::BadUpstream, 200, -32603),
        (Kind::Internal, 200, -32603),
        (Kind::Throttled, 200, -32603),
        (Kind::UnknownTarget, 200, -32602),
    ] {
        let builds = Arc::clone(&builds);
        let make = move || {
            let error = CallError::upstream(kind, &builds).detail("it broke");
            error.retryable().source("token=hunter2")
        };
        let (got, error, answer) = fails_with(make).await;
        assert_eq!(got, status, "{kind:?}");
        let expected = json!({
            "code": code,
            "message": "upstream `builds`: it broke",
            "data": {"kind": kind.as_str(), "upstream": "builds", "retryable": true},
        });
        assert_eq!(error, expected);
        assert!(!answer.text.contains("hunter2"), "the cause stays behind");
    }
}

#[tokio::test]
async fn what_is_denied_looks_like_what_does_not_exist() {
    let unknown = || CallError::unknown("unknown tool `echo`");
    let denied =
        || CallError::upstream(Kind::Denied, &"builds".into()).detail("unknown tool `echo`");
    let (_, _, unknown) = fails_with(unknown).await;
    let (_, _, denied) = fails_with(denied).await;
    assert_eq!(denied.status, unknown.status);
    assert_eq!(denied.text, unknown.text);
    let bare = || CallError::new(Kind::Denied, Origin::Gateway);
    let (_, error, _) = fails_with(bare).await;
    assert_eq!(error["message"], "unknown target");
}

#[tokio::test]
async fn a_new_task_is_named_in_a_header_too() {
    let task = || {
        End::Task(object(
            &json!({"resultType": "task", "taskId": "builds~t~b~s"}),
        ))
    };
    for accept in ["application/json", "text/event-stream", "*/*"] {
        let answer = ends_with(task, accept).await;
        assert_eq!(answer.header("mcp-name"), Some("builds~t~b~s"), "{accept}");
    }
    let done = || End::Complete(object(&json!({"taskId": "x"})));
    assert!(ends_with(done, "*/*").await.header("mcp-name").is_none());
}

#[tokio::test]
async fn r43_the_form_of_the_answer_is_the_one_accepted() {
    let asks = || End::InputRequired(object(&json!({"resultType": "input_required"})));
    for (accept, form) in [
        ("application/json", "application/json"),
        ("text/event-stream", "text/event-stream"),
        ("*/*", "application/json"),
        ("", "application/json"),
        ("application/json, text/event-stream", "application/json"),
    ] {
        let answer = ends_with(asks, accept).await;
        assert_eq!(answer.header("content-type"), Some(form), "{accept}");
    }
    let events = ends_with(asks, "text/event-stream").await.events();
    assert_eq!(
        events,
        [json!({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required"}})]
    );
}

#[tokio::test]
async fn r43_a_failure_comes_as_an_event_to_clients_that_take_only_events() {
    let front = Front::new(|_| Err(CallError::unknown_task()));
    let post = || Post::call().set("accept", "text/event-stream");
    let events = front.send(post().build()).await.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["error"]["code"], -32602);
    let full = || CallError::new(Kind::Throttled, Origin::Gateway);
    let front = Front::new(move |_| Err(full()));
    let refused = front.send(post().build()).await;
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.refusal(), (429, -32603));
}

#[tokio::test]
async fn a_status_is_not_lost_on_clients_that_take_only_events() {
    let missing = || End::Error(ErrorObject::new(-32601, "no such method"));
    let answer = ends_with(missing, "text/event-stream").await;
    assert_eq!(answer.refusal(), (404, -32601));
}

#[tokio::test]
async fn a_large_result_arrives_whole() {
    let text = "x\\n".repeat(50_000);
    let body = format!("{{ \"content\":\n[{{\"text\":\"{text}\"}}],\r\n\"isError\" : false}}");
    let result = Raw::parse(&body.into()).unwrap();
    for accept in ["application/json", "text/event-stream"] {
        let members = result.as_object().unwrap();
        let answer = ends_with(move || End::Complete(members.clone()), accept).await;
        let message = match accept {
            "application/json" => answer.json(),
            _ => answer.events().remove(0),
        };
        let whole: Value = result.decode().unwrap();
        assert_eq!(message["result"], whole);
    }
}
