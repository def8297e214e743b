//! A session client, and a front with sessions over calls that answer as the test says.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::response::Response;
use futures_util::StreamExt as _;
use http::{HeaderMap, Method, Request};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use waypost_front::legacy::{SessionParts, Sessions};
use waypost_hub::call::{Call, Comeback};
use waypost_hub::error::CallError;
use waypost_hub::keys::Keys;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::registry::Learned;
use waypost_hub::reply::{End, Event, EventStream, Reply};
use waypost_hub::store::{SessionRecord, Store, StoreError};
use waypost_hub::upstream::BoxFuture;
use waypost_wire::message::Notification;
use waypost_wire::sse;

use crate::fake::{Answer, Front, object, read};

pub(crate) const LATEST: &str = "2025-11-25";
pub(crate) const OLDEST: &str = "2025-03-26";

/// Long in paused time, and in no test the reason to pass.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// Remembers sessions in memory, for several fronts like a database.
#[derive(Debug, Default)]
pub(crate) struct Memory(pub(crate) Mutex<HashMap<String, SessionRecord>>);

impl Store for Memory {
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn save(&self, _: Learned) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn forget(&self, _: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn session(&self, key: &str) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        let found = self.0.lock().unwrap().get(key).cloned();
        Box::pin(async { Ok(found) })
    }

    fn save_session(
        &self,
        key: &str,
        record: SessionRecord,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.lock().unwrap().insert(key.to_owned(), record);
        Box::pin(async { Ok(()) })
    }
}

/// Parts of sessions with the default limits.
pub(crate) fn session_parts(store: &Arc<Memory>) -> SessionParts {
    SessionParts {
        keys: Keys::new(vec![vec![7; 32]]).unwrap(),
        store: Arc::clone(store) as Arc<dyn Store>,
        tasks: Tasks::default(),
        idle: Duration::from_secs(30 * 60),
        handshake: Duration::from_secs(30),
        limit: 10_000,
        stateless: HashSet::new(),
        answer_within: Duration::from_secs(600),
    }
}

/// A front of both eras; `answer` gets every call but discovery.
pub(crate) fn front(
    answer: impl Fn(Call) -> Result<Reply, CallError> + Send + Sync + Clone + 'static,
) -> Front {
    front_with(answer, |_| {})
}

/// The same with other settings.
pub(crate) fn front_with(
    answer: impl Fn(Call) -> Result<Reply, CallError> + Send + Sync + Clone + 'static,
    change: impl FnOnce(&mut SessionParts),
) -> Front {
    front_over(
        move |call| match call.comeback {
            Comeback::Listens => Ok(Reply::nothing_to_hear()),
            Comeback::Answers | Comeback::GivesUp => answer(call),
        },
        change,
    )
}

/// The same, where `answer` also gets the calls that listen beside questions.
pub(crate) fn front_over(
    answer: impl Fn(Call) -> Result<Reply, CallError> + Send + Sync + Clone + 'static,
    change: impl FnOnce(&mut SessionParts),
) -> Front {
    let mut parts = session_parts(&Arc::default());
    change(&mut parts);
    let sessions = Sessions::new(parts);
    Front::with(
        move |call| match &*call.method {
            "server/discover" => Ok(discovered()),
            _ => answer(call),
        },
        |parts| parts.sessions = Some(sessions),
    )
}

pub(crate) fn discovered() -> Reply {
    Reply::complete(object(&json!({
        "resultType": "complete", "ttlMs": 1, "cacheScope": "private",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {
            "tools": { "listChanged": true }, "logging": {},
            "resources": { "subscribe": true, "listChanged": true },
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
        "instructions": "be kind",
    })))
}

/// `text` as the result of a tool.
pub(crate) fn text(text: &str) -> Reply {
    Reply::complete(result(text))
}

/// The members of such a result.
pub(crate) fn result(text: &str) -> waypost_wire::object::Object {
    object(&json!({
        "resultType": "complete", "content": [{ "type": "text", "text": text }],
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "waypost" } },
    }))
}

/// A reply of these notifications and this end, or none.
pub(crate) fn reply(notifications: &[Value], end: Option<End>) -> Reply {
    let notifications = notifications.iter().map(|notification| {
        Ok(Event::Notification(Notification {
            method: notification["method"].as_str().unwrap().to_owned(),
            params: object(&notification["params"]),
        }))
    });
    let mut events: Vec<Result<Event, CallError>> = notifications.collect();
    match end {
        Some(end) => {
            events.push(Ok(Event::End(end)));
            Reply::Stream(futures_util::stream::iter(events).boxed())
        }
        None => {
            let events = futures_util::stream::iter(events);
            Reply::Stream(events.chain(futures_util::stream::pending()).boxed())
        }
    }
}

/// A stream that never says anything.
pub(crate) fn silent() -> Reply {
    let pending: EventStream = futures_util::stream::pending().boxed();
    Reply::Stream(pending)
}

/// A client with a session.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) router: Router,
    pub(crate) id: String,
    pub(crate) version: String,
}

/// `initialize` as its body.
pub(crate) fn initialize(version: &str, capabilities: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": capabilities,
        "clientInfo": { "name": "test", "version": "1" },
    }})
}

/// A request's body.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

/// Sends a request without a session.
pub(crate) async fn post(router: &Router, headers: &[(&str, &str)], body: &Value) -> Answer {
    read(send(router, Method::POST, headers, &body.to_string()).await).await
}

pub(crate) async fn send(
    router: &Router,
    method: Method,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let mut request = Request::builder().method(method).uri("/mcp");
    let mut given = HeaderMap::new();
    given.insert("content-type", "application/json".parse().unwrap());
    let both = "application/json, text/event-stream";
    given.insert("accept", both.parse().unwrap());
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        // Media types are others in place of the usual ones, all else comes beside.
        match name.as_str() {
            "accept" | "content-type" => drop(given.insert(name, value.parse().unwrap())),
            _ => drop(given.append(name, value.parse().unwrap())),
        }
    }
    *request.headers_mut().unwrap() = given;
    let request = request.body(Body::from(body.to_owned())).unwrap();
    router.clone().oneshot(request).await.unwrap()
}

impl Peer {
    /// Opens a session and confirms it.
    pub(crate) async fn open(front: &Front, version: &str, capabilities: &Value) -> Self {
        let peer = Self::unconfirmed(front, version, capabilities).await;
        let answer = peer.notify("notifications/initialized", &json!({})).await;
        assert_eq!((answer.status.as_u16(), &*answer.text), (202, ""));
        peer
    }

    pub(crate) async fn unconfirmed(front: &Front, version: &str, capabilities: &Value) -> Self {
        let answer = post(&front.router, &[], &initialize(version, capabilities)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        Self {
            router: front.router.clone(),
            id: answer.header("mcp-session-id").unwrap().to_owned(),
            version: answer.json()["result"]["protocolVersion"]
                .as_str()
                .unwrap()
                .to_owned(),
        }
    }

    /// The same session at another front.
    pub(crate) fn at(&self, front: &Front) -> Self {
        Self {
            router: front.router.clone(),
            ..self.clone()
        }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut all = vec![
            ("mcp-session-id", &*self.id),
            ("mcp-protocol-version", &*self.version),
        ];
        all.extend(headers);
        send(&self.router, method, &all, body).await
    }

    pub(crate) async fn post(&self, body: &Value) -> Answer {
        read(self.send(Method::POST, &[], &body.to_string()).await).await
    }

    pub(crate) async fn notify(&self, method: &str, params: &Value) -> Answer {
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.post(&body).await
    }

    /// A request whose whole answer is waited for.
    pub(crate) async fn ask(&self, method: &str, params: &Value) -> Answer {
        self.post(&request(7, method, params)).await
    }

    /// A request whose answer streams.
    pub(crate) async fn stream(&self, body: &Value) -> Stream {
        Stream::of(self.send(Method::POST, &[], &body.to_string()).await)
    }

    /// The standing stream, or another one after the event named.
    pub(crate) async fn get(&self, last: Option<&str>) -> Stream {
        let last: Vec<_> = last.iter().map(|id| ("last-event-id", *id)).collect();
        Stream::of(self.send(Method::GET, &last, "").await)
    }
}

/// A stream of events being read.
pub(crate) struct Stream {
    body: BodyDataStream,
    decoder: sse::Decoder,
    /// The id of the last event.
    pub(crate) last: Option<String>,
    pub(crate) comments: usize,
}

impl Stream {
    pub(crate) fn of(response: Response) -> Self {
        let headers = response.headers();
        assert_eq!(response.status(), 200);
        assert_eq!(headers["content-type"], "text/event-stream");
        assert_eq!(headers["cache-control"], "no-cache");
        assert_eq!(headers["x-accel-buffering"], "no");
        Self {
            body: response.into_body().into_data_stream(),
            decoder: sse::Decoder::new(1 << 20),
            last: None,
            comments: 0,
        }
    }

    /// The next event, or the end.
    pub(crate) async fn event(&mut self) -> Option<sse::Event> {
        loop {
            if let Some(event) = self.decoder.next_event().unwrap() {
                if event.id.is_some() {
                    self.last.clone_from(&event.id);
                }
                return Some(event);
            }
            let chunk = self.body.next().await?.unwrap();
            self.comments += usize::from(chunk.starts_with(b":"));
            self.decoder.push(&chunk).unwrap();
        }
    }

    /// The next message, or the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let event = self.event().await?;
            if !event.data.is_empty() {
                return Some(serde_json::from_slice(&event.data).unwrap());
            }
        }
    }

    /// The next message, which must come.
    pub(crate) async fn message(&mut self) -> Value {
        self.next().await.expect("a message")
    }
}
