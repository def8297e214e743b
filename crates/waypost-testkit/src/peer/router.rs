//! Which call a message belongs to, where the transport does not say.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

/// How much of a call waits for its reader.
const QUEUE: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(10);
const SUBSCRIPTION: &str = "/params/_meta/io.modelcontextprotocol~1subscriptionId";

/// The HTTP status of a call, once it is there, or why there is none.
pub(super) type Head = oneshot::Receiver<io::Result<StatusCode>>;
/// Its other end.
pub(super) type Tell = oneshot::Sender<io::Result<StatusCode>>;

/// The calls in flight of one client, and what belongs to none of them; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Router {
    inner: Arc<Mutex<Inner>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    calls: Vec<(u64, mpsc::Sender<Value>)>,
    inbox: Vec<Value>,
}

/// The messages of one call. Dropped, the call is forgotten.
#[derive(Debug)]
pub(super) struct Queue {
    id: u64,
    pub(super) messages: mpsc::Receiver<Value>,
    router: Router,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.router.forget(self.id);
    }
}

impl Default for Router {
    fn default() -> Self {
        Self {
            inner: Arc::default(),
            changed: watch::channel(0).0,
        }
    }
}

impl Router {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue for the call `id`, and its other end.
    pub(super) fn open(&self, id: u64) -> (mpsc::Sender<Value>, Queue) {
        let (send, messages) = mpsc::channel(QUEUE);
        self.lock().calls.push((id, send.clone()));
        let router = self.clone();
        (
            send,
            Queue {
                id,
                messages,
                router,
            },
        )
    }

    /// Puts a message where it belongs; a question that belongs nowhere gives back its refusal.
    pub(super) async fn deliver(&self, message: Value) -> Option<Value> {
        let call = self.call_of(&message);
        if let Some(call) = call {
            drop(call.send(message).await);
            return None;
        }
        let refusal = message
            .get("id")
            .filter(|_| message.get("method").is_some())
            .map(|id| {
                let error = json!({ "code": -32603, "message": "no call is in flight" });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            });
        self.keep(message);
        refusal
    }

    fn call_of(&self, message: &Value) -> Option<mpsc::Sender<Value>> {
        let mut inner = self.lock();
        let find = |inner: &Inner, id: Option<u64>| {
            let call = inner.calls.iter().find(|(known, _)| Some(*known) == id);
            call.map(|(_, send)| send.clone())
        };
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            let id = message.get("id").and_then(Value::as_u64);
            let call = find(&inner, id);
            inner.calls.retain(|(known, _)| Some(*known) != id);
            return call;
        };
        if let Some(id) = message.pointer(SUBSCRIPTION) {
            return find(&inner, id.as_u64());
        }
        match method {
            "notifications/progress" => {
                let token = message.pointer("/params/progressToken");
                find(&inner, token.and_then(Value::as_u64))
            }
            // A call that is made while another is being asked asks nothing itself.
            "elicitation/create" | "sampling/createMessage" | "roots/list" => {
                inner.calls.first().map(|(_, send)| send.clone())
            }
            "notifications/message" => inner.calls.last().map(|(_, send)| send.clone()),
            _ => None,
        }
    }

    /// Keeps what belongs to no call.
    pub(super) fn keep(&self, message: Value) {
        self.lock().inbox.push(message);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Everything kept, in order.
    pub(super) fn inbox(&self) -> Vec<Value> {
        self.lock().inbox.clone()
    }

    /// Takes the first kept message with this method, waiting for it; `None` after ten seconds.
    pub(super) async fn take(&self, method: &str) -> Option<Value> {
        let mut changed = self.changed.subscribe();
        let wait = async {
            loop {
                if let Some(found) = self.take_now(method) {
                    return Some(found);
                }
                changed.changed().await.ok()?;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.ok().flatten()
    }

    fn take_now(&self, method: &str) -> Option<Value> {
        let mut inner = self.lock();
        let mut kept = inner.inbox.iter();
        let is_it = |kept: &Value| kept.get("method").and_then(Value::as_str) == Some(method);
        let place = kept.position(is_it)?;
        Some(inner.inbox.remove(place))
    }

    /// Ends a call: nothing more comes for it.
    pub(super) fn forget(&self, id: u64) {
        self.lock().calls.retain(|(known, _)| *known != id);
    }

    /// Ends every call: nothing comes any more.
    pub(super) fn close(&self) {
        self.lock().calls.clear();
    }
}
