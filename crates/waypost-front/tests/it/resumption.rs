//! Streams of a session, which outlive their connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use waypost_hub::call::{Call, View};
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Event, Reply};
use waypost_wire::message::Notification;

use crate::fake::{Front, object};
use crate::peer::{LATEST, LONG, OLDEST, Peer, front, request, result, silent};

fn call(id: u64) -> Value {
    let meta = json!({ "progressToken": 1 });
    request(id, "tools/call", &json!({ "name": "t", "_meta": meta }))
}

/// A tool that reports progress 1, and 2 and its end once it may go on.
fn in_two_parts() -> (watch::Sender<bool>, Front) {
    let (go, gone) = watch::channel(false);
    let front = front(move |call: Call| {
        let mut gone = gone.clone();
        let token = call.meta.progress_token.unwrap();
        let progress = move |n: u32| {
            let mut params = object(&json!({ "progress": n }));
            params.set("progressToken", token.clone());
            let method = "notifications/progress".to_owned();
            Ok(Event::Notification(Notification { method, params }))
        };
        let rest = [progress(2), Ok(Event::End(End::Complete(result("done"))))];
        let first = futures_util::stream::iter([progress(1)]);
        let later = futures_util::stream::once(async move {
            drop(gone.wait_for(|gone| *gone).await);
            futures_util::stream::iter(rest)
        });
        Ok(Reply::Stream(first.chain(later.flatten()).boxed()))
    });
    (go, front)
}

#[tokio::test(start_paused = true)]
async fn r75_a_lost_stream_goes_on_where_it_was_and_the_call_was_not_cancelled() {
    for version in [LATEST, "2025-06-18"] {
        let (go, front) = in_two_parts();
        let peer = Peer::open(&front, version, &json!({})).await;
        let mut stream = peer.stream(&call(1)).await;
        assert_eq!(stream.message().await["params"]["progress"], 1);
        let last = stream.last.clone().unwrap();
        drop(stream);
        sleep(Duration::from_secs(1)).await;
        go.send_replace(true);
        sleep(Duration::from_secs(1)).await;

        let mut rest = peer.get(Some(&last)).await;
        assert_eq!(rest.message().await["params"]["progress"], 2);
        let end = rest.message().await;
        assert_eq!(end["id"], 1);
        assert_eq!(end["result"]["content"][0]["text"], "done");
        assert_eq!(rest.next().await, None);
        // Once more, should that connection have been lost too; and no more after the end.
        let mut again = peer.get(Some(&last)).await;
        assert_eq!(again.message().await["params"]["progress"], 2);
        let last = rest.last.unwrap();
        let over = peer
            .send(Method::GET, &[("last-event-id", &last)], "")
            .await;
        assert_eq!(over.status(), 204);
    }
}

#[tokio::test(start_paused = true)]
async fn the_latest_version_gets_an_id_before_anything_happens() {
    let front = front(|_| Ok(silent()));
    for (version, primed) in [(LATEST, true), ("2025-06-18", false), (OLDEST, false)] {
        let peer = Peer::open(&front, version, &json!({})).await;
        let mut call = peer.stream(&call(1)).await;
        let mut standing = peer.get(None).await;
        for stream in [&mut call, &mut standing] {
            let first = tokio::time::timeout(LONG, stream.event()).await;
            assert_eq!(first.is_ok(), primed, "{version}");
            if let Ok(Some(first)) = first {
                assert!(first.id.is_some() && first.data.is_empty());
                assert!(first.retry.is_some());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r4_silence_is_filled_with_comments() {
    let front = front(|_| Ok(silent()));
    let peer = Peer::open(&front, OLDEST, &json!({})).await;
    let mut call = peer.stream(&call(1)).await;
    let mut standing = peer.get(None).await;
    for stream in [&mut call, &mut standing] {
        let minute = tokio::time::timeout(Duration::from_secs(61), stream.event()).await;
        assert!(minute.is_err());
        // The first at once, then every 15 seconds.
        assert_eq!(stream.comments, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn r24_progress_comes_on_the_stream_of_its_call_alone() {
    let (go, front) = in_two_parts();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let other = Peer::open(&front, LATEST, &json!({})).await;
    let mut one = peer.stream(&call(1)).await;
    let mut text = call(2);
    text["params"]["_meta"]["progressToken"] = json!("1");
    let mut two = peer.stream(&text).await;
    let mut three = other.stream(&call(1)).await;
    go.send_replace(true);
    for (stream, token, id) in [
        (&mut one, json!(1), 1),
        (&mut two, json!("1"), 2),
        (&mut three, json!(1), 1),
    ] {
        for progress in [1, 2] {
            let message = stream.message().await;
            let expected = json!({ "progressToken": token, "progress": progress });
            assert_eq!(message["params"], expected);
        }
        assert_eq!(stream.message().await["id"], id);
        assert_eq!(stream.next().await, None);
    }
}

/// Counts calls that are running.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn endless() -> (Arc<AtomicUsize>, Front) {
    let count = Arc::new(AtomicUsize::new(0));
    let running = Arc::clone(&count);
    let answer = move |_: Call| -> Result<Reply, CallError> {
        running.fetch_add(1, Ordering::SeqCst);
        let guard = Running(Arc::clone(&running));
        let events = futures_util::stream::pending().map(move |event| {
            let _guard = &guard;
            event
        });
        Ok(Reply::Stream(events.boxed()))
    };
    (count, front(answer))
}

#[tokio::test(start_paused = true)]
async fn r25_a_cancelled_call_is_dropped_and_gets_no_answer() {
    let (running, front) = endless();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let mut stream = peer.stream(&call(1)).await;
    let cancel = json!({ "requestId": 1, "reason": "enough" });
    // One of another session is none of this one's.
    let other = Peer::open(&front, LATEST, &json!({})).await;
    other.notify("notifications/cancelled", &cancel).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(running.load(Ordering::SeqCst), 1);
    let unknown = json!({ "requestId": "1" });
    assert_eq!(
        peer.notify("notifications/cancelled", &unknown)
            .await
            .status,
        202
    );
    peer.notify("notifications/cancelled", &cancel).await;
    assert_eq!(stream.next().await, None);
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn r75_a_client_that_leaves_cancels_with_its_session() {
    let (running, front) = endless();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    drop(peer.stream(&call(1)).await);
    // One that takes only JSON, and leaves before it is there.
    let json = [("accept", "application/json")];
    let body = call(2).to_string();
    let waiting = peer.send(Method::POST, &json, &body);
    assert!(
        tokio::time::timeout(Duration::from_secs(5), waiting)
            .await
            .is_err()
    );
    sleep(Duration::from_secs(600)).await;
    assert_eq!(running.load(Ordering::SeqCst), 2);
    peer.send(Method::DELETE, &[], "").await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn r75_without_a_session_leaving_is_cancelling() {
    let (running, _) = endless();
    let counted = Arc::clone(&running);
    let answer = move |_: Call| -> Result<Reply, CallError> {
        counted.fetch_add(1, Ordering::SeqCst);
        let guard = Running(Arc::clone(&counted));
        let events = futures_util::stream::pending().map(move |event| {
            let _guard = &guard;
            event
        });
        Ok(Reply::Stream(events.boxed()))
    };
    let front = crate::peer::front_with(answer, |parts| parts.stateless = [View::All].into());
    let body = call(1).to_string();
    let response = crate::peer::send(&front.router, Method::POST, &[], &body).await;
    assert_eq!(running.load(Ordering::SeqCst), 1);
    drop(response);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn r49_the_newest_standing_stream_wins() {
    let front = front(|_| Ok(silent()));
    let peer = Peer::open(&front, "2025-06-18", &json!({})).await;
    let mut old = peer.get(None).await;
    let mut new = peer.get(None).await;
    assert_eq!(old.next().await, None);
    assert!(tokio::time::timeout(LONG, new.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_only_streams_gets_one() {
    let front = front(|_| Ok(crate::peer::text("ok")));
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let sse = [("accept", "text/event-stream")];
    let body = request(1, "tools/list", &json!({})).to_string();
    let response = peer.send(Method::POST, &sse, &body).await;
    let mut stream = crate::peer::Stream::of(response);
    assert_eq!(stream.message().await["id"], 1);
    assert_eq!(stream.next().await, None);
    // And one that takes only JSON no standing stream.
    let json = [("accept", "application/json")];
    assert_eq!(peer.send(Method::GET, &json, "").await.status(), 406);
}

#[tokio::test(start_paused = true)]
async fn r16_what_arrived_is_soon_forgotten_and_what_did_not_is_kept_for_a_while() {
    let (go, front) = in_two_parts();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let mut read = peer.stream(&call(1)).await;
    let mut lost = peer.stream(&call(2)).await;
    read.message().await;
    lost.message().await;
    let (first, other) = (read.last.clone().unwrap(), lost.last.clone().unwrap());
    drop(lost);
    go.send_replace(true);
    while read.next().await.is_some() {}
    drop(read);
    let again = async |id: &str| {
        let response = peer.send(Method::GET, &[("last-event-id", id)], "").await;
        response.status().as_u16()
    };
    // Asking for it again makes it unread, so the one that arrived is only asked for once.
    assert_eq!(again(&other).await, 200);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(again(&other).await, 200);
    assert_lost(&peer, &first, 1).await;
    sleep(Duration::from_secs(600)).await;
    assert_lost(&peer, &other, 2).await;
}

/// The answer to this request is not there any more, and whoever comes for it learns that once.
async fn assert_lost(peer: &Peer, last: &str, id: u64) {
    let mut rest = peer.get(Some(last)).await;
    let error = rest.message().await;
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&json!(id), &json!(-32603))
    );
    let says = error["error"]["message"].as_str().unwrap();
    assert!(
        says.contains("is lost") && says.contains("may have run"),
        "{says}"
    );
    assert_eq!(rest.next().await, None);
    let last = rest.last.unwrap();
    let over = peer
        .send(Method::GET, &[("last-event-id", &last)], "")
        .await;
    assert_eq!(over.status(), 204);
}

#[tokio::test(start_paused = true)]
async fn an_event_of_an_earlier_life_does_not_name_a_stream_of_this_one() {
    let (_go, front) = in_two_parts();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let mut stream = peer.stream(&call(1)).await;
    stream.message().await;
    let other = Peer::open(&front, LATEST, &json!({})).await;
    let last = stream.last.clone().unwrap();
    // Not even where that life has a stream with the same number.
    let mut own = other.stream(&call(1)).await;
    own.message().await;
    assert_lost(&other, &last, 1).await;
    // The standing stream of another life goes on as the one of this.
    let mut standing = peer.get(None).await;
    standing.event().await;
    let last = standing.last.unwrap();
    let response = other
        .send(Method::GET, &[("last-event-id", &last)], "")
        .await;
    assert_eq!(response.status(), 200);
}
