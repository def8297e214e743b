//! What becomes of tasks.
//!
//! | part | decides |
//! |---|---|
//! | [`policy`] | who gets a handle and who the final answer |
//! | [`handle`] | what a task is called towards its caller |
//! | [`passthrough`] | how `tasks/*` reach the task |
//! | `collapse`, `schedule`, `progress` | how Waypost waits for a task in its caller's place |
//! | `watch` | how listeners hear of a task whose server tells nothing |
//! | `rounds`, `beside`, `parked`, `state` | how a task that asks reaches a caller that knows no tasks |
//!
//! `drive` puts them together for one call.

mod beside;
pub(crate) mod collapse;
mod drive;
pub(crate) mod event;
pub(crate) mod handle;
mod misplaced;
pub(crate) mod parked;
pub(crate) mod passthrough;
pub(crate) mod policy;
pub(crate) mod progress;
pub(crate) mod remote;
pub(crate) mod rounds;
pub(crate) mod schedule;
pub(crate) mod state;
pub(crate) mod tags;
pub(crate) mod watch;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch::Receiver;
use waypost_config::config::TaskTimes;
use waypost_wire::result::REQUEST_STATE;

use crate::aftermath;
use crate::call::{Call, Comeback};
use crate::catalog::Catalog;
use crate::catalog::entry::Kind as Listed;
use crate::error::{CallError, Kind};
use crate::keys::Keys;
use crate::leavers::{Leavers, Shown};
use crate::lifecycle::Tasks;
use crate::limit::Limit;
use crate::member::Member;
use crate::registry::Learned;
use crate::reply::Reply;
use crate::status::State;
use crate::store::Store;
use handle::{Opened, Seals};
use misplaced::Other;
use parked::Parked;
use remote::Cancels;
use state::States;
use tags::ToolTags;
use watch::{Seen, Watches};

/// Where calls that may become tasks, and calls about tasks, pass through.
#[derive(Clone, Debug)]
pub struct TaskDesk(Arc<Desk>);

/// What all calls share.
pub(crate) struct Desk {
    pub(crate) seals: Seals,
    pub(crate) states: States,
    pub(crate) parked: Arc<Parked>,
    pub(crate) store: Arc<dyn Store>,
    times: ArcSwap<TaskTimes>,
    pub(crate) background: Tasks,
    pub(crate) cancels: Cancels,
    /// Answers that are waited for after their callers have gone.
    pub(crate) lingering: Arc<Limit>,
    /// Tells the states of this process from those of others.
    pub(crate) issuer: u64,
    on_task_only: OnceLock<OnTaskOnly>,
    tools: ToolTags,
    watches: Watches,
    leavers: Leavers,
}

/// Told of an upstream of which a tool turned out to answer only with tasks.
type OnTaskOnly = Box<dyn Fn(&Arc<Member>) + Send + Sync>;

/// Why a handle stands for no task.
enum NotOpened {
    /// It was never made for this caller, or not by an upstream that is there.
    Unknown,
    /// It was, by a tool of this upstream that is not in the catalogue.
    NoTool(Arc<Member>),
    /// It was, by an upstream of this name that was removed.
    Removed(String),
}

/// A call of a caller, under the upstream's names.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) member: Arc<Member>,
    /// The original name.
    pub(crate) tool: Arc<str>,
    pub(crate) call: Call,
}

impl Job {
    /// The same at whoever has the task of a round: after a reload that may be about to leave.
    pub(crate) fn at_asker(mut self, instance: Option<&str>) -> Self {
        let (principal, session) = (&self.call.principal, self.call.session.as_ref());
        let has = |member: &Arc<Member>| {
            member.upstream.instance(principal, session).as_deref() == instance
        };
        if !has(&self.member)
            && let Some(before) = self.member.leaving().find(has)
        {
            self.member = before;
        }
        self
    }
}

impl TaskDesk {
    /// `parked` bounds the calls that wait for an answer of their caller; `store` remembers which
    /// request states were used.
    pub fn new(
        keys: &Keys,
        times: TaskTimes,
        parked: usize,
        (store, background): (Arc<dyn Store>, Tasks),
    ) -> Self {
        let seals = Seals::new(keys);
        Self(Arc::new(Desk {
            tools: ToolTags::new({
                let seals = seals.clone();
                move |tool| seals.tool_tags(tool)
            }),
            seals,
            states: States::new(keys),
            parked: Parked::new(parked),
            store,
            times: ArcSwap::from_pointee(times),
            cancels: Cancels::new(background.clone()),
            lingering: Limit::new(aftermath::ROOM),
            background,
            issuer: rand::random(),
            on_task_only: OnceLock::new(),
            watches: Watches::default(),
            leavers: Leavers::default(),
        }))
    }

    /// From now on tasks are followed in these times.
    pub fn set_times(&self, times: TaskTimes) {
        self.0.times.store(Arc::new(times));
    }

    /// `report` is called with an upstream of which a tool turned out to answer only with tasks,
    /// after [`Member::learned`] says so; for whoever keeps what was learned. Set once.
    pub fn on_task_only(&self, report: impl Fn(&Arc<Member>) + Send + Sync + 'static) {
        drop(self.0.on_task_only.set(Box::new(report)));
    }

    /// Sends a `tools/call`, whose names are the upstream's, and does with a task what the
    /// upstream's policy says. `tool` is the original name.
    ///
    /// # Errors
    /// What [`crate::forward::send`] reports; [`crate::error::Kind::UnknownTarget`] for a
    /// request state of Waypost's own that does not open or was used.
    pub async fn call(
        &self,
        member: &Arc<Member>,
        tool: &str,
        mut call: Call,
    ) -> Result<Reply, CallError> {
        // How clients of 2025-11-25 asked for a task. Today it means nothing, and a server of
        // both eras must not take it for something.
        call.params.remove("task");
        let round = state::take(&self.0.states, member, &mut call)?;
        let job = Job {
            member: awaiting(member, &call),
            tool: tool.into(),
            call,
        };
        match round {
            Some((round, _)) if job.call.comeback == Comeback::Listens => {
                Ok(beside::listen(&self.0, job, round))
            }
            Some((round, expires_ms)) => rounds::resume(&self.0, job, &round, expires_ms),
            None => Box::pin(drive::start(&self.0, job)).await,
        }
    }

    /// Sends, by `send`, a call that cannot become a task but whose answer may carry a request
    /// state: one that looks like ours is wrapped on its way out and unwrapped here.
    ///
    /// # Errors
    /// What `send` reports; [`crate::error::Kind::UnknownTarget`] for a request state of
    /// Waypost's own that does not open.
    pub async fn stateful<F, S>(
        &self,
        member: &Arc<Member>,
        mut call: Call,
        send: S,
    ) -> Result<Reply, CallError>
    where
        S: FnOnce(Call) -> F,
        F: Future<Output = Result<Reply, CallError>>,
    {
        if state::take(&self.0.states, member, &mut call)?.is_some() {
            return Err(state::unknown_state());
        }
        let member = &awaiting(member, &call);
        let binding = state::Binding::of(&call);
        let other = Other::new(&self.0, member, &mut call);
        let reply = other.check(send(call).await?)?;
        state::wrap_reply(&self.0, member, binding, reply)
    }

    /// Serves `tasks/get`, `tasks/update` and `tasks/cancel` by `send`. The member is the one
    /// that answered; `None` for an answer of Waypost's own.
    ///
    /// # Errors
    /// Those of [`TaskDesk::open`], and what `send` reports.
    pub async fn tasks_method<F, S>(
        &self,
        catalog: &Arc<Catalog>,
        call: Call,
        send: S,
    ) -> Result<(Reply, Option<Arc<Member>>), CallError>
    where
        S: FnOnce(Arc<Member>, Call) -> F,
        F: Future<Output = Result<Reply, CallError>>,
    {
        if let Err(error) = passthrough::demand_tasks(&call.meta.capabilities) {
            return Ok((Reply::error(error), None));
        }
        let handle = passthrough::handle_of(&call);
        let opened = self.open(catalog, &call, &handle)?;
        let send = |call| send(Arc::clone(&opened.member), call);
        let reply = passthrough::serve(&opened, handle, call, send).await?;
        Ok((reply, Some(opened.member)))
    }

    /// The upstream and its task that a handle in `call` stands for; for `taskIds` of
    /// `subscriptions/listen`.
    ///
    /// # Errors
    /// [`CallError::unknown_task`], whatever is wrong with it; [`Kind::Unavailable`] for a good
    /// one whose upstream has not said yet which tools it has.
    pub fn open(
        &self,
        catalog: &Arc<Catalog>,
        call: &Call,
        handle: &str,
    ) -> Result<Opened, CallError> {
        match self.0.open(catalog, call, handle) {
            Ok(opened) => Ok(opened),
            Err(NotOpened::NoTool(member)) if lacks_tools(&member) => Err(unavailable(&member)),
            Err(refused) => {
                event::HandleRefused {
                    request_id: &call.request_id,
                    method: &call.method,
                }
                .emit();
                Err(match refused {
                    NotOpened::Removed(upstream) => CallError::unknown(format!(
                        "unknown task: upstream `{upstream}`, which had it, was removed"
                    )),
                    NotOpened::NoTool(_) | NotOpened::Unknown => CallError::unknown_task(),
                })
            }
        }
    }

    /// The same for one that was good before, and may not be any more.
    pub(crate) fn look(&self, catalog: &Arc<Catalog>, call: &Call, handle: &str) -> Option<Opened> {
        self.0.open(catalog, call, handle).ok()
    }

    /// How a task of the caller of `call` is from now on, for one who listens and is not told by
    /// its server; `None` when too many are listened to so.
    pub(crate) fn watch(&self, task: &Opened, call: &Call) -> Option<Receiver<Seen>> {
        self.0.watch(task, call)
    }

    /// How many calls whose tasks ask wait for their callers.
    pub(crate) fn parked(&self) -> usize {
        self.0.parked.count()
    }

    /// Whether a task may yet be made for a caller that has gone.
    pub(crate) fn lingers(&self) -> bool {
        !self.0.lingering.is_idle()
    }

    /// Waits until the upstreams of all tasks that nobody waits for any more were told.
    pub(crate) async fn settled(&self) {
        self.0.cancels.settled().await;
    }

    /// Gets ready for handles of the tools of a catalogue, before calls come upon it.
    pub(crate) fn get_ready(&self, catalog: &Arc<Catalog>) {
        drop(self.0.tools.learn(catalog));
    }

    /// The upstream of a good handle whose tool is not in the catalogue: because it is gone, or
    /// not there yet.
    pub(crate) fn lacks(
        &self,
        catalog: &Arc<Catalog>,
        call: &Call,
        handle: &str,
    ) -> Option<Arc<Member>> {
        match self.0.open(catalog, call, handle) {
            Err(NotOpened::NoTool(member)) => Some(member),
            Err(NotOpened::Unknown | NotOpened::Removed(_)) | Ok(_) => None,
        }
    }

    /// This member of `catalog` leaves.
    pub(crate) fn leaves(&self, catalog: &Catalog, member: &Arc<Member>) {
        let shown = match member.is_removed() {
            true => Shown::of(catalog, member, |tool| self.0.seals.tool_tags(tool)),
            false => Shown::default(),
        };
        self.0.leavers.add(member, shown);
    }

    /// Those that left and at which something may still go on.
    pub(crate) fn leavers(&self) -> Vec<Arc<Member>> {
        self.0.leavers.members()
    }

    /// For how long at most a question waits for its caller.
    pub(crate) fn input_wait(&self) -> Duration {
        self.0.times().input_wait
    }
}

/// Where a call goes that comes back with an upstream's own state: after a reload what waits for it
/// may be about to leave.
fn awaiting(member: &Arc<Member>, call: &Call) -> Arc<Member> {
    let state = call.params.string(REQUEST_STATE);
    let waits = |state: String| member.leaving().find(|m| m.upstream.awaits(&state));
    state.and_then(waits).unwrap_or_else(|| Arc::clone(member))
}

/// Whether the upstream has not yet said which tools it has.
fn lacks_tools(member: &Member) -> bool {
    let unread = |known: &Learned| known.has("tools") && known.catalogue.tools.is_none();
    !member.settings.disabled && member.learned().is_none_or(|known| unread(&known))
}

fn unavailable(member: &Member) -> CallError {
    let error = CallError::upstream(Kind::Unavailable, &member.name).retryable();
    let report = member.status.report();
    match report.last_error {
        Some(last) if report.state != State::Starting => {
            error.detail(format!("its tools are not known yet: {last}"))
        }
        _ => error.detail("still starting"),
    }
}

impl Desk {
    fn open(&self, catalog: &Arc<Catalog>, call: &Call, handle: &str) -> Result<Opened, NotOpened> {
        let refused = match self.open_here(catalog, call, handle) {
            Ok(opened) => return Ok(opened),
            Err(refused) => refused,
        };
        for (member, shown) in self.leavers.removed() {
            let left = self.seals.open_at(handle, &call.principal, &member);
            if let Some(left) = left.filter(|left| shown.has(catalog, &call.view, left.tool)) {
                return Ok(left);
            }
        }
        let is_there = |name: &str| {
            let member = catalog.member(name);
            member.is_some_and(|member| !member.settings.disabled)
        };
        let upstream = self.seals.upstream_of(handle, &call.principal);
        Err(match upstream.filter(|name| !is_there(name)) {
            Some(upstream) => NotOpened::Removed(upstream.to_owned()),
            None => refused,
        })
    }

    /// At who is in the file.
    fn open_here(
        &self,
        catalog: &Arc<Catalog>,
        call: &Call,
        handle: &str,
    ) -> Result<Opened, NotOpened> {
        let opened = self
            .seals
            .open(handle, &call.principal, &catalog.members)
            .filter(|opened| catalog.shows(&call.view, &opened.member.name))
            .ok_or(NotOpened::Unknown)?;
        let Some(tool) = self.tools.find(catalog, &opened.member, opened.tool) else {
            return Err(NotOpened::NoTool(opened.member));
        };
        if catalog.shows_original(Listed::Tool, &call.view, &opened.member, &tool) {
            Ok(opened)
        } else {
            // Hidden is not there: nobody waits for it to come.
            Err(NotOpened::Unknown)
        }
    }

    /// The times in which tasks are followed now.
    pub(crate) fn times(&self) -> Arc<TaskTimes> {
        self.times.load_full()
    }

    /// Remembers that a tool answers only with tasks.
    pub(crate) fn learn_task_only(&self, member: &Arc<Member>, tool: &str) {
        let is_new = |learned: &Learned| !learned.task_only.contains(tool);
        let before = member.update(|learned| {
            let mut learned = learned.filter(|learned| is_new(learned))?.clone();
            learned.task_only.insert(tool.to_owned());
            Some(learned)
        });
        if !before.is_some_and(|before| is_new(&before)) {
            return;
        }
        event::TaskOnlyLearned {
            upstream: &member.name,
            tool,
        }
        .emit();
        if let Some(report) = self.on_task_only.get() {
            report(member);
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("seals", &self.seals)
            .field("parked", &self.parked)
            .field("times", &self.times())
            .finish_non_exhaustive()
    }
}
