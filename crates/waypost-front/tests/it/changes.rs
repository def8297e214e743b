//! What changes while nobody calls.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::sleep;
use waypost_front::legacy::Sessions;
use waypost_hub::call::Call;
use waypost_hub::error::{CallError, Kind, Origin};
use waypost_hub::limit::{Limit, Permit};
use waypost_hub::reply::{Event, Reply};
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Notification;

use crate::fake::{Front, object};
use crate::peer::{LATEST, LONG, Memory, Peer, front_with, request, session_parts, text};

/// Something that can be listened to.
struct Source {
    says: broadcast::Sender<Value>,
    /// `notifications` of the listens that are open, oldest first.
    open: Arc<Mutex<Vec<Value>>>,
    /// Whether no resource is told of any more.
    refuses: Arc<AtomicBool>,
    /// What those get who wait for the server's own answer, unless it is 0.
    error: Arc<AtomicI64>,
    /// How many may listen.
    room: Arc<Limit>,
}

struct Listening {
    all: Arc<Mutex<Vec<Value>>>,
    wanted: Value,
    _room: Option<Arc<Permit>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut open = self.all.lock().unwrap();
        let at = open.iter().position(|one| *one == self.wanted).unwrap();
        open.remove(at);
    }
}

impl Source {
    fn new() -> Self {
        Self {
            says: broadcast::channel(64).0,
            open: Arc::default(),
            refuses: Arc::default(),
            error: Arc::default(),
            room: Limit::new(100),
        }
    }

    fn say(&self, method: &str, params: &Value) {
        let message = json!({ "method": method, "params": params });
        self.says.send(message).unwrap();
    }

    fn front(&self, store: &Arc<Memory>) -> Front {
        self.front_unless(store, || None)
    }

    /// The same, where listening can fail.
    fn front_unless(
        &self,
        store: &Arc<Memory>,
        fails: impl Fn() -> Option<CallError> + Send + Sync + Clone + 'static,
    ) -> Front {
        let (says, open, store) = (self.says.clone(), Arc::clone(&self.open), Arc::clone(store));
        let error = Arc::clone(&self.error);
        let (refuses, room) = (Arc::clone(&self.refuses), Arc::clone(&self.room));
        let answer = move |call: Call| {
            if call.method != "subscriptions/listen" {
                return Ok(text("ok"));
            }
            if let Some(error) = fails() {
                return Err(error);
            }
            let code = error.load(Ordering::SeqCst);
            if call.awaits_servers && code != 0 {
                return Ok(Reply::error(ErrorObject::new(code, "refused")));
            }
            let room = match (&call.seat, call.awaits_servers) {
                (_, true) => None,
                (Some(seat), false) => seat.permit(&room),
                (None, false) => room.permit().map(Arc::new),
            };
            if room.is_none() && !call.awaits_servers {
                return Err(CallError::new(Kind::Throttled, Origin::Gateway));
            }
            let wanted: Value = call.params.get("notifications").unwrap().decode().unwrap();
            open.lock().unwrap().push(wanted.clone());
            let guard = Listening {
                all: Arc::clone(&open),
                wanted: wanted.clone(),
                _room: room,
            };
            let mut honoured = wanted;
            if let Some(uris) = honoured["resourceSubscriptions"].as_array_mut() {
                let refuses = refuses.load(Ordering::SeqCst);
                uris.retain(|uri| !refuses && uri.as_str().unwrap().starts_with("known:"));
            }
            let first = json!({ "method": "notifications/subscriptions/acknowledged",
                "params": { "notifications": honoured } });
            let later = futures_util::stream::unfold(says.subscribe(), |mut says| async {
                Some((says.recv().await.ok()?, says))
            });
            // The hub acknowledges what is late for all but those who wait for it.
            let end = match call.awaits_servers {
                true => "late",
                false => "unheard",
            };
            let late = wanted_of(&call).iter().any(|uri| uri.ends_with(end));
            let first = futures_util::stream::once(async move {
                if late {
                    sleep(LATE).await;
                }
                first
            });
            let events = Box::pin(first).chain(later);
            let events = events.map(move |message| {
                let _guard = &guard;
                let mut params = message["params"].clone();
                params["_meta"] = json!({ "io.modelcontextprotocol/subscriptionId": 0 });
                Ok(Event::Notification(Notification {
                    method: message["method"].as_str().unwrap().to_owned(),
                    params: object(&params),
                }))
            });
            Ok(Reply::Stream(events.boxed()))
        };
        front_with(answer, move |parts| parts.store = store)
    }

    async fn wait(&self, expected: &[Value]) {
        let there = async {
            while self.open.lock().unwrap().as_slice() != expected {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(LONG, there).await;
        assert!(waited.is_ok(), "{:?}", self.open.lock().unwrap());
    }
}

/// How late a server answers about a resource that is called so.
const LATE: Duration = Duration::from_secs(40);

fn wanted_of(call: &Call) -> Vec<String> {
    let wanted = call.params.get("notifications").unwrap().as_object();
    let wanted = wanted.unwrap();
    let uris = wanted.get("resourceSubscriptions");
    uris.and_then(|uris| uris.decode()).unwrap_or_default()
}

fn wanted(resources: &[&str]) -> Value {
    let mut wanted = json!({ "toolsListChanged": true, "promptsListChanged": true,
        "resourcesListChanged": true });
    if !resources.is_empty() {
        wanted["resourceSubscriptions"] = json!(resources);
    }
    wanted
}

const TOOLS: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";

#[tokio::test(start_paused = true)]
async fn r9_list_changes_reach_the_standing_stream() {
    let source = Source::new();
    let front = source.front(&Arc::default());
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    sleep(Duration::from_secs(5)).await;
    source.wait(&[]).await;
    let mut stream = peer.get(None).await;
    source.wait(&[wanted(&[])]).await;
    source.say(TOOLS, &json!({}));
    let message = stream.message().await;
    assert_eq!(message, json!({ "jsonrpc": "2.0", "method": TOOLS }));
}

#[tokio::test(start_paused = true)]
async fn a_session_is_listened_for_again_when_that_failed_inside() {
    let listens = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let answer = move |_: Call| {
        let first = listens.fetch_add(1, Ordering::SeqCst) == 0;
        let told = |method: &str, params: &Value| {
            let (method, params) = (method.to_owned(), object(params));
            Ok(Event::Notification(Notification { method, params }))
        };
        let acknowledged = "notifications/subscriptions/acknowledged";
        let acknowledged = told(acknowledged, &json!({ "notifications": wanted(&[]) }));
        let then = futures_util::stream::once(async move {
            assert!(!first, "told so");
            told(TOOLS, &json!({}))
        });
        let never = futures_util::stream::pending();
        let events = futures_util::stream::iter([acknowledged]).chain(then);
        Ok(Reply::Stream(events.chain(never).boxed()))
    };
    let front = front_with(answer, |_| {});
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let mut stream = peer.get(None).await;
    let message = tokio::time::timeout(LONG, stream.message()).await.unwrap();
    assert_eq!(message["method"], TOOLS);
}

#[tokio::test(start_paused = true)]
async fn r58_a_storm_of_changes_is_told_once_a_second() {
    let source = Source::new();
    let front = source.front(&Arc::default());
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let mut stream = peer.get(None).await;
    source.wait(&[wanted(&[])]).await;
    let before = tokio::time::Instant::now();
    for _ in 0..30 {
        source.say(TOOLS, &json!({}));
        sleep(Duration::from_millis(100)).await;
    }
    let mut count = 0;
    while tokio::time::timeout(Duration::from_secs(5), stream.message())
        .await
        .is_ok()
    {
        count += 1;
    }
    let seconds = before.elapsed().as_secs();
    // Nobody read meanwhile: what was unread was not repeated.
    assert!((1..=4).contains(&count), "{count} in {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_a_listen_and_its_updates_are_relayed() {
    let source = Source::new();
    let front = source.front(&Arc::default());
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    for uri in ["known:a", "known:b"] {
        let answer = peer
            .ask("resources/subscribe", &json!({ "uri": uri }))
            .await;
        assert_eq!(answer.json()["result"], json!({}), "{}", answer.text);
    }
    source.wait(&[wanted(&["known:a", "known:b"])]).await;
    // What comes before there is a stream is kept for it.
    source.say(UPDATED, &json!({ "uri": "known:a" }));
    sleep(Duration::from_secs(1)).await;
    let mut stream = peer.get(None).await;
    let message = stream.message().await;
    let expected = json!({ "jsonrpc": "2.0", "method": UPDATED, "params": { "uri": "known:a" } });
    assert_eq!(message, expected);

    let answer = peer
        .ask("resources/unsubscribe", &json!({ "uri": "known:a" }))
        .await;
    assert_eq!(answer.json()["result"], json!({}));
    source.wait(&[wanted(&["known:b"])]).await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_nobody_tells_of_cannot_be_subscribed_to() {
    let source = Source::new();
    let front = source.front(&Arc::default());
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let answer = peer
        .ask("resources/subscribe", &json!({ "uri": "odd:x" }))
        .await;
    assert_eq!(answer.refusal(), (200, -32002));
    assert_eq!(answer.json()["error"]["data"], json!({ "uri": "odd:x" }));
    let answer = peer.ask("resources/subscribe", &json!({})).await;
    assert_eq!(answer.refusal(), (200, -32602));
    // Nobody wants to hear anything any more.
    sleep(Duration::from_secs(120)).await;
    source.wait(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_waits_for_the_server_s_own_answer_and_holds_up_no_other() {
    let source = Source::new();
    let front = source.front(&Arc::default());
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let started = tokio::time::Instant::now();
    let subscribe = async |uri: &str| {
        let message = request(uri, "resources/subscribe", &json!({ "uri": uri }));
        let answer = peer.post(&message).await.text;
        // One that waits comes on a stream.
        let mut data = answer
            .lines()
            .map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let answer = data.find(|data| data.starts_with('{')).unwrap();
        let answer: Value = serde_json::from_str(answer).unwrap();
        (answer, started.elapsed())
    };
    let (late, refused, soon) = tokio::join!(
        subscribe("known:late"),
        subscribe("odd:late"),
        subscribe("known:a")
    );
    assert_eq!(late.0["result"], json!({}), "{}", late.0);
    assert!(late.1 >= LATE && late.1 < LATE * 2, "{:?}", late.1);
    assert_eq!(refused.0["error"]["code"], -32002);
    assert!(refused.1 >= LATE, "{:?}", refused.1);
    assert_eq!(soon.0["result"], json!({}), "{}", soon.0);
    assert!(soon.1 < LATE / 10, "{:?}", soon.1);
    source.wait(&[wanted(&["known:a", "known:late"])]).await;
    source.say(UPDATED, &json!({ "uri": "known:late" }));
    let mut stream = peer.get(None).await;
    assert_eq!(stream.message().await["params"]["uri"], "known:late");
}

#[tokio::test(start_paused = true)]
async fn who_unsubscribes_while_the_server_is_asked_is_not_subscribed() {
    let (source, store) = (Source::new(), Arc::new(Memory::default()));
    let front = source.front(&store);
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let uri = json!({ "uri": "known:late" });
    let subscribe = peer.ask("resources/subscribe", &uri);
    let unsubscribe = async {
        sleep(LATE / 2).await;
        let message = request(8, "resources/unsubscribe", &uri);
        peer.post(&message).await
    };
    let (subscribed, unsubscribed) = tokio::join!(subscribe, unsubscribe);
    assert!(
        subscribed.text.contains(r#""result":{}"#),
        "{}",
        subscribed.text
    );
    assert_eq!(unsubscribed.json()["result"], json!({}));
    sleep(Duration::from_secs(120)).await;
    source.wait(&[]).await;
    assert!(kept(&store).is_empty());
}

/// The resources that are remembered of the one session.
fn kept(store: &Memory) -> Vec<String> {
    let all = store.0.lock().unwrap();
    let resources = all.values().map(|record| record.resources.clone());
    resources.flatten().collect()
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_is_cancelled_leaves_nothing_behind() {
    let (source, store) = (Source::new(), Arc::new(Memory::default()));
    let front = source.front(&store);
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let uri = json!({ "uri": "known:unheard" });
    let cancel = async {
        sleep(Duration::from_secs(3)).await;
        let cancelled = json!({ "requestId": 7 });
        peer.notify("notifications/cancelled", &cancelled).await
    };
    let (answer, _) = tokio::join!(peer.ask("resources/subscribe", &uri), cancel);
    assert!(!answer.text.contains("result"), "{}", answer.text);
    let uri = json!({ "uri": "known:a" });
    let answer = peer.ask("resources/subscribe", &uri).await;
    assert!(answer.text.contains(r#""result":{}"#), "{}", answer.text);
    source.wait(&[wanted(&["known:a"])]).await;
    assert_eq!(kept(&store), ["known:a"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_refuses_when_it_is_asked_again_is_not_remembered() {
    let (source, store) = (Source::new(), Arc::new(Memory::default()));
    let front = source.front(&store);
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let uri = json!({ "uri": "known:a" });
    peer.ask("resources/subscribe", &uri).await;
    assert_eq!(kept(&store), ["known:a"]);
    source.refuses.store(true, Ordering::SeqCst);
    let refused = peer.ask("resources/subscribe", &uri).await;
    assert_eq!(refused.refusal(), (200, -32002));
    assert!(kept(&store).is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_a_final_refusal_ends_what_a_client_was_told_of_before() {
    let (source, store) = (Source::new(), Arc::new(Memory::default()));
    let front = source.front(&store);
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let uri = json!({ "uri": "known:a" });
    peer.ask("resources/subscribe", &uri).await;
    for (code, stays) in [(-32050, true), (-32603, true), (-32002, false)] {
        source.error.store(code, Ordering::SeqCst);
        let refused = peer.ask("resources/subscribe", &uri).await;
        assert_eq!(refused.refusal(), (200, code));
        assert_eq!(!kept(&store).is_empty(), stays, "{code}");
        let heard = match stays {
            true => wanted(&["known:a"]),
            false => wanted(&[]),
        };
        source.wait(&[heard]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn why_nothing_can_be_heard_is_said_and_what_was_subscribed_to_stays() {
    let source = Source::new();
    let full = Arc::new(AtomicBool::new(false));
    let is_full = Arc::clone(&full);
    let store = Arc::new(Memory::default());
    let front = source.front_unless(&store, move || {
        let refused =
            || CallError::new(Kind::Throttled, Origin::Gateway).detail("too many listeners");
        is_full.load(Ordering::SeqCst).then(refused)
    });
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let subscribe = async |uri: &str| {
        let params = json!({ "uri": uri });
        peer.ask("resources/subscribe", &params).await
    };
    assert_eq!(subscribe("known:a").await.json()["result"], json!({}));
    full.store(true, Ordering::SeqCst);
    for uri in ["known:b", "known:a"] {
        let error = subscribe(uri).await.json()["error"].clone();
        assert_eq!(error["code"], -32603, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("too many listeners"), "{error}");
    }
    full.store(false, Ordering::SeqCst);
    source.wait(&[wanted(&["known:a"])]).await;
}

#[tokio::test(start_paused = true)]
async fn who_listens_already_needs_no_more_room_to_listen_to_something_else() {
    let mut source = Source::new();
    source.room = Limit::new(1);
    let front = source.front(&Arc::default());
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    for uri in ["known:a", "known:b"] {
        let params = json!({ "uri": uri });
        let answer = peer.ask("resources/subscribe", &params).await;
        assert_eq!(answer.json()["result"], json!({}), "{}", answer.text);
    }
    source.wait(&[wanted(&["known:a", "known:b"])]).await;
    assert_eq!(source.room.used(), 1);
    let other = Peer::open(&front, LATEST, &json!({})).await;
    let answer = other
        .ask("resources/subscribe", &json!({ "uri": "known:a" }))
        .await;
    assert_eq!(answer.refusal(), (200, -32603));
}

#[tokio::test(start_paused = true)]
async fn what_was_unsubscribed_is_not_told_of_and_the_stream_follows_when_it_can() {
    let source = Source::new();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let front = source.front_unless(&Arc::default(), move || {
        let error = || CallError::new(Kind::Unavailable, Origin::Gateway);
        failing.load(Ordering::SeqCst).then(error)
    });
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    for uri in ["known:a", "known:b"] {
        let params = json!({ "uri": uri });
        peer.ask("resources/subscribe", &params).await;
    }
    let mut stream = peer.get(None).await;
    let both = wanted(&["known:a", "known:b"]);
    source.wait(std::slice::from_ref(&both)).await;
    fails.store(true, Ordering::SeqCst);
    peer.ask("resources/unsubscribe", &json!({ "uri": "known:a" }))
        .await;
    sleep(Duration::from_secs(3)).await;
    source.wait(&[both]).await;
    // What is below one that is subscribed to is told of, too.
    for uri in ["known:a", "known:b/1"] {
        source.say(UPDATED, &json!({ "uri": uri }));
    }
    assert_eq!(stream.message().await["params"]["uri"], "known:b/1");
    fails.store(false, Ordering::SeqCst);
    source.wait(&[wanted(&["known:b"])]).await;
}

#[tokio::test(start_paused = true)]
async fn r21_subscriptions_outlive_a_restart() {
    let source = Source::new();
    let store = Arc::new(Memory::default());
    let first = source.front(&store);
    let peer = Peer::open(&first, LATEST, &json!({})).await;
    peer.ask("resources/subscribe", &json!({ "uri": "known:a" }))
        .await;
    let second = source.front(&store);
    let peer = peer.at(&second);
    let mut stream = peer.get(None).await;
    let both = [wanted(&["known:a"]), wanted(&["known:a"])];
    source.wait(&both).await;
    source.say(UPDATED, &json!({ "uri": "known:a" }));
    assert_eq!(stream.message().await["method"], UPDATED);
}

#[tokio::test(start_paused = true)]
async fn r16_nobody_listens_for_a_session_that_ended() {
    let source = Source::new();
    let front = source.front(&Arc::default());
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    peer.ask("resources/subscribe", &json!({ "uri": "known:a" }))
        .await;
    let mut stream = peer.get(None).await;
    assert_eq!(peer.send(Method::DELETE, &[], "").await.status(), 204);
    assert_eq!(stream.next().await, None);
    source.wait(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn r42_at_shutdown_standing_streams_end() {
    let sessions = Sessions::new(session_parts(&Arc::default()));
    let kept = sessions.clone();
    let front = Front::with(|_| Ok(text("ok")), |parts| parts.sessions = Some(sessions));
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let mut stream = peer.get(None).await;
    kept.begin_drain();
    assert_eq!(stream.next().await, None);
    assert_eq!(peer.ask("tools/list", &json!({})).await.status, 200);
}
