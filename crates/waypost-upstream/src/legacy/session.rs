//! One session with a server.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use waypost_hub::call::Session as ClientSession;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::upstream::Facts;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::error::Malformed;
use waypost_wire::id::Id;
use waypost_wire::level::Level;
use waypost_wire::message::{self, Outcome};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::handshake::{self, Begun, Hello};
use super::key::Key;
use super::link::{Dial, Link};
use super::places::Places;
use super::pool::Pool;
use super::subscribed::Subscribed;
use super::table::Table;
use super::tasks::Results;
use crate::ear::Ear as _;
use crate::fault::Fault;
use crate::flight::Opened;

/// How long a request of our own that a call waits for may take.
const ASIDE: Duration = Duration::from_secs(5);

/// How long a call waits for the server to log what it wants.
const LOGS_WITHIN: Duration = Duration::from_millis(500);

/// How long calls may go on after Waypost was told to stop, or after the server has forgotten
/// the session.
const GRACE: Duration = Duration::from_secs(15);

/// One session with a server.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: Key,
    pub(crate) table: Arc<Table>,
    pub(crate) link: Arc<dyn Link>,
    pub(crate) facts: Facts,
    instance: Arc<str>,
    /// The tasks whose ends are waited for.
    pub(crate) results: Results,
    tasks: Tasks,
    /// What the server was told to log.
    level: Told,
    pub(super) subscribed: Subscribed,
    /// Takes no new calls and ends when it has none.
    retiring: CancellationToken,
    closing: CancellationToken,
    closed: CancellationToken,
    /// Its connection ended although nobody wanted that.
    lost: CancellationToken,
}

/// What it takes to open a session.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) key: Key,
    pub(crate) upstream: Arc<str>,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) hello: Hello,
    pub(crate) within: Duration,
    /// Ends it when nobody has used it for so long.
    pub(crate) idle: Option<Duration>,
    /// Ends it when its client has gone.
    pub(crate) released: CancellationToken,
    /// Changes with the roots of its client.
    pub(crate) roots: Option<watch::Receiver<u64>>,
    /// The client that has it for itself.
    pub(crate) client: Option<ClientSession>,
    pub(crate) tasks: Tasks,
    pub(crate) places: Places,
    pub(crate) pool: Weak<Pool>,
}

impl Session {
    /// Opens a session; its background work has begun then.
    pub(crate) async fn open(opening: Opening) -> Result<Arc<Self>, Fault> {
        let (upstream, audience) = (&opening.upstream, opening.key.audience());
        let declared = ClientCapabilities::new(opening.hello.capabilities.clone());
        let others = if opening.key.is_home() {
            Weak::new()
        } else {
            Weak::clone(&opening.pool)
        };
        let table = Arc::new(Table::new(
            upstream,
            audience,
            declared,
            others,
            opening.client.clone(),
        ));
        let Begun {
            link,
            facts,
            telling,
            retiring,
        } = handshake::begin(&opening, &table).await?;
        let instance = link.instance();
        let random = || format!("{:016x}", rand::random::<u64>()).into();
        let session = Arc::new(Self {
            key: opening.key,
            table,
            link,
            facts,
            instance: instance.unwrap_or_else(random),
            results: Results::default(),
            tasks: opening.tasks.clone(),
            level: Told::default(),
            subscribed: Subscribed::new(&opening.places),
            retiring,
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
            lost: CancellationToken::new(),
        });
        let attended = Arc::clone(&session);
        let (idle, released, pool) = (opening.idle, opening.released, opening.pool);
        let roots = opening.roots;
        opening.tasks.spawn(|stop| async move {
            let living = async {
                tokio::select! {
                    () = attended.attend(&stop, idle, &released) => {}
                    never = attended.speak_for_client(roots) => match never {},
                }
                attended.leave(&pool);
                attended.settle().await;
            };
            let attending = async {
                tokio::select! {
                    () = living => {}
                    never = telling => match never {},
                }
            };
            // Whoever waits for the session must learn that it goes, also when that failed inside.
            if AssertUnwindSafe(attending).catch_unwind().await.is_err() {
                attended.lost.cancel();
                attended.table.gone(&Fault::Unheard);
                attended.leave(&pool);
            }
            attended.end().await;
        });
        Ok(session)
    }

    /// Runs `work` until it is done or the session is over.
    pub(crate) fn spawn(self: Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let tasks = self.tasks.clone();
        tasks.spawn(|stop| async move {
            tokio::select! {
                () = work => {}
                () = self.closing.cancelled() => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// The tag of what answers here.
    pub(crate) fn instance(&self) -> &Arc<str> {
        &self.instance
    }

    /// Whether the server has this capability.
    pub(crate) fn has(&self, capability: &str) -> bool {
        let capability = self.facts.capabilities.get(capability);
        capability.is_some_and(Raw::is_object)
    }

    /// Whether the server tells of changes of single resources.
    pub(crate) fn subscribes(&self) -> bool {
        self.facts.subscribes()
    }

    /// The server has forgotten it: it goes when its last call is done.
    pub(crate) fn retire(&self) {
        self.retiring.cancel();
    }

    /// Whether its connection ended although nobody wanted that.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Ends it now; see [`Session::closed`].
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Resolves when nothing is left of it.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Sends a request of our own and waits for the answer.
    pub(crate) async fn ask(&self, method: &str, params: &Object) -> Result<Outcome, Fault> {
        self.ask_within(method, params, ASIDE).await
    }

    /// The same with other patience.
    ///
    /// # Errors
    /// Why there is no answer; one that is no object, as all results are, is none.
    pub(crate) async fn ask_within(
        &self,
        method: &str,
        params: &Object,
        within: Duration,
    ) -> Result<Outcome, Fault> {
        let (id, answer) = self.table.plain()?;
        // Also when whoever asks has gone.
        let _place = Unanswered(&self.table, id);
        let request = message::encode_request(&Id::number(id), method, params);
        let asked = async {
            self.link.request(id, request).await?;
            answer.await.unwrap_or(Err(Fault::NoEnd))
        };
        let answer = timeout(within, asked).await;
        match answer.unwrap_or(Err(Fault::Late(within)))? {
            Outcome::Result(raw) if !raw.is_object() => Err(Fault::Malformed(Malformed::Wrong {
                member: "result",
                expected: "an object",
            })),
            answer => Ok(answer),
        }
    }

    /// Sees to it that the server logs what is at least as grave as `level`; without that a call
    /// still has its answer. So it is told once, and waited for only as long as nobody notices.
    pub(crate) async fn log_from(self: &Arc<Self>, level: Level) {
        if !self.has("logging") || !self.level.lower(level) {
            return;
        }
        let (told, done) = oneshot::channel::<()>();
        let session = Arc::clone(self);
        Arc::clone(self).spawn(async move {
            let _told = told;
            // In order, and whatever was wanted last.
            let _turn = session.level.telling.lock().await;
            if let Some(level) = session.level.wanted() {
                let params = Object::from_iter([("level", Raw::string(level.name()))]);
                drop(session.ask("logging/setLevel", &params).await);
            }
        });
        drop(timeout(LOGS_WITHIN, done).await);
    }

    /// Resolves when the session is over.
    async fn attend(
        &self,
        stop: &CancellationToken,
        idle: Option<Duration>,
        released: &CancellationToken,
    ) {
        let gently = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.retiring.cancelled() => {}
            }
            drop(timeout(GRACE, self.table.idle()).await);
        };
        tokio::select! {
            () = self.table.went() => self.lost.cancel(),
            () = self.closing.cancelled() => {}
            () = released.cancelled() => {}
            () = self.unused_for(idle) => {}
            () = gently => {}
        }
    }

    /// Tells the server what its client says outside of calls.
    async fn speak_for_client(&self, roots: Option<watch::Receiver<u64>>) -> Infallible {
        tokio::select! {
            never = self.tell_roots(roots) => never,
            never = self.answer_outside() => never,
        }
    }

    /// Gives the server the answers to what it asks outside of calls.
    async fn answer_outside(&self) -> Infallible {
        loop {
            let response = self.table.outside.next().await;
            self.table.say(response);
        }
    }

    /// Tells the server whenever the client's roots have changed.
    async fn tell_roots(&self, roots: Option<watch::Receiver<u64>>) -> Infallible {
        if let Some(mut roots) = roots {
            while roots.changed().await.is_ok() {
                let message = message::encode_notification(method::ROOTS_CHANGED, &Object::new());
                self.table.say(message);
            }
        }
        std::future::pending().await
    }

    /// Nothing begins in it any more.
    fn leave(self: &Arc<Self>, pool: &Weak<Pool>) {
        self.closing.cancel();
        self.table.shut();
        if let Some(pool) = pool.upgrade() {
            pool.ended(self);
        }
    }

    /// What is open when the server has forgotten it may still come to its end.
    async fn settle(&self) {
        if self.is_lost() {
            drop(timeout(GRACE, self.table.idle()).await);
        }
    }

    async fn end(&self) {
        self.link.close().await;
        let forgotten = self.is_lost() || self.retiring.is_cancelled();
        self.table.gone(&match forgotten {
            true => Fault::Forgotten,
            false => Fault::Stopping,
        });
        self.closed.cancel();
    }

    async fn unused_for(&self, idle: Option<Duration>) {
        let Some(idle) = idle else {
            return std::future::pending().await;
        };
        loop {
            match self.table.expire(idle) {
                Some(until) => sleep_until(until).await,
                None => return,
            }
        }
    }
}

impl Opened for Arc<Session> {
    fn serves(&self) -> bool {
        !self.retiring.is_cancelled() && !self.closing.is_cancelled() && !self.table.is_gone()
    }

    fn over(&self) -> Option<Fault> {
        self.table.broken()
    }

    fn discard(&self) {
        self.close();
    }

    fn is(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }
}

/// What a server was told to log, whatever came of it.
#[derive(Debug, Default)]
struct Told {
    from: std::sync::Mutex<Option<Level>>,
    /// Held while the server is told.
    telling: Mutex<()>,
}

impl Told {
    /// Whether the server has to be told that `level` is wanted too.
    fn lower(&self, level: Level) -> bool {
        let mut from = self.from();
        let lower = from.is_none_or(|from| level < from);
        if lower {
            *from = Some(level);
        }
        lower
    }

    fn wanted(&self) -> Option<Level> {
        *self.from()
    }

    fn from(&self) -> std::sync::MutexGuard<'_, Option<Level>> {
        self.from.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a request of our own among what the server has to answer.
struct Unanswered<'a>(&'a Table, u64);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.close(self.1);
    }
}
