//! Streamable HTTP, server side: one POST, one answer, as JSON or as an event stream.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::fail::Fail;
use super::out::Out;
use super::request::{Message, Request};
use super::server::Server;
use super::{dispatch, guard, headers};

pub(crate) const BODY_LIMIT: usize = 4 * 1024 * 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

type Work = Pin<Box<dyn Future<Output = Result<Value, Fail>> + Send>>;

#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) server: Arc<dyn Server>,
    pub(crate) on_loopback: bool,
    pub(crate) stop: CancellationToken,
}

/// `server` at `/mcp`; `stop` ends its subscriptions.
pub(crate) fn router(
    server: Arc<dyn Server>,
    on_loopback: bool,
    stop: CancellationToken,
) -> Router {
    Router::new()
        // Every other HTTP method is 405 with `Allow: POST`.
        .route("/mcp", post(receive))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(Shared {
            server,
            on_loopback,
            stop,
        })
}

pub(crate) async fn receive(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let admitted = guard::check_origin(&headers, shared.on_loopback)
        .and_then(|()| guard::check_media(&headers));
    if let Err(status) = admitted {
        return status.into_response();
    }
    let request = match Message::parse(&body) {
        Ok(Message::Request(request)) => request,
        Ok(Message::Notification { .. }) => return StatusCode::ACCEPTED.into_response(),
        Err((id, fail)) => return refuse(&id, &fail),
    };
    match check(&*shared.server, &headers, &request) {
        Ok(()) => answer(shared, request).await,
        Err(fail) => refuse(&request.id, &fail),
    }
}

/// `_meta` first, then the headers that mirror it, then what it says.
fn check(server: &dyn Server, headers: &HeaderMap, request: &Request) -> Result<(), Fail> {
    request.check_meta()?;
    headers::check(headers, request)?;
    request.check_version()?;
    if request.method != "tools/call" {
        return Ok(());
    }
    let name = request.params.get("name");
    let tools = server.tools();
    let tool = tools.iter().find(|tool| tool.get("name") == name);
    let schema = tool.and_then(|tool| tool.get("inputSchema"));
    let none = Map::new();
    let arguments = request
        .params
        .get("arguments")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    schema.map_or(Ok(()), |schema| {
        headers::check_params(headers, schema, arguments)
    })
}

async fn answer(shared: Shared, request: Request) -> Response {
    let (out, said) = Out::new();
    let id = request.id.clone();
    let server = Arc::clone(&shared.server);
    let work = async move {
        let result = dispatch::run(&*server, &request, &out, shared.stop).await?;
        Ok(dispatch::finish(&*server, result))
    };
    let ready = VecDeque::new();
    let mut streaming = Streaming {
        id,
        work: Some(Box::pin(work)),
        said,
        ready,
    };
    // Dropping it, because the client went away, is the cancellation of the request.
    match streaming.first().await {
        Some(result) => json_answer(&streaming.id, result),
        None => stream_answer(streaming),
    }
}

fn json_answer(id: &Value, result: Result<Value, Fail>) -> Response {
    match result {
        Ok(result) => json_response(StatusCode::OK, &response(id, &result)),
        Err(fail) => refuse(id, &fail),
    }
}

fn refuse(id: &Value, fail: &Fail) -> Response {
    json_response(fail.status(), &fail.to_response(id))
}

fn response(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response {
    (
        status,
        [(CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

/// A request at work, its notifications and its end.
struct Streaming {
    id: Value,
    /// `None` once it has ended.
    work: Option<Work>,
    said: mpsc::Receiver<Value>,
    ready: VecDeque<Value>,
}

impl Streaming {
    /// The end, if nothing came before it; otherwise everything is in `ready` or still to come.
    async fn first(&mut self) -> Option<Result<Value, Fail>> {
        let work = self.work.as_mut()?;
        tokio::select! {
            biased;
            Some(message) = self.said.recv() => self.ready.push_back(message),
            result = work => {
                self.work = None;
                self.drain();
                if self.ready.is_empty() {
                    return Some(result);
                }
                self.end(result);
            }
        }
        None
    }

    /// The next frame; `None` after the end.
    async fn next(&mut self) -> Option<String> {
        if let Some(message) = self.ready.pop_front() {
            return Some(frame(&message));
        }
        let work = self.work.as_mut()?;
        tokio::select! {
            biased;
            Some(message) = self.said.recv() => Some(frame(&message)),
            result = work => {
                self.work = None;
                self.drain();
                self.end(result);
                self.ready.pop_front().as_ref().map(frame)
            }
            () = tokio::time::sleep(KEEP_ALIVE) => Some(": keep-alive\n\n".to_owned()),
        }
    }

    fn drain(&mut self) {
        while let Ok(message) = self.said.try_recv() {
            self.ready.push_back(message);
        }
    }

    fn end(&mut self, result: Result<Value, Fail>) {
        self.ready.push_back(match result {
            Ok(result) => response(&self.id, &result),
            Err(fail) => fail.to_response(&self.id),
        });
    }
}

fn stream_answer(streaming: Streaming) -> Response {
    let frames = stream::unfold(streaming, |mut streaming| async move {
        let frame = streaming.next().await?;
        Some((Ok::<_, Infallible>(frame), streaming))
    });
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache, no-transform"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(frames)).into_response()
}

fn frame(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}
