//! A host bridged to the front of a daemon.
#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` reads better without a borrow"
)]

use std::time::Duration;

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
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::{End, Reply};

use crate::fake::{Front, object};
use crate::peer::{LATEST, front, initialize, reply, request, text};

const GRACE: Duration = Duration::from_secs(20);

/// The host's side.
struct Host {
    to: DuplexStream,
    from: Lines<BufReader<DuplexStream>>,
    bridged: tokio::task::JoinHandle<bool>,
}

impl Host {
    #[expect(clippy::disallowed_methods, reason = "a test waits for what it spawns")]
    fn of(front: &Front) -> Self {
        let router = front.router.clone();
        let sender = service_fn(move |request: Request<Body>| {
            let router = router.clone();
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
        Self { to, from, bridged }
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

    async fn send(&mut self, message: Value) {
        let line = format!("{message}\n");
        self.to.write_all(line.as_bytes()).await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let line = self.from.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
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
