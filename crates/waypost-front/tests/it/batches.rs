//! Several messages in one POST.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use waypost_hub::call::{Call, View};
use waypost_hub::error::CallError;
use waypost_hub::limit::{Limit, NoRoom, TurnedAway};
use waypost_hub::reply::{End, Reply};

use crate::fake::{Answer, Front, Post, meta, object, read};
use crate::peer::{
    LATEST, OLDEST, Peer, Stream, front, front_with, initialize, post, reply, request, result,
    silent, text,
};

const JSON: &[(&str, &str)] = &[("accept", "application/json")];

/// Tells, then says its own name.
#[expect(clippy::needless_pass_by_value, reason = "as the front gives it")]
fn named(call: Call) -> Result<Reply, CallError> {
    let name = call.params.string("name").unwrap_or_default();
    if name == "endless" {
        return Ok(silent());
    }
    let progress = json!({ "method": "notifications/progress",
        "params": { "progressToken": name, "progress": 1 } });
    Ok(reply(&[progress], Some(End::Complete(result(&name)))))
}

fn call(id: impl Into<Value>, name: &str) -> Value {
    request(id, "tools/call", &json!({ "name": name }))
}

fn cancel(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
}

async fn peer(front: &Front) -> Peer {
    Peer::open(front, OLDEST, &json!({ "elicitation": {} })).await
}

async fn json(peer: &Peer, batch: &Value) -> Answer {
    read(peer.send(Method::POST, JSON, &batch.to_string()).await).await
}

/// The answers by id, with their texts or codes.
fn said(answers: &[Value]) -> Vec<(Value, Value)> {
    let said = |answer: &Value| match answer.get("error") {
        Some(error) => error["code"].clone(),
        None => answer["result"]["content"][0]["text"].clone(),
    };
    let said = |answer: &Value| (answer["id"].clone(), said(answer));
    let mut all: Vec<_> = answers.iter().map(said).collect();
    all.sort_by_key(|(id, _)| id.to_string());
    all
}

#[tokio::test(start_paused = true)]
async fn each_answer_of_a_batch_is_a_message_of_one_stream() {
    let front = front(named);
    let peer = peer(&front).await;
    let batch = json!([
        call(1, "a"),
        cancel(9),
        call("two", "b"),
        request(3, "ping", &json!({}))
    ]);
    let mut stream = peer.stream(&batch).await;
    let mut all = Vec::new();
    while let Some(message) = timeout(Duration::from_secs(1), stream.next())
        .await
        .unwrap()
    {
        all.push(message);
    }
    let (notes, answers): (Vec<_>, Vec<_>) = all.into_iter().partition(|m| m["id"].is_null());
    assert_eq!(notes.len(), 2, "{notes:?}");
    let expected = [
        (json!("two"), json!("b")),
        (json!(1), json!("a")),
        (json!(3), json!(null)),
    ];
    assert_eq!(said(&answers), expected);
    assert_eq!(front.calls().len(), 3, "and discovery");
}

#[tokio::test(start_paused = true)]
async fn who_takes_json_alone_gets_an_array_of_the_answers() {
    let front = front(named);
    let peer = peer(&front).await;
    let answer = json(&peer, &json!([call(1, "a"), call(2, "b")])).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let all = answer.json();
    let expected = [(json!(1), json!("a")), (json!(2), json!("b"))];
    assert_eq!(said(all.as_array().unwrap()), expected);
    let one = json(&peer, &json!([call(1, "a")])).await.json();
    assert_eq!(one.as_array().unwrap().len(), 1, "an array, too");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_answered_a_batch_is_just_taken() {
    let front = front(named);
    let peer = peer(&front).await;
    let late = json!({ "jsonrpc": "2.0", "id": 77, "result": {} });
    for headers in [JSON, &[]] {
        let batch = json!([cancel(1), late]).to_string();
        let answer = read(peer.send(Method::POST, headers, &batch).await).await;
        assert_eq!((answer.status.as_u16(), &*answer.text), (202, ""));
    }
    // What is cancelled in the batch that asks for it has no answer either.
    let batch = json!([call(1, "endless"), cancel(1)]);
    assert_eq!(json(&peer, &batch).await.status, 202);
    let mut stream = peer.stream(&batch).await;
    assert_eq!(stream.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_question_of_one_call_is_answered_in_a_batch_with_others() {
    let front = front(|call: Call| match call.params.get("inputResponses") {
        Some(answers) => Ok(text(answers.text())),
        None if call.params.string("name").as_deref() == Some("asks") => {
            let asks = json!({ "resultType": "input_required", "requestState": "s",
                "inputRequests": { "who": { "method": "elicitation/create",
                    "params": { "message": "who?", "requestedSchema": {} } } } });
            Ok(Reply::End(End::InputRequired(object(&asks))))
        }
        None => named(call),
    });
    let peer = peer(&front).await;
    let mut stream = peer.stream(&json!([call(1, "asks")])).await;
    let question = stream.message().await;
    assert_eq!(question["method"], "elicitation/create");
    let given = json!({ "action": "accept", "content": { "n": "Ada" } });
    let response = json!({ "jsonrpc": "2.0", "id": question["id"], "result": given });
    let batch = json!([response, call(2, "b")]);
    let mut other = peer.stream(&batch).await;
    assert_eq!(other.message().await["method"], "notifications/progress");
    assert_eq!(other.message().await["id"], 2);
    let answer = stream.message().await;
    assert!(answer.to_string().contains("Ada"), "{answer}");
    assert_eq!(stream.next().await, None);
    // Where no question can go, none is asked.
    let answer = json(&peer, &json!([call(3, "asks")])).await;
    assert_eq!(answer.status, 200);
    let declared = front.calls().pop().unwrap().meta.capabilities;
    assert!(!declared.has("elicitation"));
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_one_message_is_no_matter_to_the_others() {
    let front = front(named);
    let peer = peer(&front).await;
    let modern = request(4, "tools/list", &json!({ "_meta": meta() }));
    let odd_meta = request(5, "tools/list", &json!({ "_meta": 1 }));
    let batch = json!([
        call(1, "endless"),
        call(1, "same"),
        7,
        [call(2, "nested")],
        modern,
        odd_meta,
        call(6, "b"),
        cancel(1),
    ]);
    let all = json(&peer, &batch).await.json();
    let none = json!(null);
    let expected = [
        (json!(1), json!(-32600)),
        // Its version is not the one that the whole says to be of.
        (json!(4), json!(-32020)),
        (json!(5), json!(-32602)),
        (json!(6), json!("b")),
        (none.clone(), json!(-32600)),
        (none, json!(-32600)),
    ];
    assert_eq!(said(all.as_array().unwrap()), expected, "{all}");
}

#[tokio::test(start_paused = true)]
async fn r53_a_batch_that_breaks_its_rules_is_refused_as_a_whole() {
    let front = front_with(|_| panic!("must not be called"), |_| {});
    let peer = peer(&front).await;
    let before = front.calls().len();
    let list = || request("l", "tools/list", &json!({}));
    let many: Vec<_> = (0..257).map(|_| json!(0)).collect();
    for (batch, code, says) in [
        ("[]".to_owned(), -32600, "empty"),
        (json!(many).to_string(), -32600, "256"),
        (format!("[{}", list()), -32700, "JSON"),
        (
            json!([list(), initialize(OLDEST, &json!({}))]).to_string(),
            -32600,
            "`initialize`",
        ),
    ] {
        let answer = read(peer.send(Method::POST, &[], &batch).await).await;
        assert_eq!(answer.refusal(), (400, code), "{batch}");
        assert!(answer.text.contains(says), "{}", answer.text);
    }
    let begin = json!([initialize(OLDEST, &json!({}))]);
    let answer = post(&front.router, &[], &begin).await;
    assert_eq!(answer.refusal(), (400, -32600));
    assert!(answer.text.contains("send it alone"), "{}", answer.text);
    assert_eq!(front.calls().len(), before);
}

#[tokio::test(start_paused = true)]
async fn r53_a_batch_is_refused_clearly_where_there_are_none() {
    let front = front(|_| panic!("must not be called"));
    let batch = json!([request("l", "tools/list", &json!({}))]);
    let refused = |answer: Answer| {
        assert_eq!(answer.refusal(), (400, -32600));
        assert!(answer.text.contains("batches are not supported"));
    };
    for version in ["2024-11-05", "2025-06-18", LATEST] {
        let peer = Peer::open(&front, version, &json!({})).await;
        refused(peer.post(&batch).await);
        // The session counts, whatever the header says or does not.
        for headers in [&[][..], &[("mcp-protocol-version", OLDEST)]] {
            let mut all = vec![("mcp-session-id", &*peer.id)];
            all.extend(headers);
            refused(post(&front.router, &all, &batch).await);
        }
    }
    refused(post(&front.router, &[], &batch).await);
    refused(post(&front.router, &[("mcp-protocol-version", OLDEST)], &batch).await);
    refused(
        front
            .send(
                Post::raw(batch.clone())
                    .header("mcp-protocol-version", "2026-07-28")
                    .build(),
            )
            .await,
    );
    let alone = front_with(
        |_| panic!("no"),
        |parts| parts.stateless = [View::All].into(),
    );
    refused(post(&alone.router, &[], &batch).await);
    refused(
        Front::complete()
            .send(Post::raw(batch.clone()).build())
            .await,
    );
    // A session that is not there is another matter: its client opens a new one.
    let gone = [("mcp-session-id", "gone")];
    assert_eq!(
        post(&front.router, &gone, &batch).await.refusal(),
        (404, -32600)
    );
}

#[tokio::test(start_paused = true)]
async fn who_counts_is_told_how_many_of_a_batch_found_no_room() {
    let mut front = front(named);
    let permit = Arc::new(Limit::new(1).permit().unwrap());
    front.router = front.router.layer(axum::Extension(permit));
    let peer = peer(&front).await;
    let batch = json!([call(1, "a"), call(2, "b"), call(3, "c")]).to_string();
    for headers in [JSON, &[]] {
        let response = peer.send(Method::POST, headers, &batch).await;
        let turned = response.extensions().get::<TurnedAway>().copied();
        let (no_room, count) = (NoRoom::Full, 2);
        assert_eq!(turned, Some(TurnedAway { no_room, count }));
        assert!(read(response).await.text.contains("too many requests"));
    }
}

#[tokio::test(start_paused = true)]
async fn r16_the_stream_of_a_batch_goes_on_where_it_broke_off() {
    let front = front(|call: Call| {
        if call.params.string("name").as_deref() == Some("late") {
            let end = async {
                sleep(Duration::from_secs(5)).await;
                Ok(waypost_hub::reply::Event::End(End::Complete(result(
                    "late",
                ))))
            };
            return Ok(Reply::Stream(Box::pin(futures_util::stream::once(end))));
        }
        named(call)
    });
    let peer = peer(&front).await;
    let mut stream: Stream = peer.stream(&json!([call(1, "late"), call(2, "b")])).await;
    while stream.message().await["id"] != 2 {}
    let last = stream.last.clone();
    drop(stream);
    let mut again = peer.get(last.as_deref()).await;
    assert_eq!(again.message().await["id"], 1);
    assert_eq!(again.next().await, None);
}
