//! One `tools/call` from the first send to its end, as the policy says.

use std::sync::Arc;

use futures_util::StreamExt as _;
use waypost_wire::object::Object;
use waypost_wire::task::Task;

use crate::aftermath::Aftermath;
use crate::call::Carrier;
use crate::error::{CallError, Kind};
use crate::forward;
use crate::generate::{Notifier, generate};
use crate::reply::{End, Event, Reply};
use crate::tasks::collapse::Wait;
use crate::tasks::event::{Fate, Reason, TaskMade};
use crate::tasks::passthrough::{TASK_ID, demands_tasks, wrap_created};
use crate::tasks::policy::{self, Extension, OnDemand, OnTask, Plan, PlanFacts};
use crate::tasks::progress::Progress;
use crate::tasks::remote::{Guard, Remote};
use crate::tasks::state::{self, Binding};
use crate::tasks::{Desk, Job};

/// A call on its way.
struct Drive {
    desk: Arc<Desk>,
    job: Arc<Job>,
    plan: Plan,
    /// The upstream demanded tasks, and the call was sent again with them.
    demanded: bool,
    /// Says which process or session answered: a task is of that one, whatever answers by now.
    carrier: Carrier,
    progress: Progress,
}

/// What an end of the upstream's means.
enum Verdict {
    /// The caller gets this.
    Done(End),
    /// Nothing ran; the call goes out once more.
    Again,
    /// The answer is still to come.
    Wait(Box<(Wait, Task)>),
}

/// Sends the call. Most are over with the first answer; only what is not becomes a stream.
///
/// # Errors
/// What [`forward::send`] reports, and [`Kind::BadUpstream`] for a task that is refused or
/// cannot be read.
pub(super) async fn start(desk: &Arc<Desk>, job: Job) -> Result<Reply, CallError> {
    let mut drive = Drive {
        desk: Arc::clone(desk),
        plan: policy::plan(facts(&job)),
        demanded: false,
        carrier: Carrier::default(),
        progress: Progress::new(job.call.meta.progress_token.clone()),
        job: Arc::new(job),
    };
    loop {
        let end = match drive.send().await? {
            Reply::End(end) => end,
            Reply::Stream(events) => {
                let reply = Reply::Stream(events);
                let run = |notifier| drive.follow(reply, notifier);
                return Ok(Reply::Stream(generate(run)));
            }
        };
        match drive.judge(end)? {
            Verdict::Done(end) => return Ok(Reply::End(end)),
            Verdict::Again => {}
            Verdict::Wait(wait) => {
                let (wait, task) = *wait;
                let run = |notifier| wait.run(Some(task), notifier);
                return Ok(Reply::Stream(generate(run)));
            }
        }
    }
}

fn facts(job: &Job) -> PlanFacts {
    let Job { member, tool, call } = job;
    let learned = member.learned();
    let extension = match &learned {
        _ if member.has_tasks() => Extension::Has,
        Some(_) => Extension::HasNot,
        None => Extension::Unknown,
    };
    PlanFacts {
        policy: member.settings.tasks,
        declared: call.meta.capabilities.has_tasks(),
        extension,
        task_only: learned.is_some_and(|learned| learned.task_only.contains(&**tool)),
    }
}

impl Drive {
    async fn send(&mut self) -> Result<Reply, CallError> {
        let mut call = self.job.call.clone();
        // Anew each time: a call that goes out once more may go elsewhere.
        self.carrier = Carrier::watched();
        call.carrier = self.carrier.clone();
        let declared = &call.meta.capabilities;
        call.meta.capabilities = if self.plan.declare {
            declared.with_tasks()
        } else {
            declared.without_tasks()
        };
        if self.plan.declare {
            call.aftermath = Aftermath::of(&self.desk, &self.job, &self.carrier);
        }
        let Job { member, tool, .. } = &*self.job;
        let background = &self.desk.background;
        forward::send(background, member, call, Some(tool)).await
    }

    /// Passes on what comes before the end, sees the end through.
    async fn follow(mut self, mut reply: Reply, notifier: Notifier) -> Result<End, CallError> {
        loop {
            let end = self.relay(reply, &notifier).await?;
            match self.judge(end)? {
                Verdict::Done(end) => return Ok(end),
                Verdict::Again => reply = self.send().await?,
                Verdict::Wait(wait) => {
                    let (wait, task) = *wait;
                    return Box::pin(wait.run(Some(task), notifier)).await;
                }
            }
        }
    }

    async fn relay(&mut self, reply: Reply, notifier: &Notifier) -> Result<End, CallError> {
        let mut events = reply.into_stream();
        while let Some(event) = events.next().await {
            match event? {
                Event::End(end) => return Ok(end),
                Event::Notification(notification) => {
                    self.progress.passed(&notification);
                    // It has begun to run.
                    self.plan.on_demand = OnDemand::PassOn;
                    notifier.send(notification).await;
                }
            }
        }
        Err(CallError::no_end_of(&self.job.member.name))
    }

    fn judge(&mut self, end: End) -> Result<Verdict, CallError> {
        match end {
            End::Complete(_) => Ok(Verdict::Done(end)),
            End::InputRequired(_) => {
                let binding = Binding::of(&self.job.call);
                let end = state::wrap_end(&self.desk.states, &self.job.member, &binding, end);
                Ok(Verdict::Done(end))
            }
            End::Error(error) => {
                if self.plan.on_demand == OnDemand::SendAgain && demands_tasks(&error) {
                    self.plan = Plan {
                        declare: true,
                        on_task: OnTask::Collapse,
                        on_demand: OnDemand::PassOn,
                    };
                    self.demanded = true;
                    return Ok(Verdict::Again);
                }
                Ok(Verdict::Done(End::Error(error)))
            }
            End::Task(created) => self.task(created),
        }
    }

    fn task(&mut self, mut created: Object) -> Result<Verdict, CallError> {
        let Job { member, tool, call } = &*self.job;
        if self.demanded {
            self.desk.learn_task_only(member, tool);
        }
        // Nobody could ask for one that cannot be named or understood: it must not be left running.
        let id = created.string(TASK_ID);
        let abandon = |error: CallError| {
            if let Some(id) = id.clone() {
                let remote = Remote::new(member, self.carrier.instance(), id, call);
                Guard::new(remote, &self.desk.cancels).cancel(Reason::Broken);
            }
            error
        };
        if self.plan.on_task == OnTask::PassThrough {
            let (seals, instance) = (&self.desk.seals, self.carrier.instance());
            let wrapped = wrap_created(seals, &self.job, instance.as_deref(), &mut created);
            wrapped.map_err(abandon)?;
            TaskMade {
                fate: Fate::Passed,
                request_id: &call.request_id,
                upstream: &member.name,
                tool,
            }
            .emit();
            return Ok(Verdict::Done(End::Task(created)));
        }
        let task = Task::read(created).ok_or_else(|| {
            let error = CallError::upstream(Kind::BadUpstream, &member.name);
            abandon(error.detail("answered with a task that has no `taskId` or no `status`"))
        })?;
        let remote = Remote::new(member, self.carrier.instance(), task.id.clone(), call);
        if self.plan.on_task == OnTask::Refuse {
            Guard::new(remote, &self.desk.cancels).cancel(Reason::Refused);
            return Err(CallError::upstream(Kind::BadUpstream, &member.name)
                .detail("answered with a task although its tasks are refused; it was cancelled"));
        }
        // The wait is the call's last part: what was told so far goes with it.
        let progress = std::mem::replace(&mut self.progress, Progress::new(None));
        let wait = Wait::begin(&self.desk, Arc::clone(&self.job), remote, &task, progress);
        Ok(Verdict::Wait(Box::new((wait, task))))
    }
}
