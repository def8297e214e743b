//! What of a session's messages belongs to whom when that is not said, and what becomes of what
//! was left behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use waypost_config::config::Isolation;
use waypost_hub::call::{Asks, Call, Session};
use waypost_hub::reply::{End, Event, EventStream, Reply};
use waypost_hub::upstream::BoxFuture;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::message::Outcome;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::kit::{Line, Played, call, call_in_session, end, object, question, result, state};
use crate::legacy::Legacy;

fn refusal(id: &str) -> impl Fn(&Value) -> bool {
    let id = id.to_owned();
    move |said| said["id"] == *id && said.get("error").is_some()
}

/// A caller who leaves as soon as the server has the call.
async fn leaves(legacy: &Legacy, server: &Played, call: Call) -> Value {
    let written = async {
        let request = server.first().await.request("tools/call").await;
        sleep(Duration::from_millis(1)).await;
        request
    };
    tokio::select! {
        request = written => request,
        end = end(legacy, call) => panic!("{end:?}"),
    }
}

/// The methods of the notifications before the end.
async fn told(legacy: &Legacy, call: Call) -> Vec<String> {
    let Reply::Stream(mut events) = legacy.call(call).await.unwrap() else {
        return Vec::new();
    };
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        if let Event::Notification(notification) = event.unwrap() {
            told.push(notification.method);
        }
    }
    told
}

async fn asks_in_vain(line: &Line, id: &str) {
    line.says(&question(id));
    line.hears(refusal(id)).await;
}

#[tokio::test(start_paused = true)]
async fn r10_callers_of_one_name_are_not_asked_each_other_s_questions() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Principal, 9);
    let plays = async {
        let line = server.first().await;
        let one = line.request("tools/call").await;
        let two = line.request("tools/call").await;
        asks_in_vain(&line, "whose").await;
        line.says(&result(&one));
        line.says(&result(&two));
        asks_in_vain(&line, "between").await;
    };
    let (ends, ()) = join(join(end(&legacy, call()), end(&legacy, call())), plays).await;
    assert!(matches!(ends, (End::Complete(_), End::Complete(_))));
}

#[tokio::test(start_paused = true)]
async fn r10_what_a_session_did_not_declare_is_refused_though_no_call_is_there() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says(&result(&request));
    };
    join(end(&legacy, call_in_session()), plays).await;
    let line = server.line(0);
    line.says(&json!({ "id": "early", "method": "roots/list" }));
    line.hears(refusal("early")).await;
}

#[tokio::test(start_paused = true)]
async fn r10_what_a_call_given_up_asks_is_not_put_to_another_caller() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let gone = leaves(&legacy, &server, call()).await;
    let line = server.line(0);
    let plays = async {
        line.request("tools/call").await;
        asks_in_vain(&line, "gone's").await;
        line.says(&result(&gone));
        line.says(&question("b"));
    };
    let (end, ()) = join(end(&legacy, call()), plays).await;
    let End::InputRequired(asked) = end else {
        panic!("{end:?}");
    };
    let asked = asked.get("inputRequests").unwrap().as_object().unwrap();
    assert_eq!(asked.iter().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn r25_a_call_given_up_and_never_answered_does_not_silence_a_session_for_good() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    leaves(&legacy, &server, call()).await;
    sleep(Duration::from_secs(121)).await;
    let line = server.line(0);
    let plays = async {
        line.request("tools/call").await;
        line.says(&question("b"));
    };
    let (end, ()) = join(end(&legacy, call()), plays).await;
    assert!(matches!(end, End::InputRequired(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn r10_two_calls_of_one_client_that_ask_at_once_are_both_asked() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let plays = async {
        let line = server.first().await;
        line.request("tools/call").await;
        line.request("tools/call").await;
        line.says(&question("a"));
        sleep(Duration::from_secs(1)).await;
        line.says(&question("b"));
    };
    let calls = join(
        end(&legacy, call_in_session()),
        end(&legacy, call_in_session()),
    );
    let ((one, two), ()) = Box::pin(join(calls, plays)).await;
    assert!(matches!(one, End::InputRequired(_)), "{one:?}");
    assert!(matches!(two, End::InputRequired(_)), "{two:?}");
}

#[tokio::test(start_paused = true)]
async fn r10_what_a_call_given_up_logs_or_breaks_is_not_told_to_another_caller() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let gone = leaves(&legacy, &server, call()).await;
    let line = server.line(0);
    let log =
        json!({ "method": "notifications/message", "params": { "level": "error", "data": 1 } });
    let mut logs = call();
    logs.meta.log_level = Some(Raw::string("info"));
    let plays = async {
        let request = line.request("tools/call").await;
        line.says(&log);
        line.says(&json!({ "id": null, "error": { "code": -32600, "message": "m" } }));
        line.says(&result(&gone));
        line.says(&log);
        line.says(&result(&request));
    };
    let (told, ()) = join(told(&legacy, logs), plays).await;
    assert_eq!(told, ["notifications/message"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_on_the_stream_of_one_call_is_never_put_to_another() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let gone = leaves(&legacy, &server, call_in_session()).await;
    let line = server.line(0);
    let plays = async {
        let request = line.request("tools/call").await;
        line.says_on(Some(&gone), &question("late"));
        line.hears(refusal("late")).await;
        let mut about_a_task = question("task");
        about_a_task["params"]["_meta"] =
            json!({ "io.modelcontextprotocol/related-task": { "taskId": "t" } });
        line.says(&about_a_task);
        line.hears(refusal("task")).await;
        line.says(&result(&request));
    };
    let (end, ()) = join(end(&legacy, call_in_session()), plays).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_goes_over_to_the_client_s_other_call_or_its_next_when_its_call_ends() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let plays = async {
        let line = server.first().await;
        let one = line.request("tools/call").await;
        line.request("tools/call").await;
        line.says(&question("a"));
        line.says(&result(&one));
        line
    };
    let calls = join(
        end(&legacy, call_in_session()),
        end(&legacy, call_in_session()),
    );
    let ((one, two), line) = Box::pin(join(calls, plays)).await;
    assert!(matches!(one, End::Complete(_)), "{one:?}");
    assert!(matches!(two, End::InputRequired(_)), "{two:?}");

    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let plays = async {
        let line = server.first().await;
        let only = line.request("tools/call").await;
        line.says(&question("b"));
        line.says(&result(&only));
    };
    let (only, ()) = join(end(&legacy, call_in_session()), plays).await;
    assert!(matches!(only, End::Complete(_)), "{only:?}");
    // Nobody has seen it, and nothing says that it was that call's.
    let next = end(&legacy, call_in_session()).await;
    assert!(matches!(next, End::InputRequired(_)), "{next:?}");
    drop(line);
}

#[tokio::test(start_paused = true)]
async fn r10_a_question_never_goes_over_to_another_caller() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let one = async { end(&legacy, call()).await };
    let later = async {
        sleep(Duration::from_millis(10)).await;
        end(&legacy, call()).await
    };
    let plays = async {
        let line = server.first().await;
        let one = line.request("tools/call").await;
        line.says(&question("one's"));
        let two = line.request("tools/call").await;
        line.says(&result(&one));
        line.hears(refusal("one's")).await;
        line.says(&result(&two));
    };
    let ((one, two), ()) = Box::pin(join(join(one, later), plays)).await;
    assert!(matches!(one, End::Complete(_)), "{one:?}");
    assert!(matches!(two, End::Complete(_)), "{two:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_reaches_the_server_although_the_call_that_carried_it_has_ended() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says(&question("a"));
        (line, request)
    };
    let (asked, (line, request)) = join(end(&legacy, call_in_session()), plays).await;
    line.says(&result(&request));
    let mut again = call_in_session();
    again.params.set("requestState", Raw::string(&state(asked)));
    let responses = object(&json!({ "q1": { "action": "decline" } }));
    again.params.set("inputResponses", responses.into());
    let end = end(&legacy, again).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
    let answer = line.hears(|said| said["id"] == "a").await;
    assert_eq!(answer["result"]["action"], "decline");
}

#[tokio::test(start_paused = true)]
async fn more_questions_than_a_call_may_carry_are_refused() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let plays = async {
        let line = server.first().await;
        line.request("tools/call").await;
        for n in 0..65 {
            line.says(&question(&format!("n{n}")));
        }
        line.hears(refusal("n64")).await;
    };
    let (end, ()) = join(end(&legacy, call()), plays).await;
    let End::InputRequired(asked) = end else {
        panic!("{end:?}");
    };
    let asked = asked.get("inputRequests").unwrap().as_object().unwrap();
    assert_eq!(asked.iter().count(), 64);
}

const COMPLETE: &str = "notifications/elicitation/complete";

/// What a caller is told who agreed to visit an address, when the server says that it has.
async fn told_of_a_visit(mut call: Call, while_parked: bool) -> Vec<String> {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    call.meta.capabilities =
        ClientCapabilities::new(object(&json!({ "elicitation": { "url": {} } })));
    let asks = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says(
            &json!({ "id": "a", "method": "elicitation/create", "params": { "mode": "url",
            "message": "m", "url": "https://example.com", "elicitationId": "e" } }),
        );
        (line, request)
    };
    let (asked, (line, request)) = join(end(&legacy, call.clone()), asks).await;
    call.params.set("requestState", Raw::string(&state(asked)));
    let responses = object(&json!({ "q1": { "action": "accept" } }));
    call.params.set("inputResponses", responses.into());
    let done = json!({ "method": COMPLETE, "params": { "elicitationId": "e" } });
    if while_parked {
        line.says(&done);
    }
    let ends = async {
        line.hears(|said| said["id"] == "a").await;
        if !while_parked {
            line.says(&done);
        }
        line.says(&result(&request));
    };
    join(told(&legacy, call), ends).await.0
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_session_learns_that_its_visit_is_over_and_no_other_does() {
    for while_parked in [false, true] {
        let told = Box::pin(told_of_a_visit(call_in_session(), while_parked)).await;
        assert_eq!(told, [COMPLETE], "{while_parked}");
        let told = Box::pin(told_of_a_visit(call(), while_parked)).await;
        assert_eq!(told, [""; 0], "{while_parked}");
    }
}

#[tokio::test(start_paused = true)]
async fn r82_a_task_made_after_its_caller_has_gone_is_cancelled() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let gone = leaves(&legacy, &server, call()).await;
    let line = server.line(0);
    line.says(&json!({ "id": gone["id"], "result": { "task": { "taskId": "t" } } }));
    let cancel = line.request("tasks/cancel").await;
    assert_eq!(cancel["params"], json!({ "taskId": "t" }));
    line.says(&result(&cancel));
}

#[tokio::test(start_paused = true)]
async fn r82_a_task_whose_creation_nobody_read_is_cancelled() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let mut logs = call();
    logs.meta.progress_token = Some(Raw::string("p"));
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says(&json!({ "method": "notifications/progress",
            "params": { "progressToken": request["params"]["_meta"]["progressToken"],
                "progress": 1 } }));
        line.says(&json!({ "id": request["id"], "result": { "task": { "taskId": "t" } } }));
        line
    };
    let (reply, line) = join(legacy.call(logs), plays).await;
    let Reply::Stream(events) = reply.unwrap() else {
        panic!("the progress came first");
    };
    drop(events);
    line.request("tasks/cancel").await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_does_not_wait_for_a_call_that_waits_for_its_caller() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let plays = async {
        let line = server.first().await;
        line.request("tools/call").await;
        line.is_forgotten();
        sleep(Duration::from_millis(1)).await;
        line.says(&question("a"));
        line
    };
    let (end, line) = join(end(&legacy, call()), plays).await;
    assert!(matches!(end, End::InputRequired(_)), "{end:?}");
    let closed = async {
        while !line.is_closed() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(1), closed).await.unwrap();
}

/// A client that is asked outside of its calls, and says this.
#[derive(Debug)]
struct Asked(Mutex<Vec<String>>, Option<Value>);

impl Asks for Asked {
    fn ask(&self, method: &str, _: &Object) -> Option<BoxFuture<'static, Option<Outcome>>> {
        self.0.lock().unwrap().push(method.to_owned());
        let answer = self
            .1
            .as_ref()
            .map(|answer| Outcome::Result(Raw::from(answer)));
        Some(Box::pin(async move {
            match answer {
                Some(answer) => Some(answer),
                None => std::future::pending().await,
            }
        }))
    }
}

fn asked_by(asked: &Arc<Asked>) -> Call {
    let able = ClientCapabilities::new(object(&json!({ "elicitation": {}, "roots": {} })));
    let mut call = call();
    let session = Session::new("s", CancellationToken::new()).declaring(able.clone());
    call.session = Some(session.asked_by(Arc::clone(asked) as _));
    call.meta.capabilities = able;
    call
}

#[tokio::test(start_paused = true)]
async fn what_a_server_asks_outside_of_calls_reaches_the_client_that_has_its_session() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let roots = json!({ "roots": [] });
    let asked = Arc::new(Asked(Mutex::default(), Some(roots.clone())));
    let ask = |id: &str, method: &str| json!({ "id": id, "method": method, "params": {} });
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        // Roots are about no call, also while there is one.
        line.says(&ask("during", "roots/list"));
        let told = line.hears(|said| said["id"] == "during").await;
        assert_eq!(told["result"], roots);
        line.says(&result(&request));
        line
    };
    let (first, line) = join(end(&legacy, asked_by(&asked)), plays).await;
    assert!(matches!(first, End::Complete(_)), "{first:?}");
    line.says(&ask("after", "elicitation/create"));
    let told = line.hears(|said| said["id"] == "after").await;
    assert_eq!(told["result"], roots);
    assert_eq!(
        *asked.0.lock().unwrap(),
        ["roots/list", "elicitation/create"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_asked_leaves_the_question_to_its_client() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let asked = Arc::new(Asked(Mutex::default(), None));
    let mut deaf = asked_by(&asked);
    deaf.meta.capabilities = ClientCapabilities::default();
    let plays = async {
        let line = server.first().await;
        let begun = line.request("initialize").await;
        assert!(begun["params"]["capabilities"]["elicitation"].is_object());
        let request = line.request("tools/call").await;
        line.says(&question("a"));
        line.says(&json!({ "method": "notifications/cancelled", "params": { "requestId": "a" } }));
        line.says(&result(&request));
    };
    let (end, ()) = join(end(&legacy, deaf), plays).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
    assert_eq!(asked.0.lock().unwrap().len(), 1);
}

/// A listener of this, once it is acknowledged.
async fn listens(legacy: &Legacy, session: Option<&str>, wanted: &Value) -> EventStream {
    let params = object(&json!({ "notifications": wanted }));
    let mut call = Call::own("subscriptions/listen", params);
    call.session = session.map(|id| Session::new(id, CancellationToken::new()));
    let mut events = legacy.call(call).await.unwrap().into_stream();
    events.next().await.unwrap().unwrap();
    events
}

async fn hears(events: &mut EventStream) -> Option<String> {
    match timeout(Duration::from_secs(1), events.next()).await {
        Ok(Some(Ok(Event::Notification(told)))) => Some(told.method),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn r10_what_one_session_hears_of_its_resource_is_told_to_no_other() {
    let server = Played::new();
    server.welcomes(
        Duration::ZERO,
        r#"{"result":{"protocolVersion":"2025-06-18",
            "capabilities":{"resources":{"subscribe":true}}}}"#,
    );
    let legacy = server.legacy(Isolation::Session, 9);
    let wanted = json!({ "resourceSubscriptions": ["file:///x"], "resourcesListChanged": true });
    let mut all = Vec::new();
    for (at, session) in [Some("one"), Some("two"), None].into_iter().enumerate() {
        let plays = async {
            while server.dialled() <= at {
                tokio::task::yield_now().await;
            }
            let line = server.line(at);
            let request = line.request("resources/subscribe").await;
            line.says(&result(&request));
        };
        let (listener, ()) = join(listens(&legacy, session, &wanted), plays).await;
        all.push(listener);
    }
    let updated = "notifications/resources/updated";
    server
        .line(0)
        .says(&json!({ "method": updated, "params": { "uri": "file:///x" } }));
    assert_eq!(hears(&mut all[0]).await.as_deref(), Some(updated));
    assert_eq!(hears(&mut all[1]).await, None);
    assert_eq!(hears(&mut all[2]).await, None, "Waypost's own");
    // A list is everybody's.
    let changed = "notifications/resources/list_changed";
    server.line(0).says(&json!({ "method": changed }));
    assert_eq!(hears(&mut all[2]).await.as_deref(), Some(changed));
}

#[tokio::test(start_paused = true)]
async fn a_session_with_a_listener_is_not_unused() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let wanted = json!({ "toolsListChanged": true });
    let mut listener = listens(&legacy, Some("one"), &wanted).await;
    sleep(Duration::from_secs(600)).await;
    let changed = "notifications/tools/list_changed";
    server.line(0).says(&json!({ "method": changed }));
    assert_eq!(hears(&mut listener).await.as_deref(), Some(changed));
    drop(listener);
    sleep(Duration::from_secs(121)).await;
    assert!(server.line(0).is_closed());
}
