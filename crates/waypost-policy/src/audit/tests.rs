use std::io::Write;
use std::sync::Mutex;

use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tower::{ServiceExt as _, service_fn};
use waypost_hub::error::{Kind, Origin};
use waypost_wire::error::ErrorObject;
use waypost_wire::object::Object;

use super::*;

/// What was logged while a test ran.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn read(&self) -> Vec<Value> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn call(method: &str, params: &Value) -> Call {
    let params = Object::parse(&Bytes::from(params.to_string())).unwrap();
    let mut call = Call::own(method, params);
    call.request_id = "r1".into();
    call.principal = Principal::new("ci");
    call.view = View::Upstream("builds".into());
    call
}

/// Sends a call through the layer, reads `events` of its answer, and gives the fields of the
/// audit line.
async fn audit(call: Call, answer: Result<Reply, CallError>, events: usize) -> Value {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let answer = Mutex::new(Some(answer));
    let inner = service_fn(move |_: Call| {
        let answer = answer.lock().unwrap().take().unwrap();
        async move { answer }
    });
    let reply = AuditLayer.layer(inner).oneshot(call).await;
    if let Ok(reply) = reply {
        let mut stream = reply.into_stream();
        for _ in 0..events {
            assert!(stream.next().await.is_some());
        }
    }
    drop(guard);
    let mut lines = lines.read();
    assert_eq!(lines.len(), 1, "one line for each call: {lines:?}");
    let mut line = lines.remove(0);
    assert_eq!(line["target"], "waypost::audit");
    assert!(line["fields"]["took_ms"].is_number());
    line["fields"].take()
}

#[tokio::test]
async fn the_line_says_who_what_and_how_it_ended() {
    let params = json!({"name": "echo", "arguments": {"password": "hunter2"}});
    let done = Ok(Reply::complete(Object::new()));
    let fields = audit(call("tools/call", &params), done, 1).await;
    for (field, value) in [
        ("request_id", "r1"),
        ("principal", "ci"),
        ("view", "builds"),
        ("method", "tools/call"),
        ("target_name", "echo"),
        ("outcome", "complete"),
    ] {
        assert_eq!(fields[field], value);
    }
    assert!(!fields.to_string().contains("hunter2"), "no arguments");
}

#[tokio::test]
async fn errors_and_refusals_have_their_line() {
    let error = Ok(Reply::error(ErrorObject::new(-32601, "no")));
    let fields = audit(call("x/y", &json!({})), error, 1).await;
    assert_eq!(
        (&fields["outcome"], &fields["code"]),
        (&json!("error"), &json!(-32601))
    );
    let denied = Err(CallError::new(Kind::Denied, Origin::Gateway));
    let fields = audit(call("tools/call", &json!({"name": "a"})), denied, 0).await;
    assert_eq!(fields["outcome"], "denied");
}

#[tokio::test]
async fn a_stream_is_audited_at_its_end() {
    let end = || Ok(Event::End(End::Task(Object::new())));
    let streamed =
        |events: Vec<Result<Event, CallError>>| Ok(Reply::Stream(stream::iter(events).boxed()));
    let listen = || call("subscriptions/listen", &json!({}));
    let fields = audit(listen(), streamed(vec![end()]), 1).await;
    assert_eq!(fields["outcome"], "task");
    let fields = audit(listen(), streamed(vec![end()]), 0).await;
    assert_eq!(fields["outcome"], "cancelled", "nobody read the end");
    let fields = audit(listen(), streamed(vec![Err(CallError::no_end())]), 1).await;
    assert_eq!(fields["outcome"], "bad_upstream");
}

#[tokio::test]
async fn a_task_is_named_by_its_upstream_only() {
    let params = json!({"taskId": "builds~abcdefgh~secret~seal"});
    let done = Ok(Reply::complete(Object::new()));
    let fields = audit(call("tasks/get", &params), done, 1).await;
    assert_eq!(fields["target_name"], "builds");
    assert!(!fields.to_string().contains("secret"));
}

#[tokio::test]
async fn an_id_that_is_no_handle_is_not_written() {
    let params = json!({ "taskId": "secret" });
    let done = Ok(Reply::complete(Object::new()));
    let fields = audit(call("tasks/get", &params), done, 1).await;
    assert_eq!(fields.get("target_name"), None);
}

#[tokio::test]
async fn in_search_mode_the_line_says_what_was_called() {
    for (name, arguments, expected) in [
        ("call_tool", json!({ "name": "a_x" }), "call_tool a_x"),
        (
            "read_resource",
            json!({ "uri": "f:///a" }),
            "read_resource f:///a",
        ),
        (
            "find_tools",
            json!({ "query": "q", "name": "n" }),
            "find_tools",
        ),
        ("call_tool", json!("a_x"), "call_tool"),
        ("a_x", json!({ "name": "n" }), "a_x"),
    ] {
        let params = json!({ "name": name, "arguments": arguments });
        let done = Ok(Reply::complete(Object::new()));
        let fields = audit(call("tools/call", &params), done, 1).await;
        assert_eq!(fields["target_name"], expected);
    }
}

#[tokio::test]
async fn what_does_not_apply_is_left_out() {
    let mut listed = call("tools/list", &json!({}));
    listed.view = View::All;
    let done = Ok(Reply::complete(Object::new()));
    let fields = audit(listed, done, 1).await;
    let has = |field: &str| fields.get(field).is_some();
    assert!(
        !has("view") && !has("target_name") && !has("code"),
        "{fields}"
    );
}

#[tokio::test]
async fn the_id_is_written_once_where_the_requests_span_has_it() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let span = tracing::info_span!("request", request_id = "r1");
    drop(span.in_scope(|| Line::of(&call("tools/call", &json!({})))));
    drop(guard);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("r1").count(), 1, "{text}");
}

#[tokio::test]
async fn a_client_does_not_decide_how_long_a_line_is() {
    let long = "é".repeat(10_000);
    let clipped = format!("{}…", "é".repeat(128));
    for (method, params) in [
        ("tools/call", json!({ "name": long })),
        ("resources/read", json!({ "uri": long })),
        ("tasks/get", json!({ "taskId": format!("{long}~x") })),
    ] {
        let done = Ok(Reply::complete(Object::new()));
        let fields = audit(call(method, &params), done, 1).await;
        assert_eq!(fields["target_name"], clipped, "{method}");
    }
    let done = Ok(Reply::complete(Object::new()));
    let fields = audit(call(&long, &json!({})), done, 1).await;
    assert_eq!(fields["method"], clipped);
}

#[tokio::test]
async fn where_nobody_reads_the_line_an_answer_passes_as_it_is() {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    assert!(Line::of(&call("tools/call", &json!({}))).is_none());
}
