//! A session-era server over HTTP, whichever transport.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::log::Reader;
use super::options::{LineEnd, Options, Transport};
use super::revision::Revision;
use super::sessions::Sessions;
use super::sse::Connections;
use super::{sse, streamable};
use crate::kit::http::{BODY_LIMIT, Shared as Modern};
use crate::kit::server::Server;
use crate::kit::words::{HEADER_VERSION, META_VERSION};

const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How soon a client should come back to a stream that ended, in milliseconds.
const RETRY_MS: u32 = 100;

#[derive(Clone)]
pub(super) struct Shared {
    pub(super) server: Arc<dyn Server>,
    pub(super) options: Arc<Options>,
    pub(super) sessions: Sessions,
    pub(super) connections: Connections,
    pub(super) on_loopback: bool,
    pub(super) modern: Modern,
}

/// `server` at `/mcp` or, over HTTP+SSE, at `/sse` and `/p/sse`; `stop` ends its sessions.
pub(crate) fn router(
    server: Arc<dyn Server>,
    options: Options,
    sessions: Sessions,
    on_loopback: bool,
    stop: CancellationToken,
) -> Router {
    let (ended, all) = (stop.clone(), sessions.clone());
    crate::kit::spawn::spawn(async move {
        ended.cancelled().await;
        all.forget_all();
    });
    let transport = options.transport;
    let shared = Shared {
        server: Arc::clone(&server),
        options: Arc::new(options),
        sessions,
        connections: Arc::new(Mutex::default()),
        on_loopback,
        modern: Modern {
            server,
            on_loopback,
            stop,
        },
    };
    let router = match transport {
        Transport::Http => Router::new().route("/mcp", any(streamable::receive)),
        Transport::Sse => Router::new()
            .route("/sse", get(sse::open))
            .route("/messages", post(sse::receive))
            .route("/p/sse", get(sse::open))
            .route("/p/messages", post(sse::receive)),
    };
    router
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(shared)
}

/// Whether a request of a dual-era endpoint is a modern one.
pub(super) fn is_modern(headers: Option<&HeaderMap>, body: &[u8]) -> bool {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    let member = |key: &str| message.get(key).cloned().unwrap_or_default();
    let meta = member("params");
    if meta
        .get("_meta")
        .is_some_and(|meta| meta.get(META_VERSION).is_some())
    {
        return true;
    }
    let version = headers
        .and_then(|headers| headers.get(HEADER_VERSION))
        .and_then(|value| value.to_str().ok());
    version.is_some_and(|version| Revision::parse(version).is_none())
        && member("method").as_str() != Some("initialize")
}

/// An event stream over a log.
pub(super) struct Events {
    /// Sent before everything else, as it is.
    pub(super) opening: Option<String>,
    /// A message that was read already.
    pub(super) first: Option<(u64, Value)>,
    pub(super) reader: Reader,
    /// The number in event ids; without one events have no id.
    pub(super) stream: Option<u64>,
    pub(super) line_end: LineEnd,
    /// Told when the client goes away.
    pub(super) _gone: Option<DropGuard>,
}

impl Events {
    async fn next(&mut self) -> Option<String> {
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        let next = match self.first.take() {
            Some(first) => Some(first),
            None => tokio::select! {
                next = self.reader.next() => next,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    let end = self.line_end.as_str();
                    return Some(format!(": keep-alive{end}{end}"));
                }
            },
        };
        let (number, message) = next?;
        let end = self.line_end.as_str();
        let id = self
            .stream
            .map(|stream| format!("id: {stream}_{number}{end}"));
        let id = id.unwrap_or_default();
        Some(format!("event: message{end}{id}data: {message}{end}{end}"))
    }

    pub(super) fn into_response(self) -> Response {
        let frames = stream::unfold(self, |mut events| async move {
            let frame = events.next().await?;
            Some((Ok::<_, std::convert::Infallible>(frame), events))
        });
        let headers = [
            (CONTENT_TYPE, "text/event-stream"),
            (CACHE_CONTROL, "no-cache, no-transform"),
            (HeaderName::from_static("x-accel-buffering"), "no"),
        ];
        (headers, Body::from_stream(frames)).into_response()
    }
}

/// The event that lets a stream be resumed before its first message.
pub(super) fn priming(stream: u64, after: u64, end: LineEnd) -> String {
    let end = end.as_str();
    format!("id: {stream}_{after}{end}retry: {RETRY_MS}{end}data: {end}{end}")
}
