//! A host on a pipe: both eras on one connection.
#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` reads better without a borrow"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tokio_util::sync::CancellationToken;
use waypost_front::legacy::Sessions;
use waypost_front::stdio::{Host, Pipe};
use waypost_hub::call::{Call, Principal, View};
use waypost_hub::error::CallError;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::{End, Event, Reply};
use waypost_wire::message::Notification;

use crate::fake::{meta, object, parts};
use crate::peer::{LATEST, Memory, discovered, result, session_parts, text};

const GRACE: Duration = Duration::from_secs(20);

/// The host's side.
struct Client {
    to: DuplexStream,
    from: Lines<BufReader<DuplexStream>>,
    served: tokio::task::JoinHandle<bool>,
    calls: Arc<Mutex<Vec<Call>>>,
    store: Arc<Memory>,
    draining: CancellationToken,
}

impl Client {
    fn new(
        answer: impl Fn(Call) -> Result<Reply, CallError> + Send + Sync + Clone + 'static,
    ) -> Self {
        Self::with(answer, 1 << 20)
    }

    #[expect(clippy::disallowed_methods, reason = "a test waits for what it spawns")]
    fn with(
        answer: impl Fn(Call) -> Result<Reply, CallError> + Send + Sync + Clone + 'static,
        pipe: usize,
    ) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&calls);
        let mut parts = parts(move |call: Call| {
            if call.method == "server/discover" {
                return Ok(discovered());
            }
            seen.lock().unwrap().push(call.clone());
            answer(call)
        });
        let store: Arc<Memory> = Arc::default();
        parts.sessions = Some(Sessions::new(session_parts(&store)));
        let draining = parts.draining.clone();
        let host = Host {
            parts,
            tasks: Tasks::default(),
            principal: Principal::anonymous(),
            view: View::All,
        };
        let (to, input) = tokio::io::duplex(16 << 10);
        let (output, from) = tokio::io::duplex(pipe);
        let served = tokio::spawn(async move {
            let mut pipe = Pipe::new(host, output);
            pipe.read(input).await;
            pipe.finish(GRACE).await
        });
        let from = BufReader::new(from).lines();
        Self {
            to,
            from,
            served,
            calls,
            store,
            draining,
        }
    }

    async fn write(&mut self, text: &str) {
        self.to.write_all(text.as_bytes()).await.unwrap();
    }

    async fn send(&mut self, message: Value) {
        self.write(&format!("{message}\n")).await;
    }

    async fn read(&mut self) -> Value {
        let line = self.from.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    async fn open(&mut self) {
        let params = json!({ "protocolVersion": LATEST, "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "test", "version": "1" } });
        self.send(legacy(json!("init"), "initialize", params)).await;
        let answer = self.read().await;
        assert_eq!(answer["result"]["protocolVersion"], LATEST, "{answer}");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.send(ready).await;
    }

    /// Closes its input and reads what is left.
    async fn close(mut self) -> (Vec<Value>, bool) {
        drop(self.to);
        let mut rest = Vec::new();
        while let Some(line) = self.from.next_line().await.unwrap() {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        (rest, self.served.await.unwrap())
    }
}

fn legacy(id: Value, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn modern(id: Value, method: &str, mut params: Value) -> Value {
    params["_meta"] = meta();
    legacy(id, method, params)
}

fn cancel(id: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
}

#[tokio::test(start_paused = true)]
async fn r42_while_draining_only_stateless_retries_go_on() {
    let mut client = Client::new(echo);
    client.open().await;
    client.draining.cancel();
    let retry = json!({ "name": "a", "requestState": "s" });
    for (message, goes_on) in [
        (legacy(json!(1), "tools/call", retry.clone()), false),
        (
            legacy(json!(2), "tasks/get", json!({ "taskId": "t" })),
            false,
        ),
        (
            modern(json!(3), "tools/call", json!({ "name": "a" })),
            false,
        ),
        (modern(json!(4), "tools/call", retry), true),
        (
            modern(json!(5), "tasks/get", json!({ "taskId": "t" })),
            true,
        ),
    ] {
        client.send(message.clone()).await;
        let answer = client.read().await;
        let says = answer["error"]["message"].as_str();
        assert_eq!(
            says == Some("Waypost is shutting down"),
            !goes_on,
            "{message} {answer}"
        );
    }
}

fn echo(call: Call) -> Result<Reply, CallError> {
    Ok(text(&call.method))
}

/// Tells once and then takes for ever.
#[expect(clippy::unnecessary_wraps, reason = "as the front wants it")]
fn endless(call: Call) -> Result<Reply, CallError> {
    let told = Event::Notification(Notification {
        method: "notifications/progress".to_owned(),
        params: object(&json!({ "progressToken": 1, "of": call.id.raw().text() })),
    });
    Ok(Reply::Stream(
        stream::iter([Ok(told)]).chain(stream::pending()).boxed(),
    ))
}

#[tokio::test(start_paused = true)]
async fn a_probe_an_initialize_and_both_eras_share_one_pipe() {
    let mut client = Client::new(echo);
    client
        .send(modern(json!("probe"), "server/discover", json!({})))
        .await;
    let probe = client.read().await;
    assert_eq!(probe["id"], "probe");
    assert_eq!(probe["result"]["supportedVersions"], json!(["2026-07-28"]));
    client.open().await;
    // The same id in both eras: each answer has the form of its own.
    let call = json!({ "name": "a", "arguments": {} });
    client
        .send(legacy(json!(1), "tools/call", call.clone()))
        .await;
    let answer = client.read().await;
    assert_eq!(answer["result"]["resultType"], Value::Null, "{answer}");
    client.send(modern(json!(1), "tools/call", call)).await;
    let answer = client.read().await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let calls = client.calls.lock().unwrap().clone();
    let calls: Vec<_> = calls.iter().filter(|c| c.method == "tools/call").collect();
    let in_session: Vec<_> = calls.iter().map(|call| call.session.is_some()).collect();
    assert_eq!(in_session, [true, false]);
    assert!(calls.iter().all(|call| call.headers.absent));
    let (rest, clean) = client.close().await;
    assert!(rest.is_empty() && clean, "{rest:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_refused_and_the_next_line_served() {
    let mut client = Client::new(echo);
    client.write("{nonsense\n\n \r\n").await;
    assert_eq!(client.read().await["error"]["code"], -32700);
    client.write("[]\n").await;
    assert_eq!(client.read().await["error"]["code"], -32600);
    let long = json!({ "name": "x".repeat(5000) });
    client.send(modern(json!(7), "tools/call", long)).await;
    let answer = client.read().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32600))
    );
    client.send(modern(json!(8), "ping", json!({}))).await;
    assert_eq!(client.read().await["error"]["code"], -32601);
    // Neither era, before a session is open: only a ping is answered.
    client.send(legacy(json!(9), "tools/list", json!({}))).await;
    let answer = client.read().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(9), &json!(-32600))
    );
    client.send(legacy(json!(10), "ping", json!({}))).await;
    assert_eq!(client.read().await["result"], json!({}));
    // In pieces, cut within characters.
    let message = modern(json!("é語"), "tools/list", json!({})).to_string() + "\n";
    for byte in message.as_bytes() {
        client.to.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(client.read().await["id"], "é語");
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_line_breaks_is_one_line() {
    let mut client = Client::new(|_| {
        let text = "{\"resultType\":\r\n\"complete\",\"a\":[1,\n2.0]}";
        let object =
            waypost_wire::object::Object::parse(&bytes::Bytes::from_static(text.as_bytes()));
        Ok(Reply::complete(object.unwrap()))
    });
    client.send(modern(json!(1), "tools/list", json!({}))).await;
    let line = client.from.next_line().await.unwrap().unwrap();
    assert!(line.contains("[1, 2.0]"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn r25_cancelled_requests_of_either_era_end_without_an_answer() {
    let mut client = Client::new(endless);
    client.open().await;
    let call = json!({ "name": "a", "arguments": {} });
    client
        .send(modern(json!("m"), "tools/call", call.clone()))
        .await;
    assert_eq!(client.read().await["params"]["of"], "\"m\"");
    client
        .send(legacy(json!("l"), "tools/call", call.clone()))
        .await;
    assert_eq!(client.read().await["params"]["of"], "\"l\"");
    // An id is taken as long as its request is in flight.
    client
        .send(modern(json!("m"), "tools/call", call.clone()))
        .await;
    let refused = client.read().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!("m"), &json!(-32600))
    );
    client.send(cancel(json!("m"))).await;
    client.send(cancel(json!("l"))).await;
    client.send(cancel(json!("never was"))).await;
    let before = tokio::time::Instant::now();
    let (rest, clean) = client.close().await;
    assert!(rest.is_empty() && clean, "{rest:?}");
    assert!(before.elapsed() < GRACE, "nothing was in flight any more");
}

/// Asks, and says what was answered.
#[expect(
    clippy::unnecessary_wraps,
    clippy::needless_pass_by_value,
    reason = "as the front wants it"
)]
fn asks(call: Call) -> Result<Reply, CallError> {
    let Some(answers) = call.params.get("inputResponses") else {
        let asks = json!({ "resultType": "input_required", "requestState": "s",
            "inputRequests": { "who": { "method": "elicitation/create",
                "params": { "message": "who?", "requestedSchema": {} } } } });
        return Ok(Reply::End(End::InputRequired(object(&asks))));
    };
    Ok(Reply::complete(result(answers.text())))
}

#[tokio::test(start_paused = true)]
async fn r10_a_question_crosses_the_pipe_and_its_answer_comes_back() {
    let mut client = Client::new(asks);
    client.open().await;
    client
        .send(legacy(json!(1), "tools/call", json!({ "name": "a" })))
        .await;
    let question = client.read().await;
    assert_eq!(question["method"], "elicitation/create");
    let given = json!({ "action": "accept", "content": { "n": 1 } });
    client
        .send(json!({ "jsonrpc": "2.0", "id": question["id"], "result": given }))
        .await;
    let answer = client.read().await;
    assert_eq!(answer["id"], 1);
    assert!(answer.to_string().contains("accept"), "{answer}");
    // A modern caller gets the question as its answer.
    client
        .send(modern(json!(2), "tools/call", json!({ "name": "a" })))
        .await;
    assert_eq!(
        client.read().await["result"]["resultType"],
        "input_required"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_begins_anew_gets_an_error() {
    let mut client = Client::new(asks);
    client.open().await;
    client
        .send(legacy(json!("old"), "tools/call", json!({ "name": "a" })))
        .await;
    let question = client.read().await;
    assert_eq!(question["method"], "elicitation/create");
    let params = json!({ "protocolVersion": LATEST, "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "test", "version": "1" } });
    client
        .send(legacy(json!("again"), "initialize", params))
        .await;
    let mut ends = Vec::new();
    while ends.len() < 2 {
        let message = client.read().await;
        if message["method"] == "notifications/cancelled" {
            assert_eq!(message["params"]["requestId"], question["id"]);
            continue;
        }
        ends.push(message);
    }
    let of = |id: &str| ends.iter().find(|end| end["id"] == *id).unwrap();
    assert!(of("again")["result"].is_object(), "{ends:?}");
    let text = of("old")["error"]["message"].to_string();
    assert!(text.contains("session of this call is over"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_input_open_questions_are_answered_by_nobody() {
    let mut client = Client::new(|call: Call| match &*call.params.string("name").unwrap() {
        // Late enough to ask when there is nobody left.
        "late" if !call.params.contains("inputResponses") => {
            let end = async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                match asks(call) {
                    Ok(Reply::End(end)) => Ok(Event::End(end)),
                    _ => unreachable!("it asks at first"),
                }
            };
            Ok(Reply::Stream(stream::once(end).boxed()))
        }
        _ => asks(call),
    });
    client.open().await;
    for (id, name) in [(1, "now"), (2, "late")] {
        client
            .send(legacy(json!(id), "tools/call", json!({ "name": name })))
            .await;
    }
    assert_eq!(client.read().await["method"], "elicitation/create");
    let before = tokio::time::Instant::now();
    let (rest, clean) = client.close().await;
    assert!(
        before.elapsed() < Duration::from_secs(2),
        "no grace is used"
    );
    assert!(clean, "{rest:?}");
    let ends: Vec<_> = rest
        .iter()
        .filter(|m| m["id"].is_u64() && m["method"].is_null())
        .collect();
    assert_eq!(ends.len(), 2, "{rest:?}");
    for end in ends {
        assert!(end.to_string().contains("cancel"), "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_reach_a_session_once_its_client_is_ready() {
    let mut client = Client::new(|call: Call| {
        assert_eq!(call.method, "subscriptions/listen");
        let note = |method: &str, params: Value| {
            Ok(Event::Notification(Notification {
                method: method.to_owned(),
                params: object(&params),
            }))
        };
        let id = json!({ "io.modelcontextprotocol/subscriptionId": 0 });
        let first = json!({ "_meta": id, "notifications": { "toolsListChanged": true } });
        let events = [
            note("notifications/subscriptions/acknowledged", first),
            note("notifications/tools/list_changed", json!({ "_meta": id })),
        ];
        Ok(Reply::Stream(
            stream::iter(events).chain(stream::pending()).boxed(),
        ))
    });
    client.open().await;
    let told = client.read().await;
    assert_eq!(
        told,
        json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
    );
}

/// Each of these was given up, and said so.
#[track_caller]
fn assert_stopped(ends: &[Value], ids: &[u64]) {
    let mut told: Vec<_> = ends.iter().filter_map(|end| end["id"].as_u64()).collect();
    told.sort_unstable();
    assert_eq!(told, ids, "{ends:?}");
    for end in ends {
        let text = end["error"]["message"].to_string();
        assert!(
            text.contains("Waypost has stopped before the call was over"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_input_calls_finish_and_what_does_not_is_cut_off() {
    let mut client = Client::new(|call: Call| {
        let seconds = call.params.get("seconds");
        let seconds: u64 = seconds.and_then(|raw| raw.decode()).unwrap_or(3_600);
        let end = async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(Event::End(End::Complete(result("done"))))
        };
        Ok(Reply::Stream(stream::once(end).boxed()))
    });
    client
        .send(modern(json!(1), "tools/call", json!({ "seconds": 5 })))
        .await;
    client
        .send(modern(json!(2), "tools/call", json!({ "seconds": 3600 })))
        .await;
    client.open().await;
    client
        .send(legacy(json!(3), "tools/call", json!({ "name": "a" })))
        .await;
    let subscribe = json!({ "uri": "known:a" });
    client
        .send(legacy(json!(4), "resources/subscribe", subscribe))
        .await;
    client
        .send(legacy(json!(5), "tools/call", json!({ "name": "a" })))
        .await;
    client.send(cancel(json!(5))).await;
    let before = tokio::time::Instant::now();
    let (rest, clean) = client.close().await;
    assert_eq!(rest[0]["id"], 1);
    assert_stopped(&rest[1..], &[2, 3, 4]);
    assert!(!clean);
    assert_eq!(before.elapsed(), GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_taken_message_by_message_where_the_session_has_batches() {
    let batch = json!([
        legacy(json!(1), "ping", json!({})),
        cancel(json!(7)),
        3,
        legacy(json!(2), "tools/list", json!({})),
    ]);
    let offer = |version: &str| {
        let params = json!({ "protocolVersion": version, "capabilities": {} });
        legacy(json!("init"), "initialize", params)
    };
    let mut client = Client::new(echo);
    for version in [None, Some(LATEST), Some("2025-03-26")] {
        if let Some(version) = version {
            client.send(offer(version)).await;
            client.read().await;
        }
        client.send(batch.clone()).await;
        let first = client.read().await;
        if version != Some("2025-03-26") {
            assert_eq!(first["error"]["code"], -32600, "{first}");
            assert!(first.to_string().contains("batches"), "{first}");
            continue;
        }
        assert_eq!(first["id"], 1);
        assert_eq!(client.read().await["error"]["code"], -32600);
        assert_eq!(client.read().await["id"], 2);
    }
    for (odd, says) in [
        (json!([]), "empty"),
        (json!([offer(LATEST)]), "`initialize`"),
    ] {
        client.send(odd).await;
        let refused = client.read().await;
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn r55_a_host_that_does_not_read_makes_requests_wait() {
    let mut client = Client::with(echo, 64);
    let mut sent = 0;
    let line = |n: u32| format!("{}\n", modern(json!(n), "tools/list", json!({})));
    // Until the pipe to it is full, and with it everything in between.
    while sent < 5_000 {
        let line = line(sent);
        let written = client.to.write_all(line.as_bytes());
        if tokio::time::timeout(Duration::from_secs(1), written)
            .await
            .is_err()
        {
            break;
        }
        sent += 1;
    }
    let taken = client.calls.lock().unwrap().len();
    assert!((256..1024).contains(&taken), "{taken} of {sent}");
    for _ in 0..sent {
        assert!(client.read().await["result"].is_object());
    }
    // What was cut off is no message.
    let (rest, clean) = client.close().await;
    assert!(clean && rest.len() <= 1, "{rest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_goes_away_ends_the_connection() {
    let mut client = Client::new(endless);
    client
        .send(modern(json!(1), "tools/call", json!({ "name": "a" })))
        .await;
    client.read().await;
    let Client {
        from,
        served,
        mut to,
        ..
    } = client;
    drop(from);
    // Found out when something is written.
    let line = format!("{}\n", modern(json!(2), "tools/list", json!({ "_": 1 })));
    to.write_all(line.as_bytes()).await.unwrap();
    assert!(!served.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_stored_of_a_session_that_nobody_can_come_back_to() {
    let mut client = Client::new(|_| Ok(text("ok")));
    client.open().await;
    let level = json!({ "jsonrpc": "2.0", "id": 2, "method": "logging/setLevel",
        "params": { "level": "debug" } });
    client.send(level).await;
    assert_eq!(client.read().await["result"], json!({}));
    assert!(client.store.0.lock().unwrap().is_empty());
    client.close().await;
}
