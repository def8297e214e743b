//! A plain client for tests: it sends what it is told, right or wrong, and hands back everything.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Map, Value, json};

use crate::kit::words::{META_CAPABILITIES, META_VERSION, TASKS, VERSION};
use crate::lines::Lines;

/// A modern client of one endpoint.
#[derive(Debug)]
pub struct Client {
    url: String,
    capabilities: Value,
    pool: Pool<HttpConnector, Full<Bytes>>,
    last_id: AtomicU64,
}

/// One POST about to be sent; start from [`Client::post`] and bend it.
#[derive(Clone, Debug)]
pub struct Post {
    /// The HTTP method, `POST` unless changed.
    pub http_method: Method,
    /// The headers, complete for the message.
    pub headers: HeaderMap,
    /// The message.
    pub message: Value,
    /// Sent in place of the message when given.
    pub raw: Option<Bytes>,
}

/// Everything that came back.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: StatusCode,
    /// The response headers.
    pub headers: HeaderMap,
    /// What came before the answer.
    pub notifications: Vec<Value>,
    /// The JSON-RPC response; `Null` when there was none.
    pub answer: Value,
    /// The body as it came; empty for an event stream.
    pub raw: Bytes,
}

/// An answer still arriving. Dropping it closes the connection.
#[derive(Debug)]
pub struct Arriving {
    /// The HTTP status.
    pub status: StatusCode,
    /// The response headers.
    pub headers: HeaderMap,
    body: Incoming,
    lines: Lines,
    event: Event,
}

/// One event of an event stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its name; empty for `message`.
    pub name: String,
    /// Where to resume after it.
    pub id: Option<String>,
    /// How long to wait before resuming, in milliseconds.
    pub retry_ms: Option<u64>,
    /// Its data, each line ended by a line feed.
    pub data: String,
}

impl Client {
    /// A client that declares no capabilities.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            capabilities: json!({}),
            pool: Pool::builder(TokioExecutor::new()).build_http(),
            last_id: AtomicU64::new(0),
        }
    }

    /// Declares these capabilities on every request.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Declares the tasks extension and elicitation.
    #[must_use]
    pub fn with_tasks(self) -> Self {
        self.with_capabilities(json!({ "elicitation": {}, "extensions": { TASKS: {} } }))
    }

    /// The endpoint.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A correct request: `_meta` completed, headers matching, a new id.
    pub fn post(&self, method: &str, params: Value) -> Post {
        let mut params = match params {
            Value::Object(params) => params,
            _ => Map::new(),
        };
        let meta = params.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.entry(META_VERSION).or_insert_with(|| VERSION.into());
            meta.entry(META_CAPABILITIES)
                .or_insert_with(|| self.capabilities.clone());
        }
        let key = match method {
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            "tools/call" | "prompts/get" => "name",
            _ => "",
        };
        let name = params.get(key).and_then(Value::as_str).map(str::to_owned);
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        let post = Post {
            http_method: Method::POST,
            headers,
            message,
            raw: None,
        };
        let post = post
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", method);
        match name {
            Some(name) => post.header("mcp-name", &name),
            None => post,
        }
    }

    /// Sends a request; the answer may still be arriving.
    ///
    /// # Errors
    ///
    /// When there is no HTTP response.
    pub async fn send(&self, post: Post) -> io::Result<Arriving> {
        let body = post
            .raw
            .unwrap_or_else(|| Bytes::from(post.message.to_string()));
        let mut request = Request::builder()
            .method(post.http_method)
            .uri(&self.url)
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        *request.headers_mut() = post.headers;
        let response = self.pool.request(request).await.map_err(io::Error::other)?;
        let (head, body) = response.into_parts();
        let lines = Lines::default();
        Ok(Arriving {
            status: head.status,
            headers: head.headers,
            body,
            lines,
            event: Event::default(),
        })
    }

    /// Sends a request and reads its answer to the end.
    ///
    /// # Errors
    ///
    /// When there is no HTTP response, or it breaks off.
    pub async fn ask(&self, post: Post) -> io::Result<Reply> {
        self.send(post).await?.finish().await
    }

    /// Calls a method.
    ///
    /// # Errors
    ///
    /// As [`Client::ask`].
    pub async fn call(&self, method: &str, params: Value) -> io::Result<Reply> {
        self.ask(self.post(method, params)).await
    }

    /// Calls a tool.
    ///
    /// # Errors
    ///
    /// As [`Client::ask`].
    pub async fn tool(&self, name: &str, arguments: Value) -> io::Result<Reply> {
        self.call(
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        )
        .await
    }
}

impl Post {
    /// Sets a header; what cannot be one is left out.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Leaves a header out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// Sends these bytes as the body.
    #[must_use]
    pub fn raw(mut self, body: impl Into<Bytes>) -> Self {
        self.raw = Some(body.into());
        self
    }
}

impl Reply {
    /// The `result`; `Null` for an error.
    pub fn result(&self) -> &Value {
        self.answer.get("result").unwrap_or(&Value::Null)
    }

    /// The error's code; 0 when there is none.
    pub fn code(&self) -> i64 {
        self.answer
            .pointer("/error/code")
            .and_then(Value::as_i64)
            .unwrap_or(0)
    }

    /// The text of the first content item, or nothing.
    pub fn text(&self) -> &str {
        self.result()
            .pointer("/content/0/text")
            .and_then(Value::as_str)
            .unwrap_or("")
    }
}

impl Arriving {
    /// The next message; `None` at the end.
    ///
    /// # Errors
    ///
    /// When the connection breaks off, or a message is not JSON.
    pub async fn next(&mut self) -> io::Result<Option<Value>> {
        while let Some(event) = self.event().await? {
            if !event.data.trim().is_empty() {
                return Ok(Some(serde_json::from_str(&event.data)?));
            }
        }
        Ok(None)
    }

    /// The next event, whatever it says; `None` at the end.
    ///
    /// # Errors
    ///
    /// When the connection breaks off, or is no text.
    pub async fn event(&mut self) -> io::Result<Option<Event>> {
        loop {
            while let Some(line) = self.lines.next() {
                let line = String::from_utf8(line).map_err(io::Error::other)?;
                if line.is_empty() {
                    let event = std::mem::take(&mut self.event);
                    if event != Event::default() {
                        return Ok(Some(event));
                    }
                    continue;
                }
                let (field, value) = line.split_once(':').unwrap_or((&line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "data" => {
                        self.event.data.push_str(value);
                        self.event.data.push('\n');
                    }
                    "event" => value.clone_into(&mut self.event.name),
                    "id" => self.event.id = Some(value.to_owned()),
                    "retry" => self.event.retry_ms = value.parse().ok(),
                    // A comment begins with a colon: its field is empty.
                    _ => {}
                }
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                        self.lines.push(&data);
                    }
                }
            }
        }
    }

    /// Whether the body is an event stream.
    pub fn is_stream(&self) -> bool {
        let kind = self.headers.get(CONTENT_TYPE);
        kind.and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// Reads to the end.
    ///
    /// # Errors
    ///
    /// When the connection breaks off.
    pub async fn finish(mut self) -> io::Result<Reply> {
        let mut reply = Reply {
            status: self.status,
            headers: self.headers.clone(),
            notifications: Vec::new(),
            answer: Value::Null,
            raw: Bytes::new(),
        };
        if self.is_stream() {
            while let Some(message) = self.next().await? {
                if message.get("method").is_some() {
                    reply.notifications.push(message);
                } else {
                    reply.answer = message;
                }
            }
        } else {
            reply.raw = self
                .body
                .collect()
                .await
                .map_err(io::Error::other)?
                .to_bytes();
            reply.answer = serde_json::from_slice(&reply.raw).unwrap_or(Value::Null);
        }
        Ok(reply)
    }
}
