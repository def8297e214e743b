//! A front over calls that answer as the test says, and requests as the official suite sends them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};
use waypost_config::Key;
use waypost_front::{Endpoints, Parts, Routes};
use waypost_hub::call::{Call, View};
use waypost_hub::error::CallError;
use waypost_hub::reply::Reply;
use waypost_policy::authenticate::AuthenticateLayer;
use waypost_wire::object::Object;

pub(crate) const MODERN: &str = "2026-07-28";

/// A front and the calls that came through it.
pub(crate) struct Front {
    pub(crate) router: Router,
    endpoints: Endpoints,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// Parts with the default limits over `answer`.
pub(crate) fn parts(
    answer: impl Fn(Call) -> Result<Reply, CallError> + Send + Sync + Clone + 'static,
) -> Parts {
    Parts {
        calls: BoxCloneSyncService::new(service_fn(move |call| {
            let answer = answer.clone();
            async move { answer(call) }
        })),
        views: Arc::new(|principal, name| match (principal.as_str(), name) {
            ("bound", "") => Some(View::Endpoint("review".into())),
            ("bound", _) => None,
            (_, "") => Some(View::All),
            (_, "builds") => Some(View::Upstream(name.into())),
            _ => None,
        }),
        keep_alive: Duration::from_secs(15),
        modern: true,
        sessions: None,
        strict_headers: false,
        json_depth: 64,
        request_body: 4096,
        body_timeout: Duration::from_secs(30),
        draining: CancellationToken::new(),
    }
}

impl Front {
    /// A front whose calls are answered so.
    pub(crate) fn new(
        answer: impl Fn(Call) -> Result<Reply, CallError> + Send + Sync + Clone + 'static,
    ) -> Self {
        Self::with(answer, |_| {})
    }

    /// A front with other settings.
    pub(crate) fn with(
        answer: impl Fn(Call) -> Result<Reply, CallError> + Send + Sync + Clone + 'static,
        change: impl FnOnce(&mut Parts),
    ) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&calls);
        let mut parts = parts(move |call: Call| {
            seen.lock().unwrap().push(call.clone());
            answer(call)
        });
        change(&mut parts);
        let endpoints = Endpoints::new(parts);
        Self {
            router: Router::new().fallback_service(Routes::new(endpoints.clone())),
            endpoints,
            calls,
        }
    }

    /// The same for callers who have one of these keys.
    pub(crate) fn guarded(&self, keys: &[Key]) -> Router {
        let endpoints = AuthenticateLayer::new(keys).layer(self.endpoints.clone());
        Router::new().fallback_service(Routes::new(endpoints).with_keys(!keys.is_empty()))
    }

    /// The same, with the paths of HTTP+SSE.
    pub(crate) fn with_sse(mut self) -> Self {
        let routes = Routes::new(self.endpoints.clone()).with_sse(true);
        self.router = Router::new().fallback_service(routes);
        self
    }

    /// A front where every call is complete at once.
    pub(crate) fn complete() -> Self {
        Self::new(|_| Ok(Reply::complete(object(&json!({"resultType": "complete"})))))
    }

    /// Sends a request and waits for the head of the response.
    pub(crate) async fn head(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        read(self.head(request).await).await
    }

    /// The calls that came through.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }
}

/// Reads a response to its end.
pub(crate) async fn read(response: Response) -> Answer {
    let (head, body) = response.into_parts();
    let body: Bytes = body.collect().await.unwrap().to_bytes();
    Answer {
        status: head.status,
        headers: head.headers,
        text: String::from_utf8(body.to_vec()).unwrap(),
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// Status and code of a JSON-RPC error.
    pub(crate) fn refusal(&self) -> (u16, i64) {
        let code = self.json()["error"]["code"].as_i64();
        (self.status.as_u16(), code.expect("an error"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The messages of an event stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

/// A JSON object as a result's members.
pub(crate) fn object(value: &Value) -> Object {
    Object::parse(&Bytes::from(value.to_string())).unwrap()
}

/// `_meta` as the suite sends it.
pub(crate) fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A request under construction; correct until a test breaks it.
pub(crate) struct Post {
    path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Post {
    /// A modern request with every header and member it must have.
    pub(crate) fn new(method: &str, params: &Value) -> Self {
        let mut params = params.clone();
        params["_meta"] = meta();
        let mut post =
            Self::raw(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
                .header("mcp-protocol-version", MODERN)
                .header("mcp-method", method);
        let member = waypost_wire::method::name_member(method);
        if let Some(name) = member.and_then(|member| params[member].as_str()) {
            post = post.header("mcp-name", &waypost_wire::header::encode(name));
        }
        post
    }

    /// A body with only the media types around it.
    pub(crate) fn raw(body: Value) -> Self {
        Self {
            path: "/mcp".to_owned(),
            headers: Vec::new(),
            body,
        }
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
    }

    /// `tools/call` of `echo`.
    pub(crate) fn call() -> Self {
        Self::new("tools/call", &json!({"name": "echo", "arguments": {}}))
    }

    pub(crate) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Adds a header line.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a header out.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| n != name);
        self
    }

    /// Replaces a header.
    pub(crate) fn set(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    /// Changes the body.
    pub(crate) fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.body);
        self
    }

    pub(crate) fn build(self) -> Request<Body> {
        let body = self.body.to_string();
        self.build_with(body)
    }

    pub(crate) fn build_with(self, body: impl Into<Body>) -> Request<Body> {
        let mut request = Request::post(self.path);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        request.body(body.into()).unwrap()
    }
}
