//! A bridge to a daemon that answers as the test says.

#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` reads better without a borrow"
)]

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tower::service_fn;

use super::*;

/// A request as the daemon saw it.
#[derive(Clone, Debug)]
struct Seen {
    http: Method,
    headers: HeaderMap,
    message: Value,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// The host's side.
struct Host {
    to: DuplexStream,
    from: Lines<BufReader<DuplexStream>>,
    bridged: tokio::task::JoinHandle<bool>,
    seen: Arc<Mutex<Vec<Seen>>>,
    ending: CancellationToken,
}

type Answered = Result<Response<Body>, BoxError>;

#[expect(clippy::disallowed_methods, reason = "a test waits for what it spawns")]
fn host(answer: impl Fn(&Seen) -> Answered + Send + Sync + 'static) -> Host {
    let (daemon, seen) = daemon(answer);
    let (to, input) = tokio::io::duplex(1 << 20);
    let (output, from) = tokio::io::duplex(1 << 20);
    let bridge = Bridge::new(&daemon, output);
    let ending = bridge.ending.clone();
    let bridged = tokio::spawn(async move {
        bridge.read(input).await;
        bridge.finish(Duration::from_secs(5)).await
    });
    Host {
        to,
        from: BufReader::new(from).lines(),
        bridged,
        seen,
        ending,
    }
}

/// A daemon, and what it has seen.
fn daemon(
    answer: impl Fn(&Seen) -> Answered + Send + Sync + 'static,
) -> (Daemon, Arc<Mutex<Vec<Seen>>>) {
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let (record, answer) = (Arc::clone(&seen), Arc::new(answer));
    let sender = service_fn(move |request: Request<Body>| {
        let (record, answer) = (Arc::clone(&record), Arc::clone(&answer));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let seen = Seen {
                http: head.method,
                headers: head.headers,
                message: serde_json::from_slice(&body).unwrap_or_default(),
            };
            record.lock().unwrap().push(seen.clone());
            answer(&seen)
        }
    });
    let daemon = Daemon {
        uri: "http://daemon/mcp".parse().unwrap(),
        headers: HeaderMap::new(),
        sender: BoxCloneSyncService::new(sender),
        tasks: Tasks::default(),
        limit: 1 << 20,
    };
    (daemon, seen)
}

impl Host {
    async fn send(&mut self, message: &Value) {
        self.to
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn read(&mut self) -> Value {
        let line = self.from.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    async fn until(&self, enough: impl Fn(&[Seen]) -> bool) {
        let wait = async {
            while !enough(&self.seen()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait)
            .await
            .unwrap();
    }

    async fn close(self) -> bool {
        drop(self.to);
        self.bridged.await.unwrap()
    }
}

fn answer(kind: &str, status: StatusCode, body: Body) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(body)
        .unwrap()
}

fn json_answer(seen: &Seen, result: Value) -> Answered {
    let message = json!({ "jsonrpc": "2.0", "id": seen.message["id"], "result": result });
    Ok(answer(
        "application/json",
        StatusCode::OK,
        message.to_string().into(),
    ))
}

/// The messages as events, numbered, then nothing more but an open stream if `open`.
fn events(messages: &[Value], open: bool) -> Response<Body> {
    let events = messages.iter().enumerate();
    let events =
        events.map(|(n, message)| Ok::<_, Infallible>(format!("id: e{n}\ndata: {message}\n\n")));
    let events: Vec<_> = events.collect();
    let rest = if open {
        stream::pending().left_stream()
    } else {
        stream::empty().right_stream()
    };
    let body = Body::from_stream(stream::iter(events).chain(rest));
    answer("text/event-stream", StatusCode::OK, body)
}

fn modern(id: Value, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}, "progressToken": 1 });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn tools() -> Value {
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" } } });
    json!({ "resultType": "complete", "tools": [{ "name": "t", "inputSchema": schema }] })
}

#[tokio::test(start_paused = true)]
async fn a_stateless_request_has_the_headers_that_repeat_it() {
    let mut host = host(|seen| match seen.header("mcp-method") {
        "tools/list" => json_answer(seen, tools()),
        _ => {
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress" });
            let end = json!({ "jsonrpc": "2.0", "id": seen.message["id"], "result": {} });
            Ok(events(&[progress, end], false))
        }
    });
    let call = modern(
        json!("a"),
        "tools/call",
        json!({ "name": "t", "arguments": { "region": "é", "x": 1.0 } }),
    );
    host.send(&call).await;
    assert_eq!(host.read().await["method"], "notifications/progress");
    assert_eq!(host.read().await["id"], "a");
    host.send(&modern(json!(2), "resources/read", json!({ "uri": "x:y" })))
        .await;
    assert_eq!(host.read().await["method"], "notifications/progress");
    assert_eq!(host.read().await["id"], 2);
    let seen = host.seen();
    // The list was not seen before, so it was looked up once.
    let methods: Vec<_> = seen.iter().map(|seen| seen.header("mcp-method")).collect();
    assert_eq!(methods, ["tools/list", "tools/call", "resources/read"]);
    assert!(seen[0].message["params"]["_meta"]["progressToken"].is_null());
    assert_eq!(seen[1].message, call, "as it was written");
    assert_eq!(seen[1].header("mcp-name"), "t");
    assert_eq!(seen[1].header("mcp-param-region"), "=?base64?w6k=?=");
    assert_eq!(seen[1].header("mcp-protocol-version"), "2026-07-28");
    assert_eq!(seen[2].header("mcp-name"), "x:y");
    assert!(host.close().await);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_wants_other_headers_by_now_is_called_again() {
    let mut host = host(|seen| match seen.header("mcp-method") {
        "tools/list" => json_answer(seen, tools()),
        _ if seen.header("mcp-param-region").is_empty() => {
            let error = json!({ "code": -32020, "message": "missing" });
            let error = json!({ "jsonrpc": "2.0", "id": seen.message["id"], "error": error });
            Ok(answer(
                "application/json",
                StatusCode::BAD_REQUEST,
                error.to_string().into(),
            ))
        }
        _ => json_answer(seen, json!({ "ok": true })),
    });
    // Nothing says at first that it wants any.
    host.send(&modern(
        json!(1),
        "tools/call",
        json!({ "name": "t", "arguments": {} }),
    ))
    .await;
    assert_eq!(
        host.read().await["error"]["code"],
        -32020,
        "there is no argument to repeat"
    );
    let region = json!({ "name": "t", "arguments": { "region": "eu" } });
    host.send(&modern(json!(2), "tools/call", region)).await;
    assert_eq!(host.read().await["result"]["ok"], true);
}

#[tokio::test(start_paused = true)]
async fn r25_cancelling_a_stateless_request_closes_its_stream() {
    let closed = CancellationToken::new();
    let signal = closed.clone();
    let mut host = host(move |_| {
        let guard = signal.clone().drop_guard();
        let first = json!({ "jsonrpc": "2.0", "method": "notifications/progress" });
        let first = stream::iter([Ok::<_, Infallible>(format!("data: {first}\n\n"))]);
        let open = stream::pending().inspect(move |_| {
            let _held = &guard;
        });
        let body = Body::from_stream(first.chain(open));
        Ok(answer("text/event-stream", StatusCode::OK, body))
    });
    host.send(&modern(json!(1), "tools/call", json!({ "name": "t" })))
        .await;
    host.read().await;
    assert!(!closed.is_cancelled());
    let cancel = json!({ "requestId": 1 });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel });
    host.send(&cancel).await;
    closed.cancelled().await;
    assert_eq!(host.seen().len(), 1, "the daemon is told in no other way");
    assert!(host.close().await);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_away_is_said_so_and_tried_again() {
    let away = Arc::new(Mutex::new(true));
    let down = Arc::clone(&away);
    let mut host = host(move |seen| {
        if *down.lock().unwrap() {
            let refused = std::io::Error::other("connection refused");
            return Err(refused.into());
        }
        match seen.header("mcp-name") {
            "html" => Ok(answer("text/html", StatusCode::BAD_GATEWAY, "<p>".into())),
            "broken" => Ok(events(&[], false)),
            "locked" => {
                let error = json!({ "code": -32600, "message": "no key" });
                let error = json!({ "jsonrpc": "2.0", "error": error });
                Ok(answer(
                    "application/json",
                    StatusCode::UNAUTHORIZED,
                    error.to_string().into(),
                ))
            }
            _ => json_answer(seen, json!({})),
        }
    });
    let read = |id: u32, uri: &str| modern(json!(id), "resources/read", json!({ "uri": uri }));
    host.send(&read(1, "a")).await;
    let error = host.read().await;
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&json!(1), &json!(-32603))
    );
    let text = error["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("`http://daemon/mcp`: connection refused; see that"),
        "{text}"
    );
    assert_eq!(error["error"]["data"]["retryable"], true);
    *away.lock().unwrap() = false;
    host.send(&read(2, "a")).await;
    assert_eq!(host.read().await["result"], json!({}));
    for (id, uri, says) in [
        (3, "html", "HTTP 502"),
        (4, "broken", "broke off"),
        (5, "locked", "no key"),
    ] {
        host.send(&read(id, uri)).await;
        let error = host.read().await;
        assert_eq!(error["id"], id);
        assert!(
            error["error"]["message"].as_str().unwrap().contains(says),
            "{error}"
        );
    }
    assert!(host.close().await);
}

/// A daemon with sessions, whose calls ask.
fn sessions(seen: &Seen) -> Answered {
    let accepted = || {
        Ok(answer(
            "application/json",
            StatusCode::ACCEPTED,
            Body::empty(),
        ))
    };
    match (&seen.http, seen.message["method"].as_str()) {
        (_, Some("initialize")) => {
            let mut response = json_answer(seen, json!({ "protocolVersion": "2025-06-18" }))?;
            response
                .headers_mut()
                .insert("mcp-session-id", "s1".parse()?);
            Ok(response)
        }
        (&Method::GET, _) if seen.header("last-event-id") == "e0" => {
            let end = json!({ "jsonrpc": "2.0", "id": 7, "result": { "resumed": true } });
            Ok(events(&[end], false))
        }
        (&Method::GET, _) => {
            let told = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            Ok(events(&[told], true))
        }
        (_, Some("tools/call")) => {
            let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "roots/list" });
            // The connection of one breaks off, the other goes on.
            Ok(events(&[ask], seen.message["id"] != 7))
        }
        _ => accepted(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_has_its_id_its_streams_and_its_end() {
    let mut host = host(sessions);
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {} });
    host.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
        .await;
    assert_eq!(host.read().await["id"], 0);
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    assert_eq!(
        host.read().await["method"],
        "notifications/tools/list_changed"
    );
    let call =
        |id: u32| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {} });
    host.send(&call(5)).await;
    assert_eq!(host.read().await["method"], "roots/list");
    let given = json!({ "jsonrpc": "2.0", "id": 1, "result": { "roots": [] } });
    host.send(&given).await;
    host.until(|seen| seen.iter().any(|seen| seen.message == given))
        .await;
    let cancel = json!({ "requestId": 5 });
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }))
        .await;
    host.until(|seen| {
        seen.iter()
            .any(|seen| seen.message["params"]["requestId"] == 5)
    })
    .await;
    // A stream that broke off is taken up again.
    host.send(&call(7)).await;
    assert_eq!(host.read().await["method"], "roots/list");
    // What is still open with the answer, nobody waits for.
    let withdrawn = host.read().await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], 1);
    assert_eq!(host.read().await["result"]["resumed"], true);
    let seen = Arc::clone(&host.seen);
    assert!(host.close().await);
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.last().unwrap().http, Method::DELETE);
    let (first, rest) = seen.split_first().unwrap();
    assert_eq!(first.header("mcp-session-id"), "");
    for seen in rest {
        assert_eq!(seen.header("mcp-session-id"), "s1", "{seen:?}");
        assert_eq!(seen.header("mcp-protocol-version"), "2025-06-18");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_input_does_not_wait_for_streams_without_end() {
    let mut host = host(|_| {
        let method = "notifications/subscriptions/acknowledged";
        Ok(events(
            &[json!({ "jsonrpc": "2.0", "method": method })],
            true,
        ))
    });
    host.send(&modern(json!(1), "subscriptions/listen", json!({})))
        .await;
    host.read().await;
    let before = tokio::time::Instant::now();
    assert!(host.close().await);
    assert!(before.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn beginning_anew_ends_the_session_before() {
    let number = AtomicU32::new(0);
    let mut host = host(move |seen| {
        let mut response = json_answer(seen, json!({ "protocolVersion": "2025-06-18" }))?;
        let id = format!("s{}", number.fetch_add(1, Ordering::Relaxed));
        response.headers_mut().insert("mcp-session-id", id.parse()?);
        Ok(response)
    });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {} });
    for id in [0, 1] {
        let hello = json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": params });
        host.send(&hello).await;
        assert_eq!(host.read().await["id"], id);
    }
    host.until(|seen| seen.iter().any(|seen| seen.http == Method::DELETE))
        .await;
    let last = host.seen.lock().unwrap().last().unwrap().clone();
    assert_eq!(last.header("mcp-session-id"), "s0");
    assert!(host.close().await);
}

#[tokio::test(start_paused = true)]
async fn a_batch_reaches_the_daemon_message_by_message() {
    let mut host = host(|seen| {
        let version = seen.message["params"]["protocolVersion"].clone();
        json_answer(seen, json!({ "protocolVersion": version }))
    });
    let ask = |id: u32, method: &str, version: &str| {
        json!({ "jsonrpc": "2.0", "id": id, "method": method,
            "params": { "protocolVersion": version } })
    };
    let batch = json!([ask(1, "ping", ""), ask(2, "tools/list", "")]);
    host.send(&ask(0, "initialize", "2025-11-25")).await;
    host.read().await;
    host.send(&batch).await;
    assert_eq!(host.read().await["error"]["code"], -32600);
    host.send(&ask(0, "initialize", "2025-03-26")).await;
    host.read().await;
    host.send(&batch).await;
    let mut ids = [host.read().await, host.read().await].map(|m| m["id"].as_u64());
    ids.sort_unstable();
    assert_eq!(ids, [Some(1), Some(2)]);
    let sent = host.seen();
    assert!(sent.iter().all(|seen| !seen.message.is_array()), "{sent:?}");
    assert!(host.close().await);
}

#[tokio::test(start_paused = true)]
async fn a_ping_before_the_session_is_answered_by_the_bridge() {
    let mut host = host(|seen| json_answer(seen, json!({ "protocolVersion": "2025-11-25" })));
    let ask = |id: u32, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method });
    host.send(&ask(1, "ping")).await;
    assert_eq!(
        host.read().await,
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} })
    );
    assert!(host.seen().is_empty());
    host.send(&ask(2, "initialize")).await;
    host.read().await;
    host.send(&ask(3, "ping")).await;
    host.read().await;
    let asked = |seen: &Seen| seen.message["method"] == "ping";
    assert_eq!(host.seen().iter().filter(|seen| asked(seen)).count(), 1);
    assert!(host.close().await);
}

#[tokio::test(start_paused = true)]
async fn r42_while_draining_only_stateless_retries_go_on() {
    let mut host = host(|seen| json_answer(seen, json!({ "resultType": "complete" })));
    host.ending.cancel();
    let stateless = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
    for (meta, goes_on) in [(json!({}), false), (stateless, true)] {
        let params = json!({ "name": "a", "requestState": "s", "_meta": meta });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        host.send(&call).await;
        let answer = host.read().await;
        assert_eq!(answer["result"].is_object(), goes_on, "{answer}");
    }
    let called = host
        .seen()
        .into_iter()
        .map(|seen| seen.message["method"].clone());
    assert_eq!(called.filter(|method| method == "tools/call").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_host_has_not_answered_yet_is_open() {
    let (daemon, _) = daemon(|seen| {
        let asks = !seen.message["params"]["requestState"].is_string();
        json_answer(
            seen,
            match asks {
                true => json!({ "resultType": "input_required", "requestState": "s" }),
                false => json!({ "resultType": "complete" }),
            },
        )
    });
    let (mut to, input) = tokio::io::duplex(1 << 20);
    let (output, from) = tokio::io::duplex(1 << 20);
    let bridge = Bridge::new(&daemon, output);
    let talk = async {
        let mut from = BufReader::new(from).lines();
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
        let mut params = json!({ "name": "a", "_meta": meta });
        for (state, is_idle) in [(None, false), (Some("s"), true), (None, false)] {
            params["requestState"] = json!(state);
            let call =
                json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
            to.write_all(format!("{call}\n").as_bytes()).await.unwrap();
            from.next_line().await.unwrap().unwrap();
            // The token of the request goes a moment later.
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(bridge.is_idle(), is_idle, "{state:?}");
        }
        tokio::time::sleep(Duration::from_secs(601)).await;
        assert!(bridge.is_idle(), "nobody answers any more");
    };
    tokio::select! {
        () = bridge.read(input) => panic!("the input has ended"),
        () = talk => {}
    }
}
