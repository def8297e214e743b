//! A host bridged to the front of a daemon.
#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` reads better without a borrow"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt as _, service_fn};
use waypost_front::stdio::bridge::{Bridge, Daemon};
use waypost_hub::call::Call;
use waypost_hub::error::CallError;
use waypost_hub::keys::Keys;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::{End, Reply};

use crate::fake::{Front, meta, object};
use crate::peer::{LATEST, front, front_with, initialize, reply, request, silent, text};

const GRACE: Duration = Duration::from_secs(20);

/// The host's side; the daemon behind can be exchanged.
struct Host {
    to: DuplexStream,
    from: Lines<BufReader<DuplexStream>>,
    bridged: tokio::task::JoinHandle<bool>,
    daemon: Arc<Mutex<Router>>,
}

impl Host {
    #[expect(clippy::disallowed_methods, reason = "a test waits for what it spawns")]
    fn of(front: &Front) -> Self {
        let daemon = Arc::new(Mutex::new(front.router.clone()));
        let now = Arc::clone(&daemon);
        let sender = service_fn(move |request: Request<Body>| {
            let router = now.lock().unwrap().clone();
            async move { router.oneshot(request).await.map_err(BoxError::from) }
        });
        let parts = Daemon {
            uri: "http://daemon/mcp".parse().unwrap(),
            headers: HeaderMap::new(),
            sender: BoxCloneSyncService::new(sender),
            tasks: Tasks::default(),
            limit: 1 << 20,
        };
        let (to, input) = tokio::io::duplex(1 << 20);
        let (output, from) = tokio::io::duplex(1 << 20);
        let bridged = tokio::spawn(async move {
            let bridge = Bridge::new(&parts, output);
            bridge.read(input).await;
            bridge.finish(GRACE).await
        });
        let from = BufReader::new(from).lines();
        Self {
            to,
            from,
            bridged,
            daemon,
        }
    }

    async fn open(front: &Front) -> Self {
        let mut host = Self::of(front);
        let able = json!({ "elicitation": {}, "sampling": {} });
        host.send(initialize(LATEST, &able)).await;
        assert_eq!(host.read().await["result"]["protocolVersion"], LATEST);
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        host.send(ready).await;
        host
    }

    /// From here on another one answers where the daemon was.
    fn exchange(&self, front: &Front) {
        *self.daemon.lock().unwrap() = front.router.clone();
    }

    async fn send(&mut self, message: Value) {
        let line = format!("{message}\n");
        self.to.write_all(line.as_bytes()).await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let line = self.from.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn ask(&mut self, id: u32, method: &str, params: Value) -> Value {
        self.send(request(id, method, &params)).await;
        let answer = self.read().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Closes its input and reads what is left.
    async fn close(mut self) -> (Vec<Value>, bool) {
        drop(self.to);
        let mut rest = Vec::new();
        while let Some(line) = self.from.next_line().await.unwrap() {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        (rest, self.bridged.await.unwrap())
    }
}

fn call(id: u32) -> Value {
    request(id, "tools/call", &json!({ "name": "t" }))
}

/// Asks, and says what was answered; listens to everything.
fn asks(call: Call) -> Result<Reply, CallError> {
    let params = &call.params;
    if call.method == "subscriptions/listen" {
        return Ok(listening(&call));
    }
    if let Some(answers) = params.get("inputResponses") {
        return Ok(text(answers.text()));
    }
    let asks = json!({ "resultType": "input_required", "requestState": "s",
        "inputRequests": { "who": { "method": "elicitation/create",
            "params": { "message": "who?", "requestedSchema": {} } } } });
    Ok(Reply::End(End::InputRequired(object(&asks))))
}

fn listening(call: &Call) -> Reply {
    let wanted: Value = call.params.get("notifications").unwrap().decode().unwrap();
    let first = json!({ "method": "notifications/subscriptions/acknowledged",
        "params": { "notifications": wanted } });
    reply(&[first], None)
}

fn withdrawn(message: &Value, question: &Value) {
    assert_eq!(message["method"], "notifications/cancelled", "{message}");
    assert_eq!(message["params"]["requestId"], question["id"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_in_time_is_withdrawn_at_the_host() {
    let mut host = Host::open(&front(asks)).await;
    host.send(call(1)).await;
    let question = host.read().await;
    assert_eq!(question["method"], "elicitation/create");
    withdrawn(&host.read().await, &question);
    let end = host.read().await;
    assert_eq!(
        (&end["id"], &end["error"]["code"]),
        (&json!(1), &json!(-32603))
    );
}

#[tokio::test(start_paused = true)]
async fn r25_a_question_of_a_call_that_the_host_gives_up_is_withdrawn() {
    let mut host = Host::open(&front(asks)).await;
    host.send(call(1)).await;
    let question = host.read().await;
    let cancel = json!({ "requestId": 1 });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel });
    host.send(cancel).await;
    withdrawn(&host.read().await, &question);
    let (rest, clean) = host.close().await;
    assert!(rest.is_empty() && clean, "{rest:?}");
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_input_open_questions_are_answered_by_nobody() {
    let mut host = Host::open(&front(asks)).await;
    host.send(call(1)).await;
    assert_eq!(host.read().await["method"], "elicitation/create");
    // One that asks when nobody is left.
    host.send(call(2)).await;
    let before = Instant::now();
    let (rest, clean) = host.close().await;
    assert!(clean && before.elapsed() < Duration::from_secs(1));
    for id in [1, 2] {
        let end = rest.iter().find(|m| m["id"] == id && m["method"].is_null());
        assert!(end.unwrap().to_string().contains("cancel"), "{rest:?}");
    }
}

/// A daemon that knows nothing of the sessions of others.
fn with_other_keys(limit: usize) -> Front {
    front_with(
        |call: Call| match &*call.method {
            "subscriptions/listen" => Ok(listening(&call)),
            _ => Ok(text("anew")),
        },
        move |parts| {
            parts.keys = Keys::new(vec![vec![8; 32]]).unwrap();
            parts.limit = limit;
        },
    )
}

fn known(front: &Front, method: &str) -> Vec<Call> {
    let calls = front.calls().into_iter();
    calls.filter(|call| call.method == method).collect()
}

#[tokio::test(start_paused = true)]
async fn r21_a_session_that_the_daemon_lost_is_opened_again_and_the_host_notices_nothing() {
    let mut host = Host::open(&front(asks)).await;
    let level = json!({ "level": "debug" });
    host.ask(1, "logging/setLevel", level).await;
    for (id, uri) in [(2, "x:gone"), (3, "x:kept")] {
        host.ask(id, "resources/subscribe", json!({ "uri": uri }))
            .await;
    }
    host.ask(4, "resources/unsubscribe", json!({ "uri": "x:gone" }))
        .await;

    let other = with_other_keys(10);
    host.exchange(&other);
    for id in 5..15 {
        host.send(call(id)).await;
    }
    let mut answered = Vec::new();
    for _ in 5..15 {
        let answer = host.read().await;
        assert_eq!(answer["result"]["content"][0]["text"], "anew", "{answer}");
        answered.push(answer["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, (5..15).collect::<Vec<_>>());
    assert_eq!(known(&other, "server/discover").len(), 1, "opened once");
    let calls = known(&other, "tools/call");
    assert_eq!(calls.len(), 10);
    for call in calls {
        assert_eq!(call.meta.log_level.unwrap().text(), "\"debug\"");
        assert!(call.meta.capabilities.has("sampling"));
    }
    let wanted = || {
        let last = known(&other, "subscriptions/listen").pop()?;
        Some(last.params.get("notifications")?.text().to_owned())
    };
    let restored = async {
        while wanted().is_none_or(|wanted| !wanted.contains("x:kept")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(GRACE, restored).await.unwrap();
    assert!(!wanted().unwrap().contains("x:gone"));
    let (rest, clean) = host.close().await;
    assert!(rest.is_empty() && clean, "{rest:?}");
}

#[tokio::test(start_paused = true)]
async fn where_no_other_session_can_be_opened_the_request_says_so() {
    let mut host = Host::open(&front(asks)).await;
    let full = with_other_keys(0);
    host.exchange(&full);
    let answer = host.ask(1, "tools/list", json!({})).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    let said = answer["error"]["message"].as_str().unwrap();
    for part in [
        "does not know the session",
        "too many sessions",
        "start this server anew",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(known(&full, "tools/list").is_empty());
    // And the next request tries again.
    host.exchange(&with_other_keys(10));
    let answer = host.ask(2, "tools/list", json!({})).await;
    assert!(answer["result"].is_object(), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_in_the_end_is_told_so() {
    let front = front(|_| Ok(silent()));
    let mut host = Host::open(&front).await;
    host.send(call(1)).await;
    let subscribe = json!({ "uri": "known:a" });
    host.send(request(2, "resources/subscribe", &subscribe))
        .await;
    let params = json!({ "name": "t", "_meta": meta() });
    host.send(request(3, "tools/call", &params)).await;
    host.send(call(4)).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 4 } });
    host.send(cancel).await;
    let before = Instant::now();
    let (mut rest, clean) = host.close().await;
    assert!(!clean);
    assert!((GRACE..GRACE + Duration::from_secs(1)).contains(&before.elapsed()));
    rest.sort_by_key(|end| end["id"].as_u64());
    let ids: Vec<_> = rest.iter().map(|end| end["id"].as_u64()).collect();
    assert_eq!(ids, [Some(1), Some(2), Some(3)], "{rest:?}");
    for end in rest {
        let text = end["error"]["message"].to_string();
        assert!(
            text.contains("Waypost has stopped before the call was over"),
            "{text}"
        );
    }
}
