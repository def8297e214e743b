//! Carries a host's lines to a daemon and back, as an ordinary client of either era.
//!
//! Nothing but a ping before the session is answered here, and nothing is rewritten: requests travel as the bytes that the host
//! wrote. What HTTP wants beside them is made here: headers, the session id, streams. `link` is
//! the way to the daemon, `reply` what comes back for one request, `modern` are stateless calls,
//! `params` the headers that tools ask for, `fault` what a host is told when the daemon does not
//! answer. The session that a host has at the daemon is in `legacy`.

mod fault;
mod link;
mod modern;
mod params;
pub(crate) mod reply;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Request, Response, Uri};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::BoxError;
use tower::util::BoxCloneSyncService;
use waypost_hub::error::CallError;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::limit::NoRoom;
use waypost_wire::batch;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Message, Notification, Outcome, Request as Asked};
use waypost_wire::meta::META;
use waypost_wire::method;
use waypost_wire::object::Object;

use super::FAREWELL;
use super::input::{Input, Line};
use super::outbox::Outbox;
use super::unanswered::Unanswered;
use crate::admit;
use crate::encode;
use crate::era::{self, Era};
use crate::in_flight::{InFlight, Slot};
use crate::legacy::bridge::Session;
use crate::legacy::serve::PING;
use crate::outlet::Class;
use crate::refusal::Refusal;
use crate::rescue;

pub use fault::Fault;
use link::Link;
use params::Params;

/// After this nobody answers a question any more. By default the daemon waits as long.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// What sends HTTP requests to the daemon.
pub type Sender = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;

/// Where the daemon is, and how to get there.
#[derive(Clone)]
pub struct Daemon {
    /// Its endpoint.
    pub uri: Uri,
    /// On every request; those of the protocol are not among them.
    pub headers: HeaderMap,
    /// Sends them.
    pub sender: Sender,
    /// Runs what is in flight.
    pub tasks: Tasks,
    /// Most bytes of one message, either way.
    pub limit: usize,
}

/// The connection between a host and a daemon: [`Bridge::read`], then [`Bridge::finish`].
pub struct Bridge {
    way: Way,
    session: Session,
    calls: InFlight,
    /// Ends what has no end of its own; nothing begins any more.
    ending: CancellationToken,
    /// Nothing is waited for any longer.
    given_up: CancellationToken,
    /// Holds a token for each request that is yet to be answered.
    open: TaskTracker,
}

/// What every exchange needs.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) link: Link,
    pub(crate) outbox: Arc<Outbox>,
    params: Arc<Params>,
    unanswered: Arc<Unanswered>,
    pub(crate) tasks: Tasks,
}

impl Daemon {
    /// Whether something that speaks MCP answers there.
    ///
    /// # Errors
    /// [`Fault`]: nobody answers, or not in the way of an endpoint that lets the host in.
    pub async fn probe(&self) -> Result<(), Fault> {
        Link::new(self).probe().await
    }
}

impl Bridge {
    /// A bridge to `daemon` that writes to `to`.
    pub fn new(daemon: &Daemon, to: impl AsyncWrite + Unpin + Send + 'static) -> Self {
        let outbox = Outbox::new();
        let writer = Arc::clone(&outbox);
        daemon.tasks.spawn_here(|stop| async move {
            stop.run_until_cancelled(writer.run(to)).await;
        });
        let way = Way {
            link: Link::new(daemon),
            outbox,
            params: Arc::default(),
            unanswered: Arc::default(),
            tasks: daemon.tasks.clone(),
        };
        Self {
            session: Session::new(&way),
            way,
            calls: InFlight::default(),
            ending: CancellationToken::new(),
            given_up: CancellationToken::new(),
            open: TaskTracker::new(),
        }
    }

    /// Carries what the host sends until it closes its end, or takes no more messages.
    pub async fn read(&self, from: impl AsyncRead + Unpin) {
        let mut input = Input::new(from, self.way.link.limit());
        let lines = async {
            while let Some(line) = input.next().await {
                self.way.outbox.room_for_more().await;
                self.line(line).await;
            }
        };
        tokio::select! {
            () = lines => tracing::debug!("the host closed its end"),
            () = self.way.outbox.gone() => tracing::info!("the host reads no more"),
        }
    }

    /// From now on nothing begins, and listening ends.
    pub fn begin_drain(&self) {
        self.ending.cancel();
    }

    /// Whether all requests are answered, and all that the host was asked.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.way.unanswered.is_empty(PATIENCE)
    }

    /// Waits until what is in flight is answered, at most for `grace`, then gives up the rest, each
    /// with an error, and ends the session. `false` when something had to be given up. Questions to the host are
    /// given up at once: it has no way to answer any more.
    pub async fn finish(self, grace: Duration) -> bool {
        let outbox = &self.way.outbox;
        self.session.give_up_questions();
        self.open.close();
        self.ending.cancel();
        let answered = tokio::select! {
            answered = tokio::time::timeout(grace, self.open.wait()) => answered.is_ok(),
            () = outbox.gone() => self.open.is_empty(),
        };
        if !answered {
            self.given_up.cancel();
            tokio::select! {
                // Who does not read does not hold up the end.
                told = tokio::time::timeout(FAREWELL, self.open.wait()) => drop(told),
                () = outbox.gone() => {}
            }
        }
        self.calls.cancel_all();
        self.session.end().await;
        outbox.close();
        let written = tokio::time::timeout(FAREWELL, outbox.gone()).await;
        outbox.give_up();
        answered && written.is_ok()
    }

    async fn line(&self, line: Line) {
        let line = match line {
            Line::Message(line) => line,
            Line::TooLong { id, answer } => return self.too_long(id, answer).await,
        };
        if !batch::is_batch(&line) || !self.session.has_batches() {
            return self.message(line).await;
        }
        // How deep they may be is the daemon's to say.
        match admit::members(&line, usize::MAX) {
            Ok(members) => {
                for (line, _) in members {
                    self.message(line).await;
                }
            }
            Err(refusal) => self.refuse(None, &rescue::refusal(&refusal).1),
        }
    }

    async fn message(&self, line: bytes::Bytes) {
        match Message::parse(&line) {
            Ok(Message::Request(request)) => self.request(request, line),
            Ok(Message::Notification(told)) => self.notification(&told, line).await,
            Ok(Message::Response(id, _)) => self.session.answer(id.as_ref(), line).await,
            Err(unreadable) => {
                let text = unreadable.reason.to_string();
                let error = ErrorObject::new(unreadable.reason.code(), &text);
                self.refuse(unreadable.id.as_ref(), &error);
            }
        }
    }

    fn request(&self, request: Asked, line: bytes::Bytes) {
        let params = &request.params;
        let meta = params.get(META).and_then(|raw| raw.as_object().ok());
        let era = era::of(&request.method, params, meta.as_ref(), None);
        let begins = admit::begins(&era, &request.method, params);
        let slot = match begins && self.ending.is_cancelled() {
            true => Err(Refusal::NoRoom(NoRoom::Draining)),
            false => self.calls.begin(&request.id),
        };
        let slot = match slot {
            Ok(slot) => slot,
            Err(refusal) => {
                let (_, error) = rescue::refusal(&refusal);
                return self.refuse(Some(&request.id), &error);
            }
        };
        let open = self.open.token();
        match (era, meta) {
            (Era::Modern, Some(meta)) => {
                let ending = match request.method.as_str() {
                    method::LISTEN => self.ending.clone(),
                    _ => CancellationToken::new(),
                };
                let last = self.last_words(&request, &slot);
                let call = modern::Call::new(&self.way, request, &meta, line);
                self.way.tasks.spawn_here(|stop| async move {
                    let work = Box::pin(ending.run_until_cancelled_owned(call.run(slot)));
                    stop.run_until_cancelled(last.unless(work)).await;
                    drop(open);
                });
            }
            // Before there is a session the daemon has nothing that a ping could be of.
            (Era::Legacy { .. }, _) if request.method == PING && self.session.is_none() => {
                drop(slot);
                let answer = message::encode_result(&request.id, &Object::new());
                self.way.outbox.post(Class::End, [answer].into());
            }
            (Era::Modern | Era::Legacy { .. }, _) => {
                let last = self.last_words(&request, &slot);
                let call = self.session.call(request, line);
                self.way.tasks.spawn_here(|stop| async move {
                    let work = Box::pin(call.run(slot));
                    stop.run_until_cancelled(last.unless(work)).await;
                    drop(open);
                });
            }
        }
    }

    fn last_words(&self, request: &Asked, slot: &Slot) -> LastWords {
        LastWords {
            id: request.id.clone(),
            given_up: self.given_up.clone(),
            cancelled: slot.cancelled().clone(),
            outbox: Arc::clone(&self.way.outbox),
        }
    }

    async fn notification(&self, told: &Notification, line: bytes::Bytes) {
        if told.method == method::CANCELLED {
            let id = told.params.get("requestId").cloned();
            // Whoever carries the request tells the daemon in the way of its era.
            if let Some(Ok(id)) = id.map(Id::new) {
                self.calls.cancel(&id);
            }
            return;
        }
        self.session.notify(&told.method, line).await;
    }

    async fn too_long(&self, id: Option<Id>, answer: bool) {
        let limit = self.way.link.limit();
        let (_, error) = rescue::refusal(&Refusal::BodyTooLarge { limit });
        match (id, answer) {
            // The question that it answers will get no other.
            (Some(id), true) => {
                let line = message::encode_error(Some(&id), &error);
                self.session.answer(Some(&id), line).await;
            }
            (None, true) => {}
            (id, false) => self.refuse(id.as_ref(), &error),
        }
    }

    fn refuse(&self, id: Option<&Id>, error: &ErrorObject) {
        self.way.outbox.post(Class::End, encode::error(id, error));
    }
}

/// What the host is told of a request that is given up in the end.
struct LastWords {
    id: Id,
    given_up: CancellationToken,
    cancelled: CancellationToken,
    outbox: Arc<Outbox>,
}

impl LastWords {
    /// Works until it is given up. The daemon sees the connection close, and the session with it.
    async fn unless<T>(self, work: impl Future<Output = T>) {
        let done = self.given_up.run_until_cancelled(work).await;
        if done.is_none() && !self.cancelled.is_cancelled() {
            let (_, error) = rescue::call_error(&CallError::stopped());
            let message = encode::error(Some(&self.id), &error);
            self.outbox.post(Class::End, message);
        }
    }
}

impl Way {
    pub(crate) async fn fail(&self, id: &Id, fault: &Fault) {
        tracing::warn!(error = %fault, "a request was not answered");
        self.outbox
            .send(encode::error(Some(id), &fault.error()))
            .await;
    }
}

/// A message of an exchange.
#[derive(Debug)]
pub(crate) enum Read {
    Answer(Answer),
    /// Comes before the answer, and goes to the host as it is.
    Before(Message),
}

/// The end of an exchange.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    /// With the id that the host knows.
    pub(crate) message: bytes::Bytes,
}

impl Read {
    /// What `line` is to the request with this id.
    pub(crate) fn of(id: &Id, line: &bytes::Bytes) -> Result<Self, Fault> {
        match Message::parse(line) {
            Ok(Message::Response(Some(of), outcome)) if of == *id => {
                let message = line.clone();
                Ok(Self::Answer(Answer { outcome, message }))
            }
            // One that could not read our request does not know its id.
            Ok(Message::Response(None, Outcome::Error(error))) => Ok(Self::Answer(Answer {
                message: message::encode_error(Some(id), &error),
                outcome: Outcome::Error(error),
            })),
            Ok(Message::Response(..)) | Err(_) => Err(Fault::NotMcp),
            Ok(before) => Ok(Self::Before(before)),
        }
    }
}

impl Answer {
    fn is_mismatch(&self) -> bool {
        matches!(&self.outcome, Outcome::Error(error) if error.code() == code::HEADER_MISMATCH)
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Address and headers may carry keys.
        f.debug_struct("Daemon")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge")
            .field("in_flight", &self.open.len())
            .finish_non_exhaustive()
    }
}
