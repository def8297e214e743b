//! How long tasks, and the sessions that they live in, are waited for and remembered.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use waypost_config::config::Isolation;
use waypost_hub::call::{Call, Principal};
use waypost_hub::error::Kind;
use waypost_hub::reply::End;

use super::kit::{Line, Played, call_in_session, end, object, question};
use crate::fault::Fault;
use crate::legacy::Legacy;

const WELCOME: &str = r#"{"result":{"protocolVersion":"2025-11-25","capabilities":
    {"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}}}"#;

fn about(method: &str) -> Call {
    about_task(method, "t")
}

fn about_task(method: &str, task: &str) -> Call {
    let mut call = Call::own(method, object(&json!({ "taskId": task })));
    call.principal = Principal::new("p");
    call
}

/// Answers the next request of this method.
async fn answers(line: &Line, method: &str, result: Value) {
    let request = timeout(Duration::from_secs(5), line.request(method)).await;
    let request = request.unwrap_or_else(|_| panic!("no `{method}`"));
    line.says(&json!({ "id": request["id"], "result": result }));
}

async fn is_asked(line: &Line, method: &str) -> bool {
    let within = Duration::from_millis(100);
    timeout(within, line.request(method)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_is_kept_for_a_while_after_it_was_delivered_and_not_longer() {
    let server = Played::new();
    server.welcomes(Duration::ZERO, WELCOME);
    let legacy = server.legacy(Isolation::Shared, 9);
    legacy.begin(Arc::new(server.clone())).await.unwrap();
    let line = server.line(0);
    let look = async |asks: bool| {
        let plays = async {
            let done = json!({ "taskId": "t", "status": "completed" });
            answers(&line, "tasks/get", done).await;
            if asks {
                answers(&line, "tasks/result", json!({ "content": [] })).await;
            } else {
                assert!(!is_asked(&line, "tasks/result").await);
            }
        };
        let (end, ()) = join(end(&legacy, about("tasks/get")), plays).await;
        assert!(matches!(end, End::Complete(_)), "{end:?}");
    };
    look(true).await;
    sleep(Duration::from_secs(50)).await;
    look(false).await;
    sleep(Duration::from_secs(11)).await;
    look(true).await;

    let cancels = answers(&line, "tasks/cancel", json!({}));
    join(end(&legacy, about("tasks/cancel")), cancels).await;
    look(true).await;
}

/// The session of the callers, which has answered one call.
async fn begun(server: &Played, legacy: &Legacy, call: Call) -> Arc<Line> {
    server.welcomes(Duration::ZERO, WELCOME);
    let plays = async {
        let line = server.first().await;
        answers(&line, "tools/call", json!({ "content": [] })).await;
        line
    };
    join(end(legacy, call), plays).await.1
}

fn plain() -> Call {
    let mut call = Call::own("tools/call", object(&json!({ "name": "t" })));
    call.principal = Principal::new("p");
    call
}

fn asks(task: &str) -> Value {
    json!({ "taskId": task, "status": "input_required" })
}

#[tokio::test(start_paused = true)]
async fn r02_a_lost_session_is_noticed_by_who_asks_about_a_task() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Principal, 9);
    begun(&server, &legacy, plain()).await;
    server.fails(Fault::SessionLost);
    let End::Error(error) = end(&legacy, about("tasks/get")).await else {
        panic!("no error")
    };
    assert_eq!(error.code(), -32602);
    assert_eq!(error.message(), "unknown task");
    sleep(Duration::from_millis(1)).await;
    assert!(server.line(0).is_closed(), "nobody is sent there any more");
}

#[tokio::test(start_paused = true)]
async fn asking_in_vain_about_a_task_keeps_no_session() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Principal, 9);
    let line = begun(&server, &legacy, plain()).await;
    for _ in 0..5 {
        let late = legacy.call(about("tasks/get")).await;
        assert!(late.is_err());
    }
    let working = json!({ "taskId": "t", "status": "working" });
    let polls = answers(&line, "tasks/get", working);
    // Those in vain are still to be looked at.
    for _ in 0..5 {
        line.request("tasks/get").await;
    }
    let (end, ()) = join(end(&legacy, about("tasks/get")), polls).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
    sleep(Duration::from_secs(59)).await;
    assert!(!line.is_closed(), "a task that works is a use of it");
    legacy.call(about("tasks/get")).await.unwrap_err();
    assert!(line.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_asks_for_ever_keeps_its_session_for_an_hour() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Principal, 9);
    let line = begun(&server, &legacy, plain()).await;
    let polls = answers(&line, "tasks/get", asks("t"));
    join(end(&legacy, about("tasks/get")), polls).await;
    let waits = line.request("tasks/result").await;
    sleep(Duration::from_secs(3590)).await;
    assert!(!line.is_closed());
    let is_cancel = |said: &Value| said["method"] == "notifications/cancelled";
    let cancelled = timeout(Duration::from_secs(11), line.hears(is_cancel)).await;
    assert_eq!(cancelled.unwrap()["params"]["requestId"], waits["id"]);
    sleep(Duration::from_secs(61)).await;
    assert!(line.is_closed());
}

#[tokio::test(start_paused = true)]
async fn tasks_that_ask_for_ever_are_not_waited_for_without_bound() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Principal, 9);
    let line = begun(&server, &legacy, plain()).await;
    let names: Vec<_> = (0..4097).map(|number| number.to_string()).collect();
    let ask = async |name: &str| {
        let reply = legacy.call(about_task("tasks/get", name)).await;
        reply
            .map(drop)
            .map_err(|error| error.into_call(&"u".into()))
    };
    let plays = async {
        for _ in &names {
            let request = line.request("tasks/get").await;
            let task = asks(request["params"]["taskId"].as_str().unwrap());
            line.says(&json!({ "id": request["id"], "result": task }));
        }
    };
    let asked = join_all(names.iter().map(|name| ask(name)));
    let (asked, ()) = Box::pin(join(asked, plays)).await;
    let refused: Vec<_> = asked.into_iter().filter_map(Result::err).collect();
    let [error] = &*refused else {
        panic!("{}", refused.len())
    };
    assert_eq!(error.kind, Kind::Throttled);
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_before_any_call_is_not_put_to_the_wait_for_a_task() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let line = begun(&server, &legacy, call_in_session()).await;
    line.says(&question("early"));
    let mut look = about("tasks/get");
    look.session = call_in_session().session;
    let (looked, ()) = join(end(&legacy, look), answers(&line, "tasks/get", asks("t"))).await;
    let End::Complete(task) = looked else {
        panic!("{looked:?}")
    };
    assert!(!task.contains("inputRequests"), "{task:?}");
    let asked = end(&legacy, call_in_session()).await;
    assert!(matches!(asked, End::InputRequired(_)), "{asked:?}");
}
