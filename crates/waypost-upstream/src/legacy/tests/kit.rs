//! A server that a test plays.

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use waypost_config::config::Isolation;
use waypost_hub::call::{Call, Principal, Session};
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::End;
use waypost_hub::upstream::BoxFuture;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::message::Message;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::ear::{Heard, SharedEar};
use crate::fault::Fault;
use crate::legacy::link::{Dial, Link};
use crate::legacy::{Legacy, Places, Settings};

/// The answer to a question with this id is too much for the connection.
pub(super) const PANIC: &str = "panic";

/// What the server answers `initialize` with, and after how long.
pub(super) const WELCOME: &str =
    r#"{"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}}"#;

/// How long calls wait for their callers.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// A server whose sessions answer `initialize`, and every other request only when told to.
#[derive(Clone, Debug)]
pub(super) struct Played(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    welcome: Mutex<(Duration, String)>,
    sessions: Mutex<Vec<Arc<Line>>>,
    /// Outcomes of the next requests that are no `initialize`; then they are just written.
    outcomes: Mutex<VecDeque<Fault>>,
    dialled: AtomicUsize,
    told: tokio::sync::Notify,
    /// Answers that it does not take: it fails so, or never says anything.
    refused: Mutex<Vec<(String, Option<Fault>)>>,
    /// Answers that it takes only after a time.
    slow: Mutex<Vec<(String, Duration)>>,
    /// Requests wait and are not written.
    holds: AtomicBool,
    /// The link knows what the server has taken.
    sure: AtomicBool,
    /// How long a session takes to close.
    closing: Mutex<Duration>,
}

/// One session.
#[derive(Debug)]
pub(super) struct Line {
    server: Played,
    ear: SharedEar,
    said: Mutex<Vec<Value>>,
    /// The ids of the answers that it has.
    taken: Mutex<Vec<String>>,
    closed: AtomicBool,
}

impl Played {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            welcome: Mutex::new((Duration::ZERO, WELCOME.to_owned())),
            sessions: Mutex::default(),
            outcomes: Mutex::default(),
            dialled: AtomicUsize::new(0),
            told: tokio::sync::Notify::new(),
            refused: Mutex::default(),
            slow: Mutex::default(),
            holds: AtomicBool::new(false),
            sure: AtomicBool::new(false),
            closing: Mutex::default(),
        }))
    }

    /// Requests wait in front of the server from now on, as where a pipe is full; or not any more.
    pub(super) fn holds(&self, holds: bool) {
        self.0.holds.store(holds, Ordering::SeqCst);
    }

    /// What the server did not take in time it certainly does not have, as with a pipe.
    pub(super) fn is_sure(&self) {
        self.0.sure.store(true, Ordering::SeqCst);
    }

    /// Sessions take so long to close.
    pub(super) fn closes_within(&self, time: Duration) {
        *self.0.closing.lock().unwrap() = time;
    }

    /// Answers `initialize` so from now on.
    pub(super) fn welcomes(&self, after: Duration, answer: &str) {
        *self.0.welcome.lock().unwrap() = (after, answer.to_owned());
    }

    /// The next request fails so.
    pub(super) fn fails(&self, fault: Fault) {
        self.0.outcomes.lock().unwrap().push_back(fault);
    }

    /// It does not take the answer to this question, or what has this method: it fails so, or
    /// waits for ever.
    pub(super) fn refuses(&self, question: &str, fault: Option<Fault>) {
        let refused = (question.to_owned(), fault);
        self.0.refused.lock().unwrap().push(refused);
    }

    /// It takes the answer to this question only after so long.
    pub(super) fn is_slow_to_take(&self, question: &str, after: Duration) {
        self.0
            .slow
            .lock()
            .unwrap()
            .push((question.to_owned(), after));
    }

    pub(super) fn dialled(&self) -> usize {
        self.0.dialled.load(Ordering::SeqCst)
    }

    /// The first session, once there is one.
    pub(super) async fn first(&self) -> Arc<Line> {
        while self.dialled() == 0 {
            tokio::task::yield_now().await;
        }
        self.line(0)
    }

    pub(super) fn line(&self, at: usize) -> Arc<Line> {
        Arc::clone(&self.0.sessions.lock().unwrap()[at])
    }

    pub(super) fn legacy(&self, isolation: Isolation, room: usize) -> Legacy {
        self.legacy_at(isolation, room, &Places::new(128))
    }

    /// The same with these places for subscriptions.
    pub(super) fn legacy_at(&self, isolation: Isolation, room: usize, places: &Places) -> Legacy {
        let room = Arc::new(Semaphore::new(room));
        let mut settings = settings(isolation);
        settings.places = places.clone();
        Legacy::new(settings, Arc::new(self.clone()), &Tasks::default(), room)
    }
}

pub(super) fn settings(isolation: Isolation) -> Settings {
    Settings {
        upstream: "u".into(),
        isolation,
        declare: Vec::new(),
        idle_timeout: Duration::from_secs(60),
        max_sessions: 2,
        startup_timeout: Duration::from_secs(60),
        patience: PATIENCE,
        places: Places::new(128),
    }
}

impl Dial for Played {
    fn dial(&self, ear: SharedEar) -> BoxFuture<'_, Result<Arc<dyn Link>, Fault>> {
        self.0.dialled.fetch_add(1, Ordering::SeqCst);
        let line = Arc::new(Line {
            server: self.clone(),
            ear,
            said: Mutex::default(),
            taken: Mutex::default(),
            closed: Default::default(),
        });
        self.0.sessions.lock().unwrap().push(Arc::clone(&line));
        let link = Arc::new(Shared(line));
        Box::pin(ready(Ok(link as Arc<dyn Link>)))
    }
}

#[derive(Debug)]
struct Shared(Arc<Line>);

impl Line {
    /// The server says this.
    pub(super) fn says(&self, message: &Value) {
        self.says_on(None, message);
    }

    /// The server says this on the stream of its own that a request has.
    pub(super) fn says_on(&self, request: Option<&Value>, message: &Value) {
        let mut message = message.clone();
        message["jsonrpc"] = json!("2.0");
        let message = Message::parse(&Bytes::from(message.to_string())).unwrap();
        let of = request.and_then(|request| request["id"].as_u64());
        self.ear.hear(Heard { message, of });
    }

    /// Nothing comes any more, for this reason.
    pub(super) fn dies(&self, fault: &Fault) {
        self.ear.gone(fault);
    }

    /// The server has forgotten the session, which is noticed beside all calls.
    pub(super) fn is_forgotten(&self) {
        self.dies(&Fault::SessionLost);
    }

    /// What it was told and no test has looked at yet, until one is so.
    pub(super) async fn hears(&self, so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let told = self.server.0.told.notified();
            let found = {
                let mut said = self.said.lock().unwrap();
                let at = said.iter().position(&so);
                at.map(|at| said.remove(at))
            };
            match found {
                Some(found) => return found,
                None => told.await,
            }
        }
    }

    /// The next request of this method.
    pub(super) async fn request(&self, method: &str) -> Value {
        self.hears(|said| said["method"] == method && said.get("id").is_some())
            .await
    }

    /// Whether it has the answer to this question.
    pub(super) fn has_taken(&self, question: &str) -> bool {
        self.taken.lock().unwrap().iter().any(|id| id == question)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn told(&self, message: &Bytes) -> Value {
        let message: Value = serde_json::from_slice(message).unwrap();
        self.said.lock().unwrap().push(message.clone());
        self.server.0.told.notify_waiters();
        message
    }
}

impl Link for Shared {
    fn request(&self, id: u64, message: Bytes) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async move {
            let holds = &self.0.server.0.holds;
            let begins = message.windows(10).any(|part| part == b"initialize");
            if !begins && holds.load(Ordering::SeqCst) {
                return Ok(());
            }
            if !self.0.ear.sending(id) {
                return Ok(());
            }
            let message = self.0.told(&message);
            if message["method"] == "initialize" {
                let (after, answer) = self.0.server.0.welcome.lock().unwrap().clone();
                sleep(after).await;
                let mut answer: Value = serde_json::from_str(&answer).unwrap();
                answer["id"] = json!(id);
                self.0.says(&answer);
                return Ok(());
            }
            let fault = self.0.server.0.outcomes.lock().unwrap().pop_front();
            fault.map_or(Ok(()), Err)
        })
    }

    fn tell(&self, message: Bytes) -> BoxFuture<'_, Result<(), Fault>> {
        let told = self.0.told(&message);
        assert_ne!(told["id"], PANIC, "told so");
        let refused = self.0.server.0.refused.lock().unwrap();
        let is_refused = |what: &str| told["id"] == what || told["method"] == what;
        let refused = refused.iter().find(|(what, _)| is_refused(what));
        match refused.map(|(_, fault)| fault.clone()) {
            None => {
                let slow = self.0.server.0.slow.lock().unwrap();
                let slow = slow.iter().find(|(id, _)| told["id"] == **id);
                let after = slow.map_or(Duration::ZERO, |(_, after)| *after);
                Box::pin(async move {
                    sleep(after).await;
                    let id = told["id"].as_str().unwrap_or_default().to_owned();
                    self.0.taken.lock().unwrap().push(id);
                    Ok(())
                })
            }
            Some(Some(fault)) => Box::pin(ready(Err(fault))),
            Some(None) => Box::pin(pending()),
        }
    }

    fn side_by_side(&self) -> usize {
        4
    }

    fn knows_what_it_took(&self) -> bool {
        self.0.server.0.sure.load(Ordering::SeqCst)
    }

    fn agreed(&self, _: &str) {}

    fn close(&self) -> BoxFuture<'_, ()> {
        let closing = *self.0.server.0.closing.lock().unwrap();
        Box::pin(async move {
            sleep(closing).await;
            self.0.closed.store(true, Ordering::SeqCst);
            self.0.server.0.told.notify_waiters();
        })
    }
}

pub(super) fn object(value: &Value) -> Object {
    Raw::from(value).as_object().unwrap()
}

/// A call of a tool by somebody who can be asked.
pub(super) fn call() -> Call {
    let mut call = Call::own("tools/call", object(&json!({ "name": "t" })));
    call.principal = Principal::new("p");
    call.meta.capabilities = ClientCapabilities::new(object(&json!({ "elicitation": {} })));
    call
}

/// The same by somebody else.
pub(super) fn by(name: &str) -> Call {
    let mut call = call();
    call.principal = Principal::new(name);
    call
}

/// A call of somebody who has a session.
pub(super) fn call_in_session() -> Call {
    let mut call = call();
    call.session = Some(Session::new("s", CancellationToken::new()));
    call
}

/// The call's end.
pub(super) fn end(legacy: &Legacy, call: Call) -> BoxFuture<'_, End> {
    Box::pin(async { legacy.call(call).await.unwrap().into_end().await.unwrap() })
}

pub(super) fn result(request: &Value) -> Value {
    json!({ "id": request["id"], "result": { "content": [] } })
}

pub(super) fn question(id: &str) -> Value {
    json!({ "id": id, "method": "elicitation/create", "params": { "message": "?" } })
}

pub(super) fn state(end: End) -> String {
    match end {
        End::InputRequired(result) => result.string("requestState").unwrap(),
        other => panic!("{other:?}"),
    }
}
