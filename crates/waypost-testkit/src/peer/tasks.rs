//! A call that becomes a task, in whichever way its era has.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::Peer;
use super::answers::Answers;
use super::calls::reply;
use super::outcome::Outcome;
use crate::kit::legacy::Revision;
use crate::kit::words::{META_CAPABILITIES, TASKS};

const POLL: Duration = Duration::from_millis(30);
const PATIENCE: Duration = Duration::from_secs(60);

impl Peer {
    /// Calls a tool as a task and follows it to its end; plainly where this kind of client and
    /// this server have no tasks together.
    ///
    /// # Errors
    ///
    /// As [`Peer::call`], or when the task does not end within a minute.
    pub async fn task(&self, tool: &str, args: Value, answers: &Answers) -> io::Result<Outcome> {
        let following = async {
            if self.kind.revision().is_none() {
                self.extension_task(tool, args, answers).await
            } else if self.has_old_tasks() {
                self.old_task(tool, args, answers).await
            } else {
                self.call(tool, args, answers).await
            }
        };
        let followed = tokio::time::timeout(PATIENCE, following).await;
        followed.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the task did not end"))?
    }

    fn has_old_tasks(&self) -> bool {
        let offered = self
            .opening
            .pointer("/capabilities/tasks/requests/tools/call");
        offered.is_some() && self.agreed() == Some(Revision::Nov2025)
    }

    async fn old_task(&self, tool: &str, args: Value, answers: &Answers) -> io::Result<Outcome> {
        let params = json!({ "name": tool, "arguments": args, "task": { "ttl": 60_000 } });
        let mut created = self.request("tools/call", params, answers).await?;
        let Some(task) = created.result().get("task").cloned() else {
            return Ok(created);
        };
        let id = json!({ "taskId": task.get("taskId") });
        let mut ended = self.request("tasks/result", id, answers).await?;
        created.notifications.append(&mut ended.notifications);
        created.asked.append(&mut ended.asked);
        Ok(Outcome {
            answer: ended.answer,
            status: ended.status,
            task: Some(task),
            ..created
        })
    }

    async fn extension_task(
        &self,
        tool: &str,
        args: Value,
        answers: &Answers,
    ) -> io::Result<Outcome> {
        let mut outcome = self.extended("tools/call", tool, args, answers).await?;
        let created = outcome.result().clone();
        if created.get("resultType").and_then(Value::as_str) != Some("task") {
            return Ok(outcome);
        }
        let id = created.get("taskId").cloned().unwrap_or_default();
        outcome.task = Some(created);
        loop {
            let seen = self.of_task("tasks/get", &id, None, answers).await?;
            let status = seen.result().get("status").and_then(Value::as_str);
            match status {
                Some("working") => tokio::time::sleep(POLL).await,
                Some("input_required") => {
                    let questions = seen
                        .result()
                        .get("inputRequests")
                        .and_then(Value::as_object);
                    let Some(given) = reply(&mut outcome, questions, answers) else {
                        self.of_task("tasks/cancel", &id, None, answers).await?;
                        continue;
                    };
                    self.of_task("tasks/update", &id, Some(given.into()), answers)
                        .await?;
                }
                _ => {
                    outcome.answer = ending(&seen);
                    return Ok(outcome);
                }
            }
        }
    }

    async fn extended(
        &self,
        method: &str,
        tool: &str,
        args: Value,
        answers: &Answers,
    ) -> io::Result<Outcome> {
        let meta = json!({ META_CAPABILITIES: self.with_extension() });
        let params = json!({ "name": tool, "arguments": args, "_meta": meta });
        self.request(method, params, answers).await
    }

    async fn of_task(
        &self,
        method: &str,
        id: &Value,
        given: Option<Value>,
        answers: &Answers,
    ) -> io::Result<Outcome> {
        let meta = json!({ META_CAPABILITIES: self.with_extension() });
        let mut params = json!({ "taskId": id, "_meta": meta });
        if let (Some(given), Some(members)) = (given, params.as_object_mut()) {
            members.insert("inputResponses".into(), given);
        }
        self.request(method, params, answers).await
    }

    fn with_extension(&self) -> Value {
        let mut all = self.capabilities.clone();
        if let Some(members) = all.as_object_mut() {
            members.insert("extensions".into(), json!({ TASKS: {} }));
        }
        all
    }
}

/// The end of a task as the response its call would have had.
fn ending(seen: &Outcome) -> Value {
    let task = seen.result();
    let id = seen.answer.get("id");
    match (task.get("result"), task.get("error")) {
        (Some(result), _) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        (None, Some(error)) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        (None, None) => seen.answer.clone(),
    }
}
