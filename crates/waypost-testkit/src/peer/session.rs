//! Streamable HTTP of the session era, client side.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::manners::Manners;
use super::router::{Head, Queue, Router, Tell};
use crate::client::{Arriving, Client, Post};
use crate::kit::legacy::Revision;
use crate::kit::spawn::spawn;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
/// How often a stream that ends early is taken up again.
const ATTEMPTS: usize = 5;

/// The two ends that know the session, cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Session {
    shared: Arc<Shared>,
    pub(super) router: Router,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    id: OnceLock<String>,
    revision: OnceLock<Revision>,
    version_header: bool,
    headers: Vec<(String, String)>,
    streams: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let streams = self.streams.get_mut();
        for stream in streams.unwrap_or_else(PoisonError::into_inner) {
            stream.abort();
        }
    }
}

impl Session {
    pub(super) fn new(url: &str, manners: &Manners) -> Self {
        let shared = Shared {
            client: Client::new(url),
            id: OnceLock::new(),
            revision: OnceLock::new(),
            version_header: manners.version_header,
            headers: manners.headers.clone(),
            streams: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            router: Router::default(),
        }
    }

    /// The session's id, if the server gave one.
    pub(super) fn id(&self) -> Option<&str> {
        self.shared.id.get().map(String::as_str)
    }

    /// The session it is in. Only the first counts, that of `initialize`.
    pub(super) fn named(&self, id: &str) {
        self.shared.id.get_or_init(|| id.to_owned());
    }

    /// What `initialize` agreed on: named in the header from now on.
    pub(super) fn agreed(&self, revision: Revision) {
        // Set once, by the one `initialize` of this client.
        self.shared.revision.get_or_init(|| revision);
    }

    fn request(&self, method: Method, accept: &'static str, message: Value) -> Post {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let raw = (method != Method::POST).then(Bytes::new);
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let post = Post {
            http_method: method,
            headers,
            message,
            raw,
        };
        let mut post = Manners::dress(&self.shared.headers, post);
        if let Some(id) = self.id() {
            post = post.header(SESSION, id);
        }
        // The header came with 2025-06-18.
        match self.shared.revision.get() {
            Some(revision) if self.shared.version_header && *revision >= Revision::Jun2025 => {
                post.header(VERSION, revision.as_str())
            }
            _ => post,
        }
    }

    async fn post(&self, message: Value) -> io::Result<Arriving> {
        let post = self.request(Method::POST, "application/json, text/event-stream", message);
        self.shared.client.send(post).await
    }

    /// Sends a request; its messages arrive in the queue, its status in `head`.
    pub(super) fn open(&self, id: u64, message: Value) -> (Head, Queue) {
        // Not waited for: a question may come on the GET stream before the first byte here.
        let (send, queue) = self.router.open(id);
        let (tell, head) = oneshot::channel();
        let session = self.clone();
        spawn(async move {
            tokio::select! {
                () = session.exchange(message, &send, tell) => {}
                () = send.closed() => {}
            }
            session.router.forget(id);
        });
        (head, queue)
    }

    async fn exchange(&self, message: Value, send: &mpsc::Sender<Value>, tell: Tell) {
        let arriving = match self.post(message).await {
            Ok(arriving) => arriving,
            Err(error) => return drop(tell.send(Err(error))),
        };
        let status = arriving.status;
        let named = arriving.headers.get(SESSION);
        if let Some(session) = named.and_then(|id| id.to_str().ok())
            && status.is_success()
        {
            self.named(session);
        }
        drop(tell.send(Ok(status)));
        if arriving.is_stream() {
            self.relay(arriving, send).await;
        } else if let Ok(reply) = arriving.finish().await
            && !reply.answer.is_null()
        {
            drop(send.send(reply.answer).await);
        }
    }

    /// Reads a call's stream to its answer, coming back where it ends early.
    async fn relay(&self, mut arriving: Arriving, send: &mpsc::Sender<Value>) {
        let mut place = None;
        for _ in 0..ATTEMPTS {
            if read(&mut arriving, send, &mut place).await {
                return;
            }
            let Some(last) = &place else { return };
            tokio::time::sleep(Duration::from_millis(last.retry_ms)).await;
            let get = self.request(Method::GET, "text/event-stream", Value::Null);
            let get = get.header("last-event-id", &last.id);
            match self.shared.client.send(get).await {
                Ok(next) if next.is_stream() => arriving = next,
                _ => return,
            }
        }
    }

    /// Sends a notification or an answer.
    pub(super) async fn send(&self, message: Value) -> io::Result<StatusCode> {
        let reply = self.post(message).await?.finish().await?;
        Ok(reply.status)
    }

    /// Opens the stream for what belongs to no call: its status.
    pub(super) async fn listen(&self) -> io::Result<StatusCode> {
        let get = self.request(Method::GET, "text/event-stream", Value::Null);
        let mut arriving = self.shared.client.send(get).await?;
        let status = arriving.status;
        if !arriving.is_stream() {
            return Ok(status);
        }
        let (router, weak) = (self.router.clone(), Arc::downgrade(&self.shared));
        let reader = spawn(async move {
            while let Ok(Some(message)) = arriving.next().await {
                let refusal = router.deliver(message).await;
                if let (Some(refusal), Some(shared)) = (refusal, weak.upgrade()) {
                    let session = Self {
                        shared,
                        router: router.clone(),
                    };
                    drop(session.send(refusal).await);
                }
            }
        });
        self.streams().push(reader);
        Ok(status)
    }

    /// Closes the streams for what belongs to no call.
    pub(super) fn hang_up(&self) {
        for stream in self.streams().drain(..) {
            stream.abort();
        }
    }

    fn streams(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        let streams = self.shared.streams.lock();
        streams.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session with a DELETE: its status.
    pub(super) async fn delete(&self) -> io::Result<StatusCode> {
        let delete = self.request(Method::DELETE, "application/json", Value::Null);
        Ok(self.shared.client.send(delete).await?.status)
    }
}

/// Where a stream can be taken up again.
#[derive(Clone, Debug)]
struct Place {
    id: String,
    retry_ms: u64,
}

/// Hands on the messages of a stream; whether the answer was among them.
async fn read(
    arriving: &mut Arriving,
    send: &mpsc::Sender<Value>,
    place: &mut Option<Place>,
) -> bool {
    while let Ok(Some(event)) = arriving.event().await {
        if let Some(id) = event.id {
            let before = place.as_ref().map_or(100, |place| place.retry_ms);
            let retry_ms = event.retry_ms.unwrap_or(before);
            *place = Some(Place { id, retry_ms });
        }
        let Ok(message) = serde_json::from_str::<Value>(&event.data) else {
            continue;
        };
        let answered = message.get("method").is_none();
        if send.send(message).await.is_err() || answered {
            return true;
        }
    }
    false
}
