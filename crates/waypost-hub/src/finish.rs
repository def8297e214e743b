//! The last look at a reply before it leaves: what belongs to this hop is rebuilt, and what the
//! caller did not declare is kept from it.

use std::sync::Arc;

use waypost_wire::capability::ClientCapabilities;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::links::{self, Answer};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::result::{INPUT_REQUESTS, ensure_complete, ensure_freshness};
use waypost_wire::task::Status;

use crate::asks;
use crate::call::{Call, View};
use crate::catalog::links::Qualifier;
use crate::error::CallError;
use crate::event::request_id_field;
use crate::hub::Hub;
use crate::member::Member;
use crate::own;
use crate::questions::{Made, Target};
use crate::reads::Missed;
use crate::reply::{End, Reply};

/// An answer of the gateway itself.
pub(crate) fn own(mut reply: Reply) -> Reply {
    if let Reply::End(end) = &mut reply
        && let Some(result) = end.result_mut()
    {
        own::sign(result, None);
    }
    reply
}

/// Who asked, as far as the end of the call depends on it.
pub(crate) struct Caller {
    request_id: Arc<str>,
    capabilities: ClientCapabilities,
    view: View,
    /// What URIs may be in; nothing for methods whose results have none.
    answer: Option<Answer>,
    /// Of a resource that was asked for by another URI than its own: both.
    asked: Option<Asked>,
    /// Of a resource whose answer is kept.
    missed: Option<Missed>,
    /// What it asked for, where it may be asked itself.
    target: Option<(Made, Target)>,
}

/// How a resource was asked for.
pub(crate) struct Asked {
    /// What the caller said.
    pub(crate) exposed: String,
    /// What its upstream calls it.
    pub(crate) original: String,
}

impl Caller {
    /// The caller of this call.
    pub(crate) fn of(call: &Call) -> Self {
        Self {
            request_id: Arc::clone(&call.request_id),
            capabilities: call.meta.capabilities.clone(),
            view: call.view.clone(),
            answer: match call.method.as_str() {
                method::TOOLS_CALL => Some(Answer::Call),
                method::PROMPTS_GET => Some(Answer::Prompt),
                method::RESOURCES_READ => Some(Answer::Contents),
                method::TASKS_GET => Some(Answer::Task),
                _ => None,
            },
            asked: None,
            missed: None,
            target: None,
        }
    }

    /// The same for a resource whose answer is to be kept.
    pub(crate) fn keeping(mut self, missed: Option<Missed>) -> Self {
        self.missed = missed;
        self
    }

    /// The same for a call that was made for this.
    pub(crate) fn of_target(mut self, made: Made, target: Target) -> Self {
        self.target = Some((made, target));
        self
    }

    /// The same, which used another URI than the resource's own.
    pub(crate) fn asked(mut self, asked: Asked) -> Self {
        self.asked = (asked.exposed != asked.original).then_some(asked);
        self
    }

    /// The same for a call that can never become a task.
    pub(crate) fn without_tasks(mut self) -> Self {
        self.capabilities = self.capabilities.without_tasks();
        self
    }

    /// Whether it asked how a task is.
    fn polls(&self) -> bool {
        self.answer == Some(Answer::Task)
    }

    /// Whether it read a resource.
    fn reads(&self) -> bool {
        self.answer == Some(Answer::Contents)
    }
}

/// An answer of `member` to a call.
pub(crate) fn from(
    reply: Reply,
    member: &Arc<Member>,
    caller: Caller,
    hub: &Arc<Hub>,
) -> Result<Reply, CallError> {
    let (member, hub) = (Arc::clone(member), Arc::clone(hub));
    reply.map_end(move |end| Ok(finish(end, &member, &caller, &hub)))
}

fn finish(mut end: End, member: &Member, caller: &Caller, hub: &Hub) -> End {
    if let Some(missed) = &caller.missed {
        missed.end();
    }
    if let End::Task(task) = &mut end {
        // The call has run, so there is no refusing it: should the task wait, `tasks/get` tells the
        // caller what to declare.
        keep_back_undeclared(task, caller);
    } else if let Some(task) = idle_task(&mut end, caller) {
        keep_back_undeclared(task, caller);
    } else if let Some(refused) = refused(&end, member, caller) {
        return End::Error(refused);
    }
    if let End::Error(error) = end {
        return End::Error(settled(error));
    }
    if let End::Complete(result) = &mut end {
        if let Some(missed) = &caller.missed {
            missed.keep(result);
        }
        ensure_complete(result);
        if caller.reads() {
            ensure_freshness(result);
        }
        lead_back(result, member, caller, hub);
    }
    if let End::InputRequired(result) = &end
        && let Some((made, target)) = &caller.target
    {
        let kept = hub.desk.input_wait();
        hub.questions.note(result, made, target, kept);
    }
    if let Some(result) = end.result_mut() {
        own::sign_of(result, member);
    }
    end
}

/// Sees to it that URIs lead back to whom they come from: qualifies those that would not. The
/// resource that was asked for is called what the caller called it.
fn lead_back(result: &mut Object, member: &Member, caller: &Caller, hub: &Hub) {
    let Some(answer) = caller.answer else { return };
    let catalog = hub.catalog();
    let misleads = catalog.may_mislead(&caller.view, &member.name);
    let asked = caller.asked.as_ref();
    if !misleads && asked.is_none() {
        return;
    }
    let mut qualifier = Qualifier::new(&catalog, &caller.view, &member.name);
    links::replace(result, answer, &mut |uri| match asked {
        Some(asked) if asked.original == uri => Some(asked.exposed.clone()),
        _ if misleads => qualifier.of(uri),
        _ => None,
    });
}

/// The same for what a listener is told of a task.
pub(crate) fn lead_task_back(params: &mut Object, view: &View, hub: &Hub) {
    let handle = params.string("taskId").unwrap_or_default();
    let upstream = handle.split('~').next().unwrap_or_default();
    let catalog = hub.catalog();
    let Some(member) = catalog.member(upstream) else {
        return;
    };
    if catalog.may_mislead(view, &member.name) {
        let mut qualifier = Qualifier::new(&catalog, view, &member.name);
        links::replace(params, Answer::Task, &mut |uri| qualifier.of(uri));
    }
}

/// An error under the code that it has since the extension's last draft.
fn settled(error: ErrorObject) -> ErrorObject {
    let draft = error.code() == code::DRAFT_MISSING_CAPABILITY;
    if draft && error.required_capabilities().is_some() {
        return error.with_code(code::MISSING_CAPABILITY);
    }
    error
}

/// The task that was asked about, unless it waits for answers.
fn idle_task<'a>(end: &'a mut End, caller: &Caller) -> Option<&'a mut Object> {
    let End::Complete(task) = end else {
        return None;
    };
    let status = task.str("status").as_deref().and_then(Status::parse);
    let waits = status.is_none_or(|status| status == Status::InputRequired);
    (caller.polls() && !waits).then_some(task)
}

/// Takes out the questions of a task where the caller could not be asked them. They are no reason to
/// keep the task from it, nor its result: those of a task that does not wait are nobody's to answer
/// any more.
fn keep_back_undeclared(task: &mut Object, caller: &Caller) {
    let Some(requests) = task.get(INPUT_REQUESTS) else {
        return;
    };
    let questions = asks::questions(requests);
    let declared = &caller.capabilities;
    if questions.is_none_or(|questions| asks::undeclared(&questions, declared).is_some()) {
        task.remove(INPUT_REQUESTS);
    }
}

/// The error in place of a question, or of a task that waits for one, that the caller did not
/// declare or that cannot be read.
fn refused(end: &End, member: &Member, caller: &Caller) -> Option<ErrorObject> {
    let result = match end {
        End::InputRequired(result) => result,
        // It alone is complete and has questions all the same.
        End::Complete(result) if caller.polls() => result,
        End::Complete(_) | End::Task(_) | End::Error(_) => return None,
    };
    let requests = result.get(INPUT_REQUESTS)?;
    let upstream = &*member.name;
    let request_id = request_id_field(&caller.request_id);
    let Some(questions) = asks::questions(requests) else {
        let why = asks::unreadable(requests);
        tracing::warn!(upstream, request_id, why, "asks what cannot be passed on");
        let text = format!("upstream `{upstream}`: {why}");
        return Some(ErrorObject::new(code::INTERNAL_ERROR, &text));
    };
    let missing = asks::undeclared(&questions, &caller.capabilities)?;
    tracing::warn!(upstream, request_id, %missing, "asks for what the caller did not declare");
    Some(asks::refusal(upstream, &missing))
}
