//! What a call says while its client has a question.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};
use waypost_hub::call::{Call, Comeback};
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Event, Reply};
use waypost_wire::message::{Notification, Outcome};
use waypost_wire::raw::Raw;

use crate::fake::{Front, object};
use crate::peer::{LATEST, Peer, Stream, front_over, request, result, silent, text};

type Said = Result<Event, CallError>;

/// A server that asks "a" and "b" at once, says what the test wants beside them, and repeats the
/// answers as its result.
struct Server {
    front: Front,
    /// To whoever listens.
    says: Arc<Mutex<Vec<Sender<Said>>>>,
}

fn requests(keys: &[&str]) -> Value {
    let ask = json!({ "method": "sampling/createMessage", "params": {} });
    keys.iter()
        .map(|key| ((*key).to_owned(), ask.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn asks(keys: &[&str]) -> End {
    End::InputRequired(object(&json!({
        "resultType": "input_required", "requestState": "wp1.state", "inputRequests": requests(keys),
    })))
}

impl Server {
    fn new() -> Self {
        let says: Arc<Mutex<Vec<_>>> = Arc::default();
        let listeners = Arc::clone(&says);
        let answer = move |call: Call| {
            let answers = call.params.get("inputResponses").cloned();
            match (call.comeback, answers) {
                (Comeback::Listens, _) => {
                    let (say, said) = channel(64);
                    listeners.lock().unwrap().push(say);
                    let said = unfold(said, async |mut said| Some((said.recv().await?, said)));
                    Ok(Reply::Stream(said.boxed()))
                }
                (_, None) => Ok(Reply::End(asks(&["a", "b"]))),
                (_, Some(answers)) => {
                    // Who listened is relieved by who answers.
                    let over = Ok(Event::End(End::InputRequired(object(&json!({})))));
                    drop(listeners.lock().unwrap().last().unwrap().try_send(over));
                    let answers: Value = answers.decode().unwrap();
                    let asked = ["a", "b"]
                        .into_iter()
                        .filter(|key| answers.get(key).is_none());
                    let left: Vec<_> = asked.collect();
                    match left.as_slice() {
                        ["b"] if answers["a"]["more"] == true => Ok(Reply::End(asks(&left))),
                        _ => Ok(text(&answers.to_string())),
                    }
                }
            }
        };
        Self {
            front: front_over(answer, |_| {}),
            says,
        }
    }

    async fn asked(&self) -> (Peer, Stream, [Value; 2]) {
        let peer = Peer::open(&self.front, LATEST, &json!({ "sampling": {} })).await;
        let mut stream = peer
            .stream(&request(1, "tools/call", &json!({ "name": "t" })))
            .await;
        let questions = [stream.message().await, stream.message().await];
        (peer, stream, questions)
    }

    /// Says this to the last who listens, once there are so many.
    async fn says(&self, listeners: usize, event: Said) {
        let listening = async {
            while self.says.lock().unwrap().len() < listeners {
                tokio::task::yield_now().await;
            }
        };
        listening.await;
        self.says
            .lock()
            .unwrap()
            .last()
            .unwrap()
            .try_send(event)
            .unwrap();
    }
}

fn progress(n: u32) -> Said {
    Ok(Event::Notification(Notification {
        method: "notifications/progress".to_owned(),
        params: object(&json!({ "progressToken": "p", "progress": n })),
    }))
}

async fn answer(peer: &Peer, question: &Value, result: Value) {
    peer.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }))
        .await;
}

#[track_caller]
fn is_cancelled(message: &Value, question: &Value) {
    assert_eq!(message["method"], "notifications/cancelled");
    assert_eq!(message["params"]["requestId"], question["id"]);
}

#[tokio::test(start_paused = true)]
async fn r24_progress_beside_a_question_reaches_the_client_at_once() {
    let server = Server::new();
    let (peer, mut stream, [a, _]) = server.asked().await;
    server.says(1, progress(1)).await;
    assert_eq!(stream.message().await["params"]["progress"], 1);
    answer(&peer, &a, json!({})).await;
    server.says(1, progress(2)).await;
    // What was said before the answer comes before its outcome.
    assert_eq!(stream.message().await["params"]["progress"], 2);
}

#[tokio::test(start_paused = true)]
async fn each_answer_goes_on_alone_and_the_others_are_not_asked_again() {
    let server = Server::new();
    let (peer, mut stream, [a, b]) = server.asked().await;
    server.says(1, progress(1)).await;
    stream.message().await;
    answer(&peer, &a, json!({ "more": true })).await;
    server.says(2, progress(2)).await;
    assert_eq!(
        stream.message().await["params"]["progress"],
        2,
        "and no question"
    );
    answer(&peer, &b, json!({ "n": 2 })).await;
    let said = stream.message().await["result"]["content"][0]["text"].clone();
    assert_eq!(said, r#"{"b":{"n":2}}"#);
}

#[tokio::test(start_paused = true)]
async fn the_servers_end_takes_its_questions_back() {
    let server = Server::new();
    let (_peer, mut stream, [a, b]) = server.asked().await;
    server
        .says(1, Ok(Event::End(End::Complete(result("early")))))
        .await;
    is_cancelled(&stream.message().await, &a);
    is_cancelled(&stream.message().await, &b);
    assert_eq!(
        stream.message().await["result"]["content"][0]["text"],
        "early"
    );
}

#[tokio::test(start_paused = true)]
async fn r19_a_server_that_dies_while_it_asks_fails_the_call_at_once() {
    let server = Server::new();
    let (_peer, mut stream, [a, b]) = server.asked().await;
    server.says(1, Err(CallError::no_end())).await;
    is_cancelled(&stream.message().await, &a);
    is_cancelled(&stream.message().await, &b);
    assert!(stream.message().await["error"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_server_takes_back_is_taken_back() {
    let server = Server::new();
    let (peer, mut stream, [a, b]) = server.asked().await;
    server.says(1, Ok(Event::End(asks(&["b", "c"])))).await;
    is_cancelled(&stream.message().await, &a);
    let c = stream.message().await;
    assert_eq!(c["params"]["_meta"]["dev.waypost/key"], "c");
    answer(&peer, &a, json!({ "late": true })).await;
    server.says(2, progress(1)).await;
    stream.message().await;
    answer(&peer, &b, json!({})).await;
    is_cancelled(&stream.message().await, &c);
    let said = stream.message().await["result"]["content"][0]["text"].clone();
    assert_eq!(said, r#"{"b":{}}"#);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_reaches_a_server_that_waits_as_an_error() {
    let server = Server::new();
    let (peer, mut stream, [a, b]) = server.asked().await;
    server.says(1, progress(1)).await;
    stream.message().await;
    let refusal = json!({ "code": -1, "message": "User rejected" });
    peer.post(&json!({ "jsonrpc": "2.0", "id": a["id"], "error": refusal }))
        .await;
    is_cancelled(&stream.message().await, &b);
    let said = stream.message().await["result"]["content"][0]["text"].clone();
    let said: Value = serde_json::from_str(said.as_str().unwrap()).unwrap();
    assert_eq!(
        said,
        json!({ "a": { "_meta": { "dev.waypost/error": refusal } } })
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_outside_of_calls_comes_on_the_standing_stream_or_that_of_a_call() {
    let waits = front_over(|_| Ok(silent()), |_| {});
    let peer = Peer::open(&waits, LATEST, &json!({ "roots": {} })).await;
    let ask = || {
        let session = waits.calls().pop().unwrap().session.unwrap();
        session.ask("roots/list", &object(&json!({})))
    };
    let call = request(1, "tools/call", &json!({ "name": "t" }));
    let stream = peer.stream(&call);
    let mut stream = stream.await;
    for standing in [false, true] {
        let mut get = None;
        if standing {
            get = Some(peer.get(None).await);
        }
        let answer = ask().expect("somebody reads");
        let question = get.as_mut().unwrap_or(&mut stream).message().await;
        assert_eq!(question["method"], "roots/list");
        let roots = json!({ "roots": [] });
        peer.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": roots }))
            .await;
        let Some(Outcome::Result(told)) = answer.await else {
            panic!("no answer");
        };
        assert_eq!(told, Raw::from(&roots));
        let answer = ask().expect("somebody reads");
        let stream = get.as_mut().unwrap_or(&mut stream);
        let dropped = stream.message().await;
        drop(answer);
        is_cancelled(&stream.message().await, &dropped);
    }
    drop(stream);
    assert!(ask().is_none(), "nobody reads");
}

#[tokio::test(start_paused = true)]
async fn a_question_on_a_stream_that_has_ended_is_taken_back_on_another() {
    let waits = front_over(|_| Ok(silent()), |_| {});
    let peer = Peer::open(&waits, LATEST, &json!({ "roots": {} })).await;
    let call = request(1, "tools/call", &json!({ "name": "t" }));
    let mut stream = peer.stream(&call).await;
    let session = waits.calls().pop().unwrap().session.unwrap();
    let answer = session.ask("roots/list", &object(&json!({})));
    let question = stream.message().await;
    peer.notify("notifications/cancelled", &json!({ "requestId": 1 }))
        .await;
    assert_eq!(stream.next().await, None);
    let mut standing = peer.get(None).await;
    drop(answer.expect("it was asked"));
    is_cancelled(&standing.message().await, &question);
}
