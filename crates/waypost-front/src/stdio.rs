//! A host that launched Waypost as a command and talks to it over its standard input and output:
//! one process is one connection (specification: transports, stdio).
//!
//! Both eras share the pipe, decided message by message: a client may look around with
//! `server/discover` and then `initialize`. `outbox` is the way out, `lane` that of one request,
//! `modern` answers stateless calls, `unanswered` is what they ask the host; the one session there may be is in `legacy`. [`bridge`]
//! carries the lines to a daemon instead of answering them.

pub mod bridge;
mod input;
pub(crate) mod lane;
mod modern;
pub(crate) mod outbox;
mod unanswered;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;
use waypost_hub::call::{Principal, View};
use waypost_hub::lifecycle::Tasks;
use waypost_hub::limit::{NoRoom, Permit};
use waypost_wire::batch;
use waypost_wire::id::Id;
use waypost_wire::message::{Message, Notification, Outcome, Request};
use waypost_wire::meta::{META, PROTOCOL_VERSION, RequestMeta};
use waypost_wire::method;
use waypost_wire::object::Object;

use crate::Parts;
use crate::admit::{self, UNSAID};
use crate::encode;
use crate::era::{self, Era};
use crate::event::Finish;
use crate::in_flight::{InFlight, Slot};
use crate::legacy::pipe::Place;
use crate::legacy::serve::Incoming;
use crate::modern::Asker;
use crate::outlet::Class;
use crate::refusal::{Refusal, Refused};
use crate::rescue;
use input::{Input, Line};
use lane::Lane;
use outbox::Outbox;
use unanswered::Unanswered;

/// Longest wait for a host to take the last messages.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a host is served with.
#[derive(Clone, Debug)]
pub struct Host {
    /// As for HTTP; what only HTTP has is not looked at.
    pub parts: Parts,
    /// Runs the calls.
    pub tasks: Tasks,
    /// Who the host is. Whoever may launch a program with a configuration may use what is in it.
    pub principal: Principal,
    /// What it sees.
    pub view: View,
}

/// The connection to a host: [`Pipe::read`], then [`Pipe::finish`].
pub struct Pipe {
    host: Host,
    outbox: Arc<Outbox>,
    calls: InFlight,
    place: Place,
    /// Holds a token for each request that is yet to be answered.
    open: TaskTracker,
    unanswered: Arc<Unanswered>,
    /// Nothing is waited for any longer.
    given_up: CancellationToken,
}

/// What is yet to be answered on a pipe, by either end.
#[derive(Clone, Debug)]
pub struct Open {
    requests: TaskTracker,
    questions: Arc<Unanswered>,
}

/// How a message came, where more than a line came.
#[derive(Debug, Default)]
pub(crate) struct Came {
    pub(crate) request_id: Option<Arc<str>>,
    /// What it holds of a bound on what is in flight.
    pub(crate) permit: Option<Arc<Permit>>,
    /// Its record, where there is one already.
    pub(crate) finish: Option<Finish>,
}

impl Pipe {
    /// A connection whose messages are written to `to`.
    pub fn new(host: Host, to: impl AsyncWrite + Unpin + Send + 'static) -> Self {
        let outbox = Outbox::new();
        let writer = Arc::clone(&outbox);
        host.tasks.spawn_here(|stop| async move {
            stop.run_until_cancelled(writer.run(to)).await;
        });
        Self::over(host, outbox)
    }

    /// A connection whose messages somebody takes out of `outbox`.
    pub(crate) fn over(host: Host, outbox: Arc<Outbox>) -> Self {
        Self {
            place: Place::new(&host, &outbox),
            calls: InFlight::default(),
            open: TaskTracker::new(),
            unanswered: Arc::default(),
            given_up: CancellationToken::new(),
            outbox,
            host,
        }
    }

    /// Serves what the host sends until it closes its end, or takes no more messages. While it
    /// does not read its answers no more requests are taken.
    pub async fn read(&mut self, from: impl AsyncRead + Unpin) {
        let outbox = Arc::clone(&self.outbox);
        let mut input = Input::new(from, self.host.parts.request_body);
        let lines = async {
            while let Some(line) = input.next().await {
                self.outbox.room_for_more().await;
                self.line(line).await;
            }
        };
        tokio::select! {
            () = lines => tracing::debug!("the host closed its end"),
            () = outbox.gone() => tracing::info!("the host reads no more"),
        }
    }

    /// Waits until what is in flight is answered, at most for `grace`, then gives up the rest, each
    /// with an error. `false` when something had to be given up. Questions to the host are given up
    /// at once: it has no way to answer any more. The sessions of the host's parts end with it.
    pub async fn finish(mut self, grace: Duration) -> bool {
        self.place.give_up_questions();
        self.open.close();
        let answered = tokio::select! {
            answered = tokio::time::timeout(grace, self.open.wait()) => answered.is_ok(),
            () = self.outbox.gone() => self.open.is_empty(),
        };
        if !answered {
            self.give_up_calls().await;
        }
        self.calls.cancel_all();
        self.place.leave();
        self.outbox.close();
        let written = tokio::time::timeout(FAREWELL, self.outbox.gone()).await;
        self.outbox.give_up();
        answered && written.is_ok()
    }

    /// The time for calls is over: the host is told so of each.
    async fn give_up_calls(&self) {
        self.given_up.cancel();
        if let Some(sessions) = &self.host.parts.sessions {
            sessions.give_up_calls();
        }
        tokio::select! {
            // Who does not read does not hold up the end.
            told = tokio::time::timeout(FAREWELL, self.open.wait()) => drop(told),
            () = self.outbox.gone() => {}
        }
    }

    /// Nobody takes messages out any more: all is given up.
    pub(crate) fn end(mut self) {
        self.outbox.give_up();
        self.calls.cancel_all();
        self.place.leave();
    }

    /// Whether its client has ever gone on after `initialize`.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.place.is_confirmed()
    }

    /// Where the one session goes that there may be.
    pub(crate) fn place(&mut self) -> &mut Place {
        &mut self.place
    }

    /// Holds a token for each request that is yet to be answered.
    pub(crate) fn unanswered(&self) -> &TaskTracker {
        &self.open
    }

    /// What is yet to be answered, from now on.
    pub fn open(&self) -> Open {
        Open {
            requests: self.open.clone(),
            questions: Arc::clone(&self.unanswered),
        }
    }

    async fn line(&mut self, line: Line) {
        let depth = self.host.parts.json_depth;
        let line = match line {
            Line::Message(line) => line,
            Line::TooLong { id, answer } => return self.too_long(id, answer),
        };
        if !batch::is_batch(&line) || !self.has_batches() {
            return self.read_message(admit::parse(&line, depth)).await;
        }
        match admit::members(&line, depth) {
            // Each is answered by itself, as it would be alone.
            Ok(members) => {
                for (_, message) in members {
                    self.read_message(message).await;
                }
            }
            Err(refusal) => self.refuse_unread(&refusal.into()),
        }
    }

    fn has_batches(&self) -> bool {
        let session = self.place.session();
        session.is_some_and(|session| session.ticket.version == batch::VERSION)
    }

    async fn read_message(&mut self, message: Result<Message, Refused>) {
        match message {
            Ok(message) => self.take(message, Came::default()).await,
            Err(refused) => self.refuse_unread(&refused),
        }
    }

    /// Takes one message; what comes of it goes the way of all messages.
    pub(crate) async fn take(&mut self, message: Message, came: Came) {
        match message {
            Message::Request(request) if self.is_late(&request) => {
                return self.refuse_late(request, came);
            }
            Message::Request(request) => return self.request(request, came).await,
            Message::Notification(notification) => self.notification(&notification),
            Message::Response(Some(id), outcome) => self.place.answer(&id, outcome),
            Message::Response(None, _) => {}
        }
        if let Some(mut finish) = came.finish {
            finish.outcome("accepted");
        }
    }

    async fn request(&mut self, mut request: Request, came: Came) {
        let raw = request.params.remove(META);
        let bare = raw.is_none();
        let meta = RequestMeta::object(raw);
        let era = era::of(&request.method, &request.params, meta.as_ref().ok(), None);
        let asker = self.asker(came.request_id);
        let mut finish = came.finish.unwrap_or_else(|| self.record(&asker));
        let id = request.id.clone();
        let taken = match (era, meta) {
            (Era::Modern, meta) => {
                let meta = meta.unwrap_or_default();
                let begun = self.begin(&request, meta);
                begun
                    .inspect_err(|refusal| finish.refused(refusal))
                    .map(|(meta, slot)| {
                        let lane = Lane::new(&self.outbox, &self.open);
                        let out = (lane, Arc::clone(&self.unanswered));
                        let ends = (slot, self.given_up.clone());
                        modern::answer(&self.host, asker, (request, meta), ends, out, finish);
                    })
            }
            (Era::Legacy { .. }, Err(malformed)) if !bare => {
                let refusal = Refusal::Meta(malformed);
                finish.refused(&refusal);
                Err(refusal)
            }
            (Era::Legacy { requested }, meta) => {
                let meta = meta.unwrap_or_default();
                let lane = Lane::new(&self.outbox, &self.open);
                if self.host.parts.sessions.is_none() {
                    let requested = requested.unwrap_or_else(|| UNSAID.to_owned());
                    let refusal = Refusal::Legacy { requested };
                    finish.refused(&refusal);
                    Err(refusal)
                } else if request.method == method::INITIALIZE {
                    self.place.initialize(&request, &asker, lane, finish).await
                } else {
                    self.place.request(Incoming {
                        request,
                        meta,
                        asker,
                        hold: None,
                        outlet: Arc::new(lane),
                        asks: true,
                        cancelled: CancellationToken::new(),
                        permit: came.permit,
                        finish,
                    })
                }
            }
        };
        if let Err(refusal) = taken {
            self.refuse(&refusal.to(id));
        }
    }

    /// Whether it would begin work, and nothing begins any more.
    fn is_late(&self, request: &Request) -> bool {
        if !self.host.parts.draining.is_cancelled() {
            return false;
        }
        let Request { method, params, .. } = request;
        let meta = params.get(META).and_then(|raw| raw.as_object().ok());
        let era = era::of(method, params, meta.as_ref(), None);
        admit::begins(&era, method, params)
    }

    fn refuse_late(&self, request: Request, came: Came) {
        let asker = self.asker(came.request_id);
        let mut finish = came.finish.unwrap_or_else(|| self.record(&asker));
        let refusal = Refusal::NoRoom(NoRoom::Draining);
        finish.refused(&refusal);
        self.refuse(&refusal.to(request.id));
    }

    fn begin(&self, request: &Request, meta: Object) -> Result<(RequestMeta, Slot), Refusal> {
        if !self.host.parts.modern {
            return Err(Refusal::Modern {
                requested: meta.string(PROTOCOL_VERSION).unwrap_or_default(),
                probe: request.method == method::DISCOVER,
            });
        }
        let meta = admit::check_bare(&request.method, meta)?;
        Ok((meta, self.calls.begin(&request.id)?))
    }

    fn notification(&self, notification: &Notification) {
        if notification.method == method::CANCELLED {
            let id = notification.params.get("requestId").cloned();
            if let Some(Ok(id)) = id.map(Id::new) {
                self.calls.cancel(&id);
            }
        }
        self.place.notification(notification);
    }

    fn too_long(&self, id: Option<Id>, answer: bool) {
        let limit = self.host.parts.request_body;
        let refusal = Refusal::BodyTooLarge { limit };
        if !answer {
            return self.refuse_unread(&Refused { id, refusal });
        }
        // The question that it answers will get no other.
        if let Some(id) = id {
            let (_, error) = rescue::refusal(&refusal);
            self.place.answer(&id, Outcome::Error(error));
        }
    }

    fn refuse_unread(&self, refused: &Refused) {
        let mut finish = self.record(&self.asker(None));
        finish.refused(&refused.refusal);
        self.refuse(refused);
    }

    fn refuse(&self, refused: &Refused) {
        let (_, error) = rescue::refusal(&refused.refusal);
        let message = encode::error(refused.id.as_ref(), &error);
        self.outbox.post(Class::End, message);
    }

    fn asker(&self, request_id: Option<Arc<str>>) -> Asker {
        Asker {
            request_id: request_id.unwrap_or_else(|| Uuid::new_v4().to_string().into()),
            principal: self.host.principal.clone(),
            view: self.host.view.clone(),
            since: Instant::now(),
        }
    }

    fn record(&self, asker: &Asker) -> Finish {
        Finish::new(Arc::clone(&asker.request_id), asker.principal.clone())
    }
}

impl Open {
    /// Whether all requests are answered, and all that the host was asked in a result within
    /// `patience`.
    pub fn is_idle(&self, patience: Duration) -> bool {
        self.requests.is_empty() && self.questions.is_empty(patience)
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe")
            .field("in_flight", &self.open.len())
            .finish_non_exhaustive()
    }
}
