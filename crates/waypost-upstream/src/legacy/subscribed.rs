//! The resources that a session is subscribed to, each once however many listen to it.
//!
//! Each has a task of its own that asks the server, so that one which is not answered holds up no
//! other, and whoever asked may leave before the answer.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{AcquireError, Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};
use waypost_hub::backoff::Backoff;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Outcome;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::session::Session;
use crate::fault::Fault;

/// Resources of one session; further ones are refused.
const MOST: usize = 8_192;

/// Requests of one lane that are asked at once.
const SIDE_BY_SIDE: usize = 16;

/// Requests of one lane that are not answered yet, be their turn over or not. Over HTTP each has a
/// connection.
const UNANSWERED: usize = 24;

/// Those that take back what is wanted no more.
const ENDINGS: usize = 8;

/// One that takes longer makes room for another, and its answer is waited for all the same.
const TURN: Duration = Duration::from_secs(5);

/// One that nobody waits for any more is given up after this, as is one that others need the place
/// of; looked at so often. The server may have subscribed, which is taken back.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_secs(1);

/// A request that is not answered by then is asked again; the server may have lost it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// What failed is asked again after this, and after twice as long each further time.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// All of one session.
#[derive(Debug)]
pub(crate) struct Subscribed {
    all: Mutex<HashMap<String, Arc<Entry>>>,
    /// Those whose answer somebody waits for, those that were not asked before, and those that were
    /// and failed: one lane does not hold up another.
    lanes: [Lane; 3],
    endings: Semaphore,
}

/// Requests that wait for each other.
#[derive(Debug)]
struct Lane {
    turns: Semaphore,
    room: Semaphore,
    queue: AtomicUsize,
}

/// What a request is that nobody waits for.
#[derive(Clone, Copy, Debug)]
enum Rank {
    /// It was not asked before.
    Fresh,
    /// It was, and failed.
    Again,
}

#[derive(Debug)]
struct Entry {
    /// How many listen.
    wanted: watch::Sender<usize>,
    /// What came of the last request, once that is known.
    said: watch::Sender<Option<Said>>,
    /// Somebody waits for an answer, and would not for the backoff.
    hurry: Notify,
    is_awaited: AtomicBool,
}

/// What came of asking the server.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Agreed,
    /// Asked again only where the server may agree later, see [`is_final`].
    Refused(ErrorObject),
    /// It is asked again for as long as anybody listens.
    Failed(Fault),
}

/// One listener's part. Dropped, it is one listener less.
#[derive(Debug)]
pub(crate) struct Subscription {
    session: Arc<Session>,
    entry: Arc<Entry>,
}

/// What one request has of the bounds; the semaphores are never closed.
struct Turn<'a> {
    lane: &'a Lane,
    turn: Result<SemaphorePermit<'a>, AcquireError>,
    _room: Result<SemaphorePermit<'a>, AcquireError>,
}

impl Entry {
    fn new(said: Option<Said>) -> Self {
        Self {
            wanted: watch::Sender::new(1),
            said: watch::Sender::new(said),
            hurry: Notify::new(),
            is_awaited: AtomicBool::new(false),
        }
    }
}

impl Default for Subscribed {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            lanes: std::array::from_fn(|_| Lane::new()),
            endings: Semaphore::new(ENDINGS),
        }
    }
}

impl Lane {
    fn new() -> Self {
        Self {
            turns: Semaphore::new(SIDE_BY_SIDE),
            room: Semaphore::new(UNANSWERED),
            queue: AtomicUsize::new(0),
        }
    }

    async fn turn(&self) -> Turn<'_> {
        let _queues = Queues::new(&self.queue);
        let room = self.room.acquire().await;
        let turn = self.turns.acquire().await;
        Turn {
            turn,
            _room: room,
            lane: self,
        }
    }
}

/// One who queues.
struct Queues<'a>(&'a AtomicUsize);

impl<'a> Queues<'a> {
    fn new(queue: &'a AtomicUsize) -> Self {
        queue.fetch_add(1, Ordering::Relaxed);
        Self(queue)
    }
}

impl Drop for Queues<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Subscribed {
    /// Subscribes to a resource for one more listener. One that `awaits` what is said of it is
    /// not told of an earlier failure.
    pub(crate) fn add(session: &Arc<Session>, uri: &str, awaits: bool) -> Subscription {
        let mut all = session.subscribed.all();
        let entry = if let Some(entry) = all.get(uri) {
            entry.wanted.send_modify(|count| *count += 1);
            if awaits {
                let is_over =
                    |said: &Option<Said>| matches!(said, Some(Said::Failed(_) | Said::Refused(_)));
                entry.said.send_if_modified(|said| {
                    let is_over = is_over(said);
                    if is_over {
                        *said = None;
                    }
                    is_over
                });
                entry.is_awaited.store(true, Ordering::Relaxed);
                entry.hurry.notify_one();
            }
            Arc::clone(entry)
        } else if all.len() >= MOST {
            let text = format!("more than {MOST} subscriptions in one session");
            let error = ErrorObject::new(code::INTERNAL_ERROR, &text);
            Arc::new(Entry::new(Some(Said::Refused(error))))
        } else {
            let entry = Arc::new(Entry::new(None));
            entry.is_awaited.store(awaits, Ordering::Relaxed);
            all.insert(uri.to_owned(), Arc::clone(&entry));
            let (kept, kept_entry) = (Arc::clone(session), Arc::clone(&entry));
            let uri = uri.to_owned();
            let keeps = async move { kept.subscribed.keep(&kept, &kept_entry, &uri).await };
            Arc::clone(session).spawn(keeps);
            entry
        };
        drop(all);
        Subscription {
            session: Arc::clone(session),
            entry,
        }
    }

    /// Asks for one resource for as long as anybody listens.
    async fn keep(&self, session: &Session, entry: &Entry, uri: &str) {
        let mut again = Backoff::new(AGAIN_FIRST, AGAIN_MOST);
        let mut rank = Rank::Fresh;
        loop {
            let turn = self.wanted_turn(entry, rank).await;
            let Some(turn) = turn else {
                if self.forget(entry, uri) {
                    return;
                }
                continue;
            };
            let said = match self.subscribe(session, entry, uri, turn).await {
                Ok(Outcome::Result(_)) => Said::Agreed,
                Ok(Outcome::Error(error)) => Said::Refused(error),
                Err(fault) => Said::Failed(fault),
            };
            rank = Rank::Again;
            entry.is_awaited.store(false, Ordering::Relaxed);
            let is_over = matches!(&said, Said::Refused(error) if is_final(error));
            if is_over {
                // The next who wants it asks anew.
                self.all().remove(uri);
            }
            if matches!(said, Said::Failed(Fault::SessionLost)) {
                // Whoever listens does so in the next one.
                session.retire();
            }
            let failed = !matches!(said, Said::Agreed);
            let refused = matches!(said, Said::Refused(_));
            entry.said.send_replace(Some(said));
            if is_over {
                return;
            }
            if self.lasts(entry, failed.then(|| again.failed())).await {
                continue;
            }
            // Also where it did not answer: it may have subscribed.
            if !refused {
                drop(self.unsubscribe(session, uri).await);
            }
            if self.forget(entry, uri) {
                return;
            }
            // Somebody came meanwhile.
            again.reset();
            rank = Rank::Fresh;
        }
    }

    /// A turn; `None` for one that nobody listens to any more: who leaves before its turn causes
    /// nothing.
    async fn wanted_turn(&self, entry: &Entry, rank: Rank) -> Option<Turn<'_>> {
        tokio::select! {
            biased;
            () = self.until_unwanted(entry) => None,
            turn = self.turn(entry, rank) => Some(turn),
        }
    }

    /// Waits until nobody listens, or until it is time to ask again, which is `true`.
    async fn lasts(&self, entry: &Entry, pause: Option<Duration>) -> bool {
        let wait = async {
            let Some(pause) = pause else {
                return std::future::pending().await;
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = entry.hurry.notified() => {}
            }
        };
        tokio::select! {
            biased;
            () = self.until_unwanted(entry) => false,
            () = wait => {
                entry.said.send_replace(None);
                true
            }
        }
    }

    /// Forgets one that nobody listens to; `false` when somebody does.
    fn forget(&self, entry: &Entry, uri: &str) -> bool {
        let mut all = self.all();
        let is_unwanted = *entry.wanted.borrow() == 0;
        if is_unwanted {
            all.remove(uri);
        }
        is_unwanted
    }

    /// Resolves when nobody listens; who comes from then on waits for what is asked next.
    async fn until_unwanted(&self, entry: &Entry) {
        let mut wanted = entry.wanted.subscribe();
        loop {
            drop(wanted.wait_for(|count| *count == 0).await);
            let _all = self.all();
            if *entry.wanted.borrow() == 0 {
                entry.said.send_replace(None);
                return;
            }
        }
    }

    /// Waits for a turn; who waits for the answer from now on need not wait in another lane.
    async fn turn(&self, entry: &Entry, rank: Rank) -> Turn<'_> {
        let [awaited, fresh, again] = &self.lanes;
        loop {
            let lane = match rank {
                _ if entry.is_awaited.load(Ordering::Relaxed) => return awaited.turn().await,
                Rank::Fresh => fresh,
                Rank::Again => again,
            };
            tokio::select! {
                biased;
                turn = lane.turn() => return turn,
                () = entry.hurry.notified() => {}
            }
        }
    }

    async fn subscribe(
        &self,
        session: &Session,
        entry: &Entry,
        uri: &str,
        turn: Turn<'_>,
    ) -> Result<Outcome, Fault> {
        let Turn { turn, _room, lane } = turn;
        let params = Object::from_iter([("uri", Raw::string(uri))]);
        let asked = session.ask_within("resources/subscribe", &params, ANSWERED_WITHIN);
        let mut asked = pin!(asked);
        if let Ok(answer) = timeout(TURN, &mut asked).await {
            return answer;
        }
        drop(turn);
        tokio::select! {
            answer = asked => answer,
            () = outstayed(entry, lane) => Err(Fault::Late(PATIENCE)),
        }
    }

    async fn unsubscribe(&self, session: &Session, uri: &str) -> Result<Outcome, Fault> {
        let _turn = self.endings.acquire().await;
        let params = Object::from_iter([("uri", Raw::string(uri))]);
        session.ask("resources/unsubscribe", &params).await
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a server that refuses so will not agree later either.
pub(crate) fn is_final(error: &ErrorObject) -> bool {
    matches!(
        error.code(),
        code::METHOD_NOT_FOUND | code::INVALID_PARAMS | code::FORMER_RESOURCE_NOT_FOUND
    )
}

/// Resolves when a request whose turn is over has had its place for long enough.
async fn outstayed(entry: &Entry, lane: &Lane) {
    let since = Instant::now();
    let mut left = None;
    loop {
        sleep(LOOK).await;
        match *entry.wanted.borrow() {
            0 => left = left.or_else(|| Some(Instant::now())),
            _ => left = None,
        }
        let is_needed = lane.queue.load(Ordering::Relaxed) > 0;
        let is_over = |since: Instant| since.elapsed() >= PATIENCE;
        if left.is_some_and(|left| is_needed || is_over(left)) || (is_needed && is_over(since)) {
            return;
        }
    }
}

impl Subscription {
    /// What comes of the request that is open or was the last; [`Fault::Forgotten`] when nothing
    /// will.
    pub(crate) async fn said(&self) -> Said {
        let mut said = self.entry.said.subscribe();
        let known = said.wait_for(Option::is_some);
        let gone = Said::Failed(Fault::Forgotten);
        tokio::select! {
            known = known => known.map_or(None, |known| known.clone()).unwrap_or(gone),
            () = self.session.table.went() => gone,
        }
    }

    /// How the server refuses, or that it agrees; pending while it cannot be asked. With `in_the_end`
    /// a refusal counts only where it is final.
    pub(crate) fn settled(
        &self,
        in_the_end: bool,
    ) -> impl Future<Output = Option<ErrorObject>> + Send + use<> {
        let mut said = self.entry.said.subscribe();
        async move {
            let known = said.wait_for(|said| match said {
                Some(Said::Refused(error)) => !in_the_end || is_final(error),
                Some(Said::Agreed) => true,
                Some(Said::Failed(_)) | None => false,
            });
            let known = known.await.map(|known| known.clone());
            match known {
                Ok(Some(Said::Refused(error))) => Some(error),
                Ok(_) => None,
                // Its session is over, and so is the listener.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Under the lock, so that who comes this moment finds the entry as it will be.
        let _all = self.session.subscribed.all();
        self.entry.wanted.send_modify(|count| *count -= 1);
    }
}
