//! Tasks of a listener that their servers do not tell of.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, timeout_at};
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::message::Notification;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::source::is_fit;
use crate::call::Call;
use crate::hub::Hub;
use crate::member::Member;
use crate::tasks::handle::Opened;
use crate::tasks::passthrough::TASK_ID;
use crate::tasks::watch::{Seen, is_same};

/// Tasks that are asked about for one listener. Others are left out of its acknowledgement, and
/// it asks itself.
const MOST: usize = 100;

/// Tasks that are looked at together for the first time.
const OPENED_AT_ONCE: usize = 8;

/// A task that a listener wants to hear of.
pub(super) struct TaskWish {
    pub(super) handle: String,
    pub(super) task: Opened,
}

/// A task that Waypost asks about in its listener's place.
pub(super) struct Polled {
    handle: String,
    /// Its server's own name of it.
    id: String,
    declared: ClientCapabilities,
    /// Who had it to begin with; a listener keeps nobody from being left.
    member: Weak<Member>,
    seen: Receiver<Seen>,
    /// What the listener knows of it.
    told: Option<Object>,
    /// How it was to begin with, where that is to be told.
    pending: Option<Notification>,
    /// There is nothing more to tell of it.
    is_told: bool,
}

/// Those that nobody tells of, as far as there is room beside so many that are asked about already.
pub(super) fn untold(
    mut wishes: Vec<TaskWish>,
    told: &HashSet<&str>,
    already: usize,
) -> Vec<TaskWish> {
    wishes.retain(|wish| !told.contains(wish.handle.as_str()));
    wishes.truncate(MOST.saturating_sub(already));
    wishes
}

/// Listens to those that are there; of those whose servers have not said so by `until` that is
/// taken for granted.
pub(super) async fn open(
    hub: &Hub,
    call: &Call,
    wishes: Vec<TaskWish>,
    until: Instant,
) -> Vec<Polled> {
    let open = wishes
        .into_iter()
        .map(|wish| Polled::open(hub, call, wish, until));
    let open: Vec<_> = open.collect();
    let opened = stream::iter(open).buffered(OPENED_AT_ONCE);
    opened.filter_map(std::future::ready).collect().await
}

impl Polled {
    async fn open(hub: &Hub, call: &Call, wish: TaskWish, until: Instant) -> Option<Self> {
        let mut seen = hub.desk.watch(&wish.task, call)?;
        let known = seen.wait_for(|seen| *seen != Seen::Nothing);
        let now = match timeout_at(until, known).await {
            Ok(Ok(now)) => now.clone(),
            Ok(Err(_)) => Seen::Gone,
            Err(_) => Seen::Nothing,
        };
        let mut polled = Self {
            handle: wish.handle,
            id: wish.task.id,
            declared: call.meta.capabilities.clone(),
            member: Arc::downgrade(&wish.task.member),
            seen,
            told: None,
            pending: None,
            is_told: false,
        };
        match now {
            Seen::Nothing => {}
            Seen::Task(task) => polled.pending = polled.news(task),
            Seen::Gone => return None,
        }
        Some(polled)
    }

    pub(super) fn handle(&self) -> &str {
        &self.handle
    }

    /// Whether who had it to begin with is there no more.
    pub(super) fn has_left(&self) -> bool {
        let member = self.member.upgrade();
        !self.is_told && member.is_none_or(|member| member.has_left())
    }

    /// How the task is, whenever it has become different, and to begin with unless it merely
    /// works: whoever listens has seen it do so.
    pub(super) async fn next(&mut self) -> Option<Notification> {
        if let Some(pending) = self.pending.take() {
            return Some(pending);
        }
        loop {
            // Fails once nobody asks any more and the last answer was told.
            if self.seen.changed().await.is_err() {
                self.is_told = true;
                return None;
            }
            let seen = self.seen.borrow_and_update().clone();
            match seen {
                Seen::Nothing => {}
                Seen::Gone => return None,
                Seen::Task(task) => {
                    if let Some(news) = self.news(task) {
                        return Some(news);
                    }
                }
            }
        }
    }

    fn news(&mut self, mut task: Object) -> Option<Notification> {
        let is_it = task.string(TASK_ID).as_ref() == Some(&self.id);
        if !is_it || !is_fit(&mut task, &self.declared) {
            return None;
        }
        task.set(TASK_ID, Raw::string(&self.handle));
        let notification = Notification {
            method: method::TASK_STATUS.to_owned(),
            params: task.clone(),
        };
        let is_first = self.told.is_none();
        let works = task.str("status").is_some_and(|status| status == "working");
        let is_news = match self.told.replace(task.clone()) {
            Some(told) => !is_same(&told, &task),
            None => true,
        };
        (is_news && !(is_first && works)).then_some(notification)
    }
}
