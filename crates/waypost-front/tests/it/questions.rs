//! What servers ask in the middle of a call.

use std::time::Duration;

use serde_json::{Value, json};
use waypost_hub::call::{Call, Comeback, View};
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Reply};

use crate::fake::{Front, object};
use crate::peer::{LATEST, LONG, Peer, front, front_with, reply, request, result, text};

/// A tool that asks for a name and then greets.
#[expect(clippy::needless_pass_by_value, reason = "as the front gives it")]
fn greets(call: Call) -> Result<Reply, CallError> {
    let Some(answers) = call.params.get("inputResponses") else {
        let end = End::InputRequired(object(&asks()));
        let progress = json!({ "method": "notifications/progress",
            "params": { "progressToken": "p", "progress": 1 } });
        return Ok(reply(&[progress], Some(end)));
    };
    assert_eq!(call.params.string("requestState").unwrap(), "wp1.state");
    Ok(text(answers.text()))
}

fn asks() -> Value {
    json!({
        "resultType": "input_required", "requestState": "wp1.state",
        "inputRequests": { "who": { "method": "elicitation/create", "params": {
            "mode": "form", "message": "who?",
            "requestedSchema": { "type": "object", "properties": { "n": { "default": 1.0 } } },
        } } },
    })
}

fn call() -> Value {
    request(
        1,
        "tools/call",
        &json!({ "name": "greet", "arguments": {} }),
    )
}

async fn asked(front: &Front) -> (Peer, crate::peer::Stream, Value) {
    let peer = Peer::open(front, LATEST, &json!({ "elicitation": {} })).await;
    let mut stream = peer.stream(&call()).await;
    assert_eq!(stream.message().await["method"], "notifications/progress");
    let question = stream.message().await;
    assert_eq!(question["method"], "elicitation/create");
    (peer, stream, question)
}

fn response(question: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })
}

#[tokio::test(start_paused = true)]
async fn r10_a_question_reaches_the_client_and_its_answer_the_server() {
    let front = front(greets);
    let (peer, mut stream, question) = asked(&front).await;
    let schema = &question["params"]["requestedSchema"];
    assert_eq!(schema["properties"]["n"]["default"].to_string(), "1.0");
    let answer = json!({ "action": "accept", "content": { "n": "Ada" } });
    let taken = peer.post(&response(&question, &answer)).await;
    assert_eq!((taken.status.as_u16(), &*taken.text), (202, ""));
    let end = stream.message().await;
    assert_eq!(end["id"], 1);
    let said = end["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(said).unwrap(),
        json!({ "who": answer })
    );
    assert!(end["result"].get("resultType").is_none());
    assert_eq!(stream.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn r10_an_answer_of_another_session_is_none() {
    let front = front(greets);
    let (peer, mut stream, question) = asked(&front).await;
    let other = Peer::open(&front, LATEST, &json!({ "elicitation": {} })).await;
    let accept = json!({ "action": "accept" });
    assert_eq!(other.post(&response(&question, &accept)).await.status, 202);
    let decline = json!({ "action": "decline" });
    peer.post(&response(&question, &decline)).await;
    let end = stream.message().await.to_string();
    assert!(end.contains("decline") && !end.contains("accept"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn r10_a_late_answer_from_before_a_restart_answers_no_other_question() {
    let (peer, _stream, old) = asked(&front(greets)).await;
    let after = front(greets);
    let peer = peer.at(&after);
    let mut stream = peer.stream(&call()).await;
    assert_eq!(stream.message().await["method"], "notifications/progress");
    let question = stream.message().await;
    for (asked, action) in [(&old, "accept"), (&question, "decline")] {
        peer.post(&response(asked, &json!({ "action": action })))
            .await;
    }
    let end = stream.message().await.to_string();
    assert!(end.contains("decline") && !end.contains("accept"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_an_elicitation_with_an_error_cancels_it() {
    let front = front(greets);
    let (peer, mut stream, question) = asked(&front).await;
    let error = json!({ "jsonrpc": "2.0", "id": question["id"],
        "error": { "code": -1, "message": "User rejected" } });
    peer.post(&error).await;
    let end = stream.message().await.to_string();
    assert!(
        end.contains(r#"{\"who\":{\"action\":\"cancel\"}}"#),
        "{end}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_refuses_to_sample_ends_the_call_with_an_error() {
    let front = front(|call| {
        assert!(call.params.get("inputResponses").is_none());
        Ok(Reply::End(End::InputRequired(object(&json!({
            "resultType": "input_required",
            "inputRequests": { "a": { "method": "sampling/createMessage", "params": {} } },
        })))))
    });
    let peer = Peer::open(&front, LATEST, &json!({ "sampling": {} })).await;
    let mut stream = peer.stream(&call()).await;
    let question = stream.message().await;
    let error = json!({ "jsonrpc": "2.0", "id": question["id"],
        "error": { "code": -1, "message": "User rejected" } });
    peer.post(&error).await;
    let end = stream.message().await;
    assert_eq!(end["error"]["code"], -32603);
    let said = end["error"]["message"].as_str().unwrap();
    assert!(said.contains("User rejected"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn rounds_follow_one_another_and_all_questions_of_one_go_out_at_once() {
    let front = front(|call: Call| {
        let round = call.params.string("requestState");
        let (state, requests) = match round.as_deref() {
            None => (
                "one",
                json!({
                    "a": { "method": "elicitation/create", "params": {} },
                    "b": { "method": "sampling/createMessage", "params": {} },
                    "c": { "method": "roots/list" },
                }),
            ),
            Some("one") => {
                let answers = call.params.get("inputResponses").unwrap();
                let answers: Value = answers.decode().unwrap();
                assert_eq!(
                    answers,
                    json!({ "a": { "n": 0 }, "b": { "n": 1 }, "c": { "n": 2 } })
                );
                (
                    "two",
                    json!({ "d": { "method": "roots/list", "params": {} } }),
                )
            }
            _ => return Ok(text("done")),
        };
        Ok(Reply::End(End::InputRequired(object(&json!({
            "resultType": "input_required", "requestState": state, "inputRequests": requests,
        })))))
    });
    let able = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    let peer = Peer::open(&front, "2025-06-18", &able).await;
    let mut stream = peer.stream(&call()).await;
    let mut questions = Vec::new();
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        let question = stream.message().await;
        assert_eq!(question["method"], method);
        questions.push(question);
    }
    // In any order.
    for n in [2, 0, 1] {
        peer.post(&response(&questions[n], &json!({ "n": n })))
            .await;
    }
    let question = stream.message().await;
    assert_eq!(question["method"], "roots/list");
    assert!(questions.iter().all(|q| q["id"] != question["id"]));
    peer.post(&response(&question, &json!({ "roots": [] })))
        .await;
    let end = stream.message().await;
    assert_eq!(end["result"]["content"][0]["text"], "done");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever_for_an_answer() {
    let front = front(greets);
    let (_peer, mut stream, question) = asked(&front).await;
    let before = tokio::time::Instant::now();
    let cancelled = stream.message().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    let end = stream.message().await;
    assert_eq!(end["error"]["code"], -32603);
    assert_eq!(before.elapsed().as_secs(), 600);
    assert!(let_go(&front).await);
}

/// Whether the call that waited was given up, by its state and without answers.
async fn let_go(front: &Front) -> bool {
    let gone = async {
        loop {
            let calls = front.calls();
            let last = calls.last().unwrap();
            if last.comeback == Comeback::GivesUp {
                assert_eq!(last.params.string("requestState").unwrap(), "wp1.state");
                assert!(!last.params.contains("inputResponses"));
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn r25_a_call_that_is_cancelled_while_it_asks_is_let_go() {
    let front = front(greets);
    let (peer, mut stream, question) = asked(&front).await;
    peer.notify("notifications/cancelled", &json!({ "requestId": 1 }))
        .await;
    let cancelled = stream.message().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    assert_eq!(stream.next().await, None, "no answer");
    assert!(let_go(&front).await);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_session_that_ends_while_it_asks_is_let_go() {
    let front = front(greets);
    let (peer, mut stream, _) = asked(&front).await;
    let ended = peer.send(http::Method::DELETE, &[], "").await;
    assert_eq!(ended.status(), 204);
    while stream.next().await.is_some() {}
    assert!(let_go(&front).await);
    assert!(
        front.calls()[1]
            .session
            .as_ref()
            .unwrap()
            .released()
            .is_cancelled()
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_only_json_is_asked_nothing() {
    let front = front(|call: Call| {
        assert!(!call.meta.capabilities.has("elicitation"));
        Ok(text("unasked"))
    });
    let peer = Peer::open(&front, LATEST, &json!({ "elicitation": {} })).await;
    let json = [("accept", "application/json")];
    let response = peer
        .send(http::Method::POST, &json, &call().to_string())
        .await;
    let answer = crate::fake::read(response).await;
    assert_eq!(answer.json()["result"]["content"][0]["text"], "unasked");
}

#[tokio::test(start_paused = true)]
async fn without_a_session_a_question_is_an_error_at_once() {
    let front = front_with(
        |call: Call| {
            assert!(call.session.is_none() && call.meta.capabilities.object().is_empty());
            Ok(Reply::End(End::InputRequired(object(&asks()))))
        },
        |parts| parts.stateless = [View::All].into(),
    );
    let answer = crate::peer::post(&front.router, &[], &call()).await;
    assert_eq!(answer.refusal(), (200, -32600));
}

#[tokio::test(start_paused = true)]
async fn a_call_passes_on_what_its_session_knows() {
    let front = front(|_| Ok(Reply::complete(result("x"))));
    let declared = json!({ "roots": {}, "tasks": {},
        "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let peer = Peer::open(&front, LATEST, &declared).await;
    let params = json!({ "name": "t", "task": { "ttl": 1 }, "requestState": "forged",
        "_meta": { "progressToken": 7, "x/y": 1.0, "io.modelcontextprotocol/clientCapabilities": {
            "extensions": { "io.modelcontextprotocol/tasks": {} } } } });
    let answer = peer.ask("tools/call", &params).await;
    assert_eq!(
        answer.json()["result"],
        json!({ "content": [{ "type": "text", "text": "x" }] })
    );
    let call = front.calls().pop().unwrap();
    assert_eq!(call.meta.protocol_version, "2026-07-28");
    assert!(call.meta.capabilities.has("roots") && !call.meta.capabilities.has_tasks());
    assert_eq!(
        call.meta.client_info.unwrap().text(),
        r#"{"name":"test","version":"1"}"#
    );
    assert_eq!(call.meta.progress_token.unwrap().text(), "7");
    assert_eq!(call.meta.log_level.unwrap().text(), "\"info\"");
    assert_eq!(call.meta.rest, object(&json!({ "x/y": 1.0 })));
    assert_eq!(call.params, object(&json!({ "name": "t" })));
    assert!(call.session.is_some() && call.headers.absent);
}
