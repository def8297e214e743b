//! *demo-tasks*: every corner of the tasks extension (`io.modelcontextprotocol/tasks`).
//!
//! Tasks are stored before they are shown, survive a restart, and go on working after it.

mod engine;
mod external;
mod files;
mod jobs;
mod options;
mod task;
mod tools;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use self::engine::Engine;
pub use self::options::Options;
use self::task::{Step, Task};
use crate::kit::events::Events;
use crate::kit::fail::Fail;
use crate::kit::out::Out;
use crate::kit::request::Request;
use crate::kit::schema;
use crate::kit::seal::Sealer;
use crate::kit::server::{Answer, Server, TaskSupport, ToolCall};
use crate::kit::words::TASKS;

/// The server *demo-tasks*.
#[derive(Debug)]
pub struct TaskServer {
    engine: Arc<Engine>,
    sealer: Sealer,
}

impl TaskServer {
    /// Opens the state and goes on with unfinished tasks; `stop` ends all work.
    ///
    /// # Errors
    ///
    /// When the state directory cannot be created or read.
    pub fn open(options: Options, events: Events, stop: CancellationToken) -> io::Result<Self> {
        let engine = Engine::open(options, events, stop)?;
        for id in engine.unfinished() {
            jobs::start(&engine, id);
        }
        Ok(Self {
            engine,
            sealer: Sealer::default(),
        })
    }

    async fn tool(&self, call: ToolCall<'_>, out: &Out) -> Result<Value, Fail> {
        match call.name {
            "greet" => Ok(match call.arguments.get("name").and_then(Value::as_str) {
                Some(name) => schema::text(format!("Hello, {name}!")),
                None => schema::error("greet needs a `name`"),
            }),
            "slow_compute" => self.slow_compute(&call, out).await,
            "failing_job" | "protocol_error_job" => {
                call.request.need(true, false)?;
                self.start(call.name, call.arguments, "working")
            }
            "external_job" => {
                call.request.need(true, false)?;
                self.external_job(&call).await
            }
            "confirm_delete" => {
                call.request.need(true, true)?;
                if call
                    .arguments
                    .get("filename")
                    .is_none_or(|name| !name.is_string())
                {
                    return Ok(schema::error("confirm_delete needs a `filename`"));
                }
                self.start(call.name, call.arguments, "looking for the file")
            }
            "multi_input" => {
                call.request.need(true, true)?;
                self.start(call.name, call.arguments, "preparing the questions")
            }
            _ => {
                call.request.need(true, true)?;
                self.ask_then_start(&call)
            }
        }
    }

    async fn slow_compute(&self, call: &ToolCall<'_>, out: &Out) -> Result<Value, Fail> {
        if call
            .arguments
            .get("seconds")
            .and_then(Value::as_f64)
            .is_none_or(|seconds| seconds < 0.0)
        {
            return Ok(schema::error(
                "slow_compute needs `seconds`, a number of at least 0",
            ));
        }
        let (seconds, label) = jobs::slow_arguments(call.arguments);
        if call.request.has_tasks() {
            return self.start(call.name, call.arguments, &format!("computing \"{label}\""));
        }
        let step = Duration::try_from_secs_f64(seconds / 4.0).unwrap_or_default();
        for done in 0..=4_u8 {
            if done > 0 {
                tokio::time::sleep(step).await;
            }
            let message = format!("\"{label}\": {} %", done * 25);
            out.progress(call.request, f64::from(done), 4.0, &message)
                .await;
        }
        Ok(schema::text(jobs::slow_text(seconds, label)))
    }

    async fn external_job(&self, call: &ToolCall<'_>) -> Result<Value, Fail> {
        let (seconds, label) = jobs::slow_arguments(call.arguments);
        let task = self
            .engine
            .create(call.name, call.arguments, "working in another process")?;
        let started = external::start(&self.engine.files.job(&task.id), seconds, label).await;
        if let Err(error) = started {
            tracing::error!(%error, "no worker for an external job");
            let message = "the worker process did not start".to_owned();
            let error = Fail::internal(&message).to_value();
            self.engine.step(&task.id, Step::Fail { message, error });
        }
        jobs::start(&self.engine, task.id.clone());
        Ok(task.created())
    }

    /// Multi round-trip first, task second: the name is asked for before the task exists.
    fn ask_then_start(&self, call: &ToolCall<'_>) -> Result<Value, Fail> {
        const PURPOSE: &str = "tools/call test_tool_with_task";
        if let Some(state) = call.request.request_state() {
            self.sealer.open(PURPOSE, state)?;
        }
        let answer = call
            .request
            .input_responses()?
            .and_then(|all| all.get("user_name"));
        let Some(answer) = answer else {
            let question = schema::form("What is your name?", "name", "string");
            return Ok(json!({
                "resultType": "input_required",
                "inputRequests": { "user_name": question },
                "requestState": self.sealer.seal(PURPOSE, &json!("asked")),
            }));
        };
        let Some(name) = schema::accepted(answer, "name").and_then(Value::as_str) else {
            return Ok(schema::error(
                "nobody to greet: the question was not answered",
            ));
        };
        let arguments = Map::from_iter([("name".to_owned(), name.into())]);
        self.start(call.name, &arguments, "greeting")
    }

    fn start(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        message: &str,
    ) -> Result<Value, Fail> {
        let task = self.engine.create(tool, arguments, message)?;
        jobs::start(&self.engine, task.id.clone());
        Ok(task.created())
    }

    fn find(&self, request: &Request) -> Result<Task, Fail> {
        let id = request.string("taskId")?;
        self.engine
            .get(id)
            .ok_or_else(|| Fail::invalid_params("unknown task"))
    }

    fn update(&self, request: &Request) -> Result<Value, Fail> {
        let task = self.find(request)?;
        let Some(Value::Object(answers)) = request.params.get("inputResponses") else {
            return Err(Fail::invalid_params("`inputResponses` must be an object"));
        };
        // Only answers to open questions are looked at; the rest is ignored, whatever it is.
        let open = answers
            .iter()
            .filter(|(key, _)| task.questions.contains_key(*key));
        for (key, answer) in open {
            let action = answer.get("action").and_then(Value::as_str);
            if !matches!(action, Some("accept" | "decline" | "cancel")) {
                return Err(Fail::invalid_params(format!(
                    "`{key}` is not an elicitation result"
                )));
            }
        }
        self.engine.step(&task.id, Step::Answer(answers.clone()));
        Ok(json!({}))
    }

    fn cancel(&self, request: &Request) -> Result<Value, Fail> {
        let task = self.find(request)?;
        self.engine.step(&task.id, Step::Cancel);
        Ok(json!({}))
    }
}

impl Server for TaskServer {
    fn name(&self) -> &'static str {
        "demo-tasks"
    }

    fn instructions(&self) -> &'static str {
        "Start with greet; slow_compute shows a task."
    }

    fn capabilities(&self) -> Value {
        json!({ "tools": {}, "extensions": { TASKS: {} } })
    }

    fn tools(&self) -> Cow<'_, [Value]> {
        Cow::Borrowed(tools::TOOLS.as_slice())
    }

    fn events(&self) -> &Events {
        &self.engine.events
    }

    fn call_tool<'a>(&'a self, call: ToolCall<'a>, out: &'a Out) -> Answer<'a> {
        Box::pin(self.tool(call, out))
    }

    fn call<'a>(&'a self, request: &'a Request, _: &'a Out) -> Answer<'a> {
        let answer = match request.method.as_str() {
            "tasks/get" => self.find(request).map(|task| task.detailed()),
            "tasks/update" => self.update(request),
            "tasks/cancel" => self.cancel(request),
            other => Err(Fail::method_not_found(other)),
        };
        Box::pin(std::future::ready(answer))
    }

    fn task_support(&self, tool: &str) -> TaskSupport {
        match tool {
            "slow_compute" => TaskSupport::Optional,
            "failing_job"
            | "protocol_error_job"
            | "external_job"
            | "confirm_delete"
            | "multi_input"
            | "test_tool_with_task" => TaskSupport::Required,
            _ => TaskSupport::Forbidden,
        }
    }

    fn task(&self, id: &str) -> Option<Value> {
        self.engine.get(id).map(|task| task.detailed())
    }
}
