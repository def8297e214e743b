//! Whom a server's questions reach, and for how long.

use futures_util::future::join;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_config::config::Isolation;
use waypost_hub::call::Comeback;
use waypost_hub::reply::End;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::raw::Raw;

use super::kit::{PATIENCE, Played, call, call_in_session, end, object, question, result, state};

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
    sleep(std::time::Duration::from_secs(61)).await;
    assert!(legacy.call(again).await.is_err(), "too late to repeat it");
}

#[tokio::test(start_paused = true)]
async fn methods_that_are_not_of_the_protocol_are_refused() {
    let server = Played::new();
    let legacy = server.legacy(Isolation::Shared, 9);
    legacy
        .begin(std::sync::Arc::new(server.clone()))
        .await
        .unwrap();
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
    assert!(before.elapsed() < std::time::Duration::from_secs(1));
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
        let again = tokio::time::timeout(std::time::Duration::from_secs(5), again).await;
        assert!(again.is_err(), "sent again");
    };
    let mut call = call();
    let able = json!({ "elicitation": { "form": {}, "url": {} } });
    call.meta.capabilities = ClientCapabilities::new(object(&able));
    let (end, ()) = join(end(&legacy, call), plays).await;
    assert!(matches!(end, End::Error(_)), "{end:?}");
}
