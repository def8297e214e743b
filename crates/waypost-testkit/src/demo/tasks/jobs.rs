//! What each tool does once it is a task. A job starts from the stored task alone, so that it
//! can be taken up again after a restart.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::engine::Engine;
use super::external;
use super::task::{Status, Step, Task};
use crate::kit::clock::now_ms;
use crate::kit::fail::Fail;
use crate::kit::schema;

const SAYS_PROGRESS: f64 = 3.0;

/// Works on a task in the background, to its end.
pub(crate) fn start(engine: &Arc<Engine>, id: String) {
    let engine = Arc::clone(engine);
    crate::kit::spawn::spawn(async move {
        let over = engine.over(&id);
        if let Some(task) = engine.get(&id)
            && let Some(end) = over.run_until_cancelled(work(&engine, &task)).await
        {
            engine.step(&id, end);
        }
        let cancelled = engine
            .get(&id)
            .is_some_and(|task| task.status == Status::Cancelled);
        if cancelled && let Err(error) = stop_worker(&engine, &id) {
            tracing::warn!(%error, "a worker could not be told to stop");
        }
    });
}

fn stop_worker(engine: &Engine, id: &str) -> std::io::Result<()> {
    let directory = engine.files.job(id);
    if directory.is_dir() {
        external::cancel(&directory)
    } else {
        Ok(())
    }
}

/// The end of the task's work.
async fn work(engine: &Engine, task: &Task) -> Step {
    let pace = engine.options.work;
    match task.tool.as_str() {
        "slow_compute" => {
            let (seconds, label) = slow_arguments(&task.arguments);
            compute(engine, task, seconds).await;
            complete(schema::text(slow_text(seconds, label)))
        }
        "failing_job" => {
            until(task, pace).await;
            complete(schema::error("failing_job failed, as it always does"))
        }
        "protocol_error_job" => {
            until(task, pace).await;
            let message = "protocol_error_job broke, as it always does";
            Step::Fail {
                message: message.into(),
                error: Fail::internal(message).to_value(),
            }
        }
        "confirm_delete" => confirm_delete(engine, task).await,
        "multi_input" => multi_input(engine, task).await,
        "external_job" => match external::wait(&engine.files.job(&task.id)).await {
            Ok(text) => complete(schema::text(text)),
            Err(error) => {
                let message = format!("the external job was lost: {error}");
                Step::Fail {
                    error: Fail::internal(&message).to_value(),
                    message,
                }
            }
        },
        // `test_tool_with_task` asked before it became a task: only the greeting is left.
        _ => {
            until(task, pace).await;
            let name = task
                .arguments
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or("nobody");
            complete(schema::text(format!("Hello, {name}!")))
        }
    }
}

/// Long computations say how far they are; short ones would only make noise.
async fn compute(engine: &Engine, task: &Task, seconds: f64) {
    if seconds >= SAYS_PROGRESS {
        for quarter in 1..4_u8 {
            let part = seconds * f64::from(quarter) / 4.0;
            until(task, Duration::try_from_secs_f64(part).unwrap_or_default()).await;
            engine.step(
                &task.id,
                Step::Say(format!("computing, {} % done", quarter * 25)),
            );
        }
    }
    until(
        task,
        Duration::try_from_secs_f64(seconds).unwrap_or_default(),
    )
    .await;
}

async fn confirm_delete(engine: &Engine, task: &Task) -> Step {
    until(task, engine.options.work).await;
    let file = task
        .arguments
        .get("filename")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let question = schema::form(&format!("Delete {file}?"), "confirm", "boolean");
    let questions = Map::from_iter([("confirm-1".to_owned(), question)]);
    engine.step(
        &task.id,
        Step::Ask(format!("waiting for a yes or no about {file}"), questions),
    );
    let answers = engine.answers(&task.id, &["confirm-1"]).await;
    let confirmed = answers
        .get("confirm-1")
        .and_then(|given| schema::accepted(given, "confirm"));
    complete(schema::text(if confirmed == Some(&Value::Bool(true)) {
        format!("Deleted {file}.")
    } else {
        format!("Kept {file}.")
    }))
}

async fn multi_input(engine: &Engine, task: &Task) -> Step {
    until(task, engine.options.work).await;
    let questions = Map::from_iter([
        (
            "name-1".to_owned(),
            schema::form("What is your name?", "name", "string"),
        ),
        (
            "color-2".to_owned(),
            schema::form("What is your favorite color?", "color", "string"),
        ),
    ]);
    engine.step(
        &task.id,
        Step::Ask("waiting for a name and a color".into(), questions),
    );
    let answers = engine.answers(&task.id, &["name-1", "color-2"]).await;
    let given = |key: &str, member: &str, otherwise: &str| {
        let value = answers
            .get(key)
            .and_then(|answer| schema::accepted(answer, member));
        value
            .and_then(Value::as_str)
            .unwrap_or(otherwise)
            .to_owned()
    };
    let name = given("name-1", "name", "Somebody");
    let color = given("color-2", "color", "no color");
    complete(schema::text(format!("{name} likes {color}.")))
}

/// `seconds` (at most an hour) and `label` of `slow_compute` and `external_job`.
pub(crate) fn slow_arguments(arguments: &Map<String, Value>) -> (f64, &str) {
    let seconds = arguments
        .get("seconds")
        .and_then(Value::as_f64)
        .unwrap_or(1.0);
    let label = arguments
        .get("label")
        .and_then(Value::as_str)
        .unwrap_or("unnamed");
    (seconds.clamp(0.0, 3600.0), label)
}

/// The text of a finished `slow_compute`, plain or as a task.
pub(crate) fn slow_text(seconds: f64, label: &str) -> String {
    format!("slow_compute \"{label}\" finished after {seconds} s")
}

/// The result a plain call would have had, with its type spelled out: clients insist on it.
fn complete(mut result: Value) -> Step {
    if let Some(members) = result.as_object_mut() {
        members.insert("resultType".into(), json!("complete"));
    }
    Step::Complete(result)
}

/// Sleeps until `after` has passed since the task's creation.
async fn until(task: &Task, after: Duration) {
    let passed = Duration::from_millis(now_ms().saturating_sub(task.created_ms));
    tokio::time::sleep(after.saturating_sub(passed)).await;
}
