//! Clients of HTTP+SSE: a stream, and POSTs to the address that it names.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use http::{Method, Request};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;
use waypost_front::legacy::Sessions;
use waypost_hub::call::{Call, Comeback, Principal, View};
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Event, Reply};

use crate::fake::{Answer, Front, meta, object, read};
use crate::peer::{
    LATEST, LONG, Stream, discovered, front, front_with, initialize, reply, request, result,
    session_parts, silent, text,
};

const OLD: &str = "2024-11-05";
const SOON: Duration = Duration::from_secs(1);

/// A client with its stream.
struct Client {
    router: Router,
    address: String,
    stream: Stream,
}

async fn get(router: &Router, path: &str, accept: &str) -> axum::response::Response {
    let request = Request::get(path).header("accept", accept);
    let request = request.body(Body::empty()).unwrap();
    router.clone().oneshot(request).await.unwrap()
}

async fn post(router: &Router, address: &str, body: impl Into<Body>) -> Answer {
    let request = Request::post(address)
        .header("content-type", "application/json")
        .header("accept", "*/*");
    let request = request.body(body.into()).unwrap();
    read(router.clone().oneshot(request).await.unwrap()).await
}

impl Client {
    /// A stream, and no session yet.
    async fn connect(router: &Router, path: &str) -> Self {
        let mut stream = Stream::of(get(router, path, "text/event-stream").await);
        let first = stream.event().await.unwrap();
        assert_eq!(first.kind.as_deref(), Some("endpoint"));
        assert_eq!(first.id, None, "nobody can come back to it");
        Self {
            router: router.clone(),
            address: String::from_utf8(first.data.to_vec()).unwrap(),
            stream,
        }
    }

    async fn open(router: &Router, version: &str, capabilities: &Value) -> Self {
        let mut client = Self::connect(router, "/sse").await;
        client.send(&initialize(version, capabilities)).await;
        let opened = client.message().await;
        assert_eq!(opened["result"]["protocolVersion"], version, "{opened}");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        client.send(&ready).await;
        client
    }

    async fn post(&self, body: impl Into<Body>) -> Answer {
        post(&self.router, &self.address, body).await
    }

    /// Sends what is taken.
    async fn send(&self, message: &Value) {
        let answer = self.post(message.to_string()).await;
        assert_eq!((answer.status.as_u16(), &*answer.text), (202, ""));
    }

    async fn message(&mut self) -> Value {
        let next = timeout(LONG, self.stream.message()).await;
        next.expect("a message in time")
    }

    async fn ask(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.send(&request(id, method, params)).await;
        self.message().await
    }
}

fn call(id: u64) -> Value {
    request(id, "tools/call", &json!({ "name": "t", "arguments": {} }))
}

#[expect(clippy::needless_pass_by_value, reason = "as the front gives it")]
fn asks(call: Call) -> Result<Reply, CallError> {
    let Some(answers) = call.params.get("inputResponses") else {
        let asks = json!({ "resultType": "input_required", "requestState": "wp1.s",
            "inputRequests": { "who": { "method": "elicitation/create",
                "params": { "mode": "form", "message": "who?", "requestedSchema": {} } } } });
        return Ok(Reply::End(End::InputRequired(object(&asks))));
    };
    Ok(Reply::complete(result(answers.text())))
}

#[tokio::test(start_paused = true)]
async fn what_a_client_posts_is_answered_on_its_stream_whatever_the_version() {
    let front = front(|_| Ok(text("ok"))).with_sse();
    for version in [OLD, "2025-03-26", "2025-06-18", LATEST] {
        let mut client = Client::open(&front.router, version, &json!({})).await;
        assert!(client.address.starts_with("/messages?session="));
        let answer = client.ask(1, "tools/call", &json!({ "name": "t" })).await;
        assert_eq!(answer["id"], 1);
        assert_eq!(answer["result"]["content"][0]["text"], "ok");
        assert!(answer["result"].get("resultType").is_none(), "{answer}");
        assert_eq!(client.ask(2, "ping", &json!({})).await["result"], json!({}));
    }
    // Each client has a stream of its own, and an address that is another's.
    let mut one = Client::open(&front.router, OLD, &json!({})).await;
    let mut other = Client::open(&front.router, OLD, &json!({})).await;
    assert_ne!(one.address, other.address);
    one.send(&call(7)).await;
    other.send(&call(8)).await;
    assert_eq!(one.message().await["id"], 7);
    assert_eq!(other.message().await["id"], 8);
    assert!(timeout(SOON, one.stream.next()).await.is_err(), "nothing");
}

#[tokio::test(start_paused = true)]
async fn r45_a_stream_is_a_session_where_others_get_none() {
    let stateless = |parts: &mut waypost_front::legacy::SessionParts| {
        parts.stateless = [View::All].into();
    };
    let front = front_with(asks, stateless).with_sse();
    let mut client = Client::open(&front.router, OLD, &json!({ "elicitation": {} })).await;
    client.send(&call(1)).await;
    assert_eq!(client.message().await["method"], "elicitation/create");
}

#[tokio::test(start_paused = true)]
async fn batches_are_none_of_a_stream() {
    let front = front(|_| Ok(text("ok"))).with_sse();
    let client = Client::open(&front.router, "2025-03-26", &json!({})).await;
    let answer = client.post(json!([call(1)]).to_string()).await;
    assert_eq!(answer.refusal(), (400, -32600));
    assert!(answer.text.contains("batches are not supported"));
}

#[tokio::test(start_paused = true)]
async fn below_the_path_is_the_endpoint_of_one_upstream() {
    let front = front(|_| Ok(text("ok"))).with_sse();
    let mut client = Client::connect(&front.router, "/sse/builds").await;
    assert!(client.address.starts_with("/messages/builds?session="));
    client.send(&initialize(OLD, &json!({}))).await;
    client.message().await;
    client.ask(1, "tools/list", &json!({})).await;
    let view = front.calls().pop().unwrap().view;
    assert_eq!(view, View::Upstream("builds".into()));
    let other = get(&front.router, "/sse/other", "text/event-stream").await;
    assert_eq!(other.status(), 404);
    // What it is an address of, no other endpoint is.
    let moved = client.address.replace("/messages/builds", "/messages");
    let answer = post(&front.router, &moved, call(1).to_string()).await;
    assert_eq!(answer.refusal(), (404, -32600));
}

#[tokio::test(start_paused = true)]
async fn progress_and_questions_come_on_the_stream_and_answers_by_post() {
    let answer = |call: Call| match call.params.contains("inputResponses") {
        true => asks(call),
        false => {
            let Ok(Reply::End(end)) = asks(call) else {
                unreachable!("it asks at first")
            };
            let progress = json!({ "method": "notifications/progress",
                "params": { "progressToken": "p", "progress": 1 } });
            Ok(reply(&[progress], Some(end)))
        }
    };
    let front = front(answer).with_sse();
    let mut client = Client::open(&front.router, OLD, &json!({ "elicitation": {} })).await;
    client.send(&call(1)).await;
    assert_eq!(client.message().await["method"], "notifications/progress");
    let question = client.message().await;
    assert_eq!(question["method"], "elicitation/create");
    assert!(question["params"].get("mode").is_none(), "{question}");
    let given = json!({ "action": "accept", "content": { "n": "Ada" } });
    let response = json!({ "jsonrpc": "2.0", "id": question["id"], "result": given });
    // Of another stream's client it is an answer to nothing.
    let other = Client::open(&front.router, OLD, &json!({})).await;
    other.send(&response).await;
    assert!(timeout(SOON, client.stream.next()).await.is_err());
    client.send(&response).await;
    let answer = client.message().await;
    assert_eq!(answer["id"], 1);
    assert!(answer.to_string().contains("Ada"), "{answer}");
}

/// Tells when it is dropped.
struct Told(tokio::sync::mpsc::Sender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.try_send(()).ok();
    }
}

#[tokio::test(start_paused = true)]
async fn r75_the_end_of_the_stream_cancels_its_calls_and_ends_its_session() {
    let (sender, mut ended) = tokio::sync::mpsc::channel(4);
    let front = front(move |_| {
        let told = Told(sender.clone());
        let endless = stream::pending().map(move |event: Result<Event, CallError>| {
            let _held = &told;
            event
        });
        Ok(Reply::Stream(endless.boxed()))
    })
    .with_sse();
    let client = Client::open(&front.router, OLD, &json!({})).await;
    client.send(&call(1)).await;
    let session = async || {
        while front.calls().iter().all(|call| call.method != "tools/call") {
            sleep(Duration::from_millis(1)).await;
        }
        let mut calls = front.calls().into_iter();
        calls.find_map(|call| call.session).unwrap()
    };
    let session = session().await;
    assert!(!session.released().is_cancelled());
    let Client {
        stream, address, ..
    } = client;
    drop(stream);
    timeout(SOON, ended.recv()).await.unwrap().unwrap();
    assert!(session.released().is_cancelled(), "and what is bound to it");
    let late = post(&front.router, &address, call(2).to_string()).await;
    assert_eq!(late.refusal(), (404, -32600));
    assert!(late.text.contains("GET `/sse`"), "{}", late.text);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_gives_up_its_questions() {
    let front = front(asks).with_sse();
    let mut client = Client::open(&front.router, OLD, &json!({ "elicitation": {} })).await;
    client.send(&call(1)).await;
    assert_eq!(client.message().await["method"], "elicitation/create");
    drop(client);
    // The server that waits for the answer hears that none will come.
    let given_up = async {
        let is = |call: &Call| call.comeback == Comeback::GivesUp;
        while !front.calls().iter().any(is) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(SOON, given_up).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r21_an_address_that_is_forged_or_foreign_is_refused() {
    let front = front(|_| panic!("must not be called")).with_sse();
    let client = Client::connect(&front.router, "/sse").await;
    let mut forged = client.address.clone().into_bytes();
    forged[60] ^= 1;
    let forged = String::from_utf8(forged).unwrap();
    for address in [
        "/messages",
        "/messages?session=",
        "/messages?session=x",
        &forged,
    ] {
        let answer = post(&front.router, address, call(1).to_string()).await;
        assert_eq!(answer.refusal(), (404, -32600), "{address}");
    }
    let bob = axum::Extension(Principal::new("bob"));
    let bobs = front.router.clone().layer(bob);
    let answer = post(&bobs, &client.address, call(1).to_string()).await;
    assert_eq!(answer.refusal(), (404, -32600));
    // Nor is it the id of a session elsewhere.
    let name = client.address.split_once('=').unwrap().1;
    let elsewhere = Request::post("/mcp")
        .header("content-type", "application/json")
        .header("mcp-session-id", name);
    let elsewhere = elsewhere.body(Body::from(call(1).to_string())).unwrap();
    assert_eq!(front.send(elsewhere).await.refusal(), (404, -32600));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_is_refused_by_status_and_what_is_wrong_with_one_on_the_stream() {
    let front = front(|_| Ok(silent())).with_sse();
    let mut client = Client::connect(&front.router, "/sse").await;
    assert_eq!(client.post("{").await.refusal(), (400, -32700));
    assert_eq!(client.post("[]").await.refusal(), (400, -32600));
    let large = format!("\"{}\"", "x".repeat(5000));
    assert_eq!(client.post(large).await.refusal(), (413, -32600));
    let form = Request::post(&client.address).header("content-type", "text/plain");
    let form = form.body(Body::from(call(1).to_string())).unwrap();
    assert_eq!(front.send(form).await.refusal(), (415, -32600));

    let code = |answer: Value| (answer["id"].clone(), answer["error"]["code"].clone());
    let early = client.ask(1, "tools/list", &json!({})).await;
    assert_eq!(code(early), (json!(1), json!(-32600)));
    let probe = json!({ "_meta": meta() });
    let probe = client.ask(2, "server/discover", &probe).await;
    assert_eq!(
        code(probe),
        (json!(2), json!(-32601)),
        "goes on with a session"
    );
    client.send(&initialize(OLD, &json!({}))).await;
    client.message().await;
    client.send(&call(3)).await;
    let same = client.ask(3, "tools/list", &json!({})).await;
    assert_eq!(code(same), (json!(3), json!(-32600)));
    let odd = client.ask(4, "tools/list", &json!({ "_meta": 1 })).await;
    assert_eq!(code(odd), (json!(4), json!(-32602)));
}

#[tokio::test(start_paused = true)]
async fn each_path_takes_its_method() {
    let front = front(|_| panic!("must not be called")).with_sse();
    // A client that tries Streamable HTTP first goes on with a GET then.
    let answer = post(&front.router, "/sse", call(1).to_string()).await;
    assert_eq!(answer.refusal(), (405, -32600));
    assert_eq!(answer.header("allow"), Some("GET"));
    let client = Client::connect(&front.router, "/sse").await;
    for method in [Method::GET, Method::DELETE] {
        let request = Request::builder().method(method).uri(&client.address);
        let answer = front.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.refusal(), (405, -32600));
        assert_eq!(answer.header("allow"), Some("POST"));
    }
    let json = read(get(&front.router, "/sse", "application/json").await).await;
    assert_eq!(json.refusal(), (406, -32600));
}

#[tokio::test(start_paused = true)]
async fn r04_a_silent_stream_gets_comments() {
    let front = front(|_| Ok(silent())).with_sse();
    let mut client = Client::open(&front.router, OLD, &json!({})).await;
    assert!(
        timeout(Duration::from_secs(61), client.stream.next())
            .await
            .is_err()
    );
    assert_eq!(client.stream.comments, 4);
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_client_opens_no_session_ends_early() {
    let front = front(|_| Ok(text("ok"))).with_sse();
    let idle = Client::connect(&front.router, "/sse").await;
    let mut busy = Client::open(&front.router, OLD, &json!({})).await;
    let mut unconfirmed = Client::connect(&front.router, "/sse").await;
    unconfirmed.send(&initialize(OLD, &json!({}))).await;
    unconfirmed.message().await;
    let mut hasty = Client::connect(&front.router, "/sse").await;
    hasty.send(&initialize(OLD, &json!({}))).await;
    hasty.message().await;
    hasty.ask(1, "ping", &json!({})).await;
    let before = Instant::now();
    for mut ending in [idle, unconfirmed] {
        assert_eq!(ending.stream.next().await, None);
        assert_eq!(before.elapsed(), Duration::from_secs(30));
    }
    let pong = hasty.ask(2, "ping", &json!({})).await;
    assert_eq!(pong["id"], 2, "it went on, though it never said so");
    sleep(Duration::from_secs(3 * 3600)).await;
    let answer = busy.ask(1, "tools/call", &json!({ "name": "t" })).await;
    assert_eq!(answer["id"], 1, "its session is never idle");
}

#[tokio::test(start_paused = true)]
async fn who_begins_anew_on_a_stream_has_the_time_that_was_given_first() {
    let front = front(|_| Ok(text("ok"))).with_sse();
    let mut again = Client::connect(&front.router, "/sse").await;
    // This one has gone on before it began anew, and may leave that out the second time.
    let mut ready = Client::open(&front.router, OLD, &json!({})).await;
    let before = Instant::now();
    for _ in 0..5 {
        sleep(Duration::from_secs(5)).await;
        for client in [&mut again, &mut ready] {
            client.send(&initialize(OLD, &json!({}))).await;
            assert_eq!(client.message().await["result"]["protocolVersion"], OLD);
        }
    }
    assert_eq!(again.stream.next().await, None);
    assert_eq!(before.elapsed(), Duration::from_secs(30));
    sleep(Duration::from_secs(3600)).await;
    let answer = ready.ask(9, "tools/call", &json!({ "name": "t" })).await;
    assert_eq!(answer["id"], 9);
}

#[tokio::test(start_paused = true)]
async fn streams_take_places_among_the_sessions() {
    let front = front_with(|_| Ok(text("ok")), |parts| parts.limit = 1).with_sse();
    let first = Client::open(&front.router, OLD, &json!({})).await;
    let full = read(get(&front.router, "/sse", "*/*").await).await;
    assert_eq!(full.refusal(), (503, -32603));
    assert_eq!(full.header("retry-after"), Some("30"));
    drop(first);
    sleep(SOON).await;
    let again = Client::open(&front.router, OLD, &json!({})).await;
    // One that begins anew keeps its place.
    again.send(&initialize(OLD, &json!({}))).await;
}

#[tokio::test(start_paused = true)]
async fn r55_a_client_that_does_not_read_makes_its_requests_and_servers_wait() {
    let front = front(|_| Ok(text("ok"))).with_sse();
    let client = Client::open(&front.router, OLD, &json!({})).await;
    let mut sent = 0;
    while sent < 5_000 {
        let post = client.post(request(sent, "tools/list", &json!({})).to_string());
        match timeout(SOON, post).await {
            Ok(answer) => assert_eq!(answer.status, 202),
            Err(_) => break,
        }
        sent += 1;
    }
    assert!((256..1024).contains(&sent), "{sent}");
    let Client {
        router,
        address,
        mut stream,
    } = client;
    // So many may wait, and who comes then hears of it.
    let waiting = (10_000..10_300).map(|id| {
        let body = request(id, "ping", &json!({})).to_string();
        timeout(SOON, post(&router, &address, body))
    });
    let waited = futures_util::future::join_all(waiting).await;
    let refused: Vec<_> = waited.iter().flatten().collect();
    assert_eq!(refused.len(), 300 - 256);
    for answer in refused {
        assert_eq!(answer.refusal(), (503, -32603));
    }
    let late = post(
        &router,
        &address,
        request(9_999, "ping", &json!({})).to_string(),
    );
    let reader = async {
        for _ in 0..=sent {
            stream.message().await;
        }
    };
    let (late, ()) = tokio::join!(late, reader);
    assert_eq!(late.status, 202, "taken once there is room");
    // And nobody waits for one that left.
    drop(stream);
    sleep(SOON).await;
    let gone = post(
        &router,
        &address,
        request(1, "ping", &json!({})).to_string(),
    )
    .await;
    assert_eq!(gone.refusal(), (404, -32600));
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_a_stream_ends_once_its_calls_are_answered() {
    let sessions = Sessions::new(session_parts(&std::sync::Arc::default()));
    let kept = sessions.clone();
    let answer = |call: Call| match &*call.method {
        "server/discover" => Ok(discovered()),
        _ => {
            let end = async {
                sleep(Duration::from_secs(5)).await;
                Ok(Event::End(End::Complete(result("done"))))
            };
            Ok(Reply::Stream(stream::once(end).boxed()))
        }
    };
    let front = Front::with(answer, |parts| parts.sessions = Some(sessions)).with_sse();
    let mut busy = Client::open(&front.router, OLD, &json!({})).await;
    let mut idle = Client::open(&front.router, OLD, &json!({})).await;
    busy.send(&call(1)).await;
    let before = Instant::now();
    kept.begin_drain();
    assert_eq!(idle.stream.next().await, None);
    assert!(before.elapsed() < SOON);
    assert_eq!(busy.message().await["id"], 1);
    assert_eq!(busy.stream.next().await, None);
    assert!(before.elapsed() < Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn streams_of_who_is_shut_out_end_and_those_of_others_stay() {
    let sessions = Sessions::new(session_parts(&std::sync::Arc::default()));
    let kept = sessions.clone();
    let front = Front::with(|_| Ok(text("ok")), |parts| parts.sessions = Some(sessions));
    let front = front.with_sse();
    let mut gone = Client::connect(&front.router, "/sse/builds").await;
    gone.send(&initialize(OLD, &json!({}))).await;
    gone.message().await;
    let mut mute = Client::connect(&front.router, "/sse/builds").await;
    let mut other = Client::open(&front.router, OLD, &json!({})).await;

    kept.shut_out(&[], &[View::Upstream("builds".into())]);
    for client in [&mut gone, &mut mute] {
        let answer = client.post(call(1).to_string()).await;
        assert_eq!(answer.status.as_u16(), 404, "{}", answer.text);
        let end = timeout(SOON, client.stream.next()).await;
        assert_eq!(end.expect("an end in time"), None);
    }
    assert_eq!(other.ask(1, "ping", &json!({})).await["result"], json!({}));
    // The same client comes back with another key.
    Client::open(&front.router, OLD, &json!({})).await;

    kept.shut_out(&[Principal::anonymous()], &[]);
    let end = timeout(SOON, other.stream.next()).await;
    assert_eq!(end.expect("an end in time"), None);
}

#[tokio::test(start_paused = true)]
async fn where_there_are_no_such_streams_any_more_those_that_are_open_end() {
    let sessions = Sessions::new(session_parts(&std::sync::Arc::default()));
    let kept = sessions.clone();
    let front = Front::with(|_| Ok(text("ok")), |parts| parts.sessions = Some(sessions));
    let front = front.with_sse();
    let mut client = Client::open(&front.router, OLD, &json!({})).await;
    kept.end_streams(Duration::ZERO);
    let end = timeout(SOON, client.stream.next()).await;
    assert_eq!(end.expect("an end in time"), None);
}

#[tokio::test(start_paused = true)]
async fn where_there_are_no_such_streams_any_more_calls_on_them_end_in_time() {
    let sessions = Sessions::new(session_parts(&std::sync::Arc::default()));
    let kept = sessions.clone();
    let front = Front::with(
        |call| match &*call.method {
            "server/discover" => Ok(discovered()),
            _ => Ok(silent()),
        },
        |parts| parts.sessions = Some(sessions),
    );
    let front = front.with_sse();
    let mut busy = Client::open(&front.router, OLD, &json!({})).await;
    let mut idle = Client::open(&front.router, OLD, &json!({})).await;
    busy.send(&call(1)).await;
    let before = Instant::now();
    let grace = Duration::from_secs(20);
    kept.end_streams(grace);
    assert_eq!(idle.stream.next().await, None);
    assert!(before.elapsed() < SOON);
    let last = timeout(LONG, busy.message()).await;
    let last = last.expect("an end in time");
    assert_eq!(last["id"], 1);
    let text = last["error"]["message"].to_string();
    assert!(text.contains("the session of this call is over"), "{text}");
    assert!((grace..grace + SOON).contains(&before.elapsed()));
    assert_eq!(busy.stream.next().await, None);
    assert!(before.elapsed() < grace + SOON);
}
