//! The session that a host has at the daemon (2025-11-25 and earlier: transports). `asked` keeps
//! track of the daemon's questions, `reopen` of what it takes to have the session again.

mod asked;
mod reopen;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use waypost_hub::backoff::Backoff;
use waypost_wire::batch::VERSION;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::header::{PROTOCOL_VERSION, SESSION_ID};
use waypost_wire::id::Id;
use waypost_wire::message::{self, Message, Outcome, Request};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::in_flight::Slot;
use crate::legacy::serve::INITIALIZED;
use crate::stdio::bridge::reply::Reply;
use crate::stdio::bridge::{Answer, Fault, Read, Way};
use asked::{Asked, Stream};
use reopen::{Opening, Said, is_lost};

const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Longest wait for the daemon to take a message that has no answer.
const TAKEN: Duration = Duration::from_secs(10);

/// Longest wait for a request to arrive before it is said to be given up: the two travel on
/// connections of their own.
const ARRIVED: Duration = Duration::from_secs(2);

/// Longest wait for the end of the session.
const FAREWELL: Duration = Duration::from_secs(1);

/// A stream that ended is opened again after this, and after twice as long each further time.
const AGAIN_FIRST: Duration = Duration::from_millis(500);
const AGAIN_MOST: Duration = Duration::from_secs(30);

/// How often the stream of a request is looked for where it broke off.
const ATTEMPTS: u32 = 5;

/// The session, once there is one; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    way: Way,
    asked: Asked,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    /// While one is being opened in place of one that the daemon lost.
    opening: Option<Opening>,
}

#[derive(Clone, Debug)]
struct Open {
    headers: HeaderMap,
    said: Said,
    /// Ends its standing stream.
    over: CancellationToken,
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Call {
    session: Session,
    request: Request,
    /// What the host wrote.
    line: Bytes,
}

impl Session {
    pub(crate) fn new(way: &Way) -> Self {
        Self {
            way: way.clone(),
            asked: Asked::new(&way.outbox),
            state: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the session, once there is one.
    fn headers(&self) -> HeaderMap {
        let state = self.lock();
        let open = state.open.as_ref();
        open.map(|open| open.headers.clone()).unwrap_or_default()
    }

    /// Whether the host may send several messages at once.
    pub(crate) fn has_batches(&self) -> bool {
        let state = self.lock();
        let open = state.open.as_ref();
        open.is_some_and(|open| open.said.version == VERSION)
    }

    /// Whether the host has none: what it asks then can only be about the bridge.
    pub(crate) fn is_none(&self) -> bool {
        let state = self.lock();
        state.open.is_none() && state.opening.is_none()
    }

    pub(crate) fn call(&self, request: Request, line: Bytes) -> Call {
        Call {
            session: self.clone(),
            request,
            line,
        }
    }

    /// Passes on a notification of the host, in its place among the host's messages.
    pub(crate) async fn notify(&self, name: &str, line: Bytes) {
        if name != INITIALIZED {
            return self.tell(line).await;
        }
        if let Some(open) = &mut self.lock().open {
            open.said.initialized = Some(line.clone());
        }
        self.tell(line).await;
        self.listen();
    }

    /// Passes on the host's answer to a question.
    pub(crate) async fn answer(&self, id: Option<&Id>, line: Bytes) {
        if let Some(id) = id {
            self.asked.settle(id);
        }
        self.tell(line).await;
    }

    /// The host answers no more: nobody needs to wait for it.
    pub(crate) fn give_up_questions(&self) {
        for id in self.asked.give_up() {
            self.nobody(&id);
        }
    }

    /// Answers a question in place of a host that has gone.
    fn nobody(&self, id: &Id) {
        let error = ErrorObject::new(code::INTERNAL_ERROR, "the host has closed its end");
        let line = message::encode_error(Some(id), &error);
        let session = self.clone();
        self.way.tasks.spawn_here(|stop| async move {
            stop.run_until_cancelled(session.tell(line)).await;
        });
    }

    /// Passes on what comes on a stream and is no answer.
    async fn relay(&self, stream: &Stream, message: &Message, line: Bytes) {
        if let Message::Request(question) = message
            && !stream.ask(&question.id)
        {
            return self.nobody(&question.id);
        }
        self.way.outbox.send([line].into()).await;
        // Only now: until then the stream sees to it that the host is told.
        if let Message::Notification(told) = message
            && told.method == method::CANCELLED
            && let Some(Ok(id)) = told.params.get("requestId").cloned().map(Id::new)
        {
            self.asked.settle(&id);
        }
    }

    /// Passes on a message that has no answer.
    pub(crate) async fn tell(&self, line: Bytes) {
        let told = async {
            let mut reply = self.way.link.post(line, self.headers()).await?;
            reply.next().await
        };
        let why = match tokio::time::timeout(TAKEN, told).await {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(_))) => "the daemon refused it".to_owned(),
            Ok(Err(fault)) => fault.to_string(),
            Err(_) => "the daemon did not take it in time".to_owned(),
        };
        tracing::warn!(why, "a message of the host was lost");
    }

    /// `initialize` was answered.
    fn opened(&self, initialize: &Bytes, headers: &HeaderMap, answer: &Answer) {
        let Outcome::Result(result) = &answer.outcome else {
            return;
        };
        let result = result.as_object().unwrap_or_default();
        let version = result.string("protocolVersion").unwrap_or_default();
        let said = Said::new(initialize.clone(), version);
        let open = Open::new(named(headers, &result), said);
        let before = self.lock().open.replace(open);
        // The host forgot all of it.
        if let Some(before) = before {
            self.leave(before);
        }
    }

    /// A request was answered.
    fn note(&self, request: &Request, answer: &Answer) {
        let mut state = self.lock();
        if let (Outcome::Result(_), Some(open)) = (&answer.outcome, &mut state.open) {
            open.said.note(request);
        }
    }

    /// Opens the stream for what belongs to no request, and keeps it open.
    fn listen(&self) {
        let Some(open) = self.lock().open.clone() else {
            return;
        };
        let session = self.clone();
        self.way.tasks.spawn_here(|stop| async move {
            let over = open.over.clone();
            tokio::select! {
                () = stop.cancelled() => {}
                () = over.cancelled() => {}
                () = session.stand(open) => {}
            }
        });
    }

    /// The host has gone: the daemon need not keep anything for it.
    pub(crate) async fn end(&self) {
        let open = self.lock().open.take();
        if let Some(open) = open {
            close(&self.way, open).await;
        }
    }

    /// Relays the standing stream, over and over, until the daemon has none.
    async fn stand(&self, open: Open) {
        let questions = self.asked.stream();
        let mut again = Backoff::new(AGAIN_FIRST, AGAIN_MOST);
        let mut last: Option<String> = None;
        let mut stood = false;
        loop {
            let mut asked = None;
            let headers = from(&open.headers, last.as_deref());
            match self.way.link.bare(Method::GET, headers).await {
                Ok(mut reply) if reply.is_stream() => {
                    stood = true;
                    again.reset();
                    while let Ok(Some(line)) = reply.next().await {
                        if let Ok(message) = Message::parse(&line) {
                            self.relay(&questions, &message, line).await;
                        }
                    }
                    last = reply.last.take().or(last);
                    asked = reply.retry.map(Duration::from_millis);
                }
                Ok(reply) if reply.status.is_server_error() => {}
                // It was there before: changes are still to be heard.
                Ok(reply) if stood && is_lost(&reply, &open.headers) => {
                    // Where that fails the next request tries again.
                    drop(self.reopen(&open.headers).await);
                    return;
                }
                // 405: it has none. 204: it has no more.
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "the stream of changes is down"),
            }
            sleep(asked.unwrap_or_else(|| again.failed()).min(AGAIN_MOST)).await;
        }
    }
}

impl Open {
    fn new(headers: HeaderMap, said: Said) -> Self {
        Self {
            headers,
            said,
            over: CancellationToken::new(),
        }
    }
}

/// What names a session from here on, as the answer to `initialize` says it.
fn named(headers: &HeaderMap, result: &Object) -> HeaderMap {
    let mut named = HeaderMap::new();
    if let Some(id) = headers.get(SESSION_ID) {
        named.insert(HeaderName::from_static(SESSION_ID), id.clone());
    }
    let version = result.string("protocolVersion").unwrap_or_default();
    if let Ok(version) = HeaderValue::from_str(&version) {
        named.insert(HeaderName::from_static(PROTOCOL_VERSION), version);
    }
    named
}

/// The daemon need not keep anything for a session.
async fn close(way: &Way, open: Open) {
    open.over.cancel();
    if open.headers.contains_key(SESSION_ID) {
        let ended = way.link.bare(Method::DELETE, open.headers);
        drop(tokio::time::timeout(FAREWELL, ended).await);
    }
}

fn from(headers: &HeaderMap, last: Option<&str>) -> HeaderMap {
    let mut headers = headers.clone();
    if let Some(Ok(last)) = last.map(HeaderValue::from_str) {
        headers.insert(LAST_EVENT, last);
    }
    headers
}

impl Call {
    /// To its answer. Cancelled, the daemon is told.
    pub(crate) async fn run(self, slot: Slot) {
        let cancelled = slot.cancelled().clone();
        let questions = self.session.asked.stream();
        let end = Box::pin(self.end(&cancelled, &questions)).await;
        // Before the answer, which they would come too late behind.
        drop(questions);
        let Some(end) = end else {
            self.session.tell(self.cancellation()).await;
            return;
        };
        // The id is free before the host can know that it is.
        drop(slot);
        let way = &self.session.way;
        match end {
            Ok(answer) => way.outbox.send([answer.message].into()).await,
            Err(fault) => way.fail(&self.request.id, &fault).await,
        }
    }

    /// `None` when it was cancelled.
    async fn end(
        &self,
        cancelled: &CancellationToken,
        questions: &Stream,
    ) -> Option<Result<Answer, Fault>> {
        let mut headers = match &*self.request.method {
            method::INITIALIZE => HeaderMap::new(),
            _ => self.session.headers(),
        };
        let mut again = false;
        loop {
            let reply = match self.post(cancelled, &headers).await? {
                Ok(reply) => reply,
                Err(fault) => return Some(Err(fault)),
            };
            if !is_lost(&reply, &headers) {
                let end = self.to_end(reply, &headers, questions);
                return cancelled.run_until_cancelled(end).await;
            }
            if again {
                return Some(Err(Fault::not_reopened("it was lost again")));
            }
            again = true;
            let reopened = self.session.reopen(&headers);
            match cancelled.run_until_cancelled(reopened).await? {
                Ok(fresh) => headers = fresh,
                Err(fault) => return Some(Err(fault)),
            }
        }
    }

    async fn post(
        &self,
        cancelled: &CancellationToken,
        headers: &HeaderMap,
    ) -> Option<Result<Reply, Fault>> {
        let post = self
            .session
            .way
            .link
            .post(self.line.clone(), headers.clone());
        let mut post = Box::pin(post);
        let head = cancelled.run_until_cancelled(&mut post).await;
        if head.is_none() {
            // It must be there before it can be given up.
            drop(tokio::time::timeout(ARRIVED, post).await);
        }
        head
    }

    async fn to_end(
        &self,
        mut reply: Reply,
        headers: &HeaderMap,
        questions: &Stream,
    ) -> Result<Answer, Fault> {
        let session = &self.session;
        for _ in 0..ATTEMPTS {
            let broken = loop {
                match reply.next().await {
                    Ok(Some(line)) => match Read::of(&self.request.id, &line)? {
                        Read::Answer(answer) => {
                            self.learn(&reply.headers, &answer);
                            return Ok(answer);
                        }
                        Read::Before(message) => session.relay(questions, &message, line).await,
                    },
                    Ok(None) => break Fault::BrokenOff,
                    Err(fault) => break fault,
                }
            };
            // A stream of a session can be taken up again where it broke off.
            let Some(last) = reply.last.take() else {
                return Err(broken);
            };
            let wait = reply.retry.map_or(AGAIN_FIRST, Duration::from_millis);
            sleep(wait.min(AGAIN_MOST)).await;
            let headers = from(headers, Some(&last));
            reply = session.way.link.bare(Method::GET, headers).await?;
            if reply.status != StatusCode::OK || !reply.is_stream() {
                return Err(broken);
            }
            reply.last.get_or_insert(last);
        }
        Err(Fault::BrokenOff)
    }

    /// What an answer means for the session.
    fn learn(&self, headers: &HeaderMap, answer: &Answer) {
        if self.request.method == method::INITIALIZE {
            self.session.opened(&self.line, headers, answer);
        } else {
            self.session.note(&self.request, answer);
        }
    }

    fn cancellation(&self) -> Bytes {
        let params = Object::from_iter([
            ("requestId", self.request.id.raw().clone()),
            ("reason", Raw::string("the host gave it up")),
        ]);
        message::encode_notification(method::CANCELLED, &params)
    }
}
