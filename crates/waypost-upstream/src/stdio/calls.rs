//! Which answer belongs to whom.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc, oneshot};
use waypost_hub::call::Call;
use waypost_hub::upstream::BoxFuture;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Message, Notification, Outcome};
use waypost_wire::meta;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::abandoned::{Abandoned, Sort};
use super::writer::{Cancels, Stop};
use crate::ear::{Ear, Heard};
use crate::event::{Ignored, TaskAbandoned};
use crate::fault::{Exit, Fault};

/// Notifications that wait for one caller. Its end has a place of its own.
const QUEUE: usize = 256;

/// The calls in flight at one child.
#[derive(Debug)]
pub(crate) struct Calls {
    upstream: Arc<str>,
    table: Mutex<Table>,
    next_id: AtomicU64,
    /// What the server has to be told to stop.
    pub(crate) cancels: Arc<Cancels>,
    /// A call has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Slot>,
    abandoned: Abandoned,
    /// The child's end: nothing is taken any more.
    gone: Option<Arc<Exit>>,
}

#[derive(Debug)]
struct Slot {
    events: mpsc::Sender<Notification>,
    end: oneshot::Sender<Result<Outcome, Fault>>,
    progress_token: Option<Raw>,
    wants_log: bool,
    sort: Sort,
    /// The request was written, at least in part.
    sent: bool,
}

/// Where one call's answers come out.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) id: u64,
    pub(crate) sort: Sort,
    pub(crate) events: mpsc::Receiver<Notification>,
    pub(crate) end: oneshot::Receiver<Result<Outcome, Fault>>,
}

impl Calls {
    pub(crate) fn new(upstream: &Arc<str>) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            table: Mutex::default(),
            next_id: AtomicU64::new(1),
            cancels: Arc::default(),
            ended: Notify::new(),
        }
    }

    /// Makes a place for the answers to `call`.
    pub(crate) fn open(&self, call: &Call) -> Result<Place, Fault> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (events_in, events) = mpsc::channel(QUEUE);
        let (end_in, end) = oneshot::channel();
        let sort = Sort::of(&call.method);
        let slot = Slot {
            events: events_in,
            end: end_in,
            progress_token: call.meta.progress_token.clone(),
            wants_log: call.meta.log_level.is_some(),
            sort,
            sent: false,
        };
        let mut table = self.table();
        if let Some(exit) = &table.gone {
            return Err(Fault::NotRunning(Some(Arc::clone(exit))));
        }
        table.open.insert(id, slot);
        Ok(Place {
            id,
            sort,
            events,
            end,
        })
    }

    /// The upstream's name.
    pub(crate) fn upstream(&self) -> &Arc<str> {
        &self.upstream
    }

    /// Whether somebody waits for the answer to a call.
    pub(crate) fn is_busy(&self) -> bool {
        self.table().open.values().any(|slot| !slot.listens())
    }

    /// Nobody waits for `id` any more; `unread` is the answer that came this moment.
    pub(crate) fn leave(&self, id: u64, sort: Sort, unread: Option<Outcome>) {
        match unread {
            Some(outcome) => self.late(sort, &outcome),
            None => self.give_up(id),
        }
    }

    /// Nobody waits for `id` any more. A server that knows of it is told.
    fn give_up(&self, id: u64) {
        let mut table = self.table();
        let Some(slot) = table.open.remove(&id) else {
            return;
        };
        if slot.sent {
            table.abandoned.remember(id, slot.sort);
        }
        drop(table);
        self.ended.notify_waiters();
        if slot.sent {
            self.cancels.push(Stop::Call(id));
        }
    }

    /// A response has come.
    fn answer(&self, id: Option<&Id>, outcome: Outcome) {
        let id = match (id, &outcome) {
            (Some(id), _) => id.as_number(),
            // The server could not read a request.
            (None, Outcome::Error(_)) => self.only_one(),
            // Whoever has a result has read the request, and its id.
            (None, Outcome::Result(_)) => None,
        };
        let Some(id) = id else {
            return self.ignore("other_answer");
        };
        if let Some(slot) = self.close(id) {
            // The receiver may have gone this moment.
            if let Err(Ok(outcome)) = slot.end.send(Ok(outcome)) {
                self.late(slot.sort, &outcome);
            }
            return;
        }
        let abandoned = self.table().abandoned.answered(id);
        match abandoned {
            Some(sort) => self.late(sort, &outcome),
            None => self.ignore("other_answer"),
        }
    }

    /// The answer to a call came after its caller had gone. A task that it made is nobody's.
    fn late(&self, sort: Sort, outcome: &Outcome) {
        let Some(task) = sort.made(outcome) else {
            return self.ignore("late_answer");
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        // Nobody waits for the answer to this one either.
        let mut table = self.table();
        table.abandoned.remember(id, Sort::of(method::TASKS_CANCEL));
        drop(table);
        self.cancels.push(Stop::Task { id, task });
        let upstream = &self.upstream;
        TaskAbandoned { upstream }.emit();
    }

    /// A notification has come. It goes to the call that it names and never to another's.
    fn notify(&self, notification: Notification) {
        let mut table = self.table();
        let Some(id) = target(&table, &notification) else {
            drop(table);
            return self.ignore("unmatched");
        };
        let Some(slot) = table.open.get(&id) else {
            drop(table);
            return self.ignore("unmatched");
        };
        if slot.events.try_send(notification).is_ok() {
            return;
        }
        // A reader too slow loses progress, which is old anyway. A subscription must not lose a
        // change: it ends, and who listens again starts from the present.
        let listens = slot.listens();
        let slot = listens.then(|| table.open.remove(&id)).flatten();
        if let Some(slot) = slot {
            table.abandoned.remember(id, slot.sort);
            drop(table);
            drop(slot.end.send(Err(Fault::Overflow)));
            self.cancels.push(Stop::Call(id));
        } else {
            drop(table);
        }
        self.ignore("queue_full");
    }

    /// The child has gone: every call in flight fails with it, and no new one is taken.
    fn fail_all(&self, exit: &Arc<Exit>) {
        let open = {
            let mut table = self.table();
            table.gone.get_or_insert_with(|| Arc::clone(exit));
            std::mem::take(&mut table.open)
        };
        for slot in open.into_values() {
            let (exit, sent) = (Arc::clone(exit), slot.sent);
            drop(slot.end.send(Err(Fault::Exited { exit, sent })));
        }
        self.ended.notify_waiters();
    }

    /// Servers that are spoken to without a session ask in their results; one that asks here
    /// must not wait for ever.
    fn refuse(&self, id: &Id) {
        self.ignore("request");
        let error = ErrorObject::new(code::METHOD_NOT_FOUND, "method not found");
        let answer = message::encode_error(Some(id), &error);
        self.cancels.push(Stop::Request(answer));
    }

    fn close(&self, id: u64) -> Option<Slot> {
        let slot = self.table().open.remove(&id);
        self.ended.notify_waiters();
        slot
    }

    /// The call that an error without an id is about, where it can be about no other.
    fn only_one(&self) -> Option<u64> {
        let table = self.table();
        let only = only(&table.open, |slot| slot.sent);
        only.filter(|_| !table.abandoned.any())
    }

    fn ignore(&self, reason: &'static str) {
        let upstream = &self.upstream;
        Ignored { upstream, reason }.emit();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ear for Calls {
    fn hear(&self, heard: Heard) {
        match heard.message {
            Message::Response(id, outcome) => self.answer(id.as_ref(), outcome),
            Message::Notification(notification) => self.notify(notification),
            Message::Request(request) => self.refuse(&request.id),
        }
    }

    fn spoiled(&self, id: u64, fault: Fault) {
        if let Some(slot) = self.close(id) {
            drop(slot.end.send(Err(fault)));
        }
    }

    fn gone(&self, fault: &Fault) {
        if let Fault::Exited { exit, .. } = fault {
            self.fail_all(exit);
        }
    }

    fn sending(&self, id: u64) -> bool {
        let mut table = self.table();
        let slot = table.open.get_mut(&id);
        slot.map(|slot| slot.sent = true).is_some()
    }

    /// Resolves when nothing but subscriptions is in flight.
    fn idle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            loop {
                let ended = self.ended.notified();
                if self.table().open.values().all(Slot::listens) {
                    return;
                }
                ended.await;
            }
        })
    }
}

impl Slot {
    fn listens(&self) -> bool {
        self.sort == Sort::Listen
    }
}

/// The one call that is wanted, unless there are several.
fn only(open: &HashMap<u64, Slot>, wanted: fn(&Slot) -> bool) -> Option<u64> {
    let mut ids = open
        .iter()
        .filter(|(_, slot)| wanted(slot))
        .map(|(id, _)| *id);
    ids.next().filter(|_| ids.next().is_none())
}

/// The one call that a notification belongs to.
fn target(table: &Table, notification: &Notification) -> Option<u64> {
    let open = &table.open;
    let params = &notification.params;
    if let Some(subscription) = subscription(params) {
        return Some(subscription);
    }
    match notification.method.as_str() {
        method::PROGRESS => {
            let token = params.get(meta::PROGRESS_TOKEN)?;
            let named = |slot: &Slot| slot.progress_token.as_ref() == Some(token);
            open.iter().find(|(_, slot)| named(slot)).map(|(id, _)| *id)
        }
        // Nothing names its call, and it may tell what another caller must not know: it passes
        // only where it can be no other's, whether that one wanted a log or not.
        method::MESSAGE => {
            let id = only(open, |slot| slot.sent && !slot.listens())?;
            let wanted = open.get(&id).is_some_and(|slot| slot.wants_log);
            (wanted && !table.abandoned.any_call()).then_some(id)
        }
        // What else may come belongs to a subscription that the server forgot to name.
        _ => only(open, Slot::listens),
    }
}

fn subscription(params: &Object) -> Option<u64> {
    let meta = params.get(meta::META)?.as_object().ok()?;
    let id = meta.get(meta::SUBSCRIPTION_ID)?.as_i64()?;
    u64::try_from(id).ok()
}

#[cfg(test)]
mod tests;
