//! What of a call and its notifications passes, and for how long.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_hub::call::Call;
use waypost_hub::error::{CallError, Kind};
use waypost_hub::reply::{End, Event, Reply};
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Notification;
use waypost_wire::raw::Raw;

use crate::fake::{Fake, call, declaring, hub, object, result, upstreams, value};

fn notification(method: &str, params: &Value) -> Event {
    Event::Notification(Notification {
        method: method.to_owned(),
        params: object(params),
    })
}

/// A fake whose tool says these things, each so long after the one before, and then ends.
fn saying(
    said: impl Fn(&Call) -> Vec<(Duration, Event)> + Send + Sync + 'static,
) -> std::sync::Arc<Fake> {
    let lists = [("tools/list", json!({ "tools": [{ "name": "x" }] }))];
    Fake::new("a", json!({ "tools": {} }), &lists, move |call| {
        let end = Event::End(End::Complete(object(&json!({ "content": [] }))));
        let mut said = said(call);
        said.push((Duration::ZERO, end));
        let events = stream::iter(said).then(|(wait, event)| async move {
            sleep(wait).await;
            Ok::<_, CallError>(event)
        });
        Ok(Reply::Stream(events.boxed()))
    })
}

/// The notifications of a call and how it ended.
async fn heard(
    hub: &std::sync::Arc<waypost_hub::hub::Hub>,
    call: Call,
) -> (Vec<(String, Value)>, Result<End, CallError>) {
    let mut events = match hub.call(call).await {
        Ok(reply) => reply.into_stream(),
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut heard = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Notification(n)) => heard.push((n.method, value(&n.params))),
            Ok(Event::End(end)) => return (heard, Ok(end)),
            Err(error) => return (heard, Err(error)),
        }
    }
    panic!("no end");
}

fn token(call: &Call) -> Value {
    call.meta
        .progress_token
        .as_ref()
        .map_or(Value::Null, |raw| raw.decode().unwrap())
}

fn wanted(progress_token: Option<Value>) -> Call {
    let mut wanted = call("tools/call", &json!({ "name": "a_x" }));
    wanted.meta.progress_token = progress_token.map(|token| Raw::from(&token));
    wanted
}

#[tokio::test(start_paused = true)]
async fn r24_progress_comes_back_under_the_token_of_its_own_caller() {
    let a = saying(|call| {
        let progress = |token: Value| {
            let params = json!({ "progressToken": token, "progress": 1 });
            (
                Duration::ZERO,
                notification("notifications/progress", &params),
            )
        };
        vec![
            progress(token(call)),
            progress(json!(999_999_999)),
            progress(json!("1")),
        ]
    });
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    for own in [json!(1), json!("1")] {
        let (heard, _) = heard(&hub, wanted(Some(own.clone()))).await;
        let expected = json!({ "progressToken": own, "progress": 1 });
        assert_eq!(heard, [("notifications/progress".to_owned(), expected)]);
    }
    let (first, second) = (token(&a.seen()[0]), token(&a.seen()[1]));
    assert_ne!(first, second, "two callers of one server");
    assert!(heard(&hub, wanted(None)).await.0.is_empty());
    assert_eq!(
        token(&a.seen()[2]),
        Value::Null,
        "nobody asked for progress"
    );
}

#[tokio::test(start_paused = true)]
async fn only_what_belongs_on_a_calls_stream_passes() {
    let a = saying(|_| {
        [
            "notifications/message",
            "notifications/tools/list_changed",
            "notifications/tasks",
            "x/own",
        ]
        .map(|method| (Duration::ZERO, notification(method, &json!({ "k": 1 }))))
        .into()
    });
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    let methods =
        |heard: Vec<(String, Value)>| heard.into_iter().map(|(m, _)| m).collect::<Vec<_>>();
    assert_eq!(methods(heard(&hub, wanted(None)).await.0), ["x/own"]);
    let mut logging = wanted(None);
    logging.meta.log_level = Some(Raw::string("debug"));
    assert_eq!(
        methods(heard(&hub, logging).await.0),
        ["notifications/message", "x/own"]
    );
}

const TIMES: &str =
    "upstreams:\n  a: { url: \"http://127.0.0.1:9\", timeout: 60s, timeout_ceiling: 150s }\n";

#[tokio::test(start_paused = true)]
async fn progress_extends_a_calls_time_up_to_the_ceiling() {
    let a = saying(|call| {
        let params = json!({ "progressToken": token(call), "progress": 1 });
        let each = (
            Duration::from_secs(40),
            notification("notifications/progress", &params),
        );
        vec![each; 9]
    });
    let hub = hub(TIMES, &[&a]).await;
    let started = Instant::now();
    let (heard, end) = heard(&hub, wanted(Some(json!(7)))).await;
    assert_eq!((heard.len(), end.unwrap_err().kind), (3, Kind::Timeout));
    assert_eq!(started.elapsed().as_secs(), 150);
}

#[tokio::test(start_paused = true)]
async fn without_progress_a_call_ends_in_time_whatever_else_is_said() {
    let a = saying(|_| {
        let each = (
            Duration::from_secs(40),
            notification("notifications/message", &json!({})),
        );
        vec![each; 9]
    });
    let hub = hub(TIMES, &[&a]).await;
    let started = Instant::now();
    let (_, end) = heard(&hub, wanted(Some(json!(7)))).await;
    let error = end.unwrap_err();
    assert_eq!(
        error.to_string(),
        "upstream `a`: no answer within 60.0 s, the call was cancelled"
    );
    assert_eq!(started.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_a_name_goes_out_as_waypost() {
    let a = Fake::with_tools("a", &["x"]);
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    result(hub.call(wanted(None)).await).await;
    let mut named = wanted(None);
    named.meta.client_info = Some(Raw::from(&json!({ "name": "client", "version": "1" })));
    result(hub.call(named).await).await;
    let names: Vec<_> = a
        .seen()
        .iter()
        .map(|call| {
            call.meta
                .client_info
                .as_ref()
                .unwrap()
                .as_object()
                .unwrap()
                .string("name")
                .unwrap()
        })
        .collect();
    assert_eq!(names, ["waypost", "client"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_cannot_be_read_is_not_passed_on() {
    for text in [
        r#"{"k":{"method":"elicitation/create","method":"roots/list"}}"#,
        r#"{"k":{"method":"roots/list"},"l":{"method":"secrets/read"}}"#,
        r#"{"k":{"params":{}}}"#,
    ] {
        let lists = [("tools/list", json!({ "tools": [{ "name": "x" }] }))];
        let a = Fake::new("a", json!({ "tools": {} }), &lists, move |_| {
            let mut asks = object(&json!({ "resultType": "input_required" }));
            asks.set("inputRequests", Raw::parse(&text.into()).unwrap());
            Ok(Reply::End(End::InputRequired(asks)))
        });
        let hub = hub(&upstreams(&["a"]), &[&a]).await;
        let declared = json!({ "elicitation": {}, "roots": {}, "sampling": {} });
        let refused = declaring(wanted(None), &declared);
        let refused = crate::fake::error(hub.call(refused).await).await;
        assert_eq!(refused["code"], -32603);
        assert_eq!(
            refused["message"],
            "upstream `a`: its `inputRequests` cannot be read"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_server_keeps_its_code_message_and_data() {
    let a = Fake::new("a", json!({ "resources": {} }), &[], |_| {
        let text =
            r#"{"code":-32002,"message":"no such file","data":{"uri":"file:///x", "n":1.0}}"#;
        let raw = Raw::parse(&text.into()).unwrap();
        Ok(Reply::error(ErrorObject::parse(&raw).unwrap()))
    });
    let hub = hub(&upstreams(&["a"]), &[&a]).await;
    let read = call("resources/read", &json!({ "uri": "a+file:///x" }));
    let End::Error(error) = hub.call(read).await.unwrap().into_end().await.unwrap() else {
        panic!("no error")
    };
    // Whatever the code once meant: those who speak with the server know that.
    assert_eq!(error.code(), -32002);
    assert_eq!(error.message(), "no such file");
    let data = error.data().unwrap();
    assert_eq!(data.text(), r#"{"uri":"file:///x", "n":1.0}"#);
}

/// A fake whose tool makes progress every second for ever, and whether its call was dropped.
fn endless() -> (std::sync::Arc<Fake>, std::sync::Arc<()>) {
    let held = std::sync::Arc::new(());
    let hold = std::sync::Arc::clone(&held);
    let lists = [("tools/list", json!({ "tools": [{ "name": "x" }] }))];
    let fake = Fake::new("a", json!({ "tools": {} }), &lists, move |call| {
        let params = json!({ "progressToken": token(call), "progress": 1 });
        let hold = std::sync::Arc::clone(&hold);
        let events = stream::repeat(()).then(move |()| {
            let _ = &hold;
            let event = notification("notifications/progress", &params);
            async move {
                sleep(Duration::from_secs(1)).await;
                Ok::<_, CallError>(event)
            }
        });
        Ok(Reply::Stream(events.boxed()))
    });
    (fake, held)
}

#[tokio::test(start_paused = true)]
async fn r74_a_caller_that_stops_reading_does_not_keep_its_call_beyond_the_ceiling() {
    let (a, held) = endless();
    let hub = hub(TIMES, &[&a]).await;
    let reply = hub.call(wanted(Some(json!(7)))).await.unwrap();
    let mut events = reply.into_stream();
    assert!(events.next().await.unwrap().is_ok());
    let running = || std::sync::Arc::strong_count(&held) == 3;
    sleep(Duration::from_secs(148)).await;
    assert!(running(), "not before");
    sleep(Duration::from_secs(2)).await;
    assert!(!running(), "nobody had to read for it");
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    assert_eq!(last.unwrap().unwrap_err().kind, Kind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_pauses_does_not_talk_its_time_away() {
    let lists = [("tools/list", json!({ "tools": [{ "name": "x" }] }))];
    let a = Fake::new("a", json!({ "tools": {} }), &lists, move |_| {
        let said = || Ok::<_, CallError>(notification("x/own", &json!({})));
        Ok(Reply::Stream(stream::repeat_with(said).boxed()))
    });
    let hub = hub(TIMES, &[&a]).await;
    let mut events = hub.call(wanted(None)).await.unwrap().into_stream();
    let started = Instant::now();
    let error = loop {
        match events.next().await.unwrap() {
            Ok(_) => tokio::time::advance(Duration::from_secs(1)).await,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, Kind::Timeout);
    assert!(started.elapsed().as_secs() < 70, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn dropping_a_reply_that_is_watched_cancels_its_call_at_once() {
    let (a, held) = endless();
    let hub = hub(TIMES, &[&a]).await;
    let reply = hub.call(wanted(Some(json!(7)))).await.unwrap();
    let mut events = reply.into_stream();
    assert!(events.next().await.unwrap().is_ok());
    drop(events);
    assert_eq!(std::sync::Arc::strong_count(&held), 2);
}
