//! Keeps tasks, moves them, tells about them, forgets them.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::files::Files;
use super::options::Options;
use super::task::{Status, Step, Task};
use crate::kit::clock::now_ms;
use crate::kit::events::{Event, Events};
use crate::kit::fail::Fail;

const SWEEP: Duration = Duration::from_secs(1);

/// All tasks of one server. What it shows is on disk first.
#[derive(Debug)]
pub(crate) struct Engine {
    tasks: Mutex<HashMap<String, Entry>>,
    pub(crate) files: Files,
    pub(crate) options: Options,
    pub(crate) events: Events,
    pub(crate) stop: CancellationToken,
}

#[derive(Debug)]
struct Entry {
    task: Task,
    /// Bumped on every change, for the job that waits for answers.
    changed: watch::Sender<u64>,
    /// Ends the job: the task is over, or forgotten.
    over: CancellationToken,
}

impl Engine {
    /// Opens the state; tasks found there are unfinished work for [`Engine::unfinished`].
    pub(crate) fn open(
        options: Options,
        events: Events,
        stop: CancellationToken,
    ) -> io::Result<Arc<Self>> {
        let files = Files::open(options.state.as_deref())?;
        let tasks = files
            .load()?
            .into_iter()
            .map(|task| (task.id.clone(), Entry::new(task, &stop)));
        let tasks = Mutex::new(tasks.collect());
        let engine = Arc::new(Self {
            tasks,
            files,
            options,
            events,
            stop,
        });
        engine.sweep();
        let weak = Arc::downgrade(&engine);
        let stop = engine.stop.clone();
        crate::kit::spawn::spawn(async move {
            while stop
                .run_until_cancelled(tokio::time::sleep(SWEEP))
                .await
                .is_some()
            {
                let Some(engine) = weak.upgrade() else { break };
                engine.sweep();
            }
        });
        Ok(engine)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a task. It can be read, and survives a crash, before this returns.
    pub(crate) fn create(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        message: &str,
    ) -> Result<Task, Fail> {
        let now = now_ms();
        let task = Task {
            id: uuid::Uuid::new_v4().to_string(),
            tool: tool.to_owned(),
            arguments: arguments.clone(),
            status: Status::Working,
            message: message.to_owned(),
            created_ms: now,
            updated_ms: now,
            ttl_ms: self.options.ttl.map(millis),
            poll_ms: millis(self.options.poll_interval),
            questions: Map::new(),
            answers: Map::new(),
            result: None,
            error: None,
        };
        self.files.save(&task).map_err(|error| {
            tracing::error!(%error, "a task could not be stored");
            Fail::internal("the task could not be stored")
        })?;
        self.lock()
            .insert(task.id.clone(), Entry::new(task.clone(), &self.stop));
        Ok(task)
    }

    /// The ids of tasks whose work has to go on, after a restart.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let tasks = self.lock();
        let open = tasks
            .values()
            .filter(|entry| !entry.task.status.is_terminal());
        open.map(|entry| entry.task.id.clone()).collect()
    }

    /// A task, unless it is unknown or expired.
    pub(crate) fn get(&self, id: &str) -> Option<Task> {
        let mut tasks = self.lock();
        let entry = tasks.get(id)?;
        if is_expired(&entry.task) {
            let entry = tasks.remove(id);
            drop(tasks);
            self.forget(entry);
            return None;
        }
        Some(entry.task.clone())
    }

    /// Takes a step of a task, stores it and tells its listeners.
    pub(crate) fn step(&self, id: &str, step: Step) {
        let mut tasks = self.lock();
        let Some(entry) = tasks.get_mut(id) else {
            return;
        };
        if !entry.task.take(step) {
            return;
        }
        if let Err(error) = self.files.save(&entry.task) {
            tracing::error!(%error, id, "a task could not be stored");
        }
        if entry.task.status.is_terminal() {
            entry.over.cancel();
        }
        entry.changed.send_modify(|count| *count += 1);
        self.events
            .publish(Event::Task(id.to_owned(), entry.task.detailed()));
    }

    /// Ends when the task does, or when the server stops.
    pub(crate) fn over(&self, id: &str) -> CancellationToken {
        self.lock()
            .get(id)
            .map_or_else(ended, |entry| entry.over.clone())
    }

    /// Waits until every one of `keys` is answered.
    pub(crate) async fn answers(&self, id: &str, keys: &[&str]) -> Map<String, Value> {
        let Some(mut changed) = self.lock().get(id).map(|entry| entry.changed.subscribe()) else {
            return Map::new();
        };
        loop {
            if let Some(task) = self.get(id)
                && keys.iter().all(|key| task.answers.contains_key(*key))
            {
                return task.answers;
            }
            if changed.changed().await.is_err() {
                return Map::new();
            }
        }
    }

    /// Forgets every expired task.
    fn sweep(&self) {
        let mut tasks = self.lock();
        let expired = tasks.extract_if(|_, entry| is_expired(&entry.task));
        let expired: Vec<_> = expired.map(|(_, entry)| entry).collect();
        drop(tasks);
        for entry in expired {
            self.forget(Some(entry));
        }
    }

    fn forget(&self, entry: Option<Entry>) {
        let Some(entry) = entry else { return };
        entry.over.cancel();
        if let Err(error) = self.files.remove(&entry.task.id) {
            tracing::warn!(%error, "an expired task could not be removed");
        }
    }
}

impl Entry {
    fn new(task: Task, stop: &CancellationToken) -> Self {
        Self {
            task,
            changed: watch::channel(0).0,
            over: stop.child_token(),
        }
    }
}

fn ended() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

fn is_expired(task: &Task) -> bool {
    task.expires_ms().is_some_and(|at| at <= now_ms())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
