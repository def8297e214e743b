//! One configured upstream and all that belongs to it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use globset::{Glob, GlobMatcher};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use waypost_config::config::Upstream as Settings;
use waypost_wire::capability::TASKS;
use waypost_wire::raw::Raw;

use crate::aftermath;
use crate::catalog::entry::Kind;
use crate::catalog::shaping::Shaping;
use crate::limit::Limit;
use crate::own;
use crate::pins::Pinned;
use crate::reads::OwnReads;
use crate::registry::{Learned, now_ms};
use crate::status::{State, Status};
use crate::upstream::Upstream;

/// What is known of a connection, whoever has it.
#[derive(Debug, Default)]
struct Lease {
    /// When a caller was last given, or asked about, a task; milliseconds since the epoch.
    task: AtomicU64,
    /// The same of a task that dies with it.
    mortal: AtomicU64,
    /// Held by each question of a collapsed task that waits for its caller.
    asking: Arc<()>,
    ended: CancellationToken,
}

/// So long after that somebody may still ask.
const ASKS_AGAIN: Duration = Duration::from_secs(60);

/// How a member stopped being one.
#[derive(Debug)]
struct Left {
    next: Option<Arc<Member>>,
    /// The next one goes on with the same connection.
    shares: bool,
}

/// One upstream as the hub sees it. Shared by all cores; nothing in it is locked.
#[derive(Debug)]
pub struct Member {
    /// Its identity: in ids, metrics, policy and handles.
    pub name: Arc<str>,
    /// What the file says of it.
    pub settings: Settings,
    /// The connection.
    pub upstream: Arc<dyn Upstream>,
    /// How it is doing, from what happened to its calls.
    pub status: Arc<Status>,
    /// Asks the supervisor to look at the upstream now.
    pub wake: Notify,
    /// See [`own::signature`].
    signature: Raw,
    learned: ArcSwapOption<Learned>,
    /// Whether a subscription to its list changes stands.
    followed: AtomicBool,
    listed: AtomicBool,
    /// Somebody sees to it that what is known is stored after all.
    unsaved: AtomicBool,
    /// A bit for each kind of list: it is declared, but was never read.
    unread: AtomicU8,
    /// A bit for each kind of list about which the server answered, be it that it has none.
    answered: AtomicU8,
    permits: Arc<Limit>,
    /// Answers that are waited for after their callers have gone.
    lingering: Arc<Limit>,
    reads: OwnReads,
    /// What the file makes of its definitions; `None` is nothing.
    shaping: Option<Shaping>,
    /// What its tools were; `None` while that is not known.
    pinned: ArcSwapOption<Pinned>,
    timeouts: Vec<(GlobMatcher, Duration)>,
    /// It came after the start.
    late: AtomicBool,
    /// When one of this name came, if after the start; and whether it is the first that has it.
    since: OnceLock<Instant>,
    first: AtomicBool,
    /// Held by all members that have this connection.
    lease: Arc<Lease>,
    leaving: CancellationToken,
    left: OnceLock<Left>,
    /// Whose place it took or is to take.
    before: Mutex<Vec<Weak<Self>>>,
}

impl Member {
    /// Puts settings and connection together.
    pub fn new(settings: Settings, upstream: Arc<dyn Upstream>) -> Self {
        let state = if settings.disabled {
            State::Disabled
        } else {
            State::Starting
        };
        let status = Arc::new(Status::new(state));
        let permits = Limit::new(settings.max_in_flight);
        Self::with(settings, upstream, (status, permits, Arc::default()))
    }

    /// Another member over the connection of one that leaves, with all that is known of it: for
    /// settings that are the hub's own.
    pub(crate) fn over(settings: Settings, before: &Arc<Self>) -> Self {
        let connection = (
            Arc::clone(&before.status),
            Arc::clone(&before.permits),
            Arc::clone(&before.lease),
        );
        let member = Self::with(settings, Arc::clone(&before.upstream), connection);
        member.learned.store(before.learned.load_full());
        for (own, theirs) in [
            (&member.unread, &before.unread),
            (&member.answered, &before.answered),
        ] {
            own.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        member.late.store(before.is_late(), Ordering::Relaxed);
        let is_first = before.first.load(Ordering::Relaxed);
        member.first.store(is_first, Ordering::Relaxed);
        member.came_as(before);
        member.follows(before);
        member
    }

    fn with(
        settings: Settings,
        upstream: Arc<dyn Upstream>,
        (status, permits, lease): (Arc<Status>, Arc<Limit>, Arc<Lease>),
    ) -> Self {
        let rules = &settings.tools;
        let timeouts = rules.timeouts.iter();
        Self {
            name: settings.name.as_str().into(),
            upstream,
            status,
            wake: Notify::new(),
            signature: own::signature(&settings.name),
            learned: ArcSwapOption::empty(),
            followed: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            unsaved: AtomicBool::new(false),
            unread: AtomicU8::new(0),
            answered: AtomicU8::new(0),
            permits,
            lingering: Limit::new(aftermath::SHARE),
            reads: OwnReads::new(),
            shaping: Shaping::of(&settings),
            pinned: ArcSwapOption::empty(),
            timeouts: timeouts
                .filter_map(|(p, t)| Some((matcher(p)?, *t)))
                .collect(),
            late: AtomicBool::new(false),
            since: OnceLock::new(),
            first: AtomicBool::new(true),
            lease,
            leaving: CancellationToken::new(),
            left: OnceLock::new(),
            before: Mutex::default(),
            settings,
        }
    }

    /// Takes the place of this one, or is to take it.
    pub(crate) fn follows(&self, before: &Arc<Self>) {
        let mut line = vec![Arc::downgrade(before)];
        line.extend(before.line().iter().cloned());
        let mut own = self.line();
        // It may follow another one already, which the next took the place of.
        line.append(&mut own);
        line.retain(|one| one.strong_count() > 0);
        *own = line;
    }

    /// Those before it, the latest first: each may go before older ones do.
    fn line(&self) -> MutexGuard<'_, Vec<Weak<Self>>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is no member any more, and `next` is in its place; one that `shares` its connection
    /// goes on with it.
    pub(crate) fn leave(&self, next: Option<Arc<Self>>, shares: bool) {
        drop(self.left.set(Left { next, shares }));
        self.leaving.cancel();
    }

    /// Whether it is no member any more.
    pub fn has_left(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// Resolves when it is no member any more.
    pub(crate) async fn left(&self) {
        self.leaving.cancelled().await;
    }

    /// Nobody waits any more for what is still at it and its connection.
    pub(crate) fn end(&self) {
        self.lease.ended.cancel();
    }

    /// Whether it left and nothing goes on at it any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.lease.ended.is_cancelled()
    }

    /// Resolves when nothing goes on at it any more.
    pub(crate) async fn ended(&self) {
        self.lease.ended.cancelled().await;
    }

    /// Whether it left and nobody serves in its place.
    pub(crate) fn is_removed(&self) -> bool {
        let left = self.left.get();
        left.is_some_and(|left| left.next.as_ref().is_none_or(|next| next.settings.disabled))
    }

    /// Whether the next one goes on with its connection.
    pub(crate) fn is_handed_on(&self) -> bool {
        self.left.get().is_some_and(|left| left.shares)
    }

    /// Who serves in its place after it left; `None` if nobody does.
    pub(crate) fn successor(&self) -> Option<Arc<Self>> {
        let next = self.left.get()?.next.clone()?;
        if next.has_left() {
            next.successor()
        } else {
            Some(next).filter(|next| !next.settings.disabled)
        }
    }

    /// Whether both have one connection.
    pub(crate) fn shares(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.lease, &other.lease)
    }

    /// Those before it that calls still go on at, the latest first.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = Arc<Self>> + use<> {
        let mut line: Vec<Arc<Self>> = self.line().iter().filter_map(Weak::upgrade).collect();
        let mut seen = HashSet::new();
        line.retain(|member| member.has_left() && seen.insert(Arc::as_ptr(member)));
        line.into_iter()
    }

    /// A caller was given, or asked about, a task, which may be `mortal`: die with the connection.
    pub(crate) fn note_task(&self, mortal: bool) {
        let now = now_ms();
        self.lease.task.store(now, Ordering::Relaxed);
        if mortal {
            self.lease.mortal.store(now, Ordering::Relaxed);
        }
    }

    /// Whether somebody may still ask for a task that only this one could tell of.
    fn has_tasks_out(&self) -> bool {
        let last = match self.is_removed() {
            true => &self.lease.task,
            false => &self.lease.mortal,
        };
        let last = last.load(Ordering::Relaxed);
        let since = Duration::from_millis(now_ms().saturating_sub(last));
        last != 0 && since < ASKS_AGAIN
    }

    /// A collapsed task at it asks its caller, who has yet to answer: for as long as this is held.
    pub(crate) fn asks(&self) -> Arc<()> {
        Arc::clone(&self.lease.asking)
    }

    /// How many calls to it wait for an answer of their caller: those that are open there, and those
    /// whose tasks wait there.
    pub fn parked(&self) -> usize {
        let held = Arc::strong_count(&self.lease.asking);
        self.upstream.parked() + held.saturating_sub(1)
    }

    /// Whether only whoever asks has it and its connection, and no caller has a task there.
    pub(crate) fn is_let_go(self: &Arc<Self>) -> bool {
        let alone = Arc::strong_count(self) == 1 && Arc::strong_count(&self.lease) == 1;
        alone && self.upstream.parked() == 0 && !self.has_tasks_out()
    }

    /// It came after the start: readiness does not wait for it.
    fn set_late(&self) {
        self.late.store(true, Ordering::Relaxed);
    }

    /// It came at this moment, under a name that nobody had.
    pub(crate) fn came(&self, at: Instant) {
        self.set_late();
        self.since.get_or_init(|| at);
    }

    /// It is to take the place of one that came earlier.
    pub(crate) fn succeeds(&self, before: &Self) {
        self.set_late();
        self.first.store(false, Ordering::Relaxed);
        self.came_as(before);
    }

    fn came_as(&self, before: &Self) {
        if let Some(at) = before.since() {
            self.since.get_or_init(|| at);
        }
    }

    /// When one of its name came, if after the start.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since.get().copied()
    }

    /// Whether it is connecting for the first time, and so was nobody of its name before it.
    pub(crate) fn is_first_look(&self) -> bool {
        self.first.load(Ordering::Relaxed) && self.status.state() == State::Starting
    }

    /// Whether it came after the start.
    pub fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    /// Whether this is its name or one of its former names.
    pub fn is_called(&self, name: &str) -> bool {
        *self.name == *name || self.settings.aliases.iter().any(|alias| alias == name)
    }

    /// What is known of it; `None` before the first successful look.
    pub fn learned(&self) -> Option<Arc<Learned>> {
        self.learned.load_full()
    }

    /// Replaces what is known of it.
    pub fn learn(&self, learned: Learned) {
        self.learned.store(Some(Arc::new(learned)));
    }

    /// Makes what is known of it anew from what is known at that moment, and returns the latter;
    /// `None` changes nothing. Runs `change` again should somebody else be quicker.
    pub fn update(
        &self,
        change: impl Fn(Option<&Learned>) -> Option<Learned>,
    ) -> Option<Arc<Learned>> {
        self.learned.rcu(|known| match change(known.as_deref()) {
            Some(learned) => Some(Arc::new(learned)),
            None => known.clone(),
        })
    }

    /// Whether its tasks extension is known, or assumed by the file.
    pub fn has_tasks(&self) -> bool {
        let assumed = || self.settings.assume_extensions.iter().any(|e| e == TASKS);
        self.learned
            .load()
            .as_ref()
            .is_some_and(|learned| learned.has_tasks())
            || assumed()
    }

    /// What the file makes of its definitions; `None` leaves them as they are.
    pub(crate) fn shaping(&self) -> Option<&Shaping> {
        self.shaping.as_ref()
    }

    /// What its tools were when they were last approved; `None` while that is not known.
    pub(crate) fn pinned(&self) -> Option<Arc<Pinned>> {
        self.pinned.load_full()
    }

    pub(crate) fn set_pinned(&self, pinned: Option<Arc<Pinned>>) {
        self.pinned.store(pinned);
    }

    /// How long a call may go on without progress; `tool` is the original name.
    pub fn timeout(&self, tool: Option<&str>) -> Duration {
        let own = tool.and_then(|name| self.timeouts.iter().find(|(glob, _)| glob.is_match(name)));
        own.map_or(self.settings.timeout, |(_, timeout)| *timeout)
    }

    /// Whether the server says that it announces changes of its lists.
    pub fn announces(&self) -> bool {
        ["tools", "prompts", "resources"]
            .into_iter()
            .any(|list| self.announces_list(list))
    }

    /// Whether the server says that it announces changes of the list of this capability.
    pub fn announces_list(&self, capability: &str) -> bool {
        let learned = self.learned.load();
        let learned = learned.as_ref();
        learned.is_some_and(|learned| learned.facts.announces_list(capability))
    }

    /// Whether the server says that it tells of changes of single resources.
    pub(crate) fn subscribes(&self) -> bool {
        let learned = self.learned.load();
        let learned = learned.as_ref();
        learned.is_some_and(|learned| learned.facts.subscribes())
    }

    /// Whether changes of its lists are heard of.
    pub fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_followed(&self, followed: bool) {
        self.followed.store(followed, Ordering::Relaxed);
    }

    /// Whether the catalogue that clients see was made with what is known of it.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// Whether somebody saw to it before that what is known is stored after all.
    pub(crate) fn set_unsaved(&self, unsaved: bool) -> bool {
        self.unsaved.swap(unsaved, Ordering::AcqRel)
    }

    pub(crate) fn set_listed(&self) {
        self.listed.store(true, Ordering::Release);
    }

    /// Whether it declares a list of this kind that could never be read.
    pub fn is_unread(&self, kind: Kind) -> bool {
        self.unread.load(Ordering::Relaxed) & bit(kind) != 0
    }

    pub(crate) fn set_unread(&self, kind: Kind, unread: bool) {
        if unread {
            self.unread.fetch_or(bit(kind), Ordering::Relaxed);
        } else {
            self.unread.fetch_and(!bit(kind), Ordering::Relaxed);
        }
    }

    pub(crate) fn was_answered(&self, kind: Kind) -> bool {
        self.answered.load(Ordering::Relaxed) & bit(kind) != 0
    }

    pub(crate) fn set_answered(&self, kind: Kind) {
        self.answered.fetch_or(bit(kind), Ordering::Relaxed);
    }

    /// What its results are signed with.
    pub(crate) fn signature(&self) -> &Raw {
        &self.signature
    }

    /// Answers of it that are still good.
    pub(crate) fn reads(&self) -> &OwnReads {
        &self.reads
    }

    /// Room for the calls in flight.
    pub(crate) fn permits(&self) -> &Arc<Limit> {
        &self.permits
    }

    /// Its share of the room for answers that are waited for after their callers have gone.
    pub(crate) fn lingering(&self) -> &Arc<Limit> {
        &self.lingering
    }
}

fn bit(kind: Kind) -> u8 {
    match kind {
        Kind::Tool => 1,
        Kind::Prompt => 2,
        Kind::Resource => 4,
        Kind::Template => 8,
    }
}

/// The configuration has checked every pattern, so none is lost here.
fn matcher(pattern: &str) -> Option<GlobMatcher> {
    Glob::new(pattern).ok().map(|glob| glob.compile_matcher())
}
