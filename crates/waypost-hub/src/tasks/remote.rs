//! One task at its upstream, and what Waypost says to it on behalf of a call.

use std::sync::Arc;
use std::time::Duration;

use waypost_wire::error::ErrorObject;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::task::Task;

use crate::call::{Call, CallHeaders};
use crate::error::{CallError, Kind};
use crate::forward;
use crate::lifecycle::Tasks;
use crate::member::Member;
use crate::reply::End;
use crate::tasks::event::{Reason, TaskCancelled};

/// A question about a task is answered from memory or not at all; the call's own timeout would
/// be far too patient.
const PATIENCE: Duration = Duration::from_secs(30);
/// `tasks/cancel` is tried so often.
const CANCEL_TRIES: u32 = 3;
/// The wait between the tries of `tasks/cancel`, times the number of the try.
const CANCEL_PAUSE: Duration = Duration::from_millis(500);

/// A task at an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) member: Arc<Member>,
    /// The upstream's id.
    pub(crate) id: String,
    /// A call with everything but method and params.
    frame: Call,
}

/// What `tasks/get` brought.
#[derive(Debug)]
pub(crate) enum Look {
    Task(Task),
    /// The upstream's error answer.
    Error(ErrorObject),
}

impl Remote {
    /// The task `id` of `member`, spoken to in the name of the caller of `call`.
    pub(crate) fn new(member: &Arc<Member>, id: String, call: &Call) -> Self {
        let mut meta = call.meta.clone();
        meta.capabilities = meta.capabilities.with_tasks();
        // They belong to the call: nobody listens for them on a poll.
        meta.progress_token = None;
        meta.log_level = None;
        let frame = Call {
            request_id: Arc::clone(&call.request_id),
            id: call.id.clone(),
            method: String::new(),
            params: Object::new(),
            meta,
            principal: call.principal.clone(),
            view: call.view.clone(),
            headers: CallHeaders::default(),
        };
        Self {
            member: Arc::clone(member),
            id,
            frame,
        }
    }

    /// `tasks/get`.
    pub(crate) async fn get(&self) -> Result<Look, CallError> {
        match self.send(method::TASKS_GET, None).await? {
            End::Error(error) => Ok(Look::Error(error)),
            // A server that gives the task's own type as `resultType` means the same.
            End::Complete(result) | End::Task(result) | End::InputRequired(result) => {
                Task::read(result).map(Look::Task).ok_or_else(|| {
                    self.bad("answered `tasks/get` with something that is not a task")
                })
            }
        }
    }

    /// `tasks/update` with the caller's answers, untouched. The inner error is the upstream's.
    pub(crate) async fn update(
        &self,
        responses: Raw,
    ) -> Result<Result<(), ErrorObject>, CallError> {
        match self.send(method::TASKS_UPDATE, Some(responses)).await? {
            End::Error(error) => Ok(Err(error)),
            End::Complete(_) | End::Task(_) | End::InputRequired(_) => Ok(Ok(())),
        }
    }

    /// `tasks/cancel`, tried again while the upstream cannot be reached. Cancelling twice is the
    /// same as once.
    pub(crate) async fn cancel(&self, reason: Reason) {
        let mut answered = false;
        for attempt in 1..=CANCEL_TRIES {
            answered = self.send(method::TASKS_CANCEL, None).await.is_ok();
            if answered || attempt == CANCEL_TRIES {
                break;
            }
            tokio::time::sleep(CANCEL_PAUSE * attempt).await;
        }
        TaskCancelled {
            request_id: &self.frame.request_id,
            upstream: &self.member.name,
            reason,
            answered,
        }
        .emit();
    }

    /// For the log.
    pub(crate) fn request_id(&self) -> &str {
        &self.frame.request_id
    }

    /// A failure of this upstream to keep to the protocol.
    pub(crate) fn bad(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> CallError {
        CallError::upstream(Kind::BadUpstream, &self.member.name).detail(detail)
    }

    async fn send(&self, method: &str, responses: Option<Raw>) -> Result<End, CallError> {
        let mut call = self.frame.clone();
        method.clone_into(&mut call.method);
        call.params.set("taskId", Raw::string(&self.id));
        if let Some(responses) = responses {
            call.params.set("inputResponses", responses);
        }
        let answer = async {
            let reply = Box::pin(forward::send_own(&self.member, call)).await?;
            reply.into_end().await
        };
        tokio::time::timeout(PATIENCE, answer)
            .await
            .unwrap_or_else(|_| {
                let seconds = PATIENCE.as_secs();
                Err(CallError::upstream(Kind::Timeout, &self.member.name)
                    .detail(format!("no answer to `{method}` within {seconds} s")))
            })
    }
}

/// Cancels a task at its upstream unless it is let go: whatever ends the wait for a task, the
/// caller's leaving included, must not leave work behind that nobody wants.
#[derive(Debug)]
pub(crate) struct Guard {
    remote: Option<Remote>,
    reason: Reason,
    background: Tasks,
}

impl Guard {
    /// Watches over a task.
    pub(crate) fn new(remote: Remote, background: &Tasks) -> Self {
        Self {
            remote: Some(remote),
            reason: Reason::CallerGone,
            background: background.clone(),
        }
    }

    /// The task is over, or somebody else looks after it.
    pub(crate) fn let_go(mut self) {
        self.remote = None;
    }

    /// Cancels the task.
    pub(crate) fn cancel(mut self, reason: Reason) {
        self.reason = reason;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(remote) = self.remote.take() else {
            return;
        };
        let reason = self.reason;
        // Outside a runtime the process is ending; there is nobody left to send anything.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.background
                .spawn(|_| async move { remote.cancel(reason).await });
        }
    }
}
