//! The sessions with one server: opened when needed, one attempt at a time, and bounded in number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use waypost_config::config::{Declared, Isolation};
use waypost_hub::call::{Call, Session as ClientSession};
use waypost_hub::lifecycle::Tasks;
use waypost_wire::message::Notification;

use super::key::Key;
use super::link::Dial;
use super::places::Places;
use super::session::{Opening, Session};
use crate::backoff::Backoff;
use crate::fault::Fault;
use crate::flight::{Flight, Opened as _, Want};

/// What of the configuration matters here.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) upstream: Arc<str>,
    pub(crate) isolation: Isolation,
    pub(crate) declare: Vec<Declared>,
    pub(crate) idle_timeout: Duration,
    /// Without the one of Waypost's own.
    pub(crate) max_sessions: usize,
    pub(crate) startup_timeout: Duration,
    /// How long a call waits for its caller's answer.
    pub(crate) patience: Duration,
    /// For subscriptions that are not answered yet, here and elsewhere.
    pub(crate) places: Places,
}

type Entry = Arc<Flight<Arc<Session>>>;

/// The sessions with one server.
#[derive(Debug)]
pub(crate) struct Pool {
    this: Weak<Self>,
    pub(crate) settings: Settings,
    dial: Arc<dyn Dial>,
    pub(crate) tasks: Tasks,
    entries: Mutex<Entries>,
    /// Of all sessions but that of Waypost's own calls: what does not open for one does not for
    /// others.
    backoff: Backoff,
    /// The session of Waypost's own calls was lost.
    lost: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    all: HashMap<Key, Entry>,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(settings: Settings, dial: Arc<dyn Dial>, tasks: &Tasks) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            settings,
            dial,
            tasks: tasks.clone(),
            entries: Mutex::default(),
            backoff: Backoff::of_proven(),
            lost: Notify::new(),
        })
    }

    /// The session that this call belongs to, opened where there is none.
    ///
    /// # Errors
    /// Why it cannot be opened, [`Fault::Sessions`] when there are too many.
    pub(crate) async fn of(&self, call: &Call) -> Result<Arc<Session>, Fault> {
        let key = Key::of(call, self.settings.isolation);
        let within = self.settings.startup_timeout;
        self.get(key, Some(call), &self.dial, (Want::Call, within))
            .await
    }

    /// The session of Waypost's own calls, opened where there is none.
    ///
    /// # Errors
    /// As [`Pool::of`].
    pub(crate) async fn home(&self) -> Result<Arc<Session>, Fault> {
        let within = self.settings.startup_timeout;
        self.home_over(&self.dial, within).await
    }

    /// The same over another connection, `within` the time that is left.
    ///
    /// # Errors
    /// As [`Pool::of`].
    pub(crate) async fn home_over(
        &self,
        dial: &Arc<dyn Dial>,
        within: Duration,
    ) -> Result<Arc<Session>, Fault> {
        let key = Key::home(self.settings.isolation);
        self.get(key, None, dial, (Want::Look, within)).await
    }

    /// The session of Waypost's own calls, whether it still serves or not.
    pub(crate) fn last_home(&self) -> Option<Arc<Session>> {
        let key = Key::home(self.settings.isolation);
        let entry = self.entries().all.get(&key).cloned();
        entry.and_then(|entry| entry.last())
    }

    /// Tells the session of Waypost's own calls what another heard: some servers tell only those
    /// that were there before of a list that has changed. Whether anybody listens.
    pub(crate) fn tell_home(&self, notification: &Notification) -> bool {
        let home = self.last_home();
        home.is_some_and(|home| home.table.listeners.tell(notification))
    }

    /// The session that this call would go to now.
    pub(crate) fn current(&self, key: &Key) -> Option<Arc<Session>> {
        let entry = self.entries().all.get(key).cloned();
        entry.and_then(|entry| entry.current())
    }

    /// The server has forgotten `old`: another in its place, for all who notice one.
    ///
    /// # Errors
    /// As [`Pool::of`].
    pub(crate) async fn renew(
        &self,
        call: Option<&Call>,
        old: &Arc<Session>,
    ) -> Result<Arc<Session>, Fault> {
        // One that died may do so again at once; one that was forgotten is no failure.
        let want = match old.over() {
            Some(_) => Want::Call,
            None => Want::Look,
        };
        old.retire();
        let entry = self.entries().all.get(&old.key).cloned();
        if let Some(entry) = entry.filter(|_| want == Want::Look) {
            entry.replace(old);
        }
        let within = self.settings.startup_timeout;
        self.get(old.key.clone(), call, &self.dial, (want, within))
            .await
    }

    /// The server wants no sessions any more: all go when their calls are done.
    pub(crate) fn retire(&self) {
        let all = std::mem::take(&mut self.entries().all);
        for session in all.into_values().filter_map(|entry| entry.close()) {
            session.retire();
        }
    }

    /// Resolves when the session of Waypost's own calls is lost.
    pub(crate) async fn lost(&self) {
        let lost = self.lost.notified();
        let last = self.last_home();
        if last.is_some_and(|last| last.is_lost()) {
            return;
        }
        lost.await;
    }

    /// A session is over.
    pub(crate) fn ended(&self, session: &Arc<Session>) {
        if session.key.is_home() {
            if session.is_lost() {
                self.lost.notify_waiters();
            }
            return;
        }
        let mut entries = self.entries();
        let entry = entries.all.get(&session.key);
        if entry.is_some_and(|entry| entry.last().is_some_and(|last| last.is(session))) {
            entries.all.remove(&session.key);
        }
    }

    /// Opens no more, and ends all; resolves when nothing is left of them.
    pub(crate) fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        let entries = {
            let mut entries = self.entries();
            entries.closed = true;
            std::mem::take(&mut entries.all)
        };
        let sessions: Vec<_> = entries.into_values().filter_map(|e| e.close()).collect();
        for session in &sessions {
            session.close();
        }
        async move {
            for session in sessions {
                session.closed().await;
            }
        }
    }

    async fn get(
        &self,
        key: Key,
        call: Option<&Call>,
        dial: &Arc<dyn Dial>,
        (want, within): (Want, Duration),
    ) -> Result<Arc<Session>, Fault> {
        let entry = self.entry(&key)?;
        let open = || {
            let opening = self.opening(&key, call, dial);
            let opening = Session::open(Opening { within, ..opening });
            let (pool, key, place) = (Weak::clone(&self.this), key.clone(), Arc::clone(&entry));
            async move {
                let opened = opening.await;
                // Those who wanted it may have gone by now.
                let failed = opened.is_err() && !key.is_home();
                if let Some(pool) = pool.upgrade().filter(|_| failed) {
                    pool.remove(&key, &place);
                }
                opened
            }
        };
        let opened = entry.get(&self.tasks, want, open).await;
        if opened.is_err() && !key.is_home() {
            self.clear(&key, &entry);
        }
        opened
    }

    fn entry(&self, key: &Key) -> Result<Entry, Fault> {
        let mut entries = self.entries();
        if entries.closed {
            return Err(Fault::Stopping);
        }
        if let Some(entry) = entries.all.get(key) {
            return Ok(Arc::clone(entry));
        }
        let count = entries.all.keys().filter(|key| !key.is_home()).count();
        if !key.is_home() && count >= self.settings.max_sessions {
            return Err(Fault::Sessions { most: count });
        }
        let backoff = match key.is_home() {
            true => Backoff::default(),
            false => self.backoff.clone(),
        };
        let entry = Entry::new(Flight::new(backoff));
        entries.all.insert(key.clone(), Arc::clone(&entry));
        Ok(entry)
    }

    /// A session that could not be opened takes no place.
    fn clear(&self, key: &Key, entry: &Entry) {
        if !entry.is_opening() && entry.current().is_none() {
            self.remove(key, entry);
        }
    }

    fn remove(&self, key: &Key, entry: &Entry) {
        let mut entries = self.entries();
        let now = entries.all.get(key);
        if now.is_some_and(|now| Arc::ptr_eq(now, entry)) {
            entries.all.remove(key);
        }
    }

    fn opening(&self, key: &Key, call: Option<&Call>, dial: &Arc<dyn Dial>) -> Opening {
        let session = call.and_then(|call| call.session.as_ref());
        let session = session.filter(|_| matches!(key, Key::Session(_)));
        let released = session.map_or_else(CancellationToken::new, |s| s.released().clone());
        let client = session.cloned();
        let hello = key.hello(call, &self.settings.declare);
        let roots = session.and_then(ClientSession::roots);
        let roots = roots.filter(|_| hello.promises_roots());
        Opening {
            key: key.clone(),
            upstream: Arc::clone(&self.settings.upstream),
            dial: Arc::clone(dial),
            hello,
            within: self.settings.startup_timeout,
            idle: (!key.is_home()).then_some(self.settings.idle_timeout),
            released,
            roots,
            client,
            tasks: self.tasks.clone(),
            places: self.settings.places.clone(),
            pool: Weak::clone(&self.this),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.close());
    }
}
