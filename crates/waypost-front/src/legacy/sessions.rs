//! All client sessions of this process.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Principal, View};
use waypost_hub::keys::Keys;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::store::{SessionRecord, Store};

use crate::legacy::event;
use crate::legacy::session::{Begins, Hold, Session};
use crate::legacy::sse::Channel;
use crate::legacy::ticket::{Seals, Ticket};
use crate::refusal::Refusal;

/// How long the end of a session is remembered in memory: longer than opening one takes.
const JUST_ENDED: Duration = Duration::from_secs(60);

/// Ends in memory that may wait for the store: while it fails they stay, and clients come and go.
const MOST_UNSAVED: usize = 1 << 16;

/// What client sessions need to know.
#[derive(Clone, Debug)]
pub struct SessionParts {
    /// Seal session ids; replicas share them.
    pub keys: Keys,
    /// Where what clients set outlives a restart, and where the ends of sessions are kept.
    pub store: Arc<dyn Store>,
    /// Runs what belongs to no request.
    pub tasks: Tasks,
    /// Unused for so long, a session gives up what it holds; its id stays good.
    pub idle: Duration,
    /// Time in which a client must go on after `initialize`.
    pub handshake: Duration,
    /// Sessions that hold something at once.
    pub limit: usize,
    /// The endpoints whose clients get no session ids, to begin with: every request there stands
    /// alone.
    pub stateless: HashSet<View>,
    /// Longest wait for a client's answer to a question.
    pub answer_within: Duration,
}

/// The client sessions of one process; clones share them.
#[derive(Clone)]
pub struct Sessions(Arc<Inner>);

struct Inner {
    parts: SessionParts,
    seals: Seals,
    stateless: ArcSwap<HashSet<View>>,
    table: DashMap<u128, Arc<Session>>,
    ended: DashMap<u128, Ended>,
    /// The open streams of HTTP+SSE.
    channels: DashMap<u128, Arc<Channel>>,
    room: Arc<Semaphore>,
    draining: CancellationToken,
    given_up: CancellationToken,
}

/// The end of a session.
struct Ended {
    since: Instant,
    /// Under which it is yet to be stored: until then nothing but this keeps the id from opening.
    unsaved: Option<Arc<str>>,
}

impl Sessions {
    /// No sessions yet. What frees them when they are idle runs from here on.
    pub fn new(parts: SessionParts) -> Self {
        let sessions = Self(Arc::new(Inner {
            seals: Seals::new(&parts.keys),
            stateless: ArcSwap::from_pointee(parts.stateless.clone()),
            table: DashMap::new(),
            ended: DashMap::new(),
            channels: DashMap::new(),
            room: Arc::new(Semaphore::new(parts.limit.min(Semaphore::MAX_PERMITS))),
            draining: CancellationToken::new(),
            given_up: CancellationToken::new(),
            parts,
        }));
        let weak = Arc::downgrade(&sessions.0);
        let period = sessions.period();
        sessions.parts().tasks.spawn(|stop| async move {
            while stop
                .run_until_cancelled(tokio::time::sleep(period))
                .await
                .is_some()
            {
                let Some(inner) = weak.upgrade() else { return };
                let sessions = Self(inner);
                sessions.sweep();
                let saving = tokio::time::timeout(period, sessions.save_ends());
                stop.run_until_cancelled(saving).await;
            }
            if let Some(inner) = weak.upgrade() {
                Self(inner).free_all();
            }
        });
        sessions
    }

    /// Shutdown has begun: streams that have no end of their own get one.
    pub fn begin_drain(&self) {
        self.0.draining.cancel();
    }

    /// The time for calls in flight is over: their clients are told so.
    pub fn give_up_calls(&self) {
        self.0.given_up.cancel();
    }

    pub(crate) fn given_up(&self) -> &CancellationToken {
        &self.0.given_up
    }

    pub(crate) fn parts(&self) -> &SessionParts {
        &self.0.parts
    }

    /// Whether clients get no session ids at this endpoint.
    pub(crate) fn has_none(&self, view: &View) -> bool {
        self.0.stateless.load().contains(view)
    }

    /// From now on these are the endpoints whose clients get no session ids.
    pub fn set_stateless(&self, stateless: HashSet<View>) {
        self.0.stateless.store(Arc::new(stateless));
    }

    /// These callers are not let in any more, and these endpoints not there: what the sessions hold
    /// is given up.
    pub fn shut_out(&self, principals: &[Principal], views: &[View]) {
        if principals.is_empty() && views.is_empty() {
            return;
        }
        self.0.table.retain(|_, session| {
            let out = principals.contains(&session.principal) || views.contains(&session.view);
            if out {
                event::freed(session, "shut_out");
                session.free();
            }
            !out
        });
        let are_out =
            |who: &Principal, view: &View| principals.contains(who) || views.contains(view);
        // Their sessions are over already, and so are their calls.
        self.end_channels(are_out, Duration::ZERO);
    }

    /// There are no streams of HTTP+SSE any more: those that are open end once their calls are
    /// over, which may take `grace`.
    pub fn end_streams(&self, grace: Duration) {
        self.end_channels(|_, _| true, grace);
    }

    fn end_channels(&self, are_out: impl Fn(&Principal, &View) -> bool, grace: Duration) {
        self.0.channels.retain(|_, channel| {
            let (principal, view) = channel.whose();
            let out = are_out(principal, view);
            if out {
                channel.shut_out(grace);
            }
            !out
        });
    }

    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// Often enough that the shorter of the limits is kept within a quarter.
    fn period(&self) -> Duration {
        let parts = self.parts();
        let least = parts.idle.min(parts.handshake) / 4;
        least.clamp(Duration::from_millis(250), Duration::from_secs(30))
    }

    /// Opens a new session; gives its id.
    pub(crate) fn create(
        &self,
        ticket: Ticket,
        principal: &Principal,
        view: &View,
    ) -> Result<String, Refusal> {
        let id = self.0.seals.seal(&ticket, principal, view);
        let id = id.ok_or(Refusal::UnknownSession)?;
        let key = ticket.key;
        let who = (principal.clone(), view.clone());
        let permit = self.permit()?;
        let session = Session::new(ticket, who, Begins::New, permit);
        event::opened(&session, false);
        self.0.table.insert(key, session);
        Ok(id)
    }

    /// The open streams of HTTP+SSE, by key.
    pub(crate) fn channels(&self) -> &DashMap<u128, Arc<Channel>> {
        &self.0.channels
    }

    /// What names streams.
    pub(crate) fn seals(&self) -> &Seals {
        &self.0.seals
    }

    /// Opens a session that lives as long as one connection: it has no id that anybody could come
    /// back with. Its place is the one `reserved` for it.
    ///
    /// # Errors
    /// [`Refusal::TooManySessions`].
    pub(crate) fn attach(
        &self,
        ticket: Ticket,
        principal: &Principal,
        view: &View,
        reserved: Option<OwnedSemaphorePermit>,
    ) -> Result<Hold, Refusal> {
        let key = ticket.key;
        let who = (principal.clone(), view.clone());
        let permit = reserved.map_or_else(|| self.permit(), Ok)?;
        let session = Session::new(ticket, who, Begins::Attached, permit);
        let hold = session.enter().ok_or(Refusal::UnknownSession)?;
        event::opened(&session, false);
        self.0.table.insert(key, session);
        Ok(hold)
    }

    /// The connection of an attached session is over, and so is the session.
    pub(crate) fn detach(&self, hold: Hold) {
        let key = hold.session().ticket.key;
        drop(hold);
        self.close(key);
    }

    /// The session of an id, opened again where it is not open.
    ///
    /// # Errors
    /// [`Refusal::UnknownSession`] for an id that does not open, of another principal or
    /// endpoint, or that its client ended; [`Refusal::NoMemory`] when nobody can say whether it
    /// did; [`Refusal::TooManySessions`].
    pub(crate) async fn find(
        &self,
        id: &str,
        principal: &Principal,
        view: &View,
    ) -> Result<Hold, Refusal> {
        let ticket = self.0.seals.open(id, principal, view);
        let ticket = ticket.ok_or(Refusal::UnknownSession)?;
        if let Some(hold) = self.entered(ticket.key) {
            return Ok(hold);
        }
        self.reopen(ticket, principal, view).await
    }

    fn entered(&self, key: u128) -> Option<Hold> {
        let session = self.0.table.get(&key).map(|found| Arc::clone(&found))?;
        session.enter()
    }

    async fn reopen(
        &self,
        ticket: Ticket,
        principal: &Principal,
        view: &View,
    ) -> Result<Hold, Refusal> {
        let key = ticket.key;
        let record = self.record(&ticket).await?;
        // Others may be at it too: the first one's session counts.
        if let Some(hold) = self.entered(key) {
            return Ok(hold);
        }
        let permit = self.permit()?;
        let confirmed = u128::from(ticket.age_ms()) > self.0.parts.handshake.as_millis();
        let who = (principal.clone(), view.clone());
        let begins = Begins::Again { record, confirmed };
        let new = Session::new(ticket, who, begins, permit);
        event::opened(&new, true);
        let hold = match self.0.table.entry(key) {
            dashmap::Entry::Vacant(place) => {
                place.insert(Arc::clone(&new));
                new.enter()
            }
            dashmap::Entry::Occupied(mut place) => match place.get().enter() {
                Some(hold) => Some(hold),
                None => {
                    place.insert(Arc::clone(&new));
                    new.enter()
                }
            },
        };
        if self.0.ended.contains_key(&key) {
            self.close(key);
            return Err(Refusal::UnknownSession);
        }
        hold.ok_or(Refusal::UnknownSession)
    }

    /// What is remembered of a session that is not open.
    ///
    /// # Errors
    /// [`Refusal::UnknownSession`] for one that its client ended; [`Refusal::NoMemory`] when
    /// nobody can say whether it did.
    async fn record(&self, ticket: &Ticket) -> Result<SessionRecord, Refusal> {
        let is_ended = || self.0.ended.contains_key(&ticket.key);
        if is_ended() {
            return Err(Refusal::UnknownSession);
        }
        let record = self.0.parts.store.session(&ticket.name()).await;
        let record = record.map_err(|error| {
            // Its client may have ended it.
            event::not_read(&error);
            Refusal::NoMemory
        })?;
        let record = record.unwrap_or_default();
        if record.ended || is_ended() {
            return Err(Refusal::UnknownSession);
        }
        Ok(record)
    }

    /// A place among the sessions that may be open.
    ///
    /// # Errors
    /// [`Refusal::TooManySessions`].
    pub(crate) fn permit(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let room = Arc::clone(&self.0.room);
        room.try_acquire_owned()
            .map_err(|_| Refusal::TooManySessions)
    }

    /// The client ends its session: the id never opens again. What cannot be stored now is stored
    /// later. One that holds nothing at the moment needs no place for that.
    ///
    /// # Errors
    /// As [`Sessions::find`], except for want of room; [`Refusal::NoMemory`] also when too many
    /// ends could not be stored already.
    pub(crate) async fn end(
        &self,
        id: &str,
        principal: &Principal,
        view: &View,
    ) -> Result<(), Refusal> {
        let ticket = self.0.seals.open(id, principal, view);
        let ticket = ticket.ok_or(Refusal::UnknownSession)?;
        if self.entered(ticket.key).is_none() {
            self.record(&ticket).await?;
        }
        let (key, name): (_, Arc<str>) = (ticket.key, ticket.name().into());
        let ended = Ended {
            since: Instant::now(),
            unsaved: Some(Arc::clone(&name)),
        };
        self.0.ended.insert(key, ended);
        self.close(key);
        if !self.save_end(key, &name).await && self.0.ended.len() > MOST_UNSAVED {
            self.0.ended.remove(&key);
            return Err(Refusal::NoMemory);
        }
        Ok(())
    }

    /// Stores the end of one session; whether that worked.
    async fn save_end(&self, key: u128, name: &str) -> bool {
        let record = SessionRecord {
            ended: true,
            ..SessionRecord::default()
        };
        if let Err(error) = self.0.parts.store.save_session(name, record).await {
            event::end_not_stored(&error);
            return false;
        }
        if let Some(mut ended) = self.0.ended.get_mut(&key) {
            ended.unsaved = None;
        }
        true
    }

    /// Stores the ends that could not be stored before, as far as that works now.
    async fn save_ends(&self) {
        let ended = self.0.ended.iter();
        let unsaved = ended.filter_map(|ended| Some((*ended.key(), ended.unsaved.clone()?)));
        let unsaved: Vec<_> = unsaved.collect();
        for (key, name) in unsaved {
            if !self.save_end(key, &name).await {
                return;
            }
        }
    }

    fn close(&self, key: u128) {
        let removed = self.0.table.remove(&key);
        if let Some((_, session)) = removed {
            event::freed(&session, "ended");
            session.free();
        }
    }

    /// Keeps what a session set.
    pub(crate) async fn save(&self, session: &Session) {
        if !session.is_kept() {
            return;
        }
        let saved = self
            .0
            .parts
            .store
            .save_session(&session.name, session.record());
        if let Err(error) = saved.await {
            event::not_stored(&error);
        }
    }

    fn sweep(&self) {
        let parts = self.parts();
        self.0.table.retain(|_, session| {
            let idle = session.free_if_idle(parts.idle, parts.handshake);
            if idle {
                event::freed(session, "idle");
            }
            !idle
        });
        self.0
            .ended
            .retain(|_, ended| ended.unsaved.is_some() || ended.since.elapsed() < JUST_ENDED);
    }

    fn free_all(&self) {
        self.0.table.retain(|_, session| {
            session.free();
            false
        });
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("open", &self.0.table.len())
            .finish_non_exhaustive()
    }
}
