//! Tasks of a listener that their servers do not tell of.

use std::collections::HashSet;

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, timeout_at};
use waypost_wire::message::Notification;
use waypost_wire::method;
use waypost_wire::object::Object;

use super::source::{Group, Source};
use crate::call::Call;
use crate::hub::Hub;
use crate::reply::{Event, EventStream};
use crate::tasks::handle::Opened;
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
    /// It alone.
    pub(super) group: Group,
}

/// A task that Waypost asks about in its listener's place.
pub(super) struct Polled {
    handle: String,
    group: Group,
    seen: Receiver<Seen>,
    /// What the listener knows of it.
    told: Option<Object>,
    /// How it was to begin with, where that is to be told.
    pending: Option<Notification>,
}

/// Those that no source tells of.
pub(super) fn untold(mut wishes: Vec<TaskWish>, sources: &[Source]) -> Vec<TaskWish> {
    let told: HashSet<&str> = sources.iter().flat_map(Source::heard_tasks).collect();
    wishes.retain(|wish| !told.contains(wish.handle.as_str()));
    wishes.truncate(MOST);
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
            group: wish.group,
            seen,
            told: None,
            pending: None,
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

    /// How the task is, whenever it has become different, and to begin with unless it merely
    /// works: whoever listens has seen it do so.
    pub(super) fn into_events(self) -> EventStream {
        Box::pin(stream::unfold(self, |mut polled| async move {
            let event = polled.next().await?;
            Some((Ok(Event::Notification(event)), polled))
        }))
    }

    async fn next(&mut self) -> Option<Notification> {
        if let Some(pending) = self.pending.take() {
            return Some(pending);
        }
        loop {
            // Fails once nobody asks any more and the last answer was told.
            self.seen.changed().await.ok()?;
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

    fn news(&mut self, params: Object) -> Option<Notification> {
        let method = method::TASK_STATUS.to_owned();
        let notification = self.group.renamed(Notification { method, params })?;
        let task = notification.params.clone();
        let is_first = self.told.is_none();
        let works = task.str("status").is_some_and(|status| status == "working");
        let is_news = match self.told.replace(task.clone()) {
            Some(told) => !is_same(&told, &task),
            None => true,
        };
        (is_news && !(is_first && works)).then_some(notification)
    }
}
