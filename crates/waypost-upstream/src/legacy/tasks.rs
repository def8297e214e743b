//! The experimental tasks of 2025-11-25, shown as those of the extension (SEP-2663).
//!
//! There a task's status and its result are two requests, and the questions of a task come while
//! `tasks/result` is open. So that one is sent, once, when a task asks or has ended; what it
//! brings is kept with the task.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use waypost_hub::call::Call;
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Reply};
use waypost_hub::upstream::Facts;
use waypost_wire::capability::TASKS;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Outcome};
use waypost_wire::meta::META;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{RESULT_TYPE, ensure_complete};
use waypost_wire::task::Status;

use super::exchange::{Exchange, Need};
use super::session::Session;
use crate::fault::Fault;
use crate::outcome::unknown_task;

/// The request that waits for the end.
pub(crate) const RESULT: &str = "tasks/result";

/// Ties a message to a task, in its `_meta`.
pub(crate) const RELATED: &str = "io.modelcontextprotocol/related-task";

/// How long a question, or the result of a task that has ended, may take to come.
const ASKED_WITHIN: Duration = Duration::from_millis(500);
const ENDED_WITHIN: Duration = Duration::from_secs(10);

/// Tasks remembered per session, and the bytes of their ends. What is forgotten is asked for again.
const MOST: usize = 4096;
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// How long the end of a task, or what it asks, is waited for at a time. A server that keeps one
/// for ever keeps its session no longer.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// How long the end of a task is kept for another look.
const KEPT: Duration = Duration::from_secs(60);

/// The tools of one server that answer only with tasks.
#[derive(Debug, Default)]
pub(crate) struct Supports(Mutex<HashSet<String>>);

impl Supports {
    /// Learns from an answer to `tools/list`.
    pub(crate) fn learn(&self, list: &Object) {
        let tools = list
            .get("tools")
            .and_then(Raw::as_array)
            .unwrap_or_default();
        let mut known = self.known();
        for tool in tools.iter().filter_map(|tool| tool.as_object().ok()) {
            let execution = tool.get("execution").and_then(|raw| raw.as_object().ok());
            let support = execution.and_then(|execution| execution.string("taskSupport"));
            match tool.string("name") {
                Some(name) if support.as_deref() == Some("required") => add(&mut known, name),
                Some(name) => drop(known.remove(&name)),
                None => {}
            }
        }
    }

    /// Learns that a tool answers only with tasks.
    pub(crate) fn demand(&self, tool: &str) {
        add(&mut self.known(), tool.to_owned());
    }

    /// Whether the tool answers only with tasks.
    pub(crate) fn demanded(&self, tool: &str) -> bool {
        self.known().contains(tool)
    }

    fn known(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a tool. What is forgotten for it the server teaches again, by refusing a plain call.
fn add(known: &mut HashSet<String>, tool: String) {
    if known.len() >= MOST {
        known.clear();
    }
    known.insert(tool);
}

/// Whether the server has tasks of its own for tools.
pub(crate) fn has(facts: &Facts) -> bool {
    let member = |object: &Object, name| object.get(name).and_then(|raw| raw.as_object().ok());
    let tasks = member(&facts.capabilities, "tasks");
    let tools = tasks
        .and_then(|tasks| member(&tasks, "requests"))
        .and_then(|requests| member(&requests, "tools"));
    tools.is_some_and(|tools| tools.get("call").is_some_and(Raw::is_object))
}

/// The description of a server with the extension in place of its own tasks.
pub(crate) fn shown(mut facts: Facts) -> Facts {
    let has = has(&facts);
    facts.capabilities.remove("tasks");
    if has {
        let extensions = Object::from_iter([(TASKS, Raw::empty_object())]);
        facts.capabilities.set("extensions", extensions.into());
    }
    facts
}

/// What a caller gets that did not declare tasks.
pub(crate) fn demanded() -> Reply {
    Reply::error(ErrorObject::missing_capability(
        "the tool answers only with tasks, which the request does not declare",
        &serde_json::json!({ "extensions": { TASKS: {} } }),
    ))
}

/// A `CreateTaskResult` of the extension from the old one; any other result is what it is.
pub(crate) fn created(end: End) -> End {
    let End::Complete(result) = end else {
        return end;
    };
    match result.get("task").and_then(|raw| raw.as_object().ok()) {
        Some(old) if old.contains("taskId") => End::Task(flat(&old, "task")),
        _ => End::Complete(result),
    }
}

/// The id of the task that an answer has made.
pub(crate) fn made(outcome: &Outcome) -> Option<Raw> {
    let Outcome::Result(raw) = outcome else {
        return None;
    };
    let task = raw.as_object().ok()?.get("task")?.as_object().ok()?;
    task.get("taskId").filter(|id| id.is_string()).cloned()
}

/// A task in the members of the extension.
fn flat(old: &Object, kind: &str) -> Object {
    let mut task = Object::from_iter([(RESULT_TYPE, Raw::string(kind))]);
    for name in [
        "taskId",
        "status",
        "statusMessage",
        "createdAt",
        "lastUpdatedAt",
    ] {
        if let Some(value) = old.get(name) {
            task.set(name, value.clone());
        }
    }
    task.set("ttlMs", old.get("ttl").cloned().unwrap_or_else(Raw::null));
    if let Some(interval) = old.get("pollInterval") {
        task.set("pollIntervalMs", interval.clone());
    }
    task
}

/// The tasks of one session whose results are waited for.
#[derive(Debug, Default)]
pub(crate) struct Results(Mutex<HashMap<String, Arc<Exchange>>>);

impl Results {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Exchange>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, task: &str) -> Option<Arc<Exchange>> {
        self.all().get(task).cloned()
    }

    /// Nobody asks for its end any more.
    fn forget(&self, task: &str) {
        self.all().remove(task);
    }

    /// Its end was delivered.
    fn delivered(session: &Arc<Session>, task: &str, waits: &Arc<Exchange>) {
        if !waits.deliver() {
            return;
        }
        let (task, waits, kept) = (task.to_owned(), Arc::clone(waits), Arc::clone(session));
        Arc::clone(session).spawn(async move {
            tokio::time::sleep(KEPT).await;
            let mut all = kept.results.all();
            if all.get(&task).is_some_and(|now| Arc::ptr_eq(now, &waits)) {
                all.remove(&task);
            }
        });
    }
}

/// Answers `tasks/get`, `tasks/update` and `tasks/cancel`.
///
/// # Errors
/// Why there is no answer.
pub(crate) async fn answer(
    session: &Arc<Session>,
    upstream: &Arc<str>,
    call: &Call,
) -> Result<Reply, CallError> {
    let fail = |fault: Fault| fault.into_call(upstream);
    if !call.carrier.admits(Some(session.instance())) {
        return Ok(unknown_task());
    }
    let task = call.params.string("taskId").unwrap_or_default();
    let params = Object::from_iter([("taskId", Raw::string(&task))]);
    if call.method == method::TASKS_UPDATE {
        let responses = call.params.get("inputResponses");
        let responses = responses.and_then(|raw| raw.as_object().ok());
        if let Some(waits) = session.results.of(&task) {
            for told in waits.answer(&responses.unwrap_or_default()) {
                if let Some(response) = told.response() {
                    session.table.say_of(Some(&waits), response);
                }
            }
        }
        return Ok(done());
    }
    let asked = session
        .ask_within(&call.method, &params, ENDED_WITHIN)
        .await;
    if call.method == method::TASKS_CANCEL {
        session.results.forget(&task);
    }
    let asked = match asked {
        Err(fault) if is_forgotten(session, &fault) => return Ok(unknown_task()),
        asked => asked.map_err(fail)?,
    };
    match asked {
        // One that has ended cannot be cancelled there; here that is no error.
        Outcome::Error(_) if call.method == method::TASKS_CANCEL => Ok(done()),
        Outcome::Error(error) => Ok(Reply::error(error)),
        Outcome::Result(_) if call.method == method::TASKS_CANCEL => Ok(done()),
        Outcome::Result(raw) => {
            let old = raw.as_object().map_err(|m| fail(Fault::Malformed(m)))?;
            match detailed(session, upstream, &task, &old).await {
                Ok(task) => Ok(Reply::complete(task)),
                Err(fault) if is_forgotten(session, &fault) => Ok(unknown_task()),
                Err(fault) => Err(fail(fault)),
            }
        }
    }
}

/// Whether the server has forgotten the session, and its tasks with it.
fn is_forgotten(session: &Session, fault: &Fault) -> bool {
    let forgotten = matches!(fault, Fault::SessionLost);
    if forgotten {
        session.retire();
    }
    forgotten
}

/// The task with what it asks, or what it brought.
async fn detailed(
    session: &Arc<Session>,
    upstream: &Arc<str>,
    id: &str,
    old: &Object,
) -> Result<Object, Fault> {
    let mut task = flat(old, "complete");
    let status = old.string("status").and_then(|text| Status::parse(&text));
    match status {
        Some(Status::Working) => {}
        Some(Status::InputRequired) => {
            let waits = result_of(session, upstream, id)?;
            drop(timeout(ASKED_WITHIN, waits.asked()).await);
            let questions = waits.questions();
            if questions.is_empty() {
                // The question has not come yet, or is answered already.
                task.set("status", Raw::string(Status::Working.as_str()));
            } else {
                task.set("inputRequests", questions.into());
            }
        }
        Some(Status::Completed | Status::Failed) => {
            let waits = result_of(session, upstream, id)?;
            let answer = timeout(ENDED_WITHIN, waits.ended()).await;
            inline(&mut task, answer.unwrap_or(Err(Fault::Late(ENDED_WITHIN)))?);
            Results::delivered(session, id, &waits);
        }
        Some(Status::Cancelled) | None => {}
    }
    Ok(task)
}

/// Puts the end into the task. What it says decides, should the status say otherwise.
fn inline(task: &mut Object, outcome: Outcome) {
    match outcome {
        Outcome::Error(error) => {
            task.set("status", Raw::string(Status::Failed.as_str()));
            task.set("error", error.raw().clone());
        }
        Outcome::Result(raw) => {
            let mut result = raw.as_object().unwrap_or_default();
            unrelate(&mut result);
            ensure_complete(&mut result);
            // There a tool's own failure is a failed task; here it is a result like any other.
            task.set("status", Raw::string(Status::Completed.as_str()));
            task.set("result", result.into());
        }
    }
}

/// The wait for the end of a task, begun where there is none.
fn result_of(
    session: &Arc<Session>,
    upstream: &Arc<str>,
    id: &str,
) -> Result<Arc<Exchange>, Fault> {
    let mut all = session.results.all();
    if let Some(waits) = all.get(id).filter(|waits| !waits.has_failed()) {
        return Ok(Arc::clone(waits));
    }
    let bytes: usize = all.values().map(|waits| waits.weight()).sum();
    if all.len() >= MOST || bytes >= MOST_BYTES {
        all.retain(|_, waits| waits.need() != Need::Over);
    }
    if all.len() >= MOST {
        return Err(Fault::Waits { most: MOST });
    }
    let waits = Exchange::unattended(upstream, RESULT, id);
    all.insert(id.to_owned(), Arc::clone(&waits));
    drop(all);
    let (asked, exchange) = (Arc::clone(session), Arc::clone(&waits));
    let id = id.to_owned();
    Arc::clone(session).spawn(async move { wait_for(&asked, &exchange, &id).await });
    Ok(waits)
}

/// Sends `tasks/result` and waits for the answer, for as long as a task may take.
async fn wait_for(session: &Session, exchange: &Arc<Exchange>, task: &str) {
    let id = match session.table.open(exchange) {
        Ok(id) => id,
        Err(fault) => return exchange.fail(fault),
    };
    let params = Object::from_iter([("taskId", Raw::string(task))]);
    let request = message::encode_request(&Id::number(id), RESULT, &params);
    let answered = async {
        match session.link.request(id, request).await {
            Ok(()) => drop(exchange.ended().await),
            Err(fault) => exchange.fail(session.table.failed(id, fault)),
        }
    };
    if timeout(LONGEST, answered).await.is_err() {
        exchange.fail(Fault::Late(LONGEST));
        if session.table.close(id) {
            session.table.cancel(id, Some(exchange));
        }
        session.table.rehome(exchange.take_all());
    }
}

fn done() -> Reply {
    Reply::complete(Object::from_iter([(RESULT_TYPE, Raw::string("complete"))]))
}

/// Whether an answer says that the tool has to be called as a task. Nothing has run then.
pub(crate) fn refused_plainly(reply: &Reply) -> bool {
    matches!(reply, Reply::End(End::Error(error)) if error.code() == code::METHOD_NOT_FOUND)
}

/// The task that a message is about.
pub(crate) fn related(params: &Object) -> Option<String> {
    let meta = params.get(META)?.as_object().ok()?;
    meta.get(RELATED)?.as_object().ok()?.string("taskId")
}

/// Takes out what ties a message to a task: callers know it by another name.
pub(crate) fn unrelate(params: &mut Object) {
    let meta = params.get(META).and_then(|raw| raw.as_object().ok());
    let Some(mut meta) = meta.filter(|meta| meta.contains(RELATED)) else {
        return;
    };
    meta.remove(RELATED);
    if meta.is_empty() {
        params.remove(META);
    } else {
        params.set(META, meta.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_that_answer_with_tasks_are_remembered_within_bounds() {
        let supports = Supports::default();
        for number in 0..=MOST {
            supports.demand(&number.to_string());
        }
        assert!(supports.demanded(&MOST.to_string()));
        assert!(supports.known().len() <= MOST);
        let list = |support: &str| {
            let text = format!(
                r#"{{"tools":[{{"name":"a","execution":{{"taskSupport":"{support}"}}}}]}}"#
            );
            Object::parse(&text.into_bytes().into()).unwrap()
        };
        supports.learn(&list("required"));
        assert!(supports.demanded("a"));
        supports.learn(&list("optional"));
        assert!(!supports.demanded("a"));
    }
}
