//! One session: what the client said, what is open in it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::log::Log;
use super::revision::Revision;
use crate::kit::events::Event;
use crate::kit::request::Request;
use crate::kit::server::Server;

/// How many ended call streams can be resumed.
const KEEP_STREAMS: usize = 64;

/// A session, or, on a server without sessions, what stands in for it during one request.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) revision: Revision,
    /// What `initialize` declared.
    pub(super) capabilities: Value,
    pub(super) initialized: AtomicBool,
    /// What belongs to no call.
    pub(super) standalone: Log,
    pub(super) ended: CancellationToken,
    level: Mutex<String>,
    uris: Mutex<HashSet<String>>,
    streams: Mutex<VecDeque<(u64, Log)>>,
    last_stream: AtomicU64,
    asked: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    last_question: AtomicU64,
    running: Mutex<HashMap<String, CancellationToken>>,
    tasks: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(super) fn new(revision: Revision, capabilities: Value, standalone: Log) -> Self {
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            revision,
            capabilities,
            initialized: AtomicBool::new(false),
            standalone,
            ended: CancellationToken::new(),
            // What a client gets that never sets a level.
            level: Mutex::new("info".to_owned()),
            uris: Mutex::default(),
            streams: Mutex::default(),
            last_stream: AtomicU64::new(0),
            asked: Mutex::default(),
            last_question: AtomicU64::new(0),
            running: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::SeqCst)
    }

    pub(super) fn level(&self) -> String {
        lock(&self.level).clone()
    }

    pub(super) fn set_level(&self, level: &str) {
        level.clone_into(&mut lock(&self.level));
    }

    pub(super) fn subscribe(&self, uri: &str) {
        lock(&self.uris).insert(uri.to_owned());
    }

    pub(super) fn unsubscribe(&self, uri: &str) {
        lock(&self.uris).remove(uri);
    }

    /// A new stream for a call, and its number; the standalone one is 0.
    pub(super) fn open_stream(&self) -> (u64, Log) {
        let number = self.last_stream.fetch_add(1, Ordering::SeqCst) + 1;
        let log = Log::default();
        let mut streams = lock(&self.streams);
        streams.push_back((number, log.clone()));
        if streams.len() > KEEP_STREAMS {
            streams.pop_front();
        }
        (number, log)
    }

    pub(super) fn stream(&self, number: u64) -> Option<Log> {
        if number == 0 {
            return Some(self.standalone.clone());
        }
        let streams = lock(&self.streams);
        let found = streams.iter().find(|(known, _)| *known == number);
        found.map(|(_, log)| log.clone())
    }

    /// Ends when this request is cancelled or the session is over.
    pub(super) fn started(&self, request: &Request) -> CancellationToken {
        let token = self.ended.child_token();
        lock(&self.running).insert(request.id.to_string(), token.clone());
        token
    }

    pub(super) fn finished(&self, request: &Request) {
        lock(&self.running).remove(&request.id.to_string());
    }

    pub(super) fn cancel(&self, params: &Map<String, Value>) {
        let id = params.get("requestId").map(Value::to_string);
        if let Some(token) = lock(&self.running).remove(&id.unwrap_or_default()) {
            token.cancel();
        }
    }

    /// Asks the client on `log` and waits; `None` when the session ends first.
    pub(super) async fn ask(&self, log: &Log, method: &str, params: &Value) -> Option<Value> {
        let number = self.last_question.fetch_add(1, Ordering::SeqCst) + 1;
        // A kind of id no client uses for its own requests.
        let id = format!("ask-{number}");
        let (send, receive) = oneshot::channel();
        lock(&self.asked).insert(id.clone(), send);
        log.push(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let answer = self.ended.run_until_cancelled(receive).await?;
        answer.ok()
    }

    /// Takes the client's answer; `false` when nothing of this session asked for it.
    pub(super) fn answered(&self, message: Value) -> bool {
        let id = message.get("id").and_then(Value::as_str).unwrap_or("");
        let waiting = lock(&self.asked).remove(id);
        waiting.is_some_and(|waiting| waiting.send(message).is_ok())
    }

    pub(super) fn own_task(&self, id: &str) {
        lock(&self.tasks).push(id.to_owned());
    }

    pub(super) fn tasks(&self) -> Vec<String> {
        lock(&self.tasks).clone()
    }

    pub(super) fn owns_task(&self, id: &str) -> bool {
        lock(&self.tasks).iter().any(|known| known == id)
    }

    pub(super) fn end(&self) {
        self.ended.cancel();
        self.standalone.end();
        for (_, log) in lock(&self.streams).iter() {
            log.end();
        }
    }

    /// Puts the server's changes on the standalone stream, until the session ends.
    pub(super) fn follow(self: &Arc<Self>, server: &Arc<dyn Server>) {
        let mut events = server.events().subscribe();
        let session = Arc::clone(self);
        crate::kit::spawn::spawn(async move {
            let ended = session.ended.clone();
            loop {
                match ended.run_until_cancelled(events.recv()).await {
                    Some(Ok(event)) => session.tell(event),
                    // What was missed changed more than once: the next event says so too.
                    Some(Err(RecvError::Lagged(_))) => {}
                    Some(Err(RecvError::Closed)) | None => break,
                }
            }
        });
    }

    fn tell(&self, event: Event) {
        let (method, params) = match event {
            Event::Tools => ("notifications/tools/list_changed", None),
            Event::Prompts => ("notifications/prompts/list_changed", None),
            Event::Resources => ("notifications/resources/list_changed", None),
            Event::Updated(uri) if lock(&self.uris).contains(&uri) => (
                "notifications/resources/updated",
                Some(json!({ "uri": uri })),
            ),
            Event::Task(id, task) if self.owns_task(&id) => {
                ("notifications/tasks/status", Some(super::tasks::old(&task)))
            }
            Event::Updated(_) | Event::Task(..) => return,
        };
        let mut message = json!({ "jsonrpc": "2.0", "method": method });
        if let (Some(params), Some(members)) = (params, message.as_object_mut()) {
            members.insert("params".into(), params);
        }
        self.standalone.push(message);
    }
}
