//! One session over Streamable HTTP (2025-03-26, 2025-06-18, 2025-11-25: transports).
//!
//! A session is two headers: no connection belongs to it, and none that ends takes it along.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use http::response::Parts;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use waypost_hub::upstream::BoxFuture;
use waypost_wire::id::Id;
use waypost_wire::message::{Message, Outcome};
use waypost_wire::sse::Item;

use super::doubted::{Found, Looked, Refusal};
use super::hearing;
use super::lost;
use super::place::Place;
use super::standing::transient;
use super::wire::{PROTOCOL_VERSION, SESSION_ID, SIDE_BY_SIDE, Wire, dismissed, version_header};
use crate::door;
use crate::ear::{Heard, SharedEar};
use crate::fault::Fault;
use crate::http::answer::{self, BodyKind};
use crate::http::frames::{Frames, drain};
use crate::http::pool::Lent;
use crate::legacy::link::Link;
use crate::legacy::outgrown;

/// How long the first requests wait for the server to have opened its own stream: what it says
/// there in the meantime is lost. Some servers send no head before they have something to say.
const STANDING: Duration = Duration::from_millis(500);

/// How long a server may take to end a session.
const FAREWELL: Duration = Duration::from_secs(2);

/// How often in a row a cut stream may fail to be opened again.
const RESUMPTIONS: u32 = 5;

/// Between two looks at a cut stream, whatever shorter time the server asks for.
const RESUME_LEAST: Duration = Duration::from_millis(100);

/// One session.
#[derive(Debug)]
pub(super) struct Streamable {
    session: Arc<Session>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) wire: Arc<Wire>,
    pub(super) ear: SharedEar,
    state: Mutex<State>,
    /// Held while it is found out whether the server still knows the session.
    pub(super) looked: tokio::sync::Mutex<Looked>,
    /// Whether requests need not wait for the server's own stream any more.
    pub(super) settled: watch::Sender<bool>,
    over: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing can be lost yet.
    #[default]
    Handshake,
    Open,
    Over,
}

// === impl Streamable ===

impl Streamable {
    pub(super) fn new(wire: &Arc<Wire>, ear: SharedEar) -> Self {
        Self {
            session: Arc::new(Session {
                wire: Arc::clone(wire),
                ear,
                state: Mutex::default(),
                looked: tokio::sync::Mutex::default(),
                settled: watch::Sender::new(false),
                over: CancellationToken::new(),
            }),
        }
    }
}

impl Drop for Streamable {
    fn drop(&mut self) {
        self.session.over.cancel();
    }
}

impl Link for Streamable {
    fn request(&self, id: u64, message: Bytes) -> BoxFuture<'_, Result<(), Fault>> {
        let session = Arc::clone(&self.session);
        let work = async move { session.exchange(id, message).await };
        Box::pin(self.session.wire.on_control(work))
    }

    fn tell(&self, message: Bytes) -> BoxFuture<'_, Result<(), Fault>> {
        let session = Arc::clone(&self.session);
        let work = async move { session.tell(message).await };
        Box::pin(self.session.wire.on_control(work))
    }

    fn side_by_side(&self) -> usize {
        SIDE_BY_SIDE
    }

    fn agreed(&self, protocol: &str) {
        self.session.state().version = version_header(protocol);
    }

    fn opened(&self) {
        self.session.state().stage = Stage::Open;
        let session = Arc::clone(&self.session);
        self.session.wire.tasks.spawn(|stop| async move {
            tokio::select! {
                () = session.keep_standing() => {}
                () = dismissed(&session.over, &stop, &*session.ear) => {}
            }
        });
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let session = Arc::clone(&self.session);
        Box::pin(async move {
            session.over.cancel();
            let Some(request) = session.farewell() else {
                return;
            };
            let wire = Arc::clone(&session.wire);
            let work = async move {
                // Whatever the answer is, 405 included: there is nothing left to do.
                let response = timeout(FAREWELL, wire.send(request)).await;
                if let Ok(Ok(response)) = response {
                    drain(response.into_body(), &wire.tasks);
                }
                Ok(())
            };
            drop(session.wire.on_control(work).await);
        })
    }
}

// === impl Session ===

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what makes a request one of this session; gives the name that it says.
    pub(super) fn sign(&self, request: &mut Request<Full<Bytes>>) -> Option<HeaderValue> {
        let state = self.state();
        let headers = request.headers_mut();
        if let Some(version) = &state.version {
            headers.insert(PROTOCOL_VERSION, version.clone());
        }
        if let Some(id) = &state.id {
            headers.insert(SESSION_ID, id.clone());
        }
        state.id.clone()
    }

    /// A request for the server's own stream, or for the rest of one that was cut, and whether it
    /// names a session.
    pub(super) fn get(&self, place: &Place) -> (Request<Full<Bytes>>, bool) {
        let mut request = self.wire.get();
        let named = self.sign(&mut request).is_some();
        place.mark(&mut request);
        (request, named)
    }

    /// The request that ends the session, once and where there is one.
    fn farewell(&self) -> Option<Request<Full<Bytes>>> {
        let mut request = self.wire.delete();
        let named = self.sign(&mut request);
        let mut state = self.state();
        state.stage = Stage::Over;
        state.id = None;
        named.is_some().then_some(request)
    }

    /// Nothing can be sent in this session any more.
    pub(super) fn lose(&self) -> Fault {
        let mut state = self.state();
        state.stage = Stage::Over;
        state.id = None;
        Fault::SessionLost
    }

    /// Whether nothing can be sent in it any more.
    pub(super) fn is_over(&self) -> bool {
        self.state().stage == Stage::Over
    }

    /// Lets a request pass when the session is there, after its own stream.
    async fn enter(&self) -> Result<Stage, Fault> {
        let stage = self.state().stage;
        match stage {
            Stage::Handshake => {}
            Stage::Over => return Err(Fault::SessionLost),
            Stage::Open => {
                let mut settled = self.settled.subscribe();
                if timeout(STANDING, settled.wait_for(|settled| *settled))
                    .await
                    .is_err()
                {
                    // Later requests need not find that out again.
                    self.settled.send_replace(true);
                }
            }
        }
        Ok(stage)
    }

    async fn exchange(self: &Arc<Self>, id: u64, message: Bytes) -> Result<(), Fault> {
        let stage = self.enter().await?;
        if !self.ear.sending(id) {
            return Ok(());
        }
        let mut request = self.wire.post(message);
        let named = self.sign(&mut request);
        let (head, body) = self.wire.send(request).await?.into_parts();
        let (status, headers) = (head.status, &head.headers);
        if stage == Stage::Handshake && status.is_success() {
            self.keep(headers);
        }
        let kind = BodyKind::of(headers);
        match (status.is_success(), kind) {
            (true, BodyKind::Events) => {
                return Box::pin(self.follow(id, named.as_ref(), body)).await;
            }
            (true, BodyKind::Other) => return Err(answer::content_type_fault(headers)),
            (true, BodyKind::Json) => {
                let body = answer::whole(body, self.wire.limit, status, headers).await?;
                return self.answered(id, named.as_ref(), &body, &head);
            }
            (false, _) => {}
        }
        let body = self.refusal(body, status, headers).await;
        if stage == Stage::Open && lost::refused(status, text(named.as_ref()), Some(id), &body) {
            return Err(self.lose());
        }
        let refusal = Refusal::of(status, &body).filter(Refusal::is_suspicious);
        if let (Stage::Open, Some(_), Some(refusal)) = (stage, &named, refusal)
            && Box::pin(self.look(&refusal)).await == Found::Refused
            && status == StatusCode::NOT_FOUND
        {
            return Err(Fault::SessionLost);
        }
        if kind != BodyKind::Json {
            return Err(answer::status_fault(status, headers));
        }
        self.answered(id, named.as_ref(), &body, &head)
    }

    async fn tell(&self, message: Bytes) -> Result<(), Fault> {
        let stage = self.state().stage;
        if stage == Stage::Over {
            return Err(Fault::SessionLost);
        }
        let mut request = self.wire.post(message);
        let named = self.sign(&mut request);
        let (head, body) = self.wire.send(request).await?.into_parts();
        if head.status.is_success() {
            drain(body, &self.wire.tasks);
            return Ok(());
        }
        let body = self.refusal(body, head.status, &head.headers).await;
        if stage == Stage::Open && lost::refused(head.status, text(named.as_ref()), None, &body) {
            return Err(self.lose());
        }
        Err(answer::status_fault(head.status, &head.headers))
    }

    /// The body of an error status, as far as it helps.
    pub(super) async fn refusal(
        &self,
        body: Lent,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Bytes {
        if BodyKind::of(headers) == BodyKind::Events {
            return Bytes::new();
        }
        let body = answer::whole(body, self.wire.limit, status, headers).await;
        body.unwrap_or_default()
    }

    /// Remembers the session that the answer to `initialize` names.
    fn keep(&self, headers: &HeaderMap) {
        let Some(id) = headers.get(SESSION_ID).filter(|id| !id.is_empty()) else {
            return;
        };
        let mut id = id.clone();
        id.set_sensitive(true);
        self.state().id = Some(id);
    }

    /// Hears a body that is not an event stream.
    fn answered(
        self: &Arc<Self>,
        id: u64,
        named: Option<&HeaderValue>,
        body: &Bytes,
        head: &Parts,
    ) -> Result<(), Fault> {
        let own = Id::number(id);
        let messages = hearing::messages(body);
        if messages.len() > 1 {
            let mut heard = false;
            for message in &messages {
                let outcome = hearing::of_request(&*self.ear, &self.wire.name, id, message)?;
                if let Some(outcome) = outcome {
                    return self.settle(id, named.filter(|_| !heard), outcome);
                }
                heard = true;
            }
            return Err(Fault::WrongAnswer);
        }
        let message = messages.first().unwrap_or(body);
        let outcome = answer::outcome(message, &own, head.status, &head.headers)?;
        let at_the_door = door::status_is_of_the_door(head.status);
        if matches!(&outcome, Outcome::Error(error) if outgrown::says_so(error, at_the_door)) {
            return Err(Fault::Modern);
        }
        self.settle(id, named.filter(|_| head.status.is_success()), outcome)
    }

    /// Hears the answer to request `id`. Where it is all that came of it, `session` is the one that
    /// the request named: only then it may say that there is none.
    fn settle(
        self: &Arc<Self>,
        id: u64,
        session: Option<&HeaderValue>,
        outcome: Outcome,
    ) -> Result<(), Fault> {
        if let Outcome::Error(error) = &outcome {
            let stage = self.state().stage;
            match stage {
                // A session id on an error is none.
                Stage::Handshake => self.state().id = None,
                // Also when another request has learned it meanwhile.
                Stage::Open | Stage::Over
                    if text(session).is_some_and(|id| lost::says_so(error, id)) =>
                {
                    return Err(self.lose());
                }
                Stage::Open | Stage::Over => {
                    let refusal = Refusal::of_outcome(&outcome).filter(Refusal::is_suspicious);
                    if let (Some(_), Some(refusal)) = (session, refusal) {
                        self.doubt(refusal);
                    }
                }
            }
        }
        let message = Message::Response(Some(Id::number(id)), outcome);
        let of = Some(id);
        self.ear.hear(Heard { message, of });
        Ok(())
    }

    /// Looks behind an answer whether the session is still there: the answer need not wait.
    fn doubt(self: &Arc<Self>, refusal: Refusal) {
        let session = Arc::clone(self);
        self.wire.tasks.spawn(|stop| async move {
            tokio::select! {
                _ = session.look(&refusal) => {}
                () = session.over.cancelled() => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Hears the stream of request `id` up to its answer, wherever it is cut.
    async fn follow(
        self: &Arc<Self>,
        id: u64,
        mut named: Option<&HeaderValue>,
        body: Lent,
    ) -> Result<(), Fault> {
        let mut frames = Frames::new(body, self.wire.limit);
        let mut place = Place::default();
        loop {
            let answer = self.until_answer(id, &mut frames, &mut place, &mut named);
            let cut = match answer.await {
                Ok(Some(outcome)) => {
                    frames.let_go(&self.wire.tasks);
                    return self.settle(id, named, outcome);
                }
                Ok(None) => Fault::NoEnd,
                Err(Fault::Closed) => Fault::Closed,
                Err(fault) => return Err(fault),
            };
            // What has a rest has begun.
            named = None;
            frames = self.resume(&mut place, cut).await?;
        }
    }

    /// `named` is taken with the first message that is no answer: then the call runs.
    async fn until_answer(
        &self,
        id: u64,
        frames: &mut Frames,
        place: &mut Place,
        named: &mut Option<&HeaderValue>,
    ) -> Result<Option<Outcome>, Fault> {
        let skips = |head: &[u8]| hearing::can_be_missed(head, id);
        while let Some(item) = frames.next_item(skips).await? {
            let event = match item {
                Item::Event(event) => event,
                Item::Oversized { event, head, .. } => {
                    place.note(&event);
                    hearing::missed(&*self.ear, &self.wire, &head);
                    *named = None;
                    continue;
                }
            };
            place.note(&event);
            for message in hearing::carried(&event) {
                let outcome = hearing::of_request(&*self.ear, &self.wire.name, id, &message)?;
                if outcome.is_some() {
                    return Ok(outcome);
                }
                *named = None;
            }
        }
        Ok(None)
    }

    /// Opens the rest of a stream that was cut, when the server said that there is one: it may
    /// close a connection and be asked again later (2025-11-25: transports, resumability).
    async fn resume(&self, place: &mut Place, cut: Fault) -> Result<Frames, Fault> {
        if !place.can_resume() {
            return Err(cut);
        }
        let mut failures = 0;
        loop {
            tokio::time::sleep(place.wait(RESUME_LEAST, failures > 0)).await;
            let (request, _) = self.get(place);
            match self.wire.events(request).await {
                Ok(frames) => return Ok(frames),
                Err(fault) if transient(&fault) && failures < RESUMPTIONS => failures += 1,
                // The call may have run: what refuses the rest of its answer is no lost session.
                Err(_) => return Err(cut),
            }
        }
    }
}

fn text(session: Option<&HeaderValue>) -> Option<&str> {
    session.map(|id| id.to_str().unwrap_or_default())
}
