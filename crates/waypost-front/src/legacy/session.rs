//! One client session: what is in flight in it, and what its client set.
//!
//! Knows no transport. Messages go out through [`Outlet`](crate::outlet::Outlet)s; who
//! carries them here calls [`Session::begin`], [`Session::cancel`] and [`Session::answer`].

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Principal, Session as CallSession, View};
use waypost_hub::error::CallError;
use waypost_hub::store::SessionRecord;
use waypost_wire::id::Id;
use waypost_wire::message::Outcome;
use waypost_wire::raw::Raw;

use crate::in_flight::{self, InFlight};
use crate::legacy::event::OpenSession;
use crate::legacy::outside::Client;
use crate::legacy::ring::{self, Ring};
use crate::legacy::ticket::Ticket;
use crate::legacy::wishes::Resources;
use crate::outlet::Outlet;
use crate::refusal::Refusal;

/// Streams that ended and can still be read again, and their bytes together.
const MOST_ENDED: usize = 16;
const MOST_ENDED_BYTES: usize = 4 << 20;
/// For so long; what was read to its end most likely arrived.
const ENDED_KEPT: Duration = Duration::from_secs(5 * 60);
const READ_KEPT: Duration = Duration::from_secs(30);

/// Log messages from here on are sent to a client that never said which it wants.
const DEFAULT_LEVEL: &str = "info";

/// A client session while it holds something.
pub(crate) struct Session {
    pub(crate) ticket: Ticket,
    pub(crate) principal: Principal,
    pub(crate) view: View,
    /// Under which it is stored.
    pub(crate) name: Arc<str>,
    /// Tells the streams of this life of the session from those of an earlier one.
    pub(crate) mark: u32,
    /// What belongs to no request: changes of lists and resources.
    pub(crate) standing: Arc<Ring>,
    /// Counts changes of what the client wants to hear.
    pub(crate) wishes: watch::Sender<u64>,
    /// What is listened to, and as of which count of wishes.
    pub(crate) heard: watch::Sender<Heard>,
    released: CancellationToken,
    for_calls: CallSession,
    calls: InFlight,
    state: Mutex<State>,
    /// Its id may be brought back, also to another process.
    is_kept: bool,
    _open: OpenSession,
}

/// What the hub acknowledged of the client's wishes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) count: u64,
    pub(crate) resources: Vec<String>,
    /// Why nothing is heard.
    pub(crate) failed: Option<Arc<CallError>>,
}

/// What a session begins as.
#[derive(Debug)]
pub(crate) enum Begins {
    /// Its client is yet to go on after `initialize`.
    New,
    /// Its id was brought back, with what it had set. `confirmed` says that its client went on.
    Again {
        record: SessionRecord,
        confirmed: bool,
    },
    /// It lives as long as one connection, and has no id.
    Attached,
}

struct State {
    closed: bool,
    confirmed: bool,
    listening: bool,
    used: Instant,
    holds: usize,
    level: Option<String>,
    resources: Resources,
    questions: HashMap<Id, oneshot::Sender<Outcome>>,
    /// The client can answer no question any more.
    mute: bool,
    next_question: u64,
    streams: BTreeMap<u64, Arc<Ring>>,
    /// Streams of calls in flight on which the client can be asked.
    asking: Vec<(u64, Arc<dyn Outlet>)>,
    next_asking: u64,
    next_stream: u64,
    _permit: OwnedSemaphorePermit,
}

/// Keeps a session from being freed.
pub(crate) struct Hold(Arc<Session>);

/// A request in flight: its id is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    place: in_flight::Slot,
    pub(crate) hold: Hold,
}

/// A stream of a call on which the client can be asked.
pub(crate) struct AsksOn {
    session: Arc<Session>,
    number: u64,
}

impl Drop for AsksOn {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        state.asking.retain(|(number, _)| *number != self.number);
    }
}

/// A question to the client; dropped, an answer that still comes is ignored.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) id: Id,
    /// The same as a number, which no other of this session has.
    pub(crate) number: u64,
    pub(crate) answer: oneshot::Receiver<Outcome>,
    pub(crate) session: Arc<Session>,
}

// === impl Session ===

impl Session {
    /// A session that nothing happened in yet. `permit` is its place among those that may be open.
    pub(crate) fn new(
        ticket: Ticket,
        (principal, view): (Principal, View),
        begins: Begins,
        permit: OwnedSemaphorePermit,
    ) -> Arc<Self> {
        let is_kept = !matches!(begins, Begins::Attached);
        let (record, confirmed) = match begins {
            Begins::New => (SessionRecord::default(), false),
            Begins::Again { record, confirmed } => (record, confirmed),
            Begins::Attached => (SessionRecord::default(), false),
        };
        let released = CancellationToken::new();
        let mark: u32 = rand::random();
        let name = ticket.name();
        let for_calls = if ticket.tells_roots {
            CallSession::with_roots(&name, released.clone())
        } else {
            CallSession::new(&name, released.clone())
        };
        Arc::new_cyclic(|this| Self {
            name: name.into(),
            for_calls: for_calls
                .declaring(ticket.capabilities.clone())
                .asked_by(Arc::new(Client(Weak::clone(this)))),
            mark,
            ticket,
            principal,
            view,
            standing: Ring::new(),
            wishes: watch::channel(1).0,
            heard: watch::channel(Heard::default()).0,
            calls: InFlight::until(released.clone()),
            released,
            state: Mutex::new(State {
                closed: false,
                confirmed,
                listening: false,
                used: Instant::now(),
                holds: 0,
                level: record.log_level,
                resources: Resources::new(record.resources),
                questions: HashMap::new(),
                mute: false,
                // A late answer to a question of an earlier life must not pass for another's.
                next_question: u64::from(mark) << 16 | 1,
                streams: BTreeMap::new(),
                asking: Vec::new(),
                next_asking: 0,
                next_stream: 1,
                _permit: permit,
            }),
            is_kept,
            _open: OpenSession::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the session; `None` once it was freed.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Hold> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.holds += 1;
        state.used = Instant::now();
        Some(Hold(Arc::clone(self)))
    }

    /// The client went on after `initialize`.
    pub(crate) fn confirm(&self) {
        self.lock().confirmed = true;
    }

    /// Whether the client went on after `initialize`.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.lock().confirmed
    }

    /// Frees it when nothing happens in it and nothing happened for long. Whether it is free.
    pub(crate) fn free_if_idle(&self, idle: Duration, handshake: Duration) -> bool {
        let mut state = self.lock();
        let limit = if state.confirmed { idle } else { handshake };
        if !state.closed && (state.holds > 0 || state.used.elapsed() < limit) {
            state.prune();
            return false;
        }
        // Under the lock of the check: who enters in between must not hold what is freed.
        state.close();
        drop(state);
        self.release();
        true
    }

    /// Gives up everything: calls in flight, questions, streams, what servers keep for it.
    pub(crate) fn free(&self) {
        self.lock().close();
        self.release();
    }

    /// The stream of a call is its own to end: its last message says why.
    fn release(&self) {
        self.released.cancel();
        self.standing.close();
    }

    /// Whether what its client sets is to outlive it.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Fires when it is freed.
    pub(crate) fn released(&self) -> &CancellationToken {
        &self.released
    }

    /// How calls name it.
    pub(crate) fn for_call(&self) -> CallSession {
        self.for_calls.clone()
    }

    // --- requests of the client ---

    /// Takes the id of a request.
    ///
    /// # Errors
    /// [`Refusal::DuplicateId`] while another with this id is in flight,
    /// [`Refusal::SessionBusy`] when there are too many, [`Refusal::UnknownSession`] once the
    /// session was freed.
    pub(crate) fn begin(hold: Hold, id: &Id) -> Result<Slot, Refusal> {
        if hold.0.lock().closed {
            return Err(Refusal::UnknownSession);
        }
        let place = hold.0.calls.begin(id)?;
        // Some leave the confirmation out.
        hold.0.confirm();
        Ok(Slot { place, hold })
    }

    /// Gives up a request; one that is over, or never was, is no error.
    pub(crate) fn cancel(&self, id: &Id) {
        self.calls.cancel(id);
    }

    // --- questions to the client ---

    /// A new question, with an id of our own.
    pub(crate) fn ask(self: &Arc<Self>) -> Question {
        let (sender, answer) = oneshot::channel();
        let mut state = self.lock();
        let number = state.next_question;
        let id = Id::number(number);
        state.next_question += 1;
        // Where no answer can come the sender goes at once, and so does the wait.
        if !state.closed && !state.mute {
            state.questions.insert(id.clone(), sender);
        }
        drop(state);
        Question {
            id,
            number,
            answer,
            session: Arc::clone(self),
        }
    }

    /// Where else a question reaches the client that belongs on this stream, which nobody reads.
    pub(crate) fn reaching(&self, stream: &Arc<dyn Outlet>) -> Option<Arc<dyn Outlet>> {
        if stream.is_read() {
            None
        } else {
            self.reachable()
        }
    }

    /// Where a question reaches the client that belongs on no stream.
    pub(crate) fn reachable(&self) -> Option<Arc<dyn Outlet>> {
        if Outlet::is_read(&*self.standing) {
            return Some(Arc::clone(&self.standing) as Arc<dyn Outlet>);
        }
        let state = self.lock();
        let mut streams = state.asking.iter().map(|(_, outlet)| outlet);
        let stream = streams.find(|outlet| outlet.is_read())?;
        Some(stream.whole().unwrap_or_else(|| Arc::clone(stream)))
    }

    /// The client can be asked on this stream until the result is dropped.
    pub(crate) fn asks_on(self: &Arc<Self>, outlet: &Arc<dyn Outlet>) -> AsksOn {
        let mut state = self.lock();
        let number = state.next_asking;
        state.next_asking += 1;
        state.asking.push((number, Arc::clone(outlet)));
        AsksOn {
            session: Arc::clone(self),
            number,
        }
    }

    /// Takes the client's answer to a question; `false` when nobody waits for it.
    pub(crate) fn answer(&self, id: &Id, outcome: Outcome) -> bool {
        let question = self.lock().questions.remove(id);
        question.is_some_and(|question| question.send(outcome).is_ok())
    }

    /// The client can answer no more: questions that are open, or still come, are answered by
    /// nobody.
    pub(crate) fn give_up_questions(&self) {
        let mut state = self.lock();
        state.mute = true;
        state.questions.clear();
    }

    // --- what the client set ---

    /// The least level of log messages that calls ask for.
    pub(crate) fn log_level(&self) -> Raw {
        let state = self.lock();
        Raw::string(state.level.as_deref().unwrap_or(DEFAULT_LEVEL))
    }

    pub(crate) fn set_log_level(&self, level: &str) {
        self.lock().level = Some(level.to_owned());
    }

    /// The resources that the client wants to hear of.
    pub(crate) fn resources(&self) -> Vec<String> {
        self.lock().resources.all().to_vec()
    }

    /// Looks at them, or notes what nobody listens otherwise for.
    pub(crate) fn with_resources<T>(&self, look: impl FnOnce(&mut Resources) -> T) -> T {
        look(&mut self.lock().resources)
    }

    /// Changes them, where `change` says that it did; the count of wishes that the change made.
    pub(crate) fn wish(&self, change: impl FnOnce(&mut Resources) -> bool) -> Option<u64> {
        self.with_resources(change).then(|| {
            self.wishes.send_modify(|count| *count += 1);
            *self.wishes.borrow()
        })
    }

    /// What is to be remembered of it.
    pub(crate) fn record(&self) -> SessionRecord {
        let state = self.lock();
        SessionRecord {
            log_level: state.level.clone(),
            resources: state.resources.standing(),
            ended: false,
        }
    }

    /// Whether the caller is to begin listening: the client wants to hear of something, and
    /// nobody listens yet.
    pub(crate) fn begin_listening(&self) -> bool {
        let mut state = self.lock();
        !state.closed && !std::mem::replace(&mut state.listening, true)
    }

    /// Whether listening goes on; asked when nobody reads what comes.
    pub(crate) fn end_listening(&self) -> bool {
        let mut state = self.lock();
        if !state.closed && (self.standing.is_attached() || !state.resources.all().is_empty()) {
            return false;
        }
        state.listening = false;
        true
    }

    // --- streams ---

    /// Makes a stream one that can be read again, under the number given.
    pub(crate) fn expose(&self, ring: &Arc<Ring>) -> u64 {
        let mut state = self.lock();
        state.prune();
        let number = state.next_stream;
        state.next_stream += 1;
        state.streams.insert(number, Arc::clone(ring));
        number
    }

    /// The stream with this number; 0 is the standing one.
    pub(crate) fn stream(&self, number: u64) -> Option<Arc<Ring>> {
        if number == 0 {
            return Some(Arc::clone(&self.standing));
        }
        self.lock().streams.get(&number).cloned()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("version", &self.ticket.version)
            .finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    /// Nothing enters from here on.
    fn close(&mut self) {
        self.closed = true;
        self.questions.clear();
        self.streams.clear();
    }

    /// Forgets streams that ended long ago, and the oldest of those that are too many.
    fn prune(&mut self) {
        let scarce = ring::is_scarce();
        let (mut count, mut bytes) = (0, 0);
        let mut gone = Vec::new();
        for (number, ring) in self.streams.iter().rev() {
            let Some(ended) = ring.ended() else { continue };
            count += 1;
            bytes += ring.bytes();
            let many = count > MOST_ENDED || (count > 1 && bytes > MOST_ENDED_BYTES);
            let kept = if ring.is_taken() {
                READ_KEPT
            } else {
                ENDED_KEPT
            };
            if (many || scarce || ended.elapsed() > kept) && !ring.is_attached() {
                gone.push(*number);
            }
        }
        for number in gone {
            self.streams.remove(&number);
        }
    }
}

// === impl Hold ===

impl Hold {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        self.0.lock().holds += 1;
        Self(Arc::clone(&self.0))
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold(..)")
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.holds = state.holds.saturating_sub(1);
        state.used = Instant::now();
    }
}

// === impl Slot ===

impl Slot {
    /// The version that its session agreed on.
    pub(crate) fn version(&self) -> &str {
        &self.hold.0.ticket.version
    }

    /// Fires when the request is given up.
    pub(crate) fn cancelled(&self) -> &CancellationToken {
        self.place.cancelled()
    }
}

// === impl Question ===

impl Drop for Question {
    fn drop(&mut self) {
        self.session.lock().questions.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;
    use waypost_wire::capability::ClientCapabilities;

    use super::*;

    fn session() -> Arc<Session> {
        let room = Arc::new(Semaphore::new(1));
        let ticket = Ticket::new("2025-11-25", ClientCapabilities::default(), None);
        let who = (Principal::anonymous(), View::All);
        let permit = room.try_acquire_owned().unwrap();
        Session::new(ticket, who, Begins::Attached, permit)
    }

    #[test]
    fn what_was_entered_is_not_freed_for_idleness() {
        for _ in 0..100 {
            let session = session();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !session.free_if_idle(Duration::ZERO, Duration::ZERO) {
                        std::thread::yield_now();
                    }
                });
                for _ in 0..20 {
                    let Some(hold) = session.enter() else { break };
                    std::thread::yield_now();
                    assert!(!session.released().is_cancelled(), "freed while it is held");
                    drop(hold);
                }
            });
        }
    }
}
