//! What a call says while its caller has a question.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::join;
use futures_util::stream::Peekable;
use futures_util::{FutureExt as _, StreamExt as _, TryFutureExt as _};
use serde_json::{Value, json};
use waypost_config::config::Isolation;
use waypost_hub::call::{Call, Comeback};
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Event, EventStream, Reply};
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::kit::{Line, Played, call_in_session, end, object, question, result, state};
use crate::fault::Fault;
use crate::legacy::Legacy;

/// A call whose server has asked "a".
struct Asking {
    legacy: Arc<Legacy>,
    line: Arc<Line>,
    request: Value,
    state: String,
}

type Heard = Peekable<EventStream>;

/// A caller that hears all there is.
fn caller() -> Call {
    let mut call = call_in_session();
    call.meta.progress_token = Some(Raw::string("p"));
    call.meta.log_level = Some(Raw::string("info"));
    call
}

impl Asking {
    async fn new() -> Self {
        let server = Played::new();
        let legacy = Arc::new(server.legacy(Isolation::Session, 9));
        let plays = async {
            let line = server.first().await;
            let request = line.request("tools/call").await;
            line.says_on(Some(&request), &question("a"));
            (line, request)
        };
        let (asked, (line, request)) = join(end(&legacy, caller()), plays).await;
        Self {
            legacy,
            line,
            request,
            state: state(asked),
        }
    }

    fn comes_back(&self, comeback: Comeback, answers: &Value) -> Call {
        let mut call = caller();
        call.comeback = comeback;
        call.params.set("requestState", Raw::string(&self.state));
        if comeback == Comeback::Answers {
            call.params.set("inputResponses", Raw::from(answers));
        }
        call
    }

    /// Listens from now on.
    fn listens(&self) -> Heard {
        let (legacy, call) = (
            Arc::clone(&self.legacy),
            self.comes_back(Comeback::Listens, &Value::Null),
        );
        let reply = async move {
            legacy
                .call(call)
                .await
                .map_err(|e| e.into_call(&"u".into()))
        };
        let events = reply.map_ok(Reply::into_stream).try_flatten_stream();
        let mut events = events.boxed().peekable();
        let _there = Pin::new(&mut events).peek().now_or_never();
        events
    }

    async fn answers(&self, answers: &Value) -> End {
        end(&self.legacy, self.comes_back(Comeback::Answers, answers)).await
    }

    fn progress(&self, progress: u32) {
        let token = &self.request["params"]["_meta"]["progressToken"];
        self.line.says(&json!({ "method": "notifications/progress",
            "params": { "progressToken": token, "progress": progress } }));
    }

    fn logs(&self, level: &str) {
        self.line.says_on(
            Some(&self.request),
            &json!({ "method": "notifications/message", "params": { "level": level, "data": 1 } }),
        );
    }
}

async fn next(events: &mut Heard) -> Result<Event, CallError> {
    events.next().await.unwrap()
}

/// The method of the next notification and its params.
async fn told(events: &mut Heard) -> (String, Object) {
    match next(events).await.unwrap() {
        Event::Notification(notification) => (notification.method, notification.params),
        Event::End(end) => panic!("{end:?}"),
    }
}

/// What is asked, by the end of a stream.
async fn asked(events: &mut Heard) -> Vec<String> {
    match next(events).await.unwrap() {
        Event::End(End::InputRequired(result)) => {
            let requests = result
                .get("inputRequests")
                .map(|raw| raw.as_object().unwrap());
            let requests = requests.unwrap_or_default();
            requests.iter().map(|(key, _)| key.to_owned()).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn accept() -> Value {
    json!({ "q1": { "action": "accept" } })
}

#[tokio::test(start_paused = true)]
async fn r24_what_a_call_says_beside_a_question_is_heard_at_once() {
    let asking = Asking::new().await;
    let mut heard = asking.listens();
    asking.progress(1);
    asking.logs("debug");
    asking.logs("warning");
    let (method, params) = told(&mut heard).await;
    assert_eq!(method, "notifications/progress");
    assert_eq!(
        params,
        object(&json!({ "progressToken": "p", "progress": 1 }))
    );
    let (method, params) = told(&mut heard).await;
    assert_eq!(
        (&*method, params.string("level").as_deref()),
        ("notifications/message", Some("warning"))
    );
    asking.line.says(&result(&asking.request));
    let last = next(&mut heard).await.unwrap();
    assert!(matches!(last, Event::End(End::Complete(_))), "{last:?}");
    let late = asking.answers(&accept()).await;
    assert!(matches!(late, End::Error(_)), "it is over: {late:?}");
}

#[tokio::test(start_paused = true)]
async fn r24_what_comes_while_nobody_listens_is_kept_for_who_comes_back() {
    let asking = Asking::new().await;
    asking.progress(1);
    asking.logs("error");
    let mut heard = asking.listens();
    assert_eq!(told(&mut heard).await.0, "notifications/progress");
    assert_eq!(told(&mut heard).await.0, "notifications/message");
    drop(heard);
    asking.progress(2);
    let call = asking.comes_back(Comeback::Answers, &accept());
    let mut events = asking
        .legacy
        .call(call)
        .await
        .unwrap()
        .into_stream()
        .peekable();
    let params = told(&mut events).await.1;
    assert_eq!(params.get("progress").map(Raw::text), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn who_listens_and_leaves_gives_nothing_up() {
    let asking = Asking::new().await;
    drop(asking.listens());
    let mut heard = asking.listens();
    asking.progress(1);
    told(&mut heard).await;
    drop(heard);
    let plays = async {
        let told = asking.line.hears(|said| said["id"] == "a").await;
        assert_eq!(told["result"]["action"], "accept");
        asking.line.says(&result(&asking.request));
    };
    let answer = accept();
    let (end, ()) = join(asking.answers(&answer), plays).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn other_questions_end_what_is_heard_and_the_state_stays_good() {
    let asking = Asking::new().await;
    let mut heard = asking.listens();
    let more = async {
        tokio::task::yield_now().await;
        asking.line.says_on(Some(&asking.request), &question("b"));
    };
    assert_eq!(join(asked(&mut heard), more).await.0, ["q1", "q2"]);
    let mut heard = asking.listens();
    let withdrawn = async {
        tokio::task::yield_now().await;
        asking
            .line
            .says(&json!({ "method": "notifications/cancelled",
            "params": { "requestId": "a" } }));
    };
    assert_eq!(join(asked(&mut heard), withdrawn).await.0, ["q2"]);
    let plays = async {
        asking.line.hears(|said| said["id"] == "b").await;
        asking.line.says(&result(&asking.request));
    };
    let answer = json!({ "q1": { "action": "accept" }, "q2": { "action": "accept" } });
    let (end, ()) = join(asking.answers(&answer), plays).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_taken_back_while_nobody_listens_is_known_to_who_comes() {
    let asking = Asking::new().await;
    asking
        .line
        .says(&json!({ "method": "notifications/cancelled",
        "params": { "requestId": "a" } }));
    let nothing: [&str; 0] = [];
    assert_eq!(asked(&mut asking.listens()).await, nothing);
}

#[tokio::test(start_paused = true)]
async fn who_listens_is_relieved_by_who_answers_and_loses_nothing() {
    let asking = Asking::new().await;
    let mut heard = asking.listens();
    asking.progress(1);
    told(&mut heard).await;
    asking.progress(2);
    let plays = async {
        asking.line.hears(|said| said["id"] == "a").await;
        asking.progress(3);
        asking.line.says(&result(&asking.request));
    };
    let call = asking.comes_back(Comeback::Answers, &accept());
    let (reply, ()) = join(asking.legacy.call(call), plays).await;
    let params = told(&mut heard).await.1;
    assert_eq!(params.get("progress").map(Raw::text), Some("2"));
    let nothing: [&str; 0] = [];
    assert_eq!(asked(&mut heard).await, nothing);
    let mut events = reply.unwrap().into_stream().peekable();
    let params = told(&mut events).await.1;
    assert_eq!(params.get("progress").map(Raw::text), Some("3"));
    assert!(matches!(
        next(&mut events).await,
        Ok(Event::End(End::Complete(_)))
    ));
}

#[tokio::test(start_paused = true)]
async fn r19_a_server_that_dies_while_it_asks_fails_the_call_at_once() {
    let asking = Asking::new().await;
    let mut heard = asking.listens();
    let dies = async {
        tokio::task::yield_now().await;
        asking.line.dies(&Fault::Closed);
    };
    let (end, ()) = join(next(&mut heard), dies).await;
    assert!(end.is_err(), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_an_error_reaches_the_server_as_one() {
    let asking = Asking::new().await;
    let plays = async {
        let told = asking.line.hears(|said| said["id"] == "a").await;
        assert_eq!(
            told["error"],
            json!({ "code": -1, "message": "User rejected" })
        );
        asking.line.says(&result(&asking.request));
    };
    let refusal = json!({ "code": -1, "message": "User rejected" });
    let answer = json!({ "q1": { "_meta": { "dev.waypost/error": refusal } } });
    let (end, ()) = join(asking.answers(&answer), plays).await;
    assert!(matches!(end, End::Complete(_)), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_beside_a_question_is_bounded() {
    let asking = Asking::new().await;
    for progress in 0..1000 {
        asking.progress(progress);
    }
    let mut heard = asking.listens();
    let first = told(&mut heard).await.1;
    assert_eq!(
        first.get("progress").map(Raw::text),
        Some("744"),
        "the newest are kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_never_answered_ends_the_call_in_our_own_words() {
    let asking = Asking::new().await;
    let mut heard = asking.listens();
    let end = next(&mut heard).await.unwrap();
    let Event::End(End::Error(error)) = end else {
        panic!("{end:?}");
    };
    assert!(error.message().contains("in time"), "{}", error.message());
    let is_cancel = |said: &Value| said["method"] == "notifications/cancelled";
    asking.line.hears(is_cancel).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_taken_back_beside_an_answer_is_taken_back_at_the_client() {
    let asking = Asking::new().await;
    let mut heard = asking.listens();
    asking.line.says_on(Some(&asking.request), &question("b"));
    asked(&mut heard).await;
    let plays = async {
        asking.line.hears(|said| said["id"] == "a").await;
        asking
            .line
            .says(&json!({ "method": "notifications/cancelled", "params": { "requestId": "b" } }));
    };
    let answer = accept();
    let (end, ()) = join(asking.answers(&answer), plays).await;
    let End::InputRequired(left) = end else {
        panic!("{end:?}");
    };
    assert_eq!(left.get("inputRequests").unwrap().text(), "{}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_one_of_two_questions_keeps_the_place_for_the_other() {
    let server = Played::new();
    let legacy = Arc::new(server.legacy(Isolation::Session, 1));
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says_on(Some(&request), &question("a"));
        line.says_on(Some(&request), &question("b"));
        (line, request)
    };
    let (first, (line, request)) = join(end(&legacy, caller()), plays).await;
    let asking = Asking {
        legacy,
        line,
        request,
        state: state(first),
    };
    let again = asking.answers(&accept()).await;
    assert!(matches!(again, End::InputRequired(_)), "{again:?}");
    let other = async {
        let request = asking.line.request("tools/call").await;
        asking.line.says_on(Some(&request), &question("c"));
        asking.line.hears(|said| said["id"] == "c").await
    };
    let mut full = asking.legacy.call(caller()).boxed();
    let refused = tokio::select! {
        refused = other => refused,
        _ = &mut full => panic!("asked"),
    };
    assert!(refused["error"].is_object(), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_a_call_becomes_after_its_questions_is_one() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Session, 9);
    let mut asks = caller();
    asks.params.set("task", Raw::empty_object());
    let plays = async {
        let line = server.first().await;
        let request = line.request("tools/call").await;
        line.says_on(Some(&request), &question("a"));
        (line, request)
    };
    let (asked, (line, request)) = join(end(&legacy, asks), plays).await;
    let mut answers = caller();
    answers
        .params
        .set("requestState", Raw::string(&state(asked)));
    answers.params.set("inputResponses", Raw::from(&accept()));
    let plays = async {
        line.hears(|said| said["id"] == "a").await;
        let task = json!({ "taskId": "t", "status": "working" });
        line.says(&json!({ "id": request["id"], "result": { "task": task } }));
    };
    let (end, ()) = join(end(&legacy, answers), plays).await;
    assert!(matches!(end, End::Task(_)), "{end:?}");
}
