//! What becomes of tasks.
//!
//! | part | decides |
//! |---|---|
//! | [`policy`] | who gets a handle and who the final answer |
//! | [`handle`] | what a task is called towards its caller |
//! | [`passthrough`] | how `tasks/*` reach the task |
//! | `collapse`, `schedule`, `progress` | how Waypost waits for a task in its caller's place |
//! | `rounds`, `parked`, `state` | how a task that asks reaches a caller that knows no tasks |
//!
//! `drive` puts them together for one call.

pub(crate) mod collapse;
mod drive;
pub mod event;
pub(crate) mod generate;
pub mod handle;
pub(crate) mod parked;
pub mod passthrough;
pub mod policy;
pub(crate) mod progress;
pub(crate) mod remote;
pub(crate) mod rounds;
pub(crate) mod schedule;
pub(crate) mod state;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use moka::sync::Cache;
use waypost_config::config::TaskTimes;

use crate::call::Call;
use crate::catalog::Catalog;
use crate::error::CallError;
use crate::keys::Keys;
use crate::lifecycle::Tasks;
use crate::member::Member;
use crate::registry::Learned as Known;
use crate::reply::Reply;
use handle::{Opened, Seals, Tag};
use parked::Parked;
use state::States;

/// Where calls that may become tasks, and calls about tasks, pass through.
#[derive(Clone, Debug)]
pub struct TaskDesk(Arc<Desk>);

/// What all calls share.
pub(crate) struct Desk {
    pub(crate) seals: Seals,
    pub(crate) states: States,
    pub(crate) parked: Arc<Parked>,
    pub(crate) times: TaskTimes,
    pub(crate) background: Tasks,
    /// Tells the states of this process from those of others.
    pub(crate) issuer: u64,
    learned: OnceLock<Learned>,
    /// Tools by upstream and tag: saves computing the tag of every tool for every poll.
    tools: Cache<(Arc<str>, Tag), Arc<str>>,
}

/// Tools that are remembered by their tags.
const TAGGED_TOOLS: u64 = 10_000;

type Learned = Box<dyn Fn(&Arc<Member>) + Send + Sync>;

/// A call of a caller, under the upstream's names.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) member: Arc<Member>,
    /// The original name.
    pub(crate) tool: Arc<str>,
    pub(crate) call: Call,
}

impl TaskDesk {
    /// `parked` bounds the calls that wait for an answer of their caller.
    pub fn new(keys: &Keys, times: TaskTimes, parked: usize, background: Tasks) -> Self {
        Self(Arc::new(Desk {
            seals: Seals::new(keys),
            states: States::new(keys),
            parked: Parked::new(parked),
            times,
            background,
            issuer: rand::random(),
            learned: OnceLock::new(),
            tools: Cache::new(TAGGED_TOOLS),
        }))
    }

    /// `report` is called with an upstream of which a tool turned out to answer only with tasks,
    /// after [`Member::learned`] says so; for whoever keeps what was learned. Set once.
    pub fn on_task_only(&self, report: impl Fn(&Arc<Member>) + Send + Sync + 'static) {
        drop(self.0.learned.set(Box::new(report)));
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
            member: Arc::clone(member),
            tool: tool.into(),
            call,
        };
        match round {
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
        let binding = state::Binding::of(&call);
        let reply = send(call).await?;
        Ok(state::wrap_reply(&self.0, member, binding, reply))
    }

    /// Serves `tasks/get`, `tasks/update` and `tasks/cancel`. The member is the one that
    /// answered; `None` for an answer of Waypost's own.
    ///
    /// # Errors
    /// [`CallError::unknown_task`], and what [`crate::forward::send`] reports.
    pub async fn tasks_method(
        &self,
        catalog: &Catalog,
        call: Call,
    ) -> Result<(Reply, Option<Arc<Member>>), CallError> {
        if let Err(error) = passthrough::demand_tasks(&call.meta.capabilities) {
            return Ok((Reply::error(error), None));
        }
        let handle = passthrough::handle_of(&call);
        let opened = self.open_for(catalog, &call, &handle)?;
        let member = Arc::clone(&opened.member);
        let reply = passthrough::serve(opened, handle, call).await?;
        Ok((reply, Some(member)))
    }

    /// The upstream and its task that a handle in `call` stands for; for `taskIds` of
    /// `subscriptions/listen`.
    ///
    /// # Errors
    /// [`CallError::unknown_task`], whatever is wrong with it.
    pub fn open(
        &self,
        catalog: &Catalog,
        call: &Call,
        handle: &str,
    ) -> Result<(Arc<Member>, String), CallError> {
        let opened = self.open_for(catalog, call, handle)?;
        Ok((opened.member, opened.id))
    }

    fn open_for(&self, catalog: &Catalog, call: &Call, handle: &str) -> Result<Opened, CallError> {
        let tools = |member: &Member, tag| self.0.tool_of(catalog, member, tag);
        let members = &catalog.members;
        self.0
            .seals
            .open(handle, &call.principal, members, &call.view, tools)
            .inspect_err(|_| {
                event::HandleRefused {
                    request_id: &call.request_id,
                    method: &call.method,
                }
                .emit();
            })
    }
}

impl Desk {
    /// The original name of the tool with this tag, as long as it is in the catalogue.
    fn tool_of(&self, catalog: &Catalog, member: &Member, tag: Tag) -> Option<String> {
        let key = (Arc::clone(&member.name), tag);
        if let Some(name) = self.tools.get(&key) {
            let entry = catalog.tools.of(member, &name)?;
            return Some(entry.original.to_string());
        }
        let entries = catalog.tools.entries().iter();
        let mut own = entries.filter(|entry| entry.member.name == member.name);
        let is_it = |name: &str| self.seals.tool_tags(name).contains(&tag);
        let found = &own.find(|entry| is_it(&entry.original))?.original;
        self.tools.insert(key, Arc::clone(found));
        Some(found.to_string())
    }

    /// Remembers that a tool answers only with tasks.
    pub(crate) fn learn_task_only(&self, member: &Arc<Member>, tool: &str) {
        let is_new = |learned: &Known| !learned.task_only.contains(tool);
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
        if let Some(report) = self.learned.get() {
            report(member);
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("seals", &self.seals)
            .field("parked", &self.parked)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}
