//! Whom a server's questions reach, and for how long.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use waypost_config::config::Isolation;
use waypost_hub::call::{Call, Carrier, Comeback};
use waypost_hub::reply::{End, Event, Reply};
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::raw::Raw;

use super::kit::{
    Line, PATIENCE, Played, call, call_in_session, end, object, question, result, state,
};
use crate::legacy::Legacy;

fn refusal(id: &str) -> impl Fn(&Value) -> bool {
    let id = id.to_owned();
    move |said| said["id"] == *id && said.get("error").is_some()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_comes_back_to_is_cancelled() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let asks = async {
        server.first().await;
        let request = server.line(0).request("tools/call").await;
        server.line(0).says(&question("a"));
        request
    };
    let (end_, request) = join(end(&legacy, call()), asks).await;
    let state = state(end_);
    let asked = Instant::now();
    let line = server.line(0);
    line.hears(refusal("a")).await;
    assert!(asked.elapsed() >= PATIENCE);
    let is_cancel = |said: &Value| said["method"] == "notifications/cancelled";
    let cancelled = line.hears(is_cancel).await;
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
    let mut late = call();
    late.params.set("requestState", Raw::string(&state));
    assert!(legacy.call(late).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_call_has_answered_before_is_not_asked() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let mut asking = call();
    let brought = json!({ "who": { "action": "accept" }, "other": { "action": "accept" } });
    asking.params.set("inputResponses", Raw::from(&brought));
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        let mut named = question("a");
        named["params"]["_meta"] = json!({ "dev.waypost/key": "who" });
        line.says(&named);
        let answer = line.hears(|said| said["id"] == "a").await;
        assert_eq!(answer["result"]["action"], "accept");
        line.says(&result(&request));
    };
    let (end, ()) = join(end(&legacy, asking), plays).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn without_room_to_wait_the_server_is_refused_and_the_call_goes_on() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 0);
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says(&question("a"));
        line.hears(refusal("a")).await;
        line.says(&result(&request));
    };
    let (end, ()) = join(end(&legacy, call()), plays).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_on_a_shared_session_is_never_guessed() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let plays = async {
        let line = server.first().await;
        let one = line.request("tools/call").await;
        let two = line.request("tools/call").await;
        line.says(&question("whose"));
        line.hears(refusal("whose")).await;
        line.says(&result(&one));
        line.says(&result(&two));
    };
    let (ends, ()) = join(join(end(&legacy, call()), end(&legacy, call())), plays).await;
    assert!(matches!(ends, (End::Complete(_), End::Complete(_))));
    let line = server.line(0);
    line.says(&question("outside"));
    line.hears(refusal("outside")).await;
    let plays = async {
        line.request("tools/call").await;
        line.says(&question("only"));
    };
    let (end, ()) = join(end(&legacy, call()), plays).await;
    assert!(matches!(end, End::InputRequired(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn what_one_client_s_server_asks_before_a_call_is_put_to_the_call() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says(&result(&request));
        line
    };
    let (_, line) = join(end(&legacy, call_in_session()), plays).await;
    line.says(&question("early"));
    let end = end(&legacy, call_in_session()).await;
    assert!(matches!(end, End::InputRequired(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_come_while_nobody_waits() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says(&question("a"));
        sleep(PATIENCE / 2).await;
        line.says(&result(&request));
    };
    let (asked, ()) = join(end(&legacy, call()), plays).await;
    let mut again = call();
    again.params.set("requestState", Raw::string(&state(asked)));
    for _ in 0..2 {
        let end = end(&legacy, again.clone()).await;
        assert!(matches!(end, End::Complete(_)), "{end:?}");
    }
    sleep(Duration::from_secs(61)).await;
    assert!(legacy.call(again).await.is_err(), "too late to repeat it");
}

/// A call whose server has asked "a", and the one that brings the answer.
async fn asking(legacy: &Legacy, server: &Played) -> (Arc<Line>, Value, Call) {
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says(&question("a"));
        (line, request)
    };
    let mut answers = call();
    answers.meta.progress_token = Some(Raw::string("t"));
    let (asked, (line, request)) = join(end(legacy, answers.clone()), plays).await;
    answers
        .params
        .set("requestState", Raw::string(&state(asked)));
    let accept = json!({ "q1": { "action": "accept", "content": {} } });
    answers.params.set("inputResponses", Raw::from(&accept));
    (line, request, answers)
}

fn is_cancel(said: &Value) -> bool {
    said["method"] == "notifications/cancelled"
}

#[tokio::test(start_paused = true)]
async fn a_repeat_waits_on_when_the_connection_of_the_first_is_lost() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let (line, request, mut answers) = asking(&legacy, &server).await;
    let mut first = end(&legacy, answers.clone());
    assert!((&mut first).now_or_never().is_none());
    line.hears(|said| said["id"] == "a").await;
    answers.meta.progress_token = Some(Raw::string("repeat"));
    answers.carrier = Carrier::watched();
    let mut repeat = end(&legacy, answers.clone());
    assert!((&mut repeat).now_or_never().is_none());
    drop(first);
    let cancelled = timeout(Duration::from_secs(5), line.hears(is_cancel)).await;
    assert!(cancelled.is_err(), "{cancelled:?}");
    line.says(&result(&request));
    let end_of_repeat = repeat.await;
    assert!(
        matches!(end_of_repeat, End::Complete(_)),
        "{end_of_repeat:?}"
    );
    // What answered is known to all, were the end a task.
    let session = legacy.instance(&answers.principal, None);
    assert!(session.is_some());
    assert_eq!(answers.carrier.instance(), session);
    answers.carrier = Carrier::watched();
    assert_eq!(end(&legacy, answers.clone()).await, end_of_repeat);
    assert_eq!(answers.carrier.instance(), session);
    // It answered the question once.
    let again = timeout(Duration::from_secs(5), line.hears(|said| said["id"] == "a")).await;
    assert!(again.is_err(), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_given_up_with_the_last_who_waits_for_it() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let (line, _, answers) = asking(&legacy, &server).await;
    let mut both = [answers.clone(), answers.clone()].map(|call| end(&legacy, call));
    for waiting in &mut both {
        assert!(waiting.now_or_never().is_none());
    }
    drop(both);
    line.hears(is_cancel).await;
    assert!(legacy.call(answers).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_repeat_hears_all_notifications_under_its_own_token_and_the_first_under_its() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    let (line, request, answers) = asking(&legacy, &server).await;
    let hears = |token: &'static str| {
        let mut call = answers.clone();
        call.meta.progress_token = Some(Raw::string(token));
        legacy.call(call)
    };
    let both = join(hears("first"), hears("repeat"));
    let plays = async {
        line.hears(|said| said["id"] == "a").await;
        for _ in 0..50 {
            line.says_on(
                Some(&request),
                &json!({ "method": "notifications/progress",
                    "params": { "progressToken": "t", "progress": 1 } }),
            );
        }
        line.says(&result(&request));
    };
    let ((first, repeat), ()) = Box::pin(join(both, plays)).await;
    let told = async |reply: Reply| {
        let events: Vec<_> = reply.into_stream().collect().await;
        let notifications = events.into_iter().filter_map(|event| match event.unwrap() {
            Event::Notification(told) => told.params.string("progressToken"),
            Event::End(_) => None,
        });
        notifications.collect::<Vec<_>>()
    };
    let (first, repeat) = (first.unwrap(), repeat.unwrap());
    let (first, repeat) = join(told(first), told(repeat)).await;
    assert_eq!(first, vec!["first"; 50]);
    assert_eq!(repeat, vec!["repeat"; 50]);
}

#[tokio::test(start_paused = true)]
async fn methods_that_are_not_of_the_protocol_are_refused() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    legacy.begin(Arc::new(server.clone())).await.unwrap();
    let line = server.line(0);
    line.says(&json!({ "id": "x", "method": "tools/call" }));
    let refused = line.hears(refusal("x")).await;
    assert_eq!(refused["error"]["code"], -32601);
    line.says(&json!({ "id": "p", "method": "ping" }));
    line.hears(|said| said["id"] == "p" && said["result"] == json!({}))
        .await;
}

#[tokio::test(start_paused = true)]
async fn r25_a_call_that_is_given_up_while_it_asks_is_cancelled_at_once() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 1);
    let asks = async {
        server.first().await;
        let request = server.line(0).request("tools/call").await;
        server.line(0).says(&question("a"));
        request
    };
    let (asked, request) = join(end(&legacy, call()), asks).await;
    let mut gives_up = call();
    gives_up
        .params
        .set("requestState", Raw::string(&state(asked)));
    gives_up.comeback = Comeback::GivesUp;
    let before = Instant::now();
    let end_ = end(&legacy, gives_up.clone()).await;
    assert!(matches!(end_, End::Error(_)), "{end_:?}");
    let line = server.line(0);
    line.hears(refusal("a")).await;
    let is_cancel = |said: &Value| said["method"] == "notifications/cancelled";
    let cancelled = line.hears(is_cancel).await;
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
    assert!(before.elapsed() < Duration::from_secs(1));
    assert!(legacy.call(gives_up).await.is_err(), "a state is good once");
}

#[tokio::test(start_paused = true)]
async fn without_room_to_wait_a_call_that_needs_a_visit_first_fails() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 0);
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        let visit = json!({ "mode": "url", "elicitationId": "e", "url": "https://a.example",
            "message": "m" });
        line.says(
            &json!({ "id": request["id"], "error": { "code": -32042, "message": "visit",
            "data": { "elicitations": [visit] } } }),
        );
        let again = line.request("tools/call");
        let again = timeout(Duration::from_secs(5), again).await;
        assert!(again.is_err(), "sent again");
    };
    let mut call = call();
    let able = json!({ "elicitation": { "form": {}, "url": {} } });
    call.meta.capabilities = ClientCapabilities::new(object(&able));
    let (end, ()) = join(end(&legacy, call), plays).await;
    assert!(matches!(end, End::Error(_)), "{end:?}");
}
