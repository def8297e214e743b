//! One task at its upstream, and what Waypost says to it on behalf of a call.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waypost_wire::error::ErrorObject;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::INPUT_RESPONSES;
use waypost_wire::task::Task;

use crate::call::{Call, Carrier};
use crate::error::{CallError, Kind};
use crate::forward;
use crate::hop;
use crate::lifecycle::Tasks;
use crate::member::Member;
use crate::reply::End;
use crate::tasks::event::{Reason, TaskCancelled};
use crate::tasks::passthrough::ANOTHER_TASK;
use crate::tasks::schedule::Backoff;

/// A question about a task is answered from memory or not at all; the call's own timeout would
/// be far too patient.
const PATIENCE: Duration = Duration::from_secs(30);
/// A look at the upstream that was asked for is waited for so long.
const ANEW_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at whether what had a task is gone.
const GONE_LOOK: Duration = Duration::from_secs(1);
/// `tasks/cancel` is tried again for so long.
const CANCEL_WITHIN: Duration = Duration::from_secs(60);

/// A task at an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) member: Arc<Member>,
    /// The upstream's id.
    pub(crate) id: String,
    /// The process or session that made it, where tasks die with one. The next one may give the
    /// same id to another caller's task.
    pub(crate) instance: Option<Arc<str>>,
    /// A call with everything but method and params.
    frame: Call,
}

/// An answer, and who gave it.
type Sent = Result<(End, Carrier), CallError>;

/// What `tasks/get` brought.
#[derive(Debug)]
pub(crate) enum Look {
    Task(Task),
    /// The upstream's error answer.
    Error(ErrorObject),
    /// What had the task is gone, and the task with it.
    Gone,
}

impl Remote {
    /// The task `id` that `instance` of `member` has, spoken to in the name of the caller of
    /// `call`.
    pub(crate) fn new(
        member: &Arc<Member>,
        instance: Option<Arc<str>>,
        id: String,
        call: &Call,
    ) -> Self {
        let mut meta = call.meta.clone();
        meta.capabilities = meta.capabilities.with_tasks();
        // They belong to the call: nobody listens for them on a poll.
        meta.progress_token = None;
        meta.log_level = None;
        let ids = (Arc::clone(&call.request_id), call.id.clone());
        let caller = (call.principal.clone(), call.view.clone());
        let mut frame = Call::new(ids, String::new(), Object::new(), meta, caller);
        frame.session.clone_from(&call.session);
        Self {
            member: Arc::clone(member),
            id,
            instance,
            frame,
        }
    }

    /// Whether the process or session that had the task is gone.
    fn is_gone(&self) -> bool {
        let frame = &self.frame;
        let upstream = &self.member.upstream;
        self.instance != upstream.instance(&frame.principal, frame.session.as_ref())
    }

    /// Resolves once the process or session that had the task is gone; never where tasks outlive
    /// one.
    pub(crate) async fn ended(&self) {
        if self.instance.is_none() {
            return std::future::pending().await;
        }
        while !self.is_gone() {
            sleep(GONE_LOOK).await;
        }
    }

    /// What a call whose task is gone gets.
    pub(crate) fn gone(&self) -> CallError {
        CallError::upstream(Kind::Unavailable, &self.member.name)
            .detail("the process that worked on the task has ended, and the task with it")
    }

    /// `tasks/get`.
    pub(crate) async fn get(&self) -> Result<Look, CallError> {
        if self.is_gone() {
            return Ok(Look::Gone);
        }
        self.see(self.send(method::TASKS_GET, None).await?)
    }

    /// `tasks/get` for who asks again soon: should the upstream refuse our headers or our version,
    /// it is looked at anew in the meantime.
    pub(crate) async fn poll(&self) -> Result<Look, CallError> {
        if self.is_gone() {
            return Ok(Look::Gone);
        }
        let look = self.see(self.send_once(method::TASKS_GET, None).await?);
        if let Ok(Look::Error(error)) = &look
            && hop::concerns_us(error.code())
        {
            self.member.wake.notify_one();
        }
        look
    }

    fn see(&self, (end, carrier): (End, Carrier)) -> Result<Look, CallError> {
        // It may have gone to the next one, which was started a moment ago.
        if carrier.is_astray() {
            return Ok(Look::Gone);
        }
        match end {
            End::Error(error) => Ok(Look::Error(error)),
            // A server that gives the task's own type as `resultType` means the same.
            End::Complete(result) | End::Task(result) | End::InputRequired(result) => {
                let Some(task) = Task::read(result) else {
                    return Err(self.bad("answered `tasks/get` with something that is not a task"));
                };
                // Another caller's, perhaps.
                if task.id != self.id {
                    return Err(self.bad(ANOTHER_TASK));
                }
                Ok(Look::Task(task))
            }
        }
    }

    /// `tasks/update` with the caller's answers, untouched. The inner error is the upstream's.
    pub(crate) async fn update(
        &self,
        responses: Raw,
    ) -> Result<Result<(), ErrorObject>, CallError> {
        if self.is_gone() {
            return Err(self.gone());
        }
        let (end, carrier) = self.send(method::TASKS_UPDATE, Some(responses)).await?;
        if carrier.is_astray() {
            return Err(self.gone());
        }
        match end {
            End::Error(error) => Ok(Err(error)),
            End::Complete(_) | End::Task(_) | End::InputRequired(_) => Ok(Ok(())),
        }
    }

    /// `tasks/cancel`, tried at least once, and again while the upstream cannot be reached: until
    /// the task has `expired` by itself, for at most a minute, not after `stop`. Cancelling twice
    /// is the same as once.
    pub(crate) async fn cancel(
        &self,
        reason: Reason,
        expires: Option<Instant>,
        stop: &CancellationToken,
    ) {
        if self.is_gone() {
            return;
        }
        let first = self.send_once(method::TASKS_CANCEL, None).await;
        let carrier = match &first {
            Ok((_, carrier)) if refusal(&first).is_none() => Some(carrier.clone()),
            _ => {
                let tries = Box::pin(self.cancel_again(first, expires));
                stop.run_until_cancelled(tries).await.flatten()
            }
        };
        if carrier.as_ref().is_some_and(Carrier::is_astray) || self.is_gone() && carrier.is_none() {
            return;
        }
        let answered = carrier.is_some();
        TaskCancelled {
            request_id: &self.frame.request_id,
            upstream: &self.member.name,
            reason,
            answered,
        }
        .emit();
    }

    /// Who answered `tasks/cancel` after it was tried `first`, if anybody did.
    async fn cancel_again(&self, first: Sent, expires: Option<Instant>) -> Option<Carrier> {
        let last = Instant::now() + CANCEL_WITHIN;
        let last = expires.map_or(last, |expires| expires.min(last));
        let mut backoff = Backoff::default();
        let mut sent = self.mended(first, method::TASKS_CANCEL, None).await;
        loop {
            if let Ok((_, carrier)) = sent {
                return Some(carrier);
            }
            let next = backoff.failed().map(|wait| Instant::now() + wait);
            sleep_until(next.filter(|next| *next < last)?).await;
            if self.is_gone() {
                return None;
            }
            sent = self.send(method::TASKS_CANCEL, None).await;
        }
    }

    /// For the log.
    pub(crate) fn request_id(&self) -> &str {
        &self.frame.request_id
    }

    /// A failure of this upstream to keep to the protocol.
    pub(crate) fn bad(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> CallError {
        CallError::upstream(Kind::BadUpstream, &self.member.name).detail(detail)
    }

    /// The answer, and who gave it.
    async fn send(&self, method: &str, responses: Option<Raw>) -> Sent {
        let sent = self.send_once(method, responses.clone()).await;
        self.mended(sent, method, responses).await
    }

    /// Should the upstream have refused our headers or our version, it is looked at anew and asked
    /// once more, as with calls: nothing was executed.
    async fn mended(&self, sent: Sent, method: &str, responses: Option<Raw>) -> Sent {
        let Some(error) = refusal(&sent) else {
            return sent;
        };
        let refused = (error, self.request_id());
        hop::look_anew(&self.member, refused, ANEW_WITHIN, None).await;
        let again = self.send_once(method, responses).await;
        match refusal(&again) {
            Some(error) => Err(hop::refused(&self.member, error.code()).retryable()),
            None => again,
        }
    }

    async fn send_once(&self, method: &str, responses: Option<Raw>) -> Sent {
        let mut call = self.frame.clone();
        let carrier = Carrier::only(self.instance.as_ref());
        call.carrier = carrier.clone();
        method.clone_into(&mut call.method);
        call.params.set("taskId", Raw::string(&self.id));
        if let Some(responses) = responses {
            call.params.set(INPUT_RESPONSES, responses);
        }
        let answer = async {
            let reply = Box::pin(forward::send_own(&self.member, call)).await?;
            let end = reply.into_end_of(&self.member.name).await?;
            Ok((end, carrier))
        };
        timeout(PATIENCE, answer).await.unwrap_or_else(|_| {
            let seconds = PATIENCE.as_secs();
            Err(CallError::upstream(Kind::Timeout, &self.member.name)
                .detail(format!("no answer to `{method}` within {seconds} s")))
        })
    }
}

/// The answer that concerns our own hop and not the task, if it is one.
fn refusal(sent: &Sent) -> Option<&ErrorObject> {
    match sent {
        Ok((End::Error(error), _)) if hop::concerns_us(error.code()) => Some(error),
        _ => None,
    }
}

/// Cancels a task at its upstream unless it is let go: whatever ends the wait for a task, the
/// caller's leaving included, must not leave work behind that nobody wants.
#[derive(Debug)]
pub(crate) struct Guard {
    remote: Remote,
    /// `None` once the task is not to be cancelled any more.
    reason: Option<Reason>,
    /// When the task is over by itself.
    expires: Option<Instant>,
    cancels: Cancels,
}

/// The cancels that are under way.
#[derive(Clone, Debug)]
pub(crate) struct Cancels {
    background: Tasks,
    under_way: TaskTracker,
}

impl Guard {
    /// Watches over a task.
    pub(crate) fn new(remote: Remote, cancels: &Cancels) -> Self {
        Self {
            remote,
            reason: Some(Reason::CallerGone),
            expires: None,
            cancels: cancels.clone(),
        }
    }

    /// One that cancels nothing unless told to: somebody else watches over the task.
    pub(crate) fn idle(remote: Remote, cancels: &Cancels) -> Self {
        let mut guard = Self::new(remote, cancels);
        guard.reason = None;
        guard
    }

    /// The task.
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Says when the task is over by itself, as far as known.
    pub(crate) fn expires(&mut self, at: Option<Instant>) {
        self.expires = at;
    }

    /// The task is over, or somebody else looks after it.
    pub(crate) fn let_go(mut self) {
        self.reason = None;
    }

    /// Cancels the task.
    pub(crate) fn cancel(mut self, reason: Reason) {
        self.reason = Some(reason);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(reason) = self.reason else {
            return;
        };
        let (remote, expires) = (self.remote.clone(), self.expires);
        // Outside a runtime the process is ending; there is nobody left to send anything.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.cancels.spawn(remote, reason, expires);
        }
    }
}

impl Cancels {
    /// None yet; they will run in `background`.
    pub(crate) fn new(background: Tasks) -> Self {
        Self {
            background,
            under_way: TaskTracker::new(),
        }
    }

    /// Waits until there is none.
    pub(crate) async fn settled(&self) {
        self.under_way.close();
        self.under_way.wait().await;
        self.under_way.reopen();
    }

    fn spawn(&self, remote: Remote, reason: Reason, expires: Option<Instant>) {
        let counted = self.under_way.token();
        self.background.spawn(move |stop| async move {
            remote.cancel(reason, expires, &stop).await;
            drop(counted);
        });
    }
}
