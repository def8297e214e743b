//! Ends of sessions, and who may end one.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;
use waypost_front::legacy::Sessions;
use waypost_hub::call::{Principal, View};
use waypost_hub::reply::{End, Reply};

use crate::fake::{Front, Post, object, read};
use crate::peer::{
    LATEST, Memory, OLDEST, Peer, discovered, front_with, request, session_parts, silent, text,
};

/// A replica over this store.
fn over(store: &Arc<Memory>) -> Front {
    let store = Arc::clone(store);
    front_with(|_| Ok(text("ok")), move |parts| parts.store = store)
}

fn list() -> Value {
    request("l", "tools/list", &json!({}))
}

async fn delete(peer: &Peer) -> u16 {
    let response = peer.send(Method::DELETE, &[], "").await;
    response.status().as_u16()
}

async fn is_gone(peer: &Peer) {
    let answer = peer.post(&list()).await;
    assert_eq!(answer.refusal(), (404, -32600));
    assert_eq!(answer.json()["id"], "l");
    assert_eq!(peer.notify("notifications/x", &json!({})).await.status, 404);
    for method in [Method::GET, Method::DELETE] {
        let answer = read(peer.send(method, &[], "").await).await;
        assert_eq!(answer.refusal(), (404, -32600));
    }
}

#[tokio::test]
async fn r21_a_session_can_be_ended_where_it_is_not_open() {
    let store = Arc::default();
    let before = over(&store);
    let restarted = Peer::open(&before, LATEST, &json!({})).await;
    let unconfirmed = Peer::unconfirmed(&before, LATEST, &json!({})).await;
    drop(before);
    // The first message after the restart, and the only one.
    for peer in [restarted, unconfirmed] {
        let after = over(&store);
        let peer = peer.at(&after);
        assert_eq!(delete(&peer).await, 204);
        is_gone(&peer).await;
        is_gone(&peer.at(&over(&store))).await;
    }
    assert!(store.0.lock().unwrap().values().all(|record| record.ended));
}

#[tokio::test(start_paused = true)]
async fn r21_a_replica_that_holds_a_session_reads_of_its_end_when_it_opens_it_again() {
    let store = Arc::default();
    let (here, there) = (over(&store), over(&store));
    let peer = Peer::open(&here, LATEST, &json!({})).await;
    let elsewhere = peer.at(&there);
    assert_eq!(elsewhere.post(&list()).await.status, 200);
    assert_eq!(delete(&elsewhere).await, 204);
    is_gone(&elsewhere).await;
    // Open here: nothing is read for each request. It is once it was idle.
    assert_eq!(peer.post(&list()).await.status, 200);
    sleep(Duration::from_secs(31 * 60)).await;
    is_gone(&peer).await;
}

#[tokio::test]
async fn r21_an_id_is_worth_nothing_to_anybody_else() {
    let store = Arc::default();
    let front = over(&store);
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    // Where the session is open, and where it would have to be opened.
    for place in [&front, &over(&store)] {
        let mut bob = peer.at(place);
        bob.router = bob.router.layer(Extension(Principal::new("bob")));
        is_gone(&bob).await;
        // With it in hand he gets a session of his own.
        let fresh = crate::peer::initialize(LATEST, &json!({}));
        let answer = bob.post(&fresh).await;
        let own = answer.header("mcp-session-id").unwrap();
        assert_ne!(own, peer.id);
        own.clone_into(&mut bob.id);
        assert_eq!(bob.post(&list()).await.status, 200);
        let call = place.calls().pop().unwrap();
        assert_eq!(call.principal, Principal::new("bob"));
        // Nor does it open the door of another endpoint, for its owner either.
        let other = Post::raw(list()).path("/mcp/builds");
        let other = other.header("mcp-session-id", &peer.id);
        assert_eq!(place.send(other.build()).await.refusal(), (404, -32600));
    }
    assert_eq!(peer.post(&list()).await.status, 200, "nobody ended it");
    assert!(store.0.lock().unwrap().values().all(|record| !record.ended));
}

#[tokio::test(start_paused = true)]
async fn r10_nobody_else_answers_the_questions_of_a_session() {
    let front = front_with(
        |call| match call.params.get("inputResponses") {
            Some(answers) => Ok(text(answers.text())),
            None => Ok(Reply::End(End::InputRequired(object(&json!({
                "resultType": "input_required", "requestState": "s",
                "inputRequests": { "who": { "method": "elicitation/create", "params": {} } },
            }))))),
        },
        |_| {},
    );
    let peer = Peer::open(&front, LATEST, &json!({ "elicitation": {} })).await;
    let mut bob = peer.clone();
    bob.router = bob.router.layer(Extension(Principal::new("bob")));
    let call = request(1, "tools/call", &json!({ "name": "t" }));
    let mut stream = peer.stream(&call).await;
    let question = stream.message().await;
    let answer = |action: &str| json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": action } });
    assert_eq!(bob.post(&answer("accept")).await.status, 404);
    let cancel = json!({ "requestId": 1 });
    assert_eq!(
        bob.notify("notifications/cancelled", &cancel).await.status,
        404
    );
    assert_eq!(peer.post(&answer("decline")).await.status, 202);
    let end = stream.message().await.to_string();
    assert!(end.contains("decline") && !end.contains("accept"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn each_open_call_of_a_session_that_ends_is_told_so_before_its_stream_ends() {
    for why in ["deleted", "no key", "no endpoint"] {
        let sessions = Sessions::new(session_parts(&Arc::default()));
        let kept = sessions.clone();
        let front = Front::with(
            |call| match &*call.method {
                "server/discover" => Ok(discovered()),
                _ => Ok(silent()),
            },
            |parts| parts.sessions = Some(sessions),
        );
        let peer = Peer::open(&front, OLDEST, &json!({})).await;
        let call = |id: u32| request(id, "tools/call", &json!({ "name": "t" }));
        let subscribe = request(3, "resources/subscribe", &json!({ "uri": "known:a" }));
        let batch = json!([call(1), call(2)]);
        let mut streams = [
            (peer.stream(&batch).await, 2),
            (peer.stream(&subscribe).await, 1),
            (peer.stream(&call(4)).await, 1),
        ];
        match why {
            "deleted" => assert_eq!(delete(&peer).await, 204),
            "no key" => kept.shut_out(&[Principal::anonymous()], &[]),
            _ => kept.shut_out(&[], &[View::All]),
        }
        let before = tokio::time::Instant::now();
        for (stream, open) in &mut streams {
            for _ in 0..*open {
                let last = stream.next().await.unwrap_or_default().to_string();
                let says = "the session of this call is over; the call may have run";
                assert!(last.contains(says), "{why}: {last}");
            }
            assert_eq!(stream.next().await, None, "{why}");
        }
        assert_eq!(before.elapsed(), Duration::ZERO, "{why}");
    }
}
