//! Tasks that are listened to and whose servers tell nothing of them: they are asked about.
//!
//! However many listen to a task of one caller, one asks for all of them, and only while somebody
//! listens. Each listener sees how the task is now; what it was in between is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch::{Receiver, Sender};
use tokio::time::sleep;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::meta::META;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::RESULT_TYPE;
use waypost_wire::task::Status;

use crate::backoff::Backoff;
use crate::call::{Call, Principal};
use crate::tasks::Desk;
use crate::tasks::event::PollFailed;
use crate::tasks::handle::Opened;
use crate::tasks::passthrough::demands_tasks;
use crate::tasks::remote::{Look, Remote};
use crate::tasks::schedule::Schedule;

/// Tasks that are asked about at once, for all listeners together.
const MOST: usize = 1_000;

/// Waits after failures. There is no last one: a server may come back while somebody listens.
const AGAIN_FIRST: Duration = Duration::from_millis(500);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// Members that may become others with every look and say nothing of the task.
const BESIDE: [&str; 3] = ["lastUpdatedAt", "ttlMs", "pollIntervalMs"];

/// How a task is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its server has not said yet.
    #[default]
    Nothing,
    /// As the answer to `tasks/get` describes it, under the server's id.
    Task(Object),
    /// It cannot be asked for any more.
    Gone,
}

/// The tasks that are asked about now.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<HashMap<Key, Arc<Sender<Seen>>>>);

/// Whose task it is, and what its server is told of who asks: it may show to one what it hides
/// from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    upstream: Arc<str>,
    id: String,
    instance: Option<Arc<str>>,
    principal: Principal,
    session: Option<Arc<str>>,
    declared: Raw,
}

impl Key {
    fn of(task: &Opened, call: &Call) -> Self {
        Self {
            upstream: Arc::clone(&task.member.name),
            id: task.id.clone(),
            instance: task.instance.clone(),
            principal: call.principal.clone(),
            session: call
                .session
                .as_ref()
                .map(|session| Arc::clone(session.id())),
            declared: call.meta.capabilities.object().clone().into(),
        }
    }
}

impl Watches {
    /// Waits until nobody listens to it any more; then it is forgotten.
    async fn unheard(&self, key: &Key, seen: &Sender<Seen>) {
        loop {
            seen.closed().await;
            let mut all = self.all();
            // Somebody may have come a moment ago.
            if seen.receiver_count() == 0 {
                all.remove(key);
                return;
            }
        }
    }

    /// It is not asked about any more.
    fn forget(&self, key: &Key, seen: &Arc<Sender<Seen>>) {
        let mut all = self.all();
        if all.get(key).is_some_and(|known| Arc::ptr_eq(known, seen)) {
            all.remove(key);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Arc<Sender<Seen>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    /// Listens to a task of the caller of `call`; `None` when too many are asked about already.
    pub(super) fn watch(self: &Arc<Self>, task: &Opened, call: &Call) -> Option<Receiver<Seen>> {
        let key = Key::of(task, call);
        let mut all = self.watches.all();
        if let Some(seen) = all.get(&key) {
            return Some(seen.subscribe());
        }
        if all.len() >= MOST {
            tracing::warn!(most = MOST, "too many tasks are listened to");
            return None;
        }
        let seen = Arc::new(Sender::new(Seen::default()));
        let receiver = seen.subscribe();
        all.insert(key.clone(), Arc::clone(&seen));
        drop(all);
        let instance = task.instance.clone();
        let remote = Remote::new(&task.member, instance, task.id.clone(), call);
        let desk = Arc::clone(self);
        self.background.spawn(|stop| async move {
            let asking = async {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = desk.watches.unheard(&key, &seen) => {}
                    () = desk.ask(remote, &seen) => {}
                }
            };
            asking.await;
            desk.watches.forget(&key, &seen);
        });
        Some(receiver)
    }

    /// Asks again and again, until the task is over.
    async fn ask(&self, mut remote: Remote, seen: &Sender<Seen>) {
        let mut schedule = Schedule::new(&self.times());
        let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MOST);
        // Whether it goes on where it is, whatever becomes of the member.
        let mut stays = false;
        loop {
            remote.member.note_task(remote.instance.is_some());
            let wait = match remote.get().await {
                Ok(Look::Task(task)) => {
                    backoff.reset();
                    let over = is_over(task.status);
                    seen.send_if_modified(|seen| seen.become_task(task.members));
                    if over {
                        return;
                    }
                    schedule.pace(task.poll_interval)
                }
                Ok(Look::Gone) => break,
                Ok(Look::Error(error)) if is_final(&error) => break,
                Ok(Look::Error(error)) => {
                    let text = format!("error {}: {}", error.code(), error.message());
                    failed(&remote, &mut backoff, &text)
                }
                Err(error) => failed(&remote, &mut backoff, &error.to_string()),
            };
            let left = Arc::clone(&remote.member);
            tokio::select! {
                () = left.ended() => break,
                () = sleep(wait) => {}
                () = left.left(), if !stays => match left.successor() {
                    // What made it is asked until it has ended.
                    Some(next) if remote.instance.is_some() && !next.shares(&left) => stays = true,
                    Some(next) => remote.member = next,
                    None => stays = true,
                },
            }
        }
        seen.send_replace(Seen::Gone);
    }
}

impl Seen {
    /// Whether that is news.
    fn become_task(&mut self, mut task: Object) -> bool {
        task.remove(RESULT_TYPE);
        task.remove(META);
        let same = matches!(self, Self::Task(before) if is_same(before, &task));
        *self = Self::Task(task);
        !same
    }
}

/// Whether both say the same of a task.
pub(crate) fn is_same(one: &Object, other: &Object) -> bool {
    let core = |task: &Object| {
        let mut task = task.clone();
        for name in BESIDE {
            task.remove(name);
        }
        task
    };
    core(one) == core(other)
}

fn failed(remote: &Remote, backoff: &mut Backoff, error: &str) -> Duration {
    let wait = backoff.failed();
    PollFailed {
        request_id: remote.request_id(),
        upstream: &remote.member.name,
        failures: backoff.failures(),
        error,
    }
    .emit();
    wait
}

fn is_over(status: Status) -> bool {
    match status {
        Status::Completed | Status::Failed | Status::Cancelled => true,
        Status::Working | Status::InputRequired => false,
    }
}

/// Whether asking again brings nothing else.
fn is_final(error: &ErrorObject) -> bool {
    let code = error.code();
    code == code::INVALID_PARAMS || code == code::METHOD_NOT_FOUND || demands_tasks(error)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(before: &Value, now: &Value, news: bool) {
        let object = |value: &Value| Raw::from(value).as_object().unwrap();
        let mut seen = Seen::Task(object(before));
        assert_eq!(seen.become_task(object(now)), news, "{before} {now}");
    }

    #[test]
    fn a_task_is_news_when_something_is_said_of_it_and_not_of_when() {
        let working = json!({ "taskId": "t", "status": "working", "lastUpdatedAt": "a" });
        let later = json!({ "taskId": "t", "status": "working", "lastUpdatedAt": "b",
            "ttlMs": 9, "pollIntervalMs": 7, "resultType": "complete", "_meta": {} });
        check(&working, &later, false);
        let says = json!({ "taskId": "t", "status": "working", "statusMessage": "half" });
        check(&working, &says, true);
        let asks = json!({ "taskId": "t", "status": "input_required" });
        check(&working, &asks, true);
    }
}
