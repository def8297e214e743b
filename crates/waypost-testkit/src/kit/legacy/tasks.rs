//! The experimental tasks of 2025-11-25, over the tasks of the extension.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use super::answer::Exchange;
use crate::kit::events::Event;
use crate::kit::fail::Fail;
use crate::kit::request::Request;
use crate::kit::server::TaskSupport;

/// The `_meta` key that ties a message to a task.
pub(super) const RELATED: &str = "io.modelcontextprotocol/related-task";
/// How long a change may go unnoticed when its event was lost.
const LOOK: Duration = Duration::from_millis(500);

/// The task as this revision shows it, from any shape of the extension.
pub(super) fn old(task: &Value) -> Value {
    let mut all = Map::new();
    let names = [
        ("taskId", "taskId"),
        ("status", "status"),
        ("statusMessage", "statusMessage"),
        ("createdAt", "createdAt"),
        ("lastUpdatedAt", "lastUpdatedAt"),
        ("ttlMs", "ttl"),
        ("pollIntervalMs", "pollInterval"),
    ];
    for (new, old) in names {
        if let Some(value) = task.get(new) {
            all.insert(old.to_owned(), value.clone());
        }
    }
    Value::Object(all)
}

/// `tools/call`, as a task when the caller wants one.
pub(super) async fn call(exchange: &Exchange, request: &Request) -> Result<Value, Fail> {
    let name = request.string("name")?;
    let wanted = request.params.contains_key("task");
    let refuse = |why: &str| Err(Fail::with_code(-32601, format!("tool `{name}` {why}")));
    match exchange.server.task_support(name) {
        TaskSupport::Required if !wanted => refuse("must be called as a task"),
        TaskSupport::Forbidden if wanted => refuse("cannot be called as a task"),
        _ if !wanted => exchange.tool(request, false).await,
        _ => {
            let mut request = request.clone();
            request.params.remove("task");
            let created = exchange.tool(&request, true).await?;
            let Some(id) = created.get("taskId").and_then(Value::as_str) else {
                let why = created.pointer("/content/0/text").and_then(Value::as_str);
                return Err(Fail::invalid_params(why.unwrap_or("no task was created")));
            };
            exchange.session.own_task(id);
            Ok(json!({ "task": old(&created) }))
        }
    }
}

/// Answers `tasks/*`.
pub(super) async fn run(exchange: &Exchange, request: &Request) -> Result<Value, Fail> {
    match request.method.as_str() {
        "tasks/list" => {
            let ids = exchange.session.tasks();
            let tasks = ids.iter().filter_map(|id| exchange.server.task(id));
            Ok(json!({ "tasks": tasks.map(|task| old(&task)).collect::<Vec<_>>() }))
        }
        "tasks/get" => Ok(old(&find(exchange, request.string("taskId")?)?)),
        "tasks/result" => result(exchange, request.string("taskId")?).await,
        "tasks/cancel" => {
            let id = request.string("taskId")?;
            if is_terminal(&find(exchange, id)?) {
                return Err(Fail::invalid_params("the task has ended already"));
            }
            exchange
                .stateless(&of_task(request, "tasks/cancel", id, None), true)
                .await?;
            Ok(old(&find(exchange, id)?))
        }
        other => Err(Fail::method_not_found(other)),
    }
}

fn find(exchange: &Exchange, id: &str) -> Result<Value, Fail> {
    let task = exchange.server.task(id);
    task.filter(|_| exchange.session.owns_task(id))
        .ok_or_else(|| Fail::invalid_params("unknown task"))
}

fn status(task: &Value) -> &str {
    task.get("status")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn is_terminal(task: &Value) -> bool {
    matches!(status(task), "completed" | "failed" | "cancelled")
}

/// A request about a task, for the stateless server.
fn of_task(from: &Request, method: &str, id: &str, answers: Option<Map<String, Value>>) -> Request {
    let mut params = Map::from_iter([("taskId".to_owned(), id.into())]);
    if let Some(answers) = answers {
        params.insert("inputResponses".into(), answers.into());
    }
    Request {
        id: from.id.clone(),
        method: method.to_owned(),
        params,
    }
}

/// `tasks/result`: waits for the end, asking meanwhile what the task asks.
async fn result(exchange: &Exchange, id: &str) -> Result<Value, Fail> {
    let mut events = exchange.server.events().subscribe();
    let mut asked = HashSet::new();
    loop {
        let task = find(exchange, id)?;
        match status(&task) {
            "completed" => {
                let mut result = task.get("result").cloned().unwrap_or_else(|| json!({}));
                if let Some(members) = result.as_object_mut() {
                    members.insert("_meta".into(), json!({ RELATED: { "taskId": id } }));
                }
                return Ok(result);
            }
            "failed" => {
                let member = |path: &str| task.pointer(path).cloned().unwrap_or_default();
                let code = member("/error/code").as_i64().unwrap_or(-32603);
                let message = member("/error/message");
                return Err(Fail::with_code(code, message.as_str().unwrap_or("failed")));
            }
            "cancelled" => return Err(Fail::with_code(-32603, "the task was cancelled")),
            "input_required" => ask(exchange, id, &task, &mut asked).await?,
            _ => {}
        }
        changed(&mut events, id).await;
    }
}

/// Asks what was not asked yet and hands the answers to the task.
async fn ask(
    exchange: &Exchange,
    id: &str,
    task: &Value,
    asked: &mut HashSet<String>,
) -> Result<(), Fail> {
    let mut new = task
        .get("inputRequests")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    new.retain(|key, _| asked.insert(key.clone()));
    if new.is_empty() {
        return Ok(());
    }
    let answers = exchange.ask_all(Some(&new), Some(id)).await?;
    let update = Request {
        id: Value::Null,
        method: String::new(),
        params: Map::new(),
    };
    let update = of_task(&update, "tasks/update", id, Some(answers));
    exchange.stateless(&update, true).await.map(drop)
}

/// Waits until the task changed, or may have.
async fn changed(events: &mut broadcast::Receiver<Event>, id: &str) {
    let wait = async {
        while let Ok(event) = events.recv().await {
            if matches!(&event, Event::Task(changed, _) if changed == id) {
                break;
            }
        }
    };
    drop(tokio::time::timeout(LOOK, wait).await);
}
