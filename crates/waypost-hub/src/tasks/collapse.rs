//! Tasks of callers that do not know them: Waypost waits in the caller's place.
//!
//! The wait belongs to the caller's stream. Whatever ends the stream before the task is over
//! cancels the task: the [`Guard`] sees to that, also when the future is simply dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{INPUT_REQUESTS, ResultType, ensure_complete};
use waypost_wire::task::{Status, Task};
use waypost_wire::text::{SENTENCE, clip};

use crate::asks;
use crate::error::{CallError, Kind, Origin};
use crate::event::request_id_field;
use crate::generate::Notifier;
use crate::reply::End;
use crate::tasks::event::{Fate, Outcome, PollFailed, Reason, TaskMade, WaitEnded};
use crate::tasks::passthrough::UNFINISHED;
use crate::tasks::progress::Progress;
use crate::tasks::remote::{Guard, Look, Remote};
use crate::tasks::schedule::Schedule;
use crate::tasks::state::{History, Round};
use crate::tasks::{Desk, Job, rounds};

/// So long an upstream may go on showing a question that was just answered: updates need not
/// be visible at once. After it the question counts as asked again.
const SETTLING: Duration = Duration::from_secs(5);

/// Looks in a row that may show a status which is not known, and for how long they may at least. It
/// is a server's own perhaps, and on its way to one that is known; one that stays may as well be the
/// end of the task.
const ODD_LOOKS: u32 = 3;
const ODD_TIME: Duration = Duration::from_secs(30);

/// The wait for one task.
#[derive(Debug)]
pub(crate) struct Wait {
    desk: Arc<Desk>,
    job: Arc<Job>,
    /// Has the task at its upstream.
    guard: Guard,
    progress: Progress,
    /// When the task was made.
    born: Instant,
    /// From then on, as the upstream last said.
    ttl: Option<Duration>,
    hint: Option<Duration>,
    settling: Option<Settling>,
    /// What its caller has answered so far.
    history: History,
    open: Option<Open>,
    /// Looks in a row that showed a status which is not known, and when the first did.
    odd: Option<(u32, Instant)>,
}

/// Questions that the caller has while somebody waits beside them.
#[derive(Debug)]
struct Open {
    keys: Vec<String>,
    /// The last look showed fewer.
    fewer: bool,
}

/// Questions that were just answered.
#[derive(Debug)]
struct Settling {
    keys: Vec<String>,
    until: Instant,
}

/// How the wait ends.
pub(crate) enum Close {
    /// The task is over.
    Over(End, Outcome),
    /// The task asks this, and its caller may be asked.
    Ask(Object),
    /// The upstream has no such task any more.
    Lost(CallError),
    /// The task is cancelled; the caller gets this.
    GiveUp(Result<End, CallError>, Reason, Outcome),
}

impl Wait {
    /// A wait for a task that was just made; from here on it is cancelled when nobody waits.
    pub(crate) fn begin(
        desk: &Arc<Desk>,
        job: Arc<Job>,
        remote: Remote,
        task: &Task,
        progress: Progress,
    ) -> Self {
        TaskMade {
            fate: Fate::Collapsed,
            request_id: &job.call.request_id,
            upstream: &job.member.name,
            tool: &job.tool,
        }
        .emit();
        let mut wait = Self::resume(desk, job, remote, progress, Instant::now());
        wait.note(task);
        wait
    }

    /// A wait that goes on.
    pub(crate) fn resume(
        desk: &Arc<Desk>,
        job: Arc<Job>,
        remote: Remote,
        progress: Progress,
        born: Instant,
    ) -> Self {
        Self {
            desk: Arc::clone(desk),
            job,
            guard: Guard::new(remote, &desk.cancels),
            progress,
            born,
            ttl: None,
            hint: None,
            settling: None,
            history: History::default(),
            open: None,
            odd: None,
        }
    }

    /// A wait beside questions that the caller has, which `keys` name: it ends with the task, or
    /// when others are asked. Given up, it leaves the task alone.
    pub(crate) fn beside(
        desk: &Arc<Desk>,
        job: Arc<Job>,
        remote: Remote,
        (born, progress): (Instant, Progress),
        keys: Vec<String>,
    ) -> Self {
        let guard = Guard::idle(remote, &desk.cancels);
        Self {
            desk: Arc::clone(desk),
            job,
            guard,
            progress,
            born,
            ttl: None,
            hint: None,
            settling: None,
            history: History::default(),
            open: Some(Open { keys, fewer: false }),
            odd: None,
        }
    }

    /// Waits for what ends the wait.
    pub(crate) async fn close(&mut self, notifier: &Notifier) -> Close {
        let mut polls = 0;
        let close = self.watch(notifier, &mut polls).await;
        let ended = WaitEnded {
            request_id: &self.job.call.request_id,
            upstream: &self.job.member.name,
            outcome: close.outcome(),
            polls,
        };
        ended.emit();
        close
    }

    /// What the caller was told so far.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The task at its upstream.
    pub(crate) fn remote(&self) -> &Remote {
        self.guard.remote()
    }

    /// The wait goes on after a round.
    pub(crate) fn after(mut self, round: &Round) -> Self {
        self.history = round.history();
        self
    }

    /// The upstream was just given answers to these questions.
    pub(crate) fn answered(&mut self, keys: Vec<String>) {
        let until = Instant::now() + SETTLING;
        self.history.add(&keys);
        self.settling = Some(Settling { keys, until });
    }

    /// Ends the wait; what becomes of the task is up to whoever gets the guard.
    pub(crate) fn into_guard(self) -> Guard {
        self.guard
    }

    /// Cancels the task.
    pub(crate) fn cancel(self, reason: Reason) {
        self.guard.cancel(reason);
    }

    /// Waits for the end of the task, or for a question to its caller.
    pub(crate) async fn run(
        mut self,
        task: Option<Task>,
        notifier: Notifier,
    ) -> Result<End, CallError> {
        if let Some(task) = task {
            self.tell(&task, &notifier).await;
        }
        match self.close(&notifier).await {
            Close::Over(end, _) => {
                self.guard.let_go();
                Ok(end)
            }
            Close::Lost(error) => {
                self.guard.let_go();
                Err(error)
            }
            Close::GiveUp(answer, reason, _) => {
                self.guard.cancel(reason);
                answer
            }
            Close::Ask(task) => {
                let Self {
                    desk,
                    job,
                    guard,
                    born,
                    progress,
                    history,
                    ..
                } = self;
                let told = (born, progress, history);
                rounds::ask(&desk, &job, guard, told, &task)
            }
        }
    }

    async fn watch(&mut self, notifier: &Notifier, polls: &mut u32) -> Close {
        let mut schedule = Schedule::new(&self.desk.times());
        let mut give_up = Instant::now() + self.desk.times().max_wait;
        if self.open.is_some() {
            // How long a question may be open is another's to see to.
            give_up += self.desk.times().input_wait;
        }
        let mut pause = schedule.wait(self.hint);
        loop {
            let (deadline, reason) = self.deadline(give_up);
            let next = schedule.instant(Instant::now(), pause, deadline);
            self.pause(next).await;
            let until = match *polls {
                // A task is looked at once before it is given up, be its life over already.
                0 => give_up.max(Instant::now() + self.desk.times().poll_least),
                _ if Instant::now() >= deadline => return self.too_long(reason),
                _ => deadline,
            };
            *polls += 1;
            let Ok(look) = timeout_at(until, self.remote().poll()).await else {
                return self.too_long(reason);
            };
            match look {
                Ok(Look::Task(task)) => {
                    schedule.answered();
                    self.note(&task);
                    self.tell(&task, notifier).await;
                    if let Some(close) = self.judge(&task) {
                        return close;
                    }
                    pause = schedule.wait(self.hint);
                }
                Ok(Look::Error(error)) if is_final(error.code()) => return self.lost(&error),
                Ok(Look::Gone) => return Close::Lost(self.remote().gone()),
                failed => {
                    let Some(backoff) = schedule.failed() else {
                        return self.unreachable(failed);
                    };
                    self.log(&failed, schedule.failures());
                    pause = backoff;
                }
            }
        }
    }

    /// Until then; who is beside a question hears at once that what had the task is gone, for then
    /// the question will not wait much longer either.
    async fn pause(&self, until: Instant) {
        if self.open.is_none() {
            return sleep_until(until).await;
        }
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.remote().ended() => {}
        }
    }

    /// What an answered poll says about the times.
    fn note(&mut self, task: &Task) {
        self.hint = task.poll_interval;
        // Absent it says nothing new; `null` says that there is no end.
        if task.members.contains("ttlMs") {
            self.ttl = task.ttl;
            self.guard.expires(self.expires());
        }
    }

    /// When the task is over by itself.
    fn expires(&self) -> Option<Instant> {
        self.ttl.and_then(|ttl| self.born.checked_add(ttl))
    }

    async fn tell(&mut self, task: &Task, notifier: &Notifier) {
        if let Some(notification) = self.progress.change(task) {
            notifier.send(notification).await;
        }
    }

    fn deadline(&self, give_up: Instant) -> (Instant, Reason) {
        match self.expires() {
            Some(expires) if expires < give_up => (expires, Reason::Expired),
            _ => (give_up, Reason::MaxWait),
        }
    }

    /// What is not known of this look: the wait goes on as if the task worked, but not for long.
    fn odd(&mut self, task: &Task) -> Option<Close> {
        if !task.is_odd() {
            self.odd = None;
            return None;
        }
        let (looks, since) = self.odd.unwrap_or_else(|| (0, Instant::now()));
        self.odd = Some((looks + 1, since));
        let status = task.members.string("status").unwrap_or_default();
        let status = clip(&status, SENTENCE);
        if looks == 0 {
            tracing::warn!(
                request_id = request_id_field(&self.job.call.request_id),
                upstream = &*self.job.member.name,
                status = &*status,
                "task with a status that is not known"
            );
        }
        (looks >= ODD_LOOKS && since.elapsed() >= ODD_TIME).then(|| {
            let text = format!("its task has status `{status}`, which is not known");
            let error = self.remote().bad(text);
            Close::GiveUp(Err(error), Reason::Broken, Outcome::GivenUp)
        })
    }

    /// Whether the task is over or asks.
    fn judge(&mut self, task: &Task) -> Option<Close> {
        if let Some(close) = self.odd(task) {
            return Some(close);
        }
        match task.status {
            Status::Working if self.changes(&Object::new()) => Some(Close::Ask(unasking(task))),
            Status::Working => None,
            Status::InputRequired => self.question(task),
            Status::Completed => Some(self.completed(task)),
            Status::Failed => Some(self.failed(task)),
            Status::Cancelled => Some(self.cancelled(task)),
        }
    }

    fn question(&mut self, task: &Task) -> Option<Close> {
        let asked = task.members.get(INPUT_REQUESTS)?;
        let Some(requests) = asks::questions(asked) else {
            let error = self.remote().bad(asks::unreadable(asked));
            return Some(Close::GiveUp(Err(error), Reason::Broken, Outcome::GivenUp));
        };
        let is_news = match &self.open {
            Some(_) => self.changes(&requests),
            None => !requests.is_empty() && !self.is_settling(&requests),
        };
        if !is_news {
            return None;
        }
        let declared = &self.job.call.meta.capabilities;
        Some(match asks::undeclared(&requests, declared) {
            None => Close::Ask(task.members.clone()),
            Some(missing) => {
                let error = asks::refusal(&self.job.member.name, &missing);
                Close::GiveUp(Ok(End::Error(error)), Reason::Undeclared, Outcome::GivenUp)
            }
        })
    }

    /// Whether the caller is to be given these questions in place of those that it has. That one
    /// is not asked any more counts when it is seen twice: the upstream may look behind.
    fn changes(&mut self, requests: &Object) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let is_new = |key: &str| open.keys.iter().all(|had| had != key);
        if requests.iter().any(|(key, _)| is_new(key)) {
            return true;
        }
        let before = open.fewer;
        open.fewer = open.keys.iter().any(|key| !requests.contains(key));
        before && open.fewer
    }

    fn is_settling(&self, requests: &Object) -> bool {
        let Some(Settling { keys, until }) = &self.settling else {
            return false;
        };
        Instant::now() < *until && keys.iter().any(|key| requests.contains(key))
    }

    fn completed(&self, task: &Task) -> Close {
        let Some(Ok(mut result)) = task.members.get("result").map(Raw::as_object) else {
            return Close::Lost(self.remote().bad("completed a task without a result"));
        };
        if ResultType::of(&result) != ResultType::Complete {
            return Close::Lost(self.remote().bad(UNFINISHED));
        }
        ensure_complete(&mut result);
        Close::Over(End::Complete(result), Outcome::Completed)
    }

    fn failed(&self, task: &Task) -> Close {
        let Some(Ok(error)) = task.members.get("error").map(ErrorObject::parse) else {
            let message = task.status_message.as_deref().unwrap_or("no reason given");
            let message = clip(message, SENTENCE);
            return Close::Lost(self.remote().bad(format!("its task failed: {message}")));
        };
        // Told in a task, they are the tool's own words and not about our hop.
        let error = match error.code() {
            code::HEADER_MISMATCH | code::UNSUPPORTED_VERSION => {
                error.meaning(code::INTERNAL_ERROR)
            }
            _ => error,
        };
        Close::Over(End::Error(error), Outcome::Failed)
    }

    fn cancelled(&self, task: &Task) -> Close {
        let upstream = &self.job.member.name;
        let mut text = format!("the task was cancelled at upstream `{upstream}`");
        if let Some(message) = &task.status_message {
            text.push_str(": ");
            text.push_str(message);
        }
        if self.job.call.method != method::TOOLS_CALL {
            // Only tools have results that are errors.
            return Close::Lost(self.remote().bad(text));
        }
        let content = serde_json::json!([{ "type": "text", "text": text }]);
        let members = [
            ("resultType", Raw::string("complete")),
            ("content", Raw::from(&content)),
            ("isError", Raw::bool(true)),
        ];
        Close::Over(
            End::Complete(Object::from_iter(members)),
            Outcome::Cancelled,
        )
    }

    fn too_long(&self, reason: Reason) -> Close {
        let (bound, name) = match reason {
            Reason::Expired => (self.ttl.unwrap_or_default(), "its `ttlMs`"),
            _ => (self.desk.times().max_wait, "`tasks.max_wait`"),
        };
        let seconds = bound.as_secs_f64();
        let error = CallError::upstream(Kind::Timeout, &self.job.member.name).detail(format!(
            "the task was not over after {seconds:.1} s, {name}, and was cancelled"
        ));
        Close::GiveUp(Err(error), reason, Outcome::TimedOut)
    }

    /// The upstream's own word is for who asked for a task; this caller asked for an answer.
    fn lost(&self, error: &ErrorObject) -> Close {
        tracing::warn!(
            request_id = request_id_field(&self.job.call.request_id),
            upstream = &*self.job.member.name,
            code = error.code(),
            said = &*clip(&error.message(), SENTENCE),
            "task lost"
        );
        let code = error.code();
        Close::Lost(self.remote().bad(format!(
            "no longer knows the task that it made of the call (code {code})"
        )))
    }

    fn unreachable(&self, look: Result<Look, CallError>) -> Close {
        let answer = match look {
            // Its words are for who asked for a task, and may name that by the upstream's own id.
            Ok(Look::Error(error)) => Err(self.remote().bad(format!(
                "does not say how the task is that it made of the call (code {})",
                error.code()
            ))),
            // What did not run is the poll. The call did.
            Err(error) => Err(CallError {
                retryable: false,
                ..error
            }),
            Ok(Look::Gone) => Err(self.remote().gone()),
            Ok(Look::Task(_)) => Err(CallError::new(Kind::Internal, Origin::Gateway)),
        };
        Close::GiveUp(answer, Reason::Broken, Outcome::Lost)
    }

    fn log(&self, failed: &Result<Look, CallError>, failures: u32) {
        let error = match failed {
            Ok(Look::Error(error)) => {
                format!("{}: {}", error.code(), clip(&error.message(), SENTENCE))
            }
            Ok(Look::Task(_) | Look::Gone) => return,
            Err(error) => error.to_string(),
        };
        PollFailed {
            request_id: &self.job.call.request_id,
            upstream: &self.job.member.name,
            failures,
            error: &error,
        }
        .emit();
    }
}

impl Close {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Over(_, outcome) | Self::GiveUp(_, _, outcome) => *outcome,
            Self::Ask(_) => Outcome::Asked,
            Self::Lost(_) => Outcome::Lost,
        }
    }
}

/// A task that asks nothing any more, as one that says so.
fn unasking(task: &Task) -> Object {
    let mut members = task.members.clone();
    members.set(INPUT_REQUESTS, Raw::empty_object());
    members
}

/// Errors to `tasks/get` that another try does not change.
fn is_final(error: i64) -> bool {
    matches!(
        error,
        code::INVALID_PARAMS
            | code::METHOD_NOT_FOUND
            | code::INVALID_REQUEST
            | code::MISSING_CAPABILITY
    )
}
