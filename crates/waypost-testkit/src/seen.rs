//! What reached a server, for tests to ask about.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode};
use http_body::{Frame, SizeHint};
use serde_json::Value;
use tokio::sync::watch;

const BODY_LIMIT: usize = 64 * 1024 * 1024;
const KEEP_REQUESTS: usize = 100_000;
const KEEP_BYTES: usize = 64 * 1024 * 1024;

/// How a recorded request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not answered to the end yet.
    Open,
    /// The whole answer was handed to the connection.
    Answered,
    /// The client went away before the answer was complete, or the answer broke off.
    Aborted,
}

/// One HTTP request as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The HTTP method.
    pub http_method: Method,
    /// Path and query.
    pub path: String,
    /// All headers, in order.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Bytes,
    /// How it ended.
    pub outcome: Outcome,
}

impl Recorded {
    /// The body as JSON; `Null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The JSON-RPC method, if any.
    pub fn method(&self) -> Option<String> {
        self.json()
            .get("method")
            .and_then(Value::as_str)
            .map(str::to_owned)
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Everything a server was asked; of very much, the most recent.
#[derive(Clone, Debug)]
pub struct Seen {
    log: Arc<Mutex<Log>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Log {
    kept: VecDeque<Recorded>,
    /// How many were dropped from the front.
    dropped: usize,
    bytes: usize,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            log: Arc::default(),
            changed: watch::channel(0).0,
        }
    }
}

impl Log {
    /// Keeps a request; its number is its place among all there ever were, from 1.
    fn push(&mut self, recorded: Recorded) -> usize {
        self.bytes += recorded.body.len();
        self.kept.push_back(recorded);
        // A demo that runs for weeks must not remember all of them.
        while self.kept.len() > KEEP_REQUESTS || self.bytes > KEEP_BYTES {
            let Some(oldest) = self.kept.pop_front() else {
                break;
            };
            self.bytes -= oldest.body.len();
            self.dropped += 1;
        }
        self.dropped + self.kept.len()
    }

    fn end(&mut self, number: usize, outcome: Outcome) {
        let at = number.checked_sub(self.dropped + 1);
        let seen = at.and_then(|at| self.kept.get_mut(at));
        if let Some(seen) = seen.filter(|seen| seen.outcome == Outcome::Open) {
            seen.outcome = outcome;
        }
    }
}

impl Seen {
    /// Every request so far, in order of arrival.
    pub fn all(&self) -> Vec<Recorded> {
        self.log().kept.iter().cloned().collect()
    }

    /// The requests with this JSON-RPC method.
    pub fn of(&self, method: &str) -> Vec<Recorded> {
        self.all()
            .into_iter()
            .filter(|seen| seen.method().as_deref() == Some(method))
            .collect()
    }

    /// How many requests had this JSON-RPC method.
    pub fn count(&self, method: &str) -> usize {
        self.of(method).len()
    }

    /// How many of them the client gave up, or the server broke off.
    pub fn aborted(&self, method: &str) -> usize {
        self.of(method)
            .iter()
            .filter(|seen| seen.outcome == Outcome::Aborted)
            .count()
    }

    /// Waits until `done` holds; `false` when it does not within ten seconds.
    pub async fn wait_for(&self, done: impl Fn(&Self) -> bool + Send) -> bool {
        let mut changed = self.changed.subscribe();
        let wait = async {
            while !done(self) {
                if changed.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(Duration::from_secs(10), wait)
            .await
            .unwrap_or(false)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, recorded: Recorded) -> usize {
        let number = self.log().push(recorded);
        self.changed.send_modify(|count| *count += 1);
        number
    }

    fn end(&self, number: usize, outcome: Outcome) {
        self.log().end(number, outcome);
        self.changed.send_modify(|count| *count += 1);
    }
}

/// Middleware: records the request, and later how its answer ended.
pub(crate) async fn record(State(seen): State<Seen>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, BODY_LIMIT).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let number = seen.push(Recorded {
        http_method: head.method.clone(),
        path: head
            .uri
            .path_and_query()
            .map_or_else(String::new, ToString::to_string),
        headers: head.headers.clone(),
        body: bytes.clone(),
        outcome: Outcome::Open,
    });
    // From here on, being dropped means that the client went away.
    let watch = Watch { seen, number };
    let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
    response.map(|body| {
        if http_body::Body::is_end_stream(&body) {
            watch.seen.end(watch.number, Outcome::Answered);
        }
        Body::new(Watched { body, watch })
    })
}

struct Watch {
    seen: Seen,
    number: usize,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.seen.end(self.number, Outcome::Aborted);
    }
}

struct Watched {
    body: Body,
    watch: Watch,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let ended = match &frame {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.body.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if ended {
            self.watch.seen.end(self.watch.number, Outcome::Answered);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(size: usize) -> Recorded {
        Recorded {
            http_method: Method::POST,
            path: "/mcp".into(),
            headers: HeaderMap::new(),
            body: vec![0; size].into(),
            outcome: Outcome::Open,
        }
    }

    #[test]
    fn the_oldest_are_forgotten_and_the_rest_still_end() {
        let mut log = Log::default();
        let first = log.push(request(1));
        let second = log.push(request(KEEP_BYTES));
        log.end(first, Outcome::Aborted);
        log.end(second, Outcome::Answered);
        assert_eq!(log.kept.len(), 1);
        assert_eq!(log.kept[0].outcome, Outcome::Answered);
    }
}
