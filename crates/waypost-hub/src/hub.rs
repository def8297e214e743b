//! The hub: all upstreams, the catalogue they make, and the door for calls.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waypost_config::config::Config;

use crate::call::View;
use crate::catalog::Catalog;
use crate::catalog::build::{Warning, build};
use crate::catalog::cursor::Cursors;
use crate::catalog::entry::{Entry, Kind};
use crate::discover;
use crate::event::ToolPending;
use crate::keys::Keys;
use crate::lifecycle::Tasks;
use crate::limit::Limit;
use crate::makeup::{Makeup, Seat};
use crate::member::Member;
use crate::pins::{Approval, Pending, Pins};
use crate::questions::Questions;
use crate::readiness::Readiness;
use crate::reads::Reads;
use crate::registry::Learned;
use crate::saving::save;
use crate::shut_out::ShutOut;
use crate::status::State;
use crate::store::{Store, StoreError};
use crate::tasks::TaskDesk;

/// How long discovery and lists wait for upstreams that are still connecting for the first time.
const FIRST_LOOK: Duration = Duration::from_millis(700);

/// What a hub is made of.
#[derive(Debug)]
pub struct Parts {
    /// To begin with; of it `limits.parked`, `limits.listener_queue` and `cache.resources` are
    /// read once.
    pub config: Arc<Config>,
    /// In the file's order.
    pub members: Vec<Arc<Member>>,
    /// Where learned facts outlive a restart.
    pub store: Arc<dyn Store>,
    /// Seal task handles and request states; replicas share them.
    pub keys: Keys,
    /// Runs what belongs to no connection.
    pub background: Tasks,
}

/// A list that clients see became another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What the list is of.
    pub kind: Kind,
    /// Where it is seen; a change seen in several views is sent once for each.
    pub view: View,
}

/// All upstreams as one server.
#[derive(Debug)]
pub struct Hub {
    /// What the file says.
    pub(crate) makeup: ArcSwap<Makeup>,
    /// Serialises making another one.
    pub(crate) shaping: Mutex<()>,
    pub(crate) shut_out: ShutOut,
    pub(crate) desk: TaskDesk,
    pub(crate) background: Tasks,
    /// Room for open listen streams.
    pub(crate) listeners: Arc<Limit>,
    pub(crate) cursors: Cursors,
    /// Answers that are still good.
    pub(crate) reads: Reads,
    /// What callers are asked.
    pub(crate) questions: Questions,
    store: Arc<dyn Store>,
    /// What tools were when they were last approved.
    pins: Arc<Pins>,
    catalog: ArcSwap<Catalog>,
    /// Serialises rebuilding.
    rebuilding: Mutex<()>,
    changes: broadcast::Sender<Change>,
    draining: CancellationToken,
    /// Calls that are left are answered without their upstreams.
    over: AtomicBool,
    /// Bumped when a first connect attempt ends or the catalogue changes.
    progress: watch::Sender<u64>,
    /// Bumped when the catalogue is arranged in another way: see [`Catalog::is_arranged_as`].
    arranged: watch::Sender<u64>,
}

/// One line of the table that `waypost check` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// What it is.
    pub kind: Kind,
    /// The name or URI that clients use.
    pub name: Arc<str>,
    /// The one that the upstream uses.
    pub original: Arc<str>,
    /// Where calls to it go.
    pub upstream: Arc<str>,
}

impl Hub {
    /// Puts a hub together; nothing runs yet.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            config,
            members,
            store,
            keys,
            background,
        } = parts;
        let desk = TaskDesk::new(
            &keys,
            config.tasks.clone(),
            config.limits.parked,
            (Arc::clone(&store), background.clone()),
        );
        let seats = members.into_iter().map(Seat::of).collect();
        let makeup = Makeup::new(&config, seats, None);
        Arc::new(Self {
            catalog: ArcSwap::from_pointee(makeup.empty_catalog()),
            makeup: ArcSwap::from_pointee(makeup),
            shaping: Mutex::default(),
            shut_out: ShutOut::new(),
            desk,
            background,
            listeners: Limit::new(config.limits.listeners),
            cursors: Cursors::new(&keys),
            reads: Reads::new(config.cache.resources),
            questions: Questions::default(),
            pins: Arc::new(Pins::new(Arc::clone(&store))),
            store,
            rebuilding: Mutex::default(),
            changes: broadcast::channel(config.limits.listener_queue.max(1)).0,
            draining: CancellationToken::new(),
            over: AtomicBool::new(false),
            progress: watch::channel(0).0,
            arranged: watch::channel(0).0,
        })
    }

    /// Serves what is remembered at once, then connects to every upstream behind it.
    pub async fn start(self: &Arc<Self>) {
        // Before anything is shown of which it would not be known what it was.
        if !self.pins.remember().await {
            let hub = Arc::clone(self);
            self.background.spawn(|stop| async move {
                if stop
                    .run_until_cancelled(hub.pins.remember_at_last())
                    .await
                    .is_some()
                {
                    hub.rebuild();
                }
            });
        }
        self.remember().await;
        self.rebuild();
        let hub = Arc::downgrade(self);
        self.desk.on_task_only(move |member| {
            let Some(hub) = hub.upgrade() else { return };
            let member = Arc::clone(member);
            hub.background
                .clone()
                .spawn(|_| async move { hub.save(&member).await });
        });
        for member in self.members() {
            self.look_after(member);
        }
    }

    /// Every configured upstream, in the file's order.
    pub fn members(&self) -> Vec<Arc<Member>> {
        self.makeup.load().members.clone()
    }

    /// What the file says now.
    pub(crate) fn makeup(&self) -> Arc<Makeup> {
        self.makeup.load_full()
    }

    /// Whether there is something behind this view.
    pub fn shows_view(&self, view: &View) -> bool {
        match view {
            View::All => true,
            View::Upstream(name) => self
                .makeup
                .load()
                .members
                .iter()
                .any(|m| m.name == *name && !m.settings.disabled),
            View::Endpoint(name) => self.catalog.load().endpoint(name).is_some(),
        }
    }

    /// Whether a view's tools are to be searched for instead of listed.
    pub(crate) fn searches(&self, view: &View) -> bool {
        self.catalog.load().searches(view)
    }

    /// The catalogue as it is now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Whether the first connect attempts of those that were there at the start are over, and every
    /// required upstream answers and all its lists were read at least once.
    pub fn readiness(&self) -> Readiness {
        let name = |member: &&Arc<Member>| Arc::clone(&member.name);
        let in_state = |member: &Member, states: &[State]| states.contains(&member.status.state());
        let members = self.members();
        let starting: Vec<_> = members
            .iter()
            .filter(|m| in_state(m, &[State::Starting]) && !m.is_late())
            .map(|m| name(&m))
            .collect();
        let missing: Vec<_> = members
            .iter()
            .filter(|m| m.settings.required && !m.settings.disabled)
            .filter(|m| {
                let unread = Kind::ALL.into_iter().any(|kind| m.is_unread(kind));
                unread || !in_state(m, &[State::Up, State::Degraded])
            })
            .map(|m| name(&m))
            .collect();
        Readiness {
            ready: starting.is_empty() && missing.is_empty(),
            starting,
            missing,
        }
    }

    /// Everything that clients see, by kind and in listing order.
    pub fn table(&self) -> Vec<Exposed> {
        let catalog = self.catalog();
        let rows = Kind::ALL.into_iter().flat_map(|kind| {
            let entries = catalog.list(kind, &View::All).entries();
            entries.map(move |entry| Exposed {
                kind,
                name: Arc::clone(&entry.exposed),
                original: Arc::clone(&entry.original),
                upstream: upstreams(entry),
            })
        });
        rows.collect()
    }

    /// Shutdown has begun: listen streams end with their graceful result. Calls in flight, the
    /// upstreams and their children go on until the background work is drained.
    pub fn begin_drain(&self) {
        self.draining.cancel();
    }

    /// The time for calls in flight is over: each gives its caller an error when it is polled the
    /// next time, and is dropped. Nobody is woken by this.
    pub fn give_up_calls(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Whether calls are answered without their upstreams from now on.
    pub fn has_given_up(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Waits until the upstreams of all tasks whose callers have gone were told to cancel them.
    /// To be called, with a deadline, after the last connection and before the background work
    /// is stopped, for that is what tells them.
    pub async fn settled(&self) {
        self.desk.settled().await;
    }

    /// Cancelled when shutdown has begun.
    pub fn draining(&self) -> CancellationToken {
        self.draining.clone()
    }

    /// Whether nothing waits that is neither in flight nor to be cut off: calls that wait for an
    /// answer of their caller, and answers whose caller has gone and which may be tasks.
    pub fn is_idle(&self) -> bool {
        self.parked() == 0 && !self.desk.lingers()
    }

    /// How many calls wait for an answer of their caller, as far as Waypost or a connection of its
    /// own keeps something open for them.
    pub fn parked(&self) -> usize {
        let mut connections: Vec<Arc<Member>> = Vec::new();
        let leavers = self.desk.leavers();
        let waiting = self.replacements();
        for member in self.members().into_iter().chain(waiting).chain(leavers) {
            if !connections.iter().any(|known| known.shares(&member)) {
                connections.push(member);
            }
        }
        let upstreams = connections.iter().map(|member| member.upstream.parked());
        self.desk.parked() + upstreams.sum::<usize>()
    }

    /// Those who are to take the places of others of their names, once it is known what they have.
    pub fn replacements(&self) -> Vec<Arc<Member>> {
        let makeup = self.makeup.load();
        let next = makeup.seats.iter().filter_map(|seat| seat.next.clone());
        next.collect()
    }

    /// Changes of lists from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Changes whenever [`Hub::catalog`] is arranged in another way.
    pub(crate) fn arranged(&self) -> watch::Receiver<u64> {
        self.arranged.subscribe()
    }

    /// Changes whenever an upstream gets somewhere.
    pub(crate) fn progressing(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// Waits a moment for upstreams of the view that are connecting for the first time and of
    /// which nothing is remembered.
    pub(crate) async fn first_look(&self, view: &View) {
        self.wait_until(Instant::now() + FIRST_LOOK, || {
            !self
                .catalog
                .load()
                .shown(view)
                .any(|member| is_unknown(member))
        })
        .await;
    }

    /// Waits until `done` or `until`; looked at whenever an upstream gets somewhere.
    pub(crate) async fn wait_until(&self, until: Instant, done: impl Fn() -> bool) {
        let mut progress = self.progress.subscribe();
        while !done() {
            // The sender lives as long as the hub, so only the deadline can end this otherwise.
            let Ok(Ok(())) = tokio::time::timeout_at(until, progress.changed()).await else {
                return;
            };
        }
    }

    /// Something about an upstream became known: tells those who wait for it.
    pub(crate) fn progressed(&self) {
        self.progress.send_modify(|count| *count += 1);
    }

    /// Makes the catalogue anew from what is known, and tells listeners what became different.
    pub(crate) fn rebuild(&self) {
        let rebuilding = self
            .rebuilding
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (makeup, before) = (self.makeup(), self.catalog());
        let members = &makeup.members;
        self.pins.tell(members, &self.background);
        let known = members.iter().filter(|m| m.learned().is_some());
        let known: Vec<_> = known.collect();
        let built = build(members, &makeup.naming, &makeup.rules, &before);
        let mut after = built.catalog;
        makeup.apply_to(&mut after);
        let conflicts = discover::conflicts(members, &makeup.expose);
        after.warnings.extend(conflicts);
        warn(&before, &after);
        tell_pending(&before, &after);
        for member in members {
            self.claim(member, built.claims.get(&member.name));
        }
        let after = Arc::new(after);
        self.desk.get_ready(&after);
        self.catalog.store(Arc::clone(&after));
        known.into_iter().for_each(|member| member.set_listed());
        drop(rebuilding);
        if !after.is_arranged_as(&before) {
            self.arranged.send_modify(|count| *count += 1);
        }
        self.announce(&before, &after);
        self.progressed();
    }

    /// Replaces an upstream's claims, and keeps them over restarts.
    fn claim(&self, member: &Arc<Member>, claims: Option<&BTreeSet<String>>) {
        let claims = claims.cloned().unwrap_or_default();
        let before = member.update(|learned| {
            let learned = learned.filter(|learned| learned.claims != claims)?;
            Some(Learned {
                claims: claims.clone(),
                ..learned.clone()
            })
        });
        if before.is_some_and(|before| before.claims != claims) {
            let (store, member) = (Arc::clone(&self.store), Arc::clone(member));
            let background = self.background.clone();
            self.background
                .spawn(|_| async move { save(&store, &member, &background).await });
        }
    }

    fn announce(&self, before: &Catalog, after: &Catalog) {
        for kind in Kind::ALL {
            for view in after.changed(before, kind) {
                // Nobody listening is fine.
                drop(self.changes.send(Change { kind, view }));
            }
        }
    }

    /// Keeps what is known of a member over restarts.
    pub(crate) async fn save(&self, member: &Arc<Member>) {
        // What came of it keeps its own.
        if member.has_left() {
            return;
        }
        save(&self.store, member, &self.background).await;
    }

    /// Trusts tools as somebody saw them, over restarts too; gives those that still are so, and so
    /// are approved. Goes on to its end where nobody waits for it any more.
    ///
    /// # Errors
    /// [`StoreError`] when the state could not be written. What was approved before that stays.
    pub async fn approve(
        self: &Arc<Self>,
        wanted: &[Approval],
    ) -> Result<Vec<Approval>, StoreError> {
        let (hub, wanted) = (Arc::clone(self), wanted.iter().cloned().collect());
        let (tell, told) = oneshot::channel();
        self.background
            .spawn(|_| async move { drop(tell.send(hub.trust(&wanted).await)) });
        told.await.unwrap_or_else(|_| {
            let (action, source) = ("save", "shutting down".into());
            Err(StoreError { action, source })
        })
    }

    async fn trust(&self, wanted: &HashSet<Approval>) -> Result<Vec<Approval>, StoreError> {
        let catalog = self.catalog();
        let (mut approved, mut failed) = (Vec::new(), None);
        for member in &catalog.members {
            let mut own = catalog.pending(&member.name).to_vec();
            let approval = |pending: &Pending| Approval {
                upstream: member.name.to_string(),
                tool: pending.tool.to_string(),
                digest: pending.digest.to_string(),
            };
            own.retain(|pending| wanted.contains(&approval(pending)));
            if own.is_empty() {
                continue;
            }
            if let Err(error) = self.pins.approve(member, &own).await {
                failed = Some(error);
                break;
            }
            approved.extend(own.iter().map(approval));
        }
        if !approved.is_empty() {
            self.rebuild();
        }
        failed.map_or(Ok(approved), Err)
    }

    async fn remember(&self) {
        let stored = match self.store.load().await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::error!(%error, source = %error.source, "starting without what was learned");
                return;
            }
        };
        for learned in stored {
            let members = self.members();
            let member = members.iter().find(|m| *m.name == *learned.upstream);
            match member {
                Some(member) if member.settings.fingerprint == learned.fingerprint => {
                    member.learn(learned);
                }
                _ => self.forget(&learned.upstream).await,
            }
        }
    }

    /// What was learned of another server, or at another address, is worth nothing.
    pub(crate) async fn forget(&self, upstream: &str) {
        if let Err(error) = self.store.forget(upstream).await {
            tracing::error!(upstream, %error, "could not forget");
        }
    }
}

/// Logs what the operator should know and was not told before.
fn warn(before: &Catalog, after: &Catalog) {
    let logged: HashSet<&Warning> = before.warnings.iter().collect();
    for warning in after.warnings.iter().filter(|w| !logged.contains(w)) {
        tracing::warn!(upstream = &*warning.upstream, "{}", warning.text);
    }
    for endpoint in after.endpoints() {
        let name = &*endpoint.rules.name;
        let before = before.endpoint(name);
        let logged = before
            .map(|before| before.warnings.as_slice())
            .unwrap_or_default();
        for text in endpoint
            .warnings
            .iter()
            .filter(|text| !logged.contains(text))
        {
            tracing::warn!(endpoint = name, "{text}");
        }
    }
}

/// Logs pinned tools that are not as they were, each change once.
fn tell_pending(before: &Catalog, after: &Catalog) {
    for member in &after.members {
        let known = before.pending(&member.name);
        let news = after.pending(&member.name).iter();
        for pending in news.filter(|pending| !known.contains(pending)) {
            let upstream = &*member.name;
            ToolPending { upstream, pending }.emit();
        }
    }
}

/// Who has what an entry stands for.
fn upstreams(entry: &Entry) -> Arc<str> {
    let Some(choice) = &entry.choice else {
        return Arc::clone(&entry.member.name);
    };
    let names = choice.instances.iter().map(|(_, one)| &*one.member.name);
    names.collect::<Vec<_>>().join(", ").into()
}

/// Still connecting, and nothing of it is in the catalogue yet.
pub(crate) fn is_unknown(member: &Member) -> bool {
    member.status.state() == State::Starting && !member.is_listed()
}
