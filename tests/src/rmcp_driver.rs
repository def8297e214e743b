//! rmcp, the official Rust SDK, as a client that drives a task server to the end of each tool.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities,
    ClientConfig, DetailedTask, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData,
    GetTaskParams, Implementation, InputRequests, JsonObject, ProtocolVersion, TaskPayload,
    UpdateTaskParams,
};
use rmcp::service::{RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient, ServiceExt as _,
};
use serde_json::{Value, json};

/// How long a task may take to its end.
const END: Duration = Duration::from_secs(30);

/// A connected client that declares tasks and answers every question with yes.
#[derive(Debug)]
pub struct RmcpClient {
    service: RunningService<RoleClient, Person>,
    asked: Arc<Mutex<Vec<String>>>,
}

/// How a call ended.
#[derive(Debug)]
pub struct Ending {
    /// The task's id, if there was one.
    pub task: Option<String>,
    /// The last payload of the task, or the plain result as a completed one.
    pub payload: TaskPayload,
}

impl Ending {
    /// The text of the result.
    ///
    /// # Errors
    /// When the call did not end in a result with text.
    pub fn text(&self) -> anyhow::Result<String> {
        let TaskPayload::Completed { result } = &self.payload else {
            bail!("not completed: {:?}", self.payload);
        };
        let text = Value::Object(result.clone())
            .pointer("/content/0/text")
            .cloned();
        text.and_then(|text| text.as_str().map(str::to_owned))
            .context("a result without text")
    }

    /// Whether the result is a tool's error.
    #[must_use]
    pub fn is_tool_error(&self) -> bool {
        matches!(&self.payload, TaskPayload::Completed { result }
            if result.get("isError") == Some(&Value::Bool(true)))
    }

    /// Whether the task was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.payload, TaskPayload::Cancelled)
    }
}

impl RmcpClient {
    /// Connects by `server/discover`, without falling back to a session.
    ///
    /// # Errors
    /// When the server is not modern or does not answer.
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        let asked = Arc::default();
        let person = Person {
            asked: Arc::clone(&asked),
        };
        let transport = StreamableHttpClientTransport::from_uri(url);
        let lifecycle = ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        };
        let service = Box::pin(person.serve_with_lifecycle(transport, lifecycle)).await?;
        Ok(Self { service, asked })
    }

    /// Connects as rmcp does unless told otherwise: `initialize`, in which it offers 2026-07-28 and
    /// declares tasks.
    ///
    /// # Errors
    /// When the server opens no session.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let asked = Arc::default();
        let person = Person {
            asked: Arc::clone(&asked),
        };
        let transport = StreamableHttpClientTransport::from_uri(url);
        let service = Box::pin(person.serve(transport)).await?;
        Ok(Self { service, asked })
    }

    /// The revision that was agreed on.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let server = self.service.peer_info()?;
        Some(server.protocol_version.to_string())
    }

    /// The names of all tools.
    ///
    /// # Errors
    /// When the server does not list them.
    pub async fn tools(&self) -> anyhow::Result<Vec<String>> {
        let tools = Box::pin(self.service.list_all_tools()).await?;
        Ok(tools
            .into_iter()
            .map(|tool| tool.name.into_owned())
            .collect())
    }

    /// How many tools, prompts, resources and templates there are.
    ///
    /// # Errors
    /// When it does not understand a list.
    pub async fn listed(&self) -> anyhow::Result<[usize; 4]> {
        let service = &self.service;
        Ok([
            Box::pin(service.list_all_tools()).await?.len(),
            Box::pin(service.list_all_prompts()).await?.len(),
            Box::pin(service.list_all_resources()).await?.len(),
            Box::pin(service.list_all_resource_templates()).await?.len(),
        ])
    }

    /// The messages of the questions that were answered.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Calls a tool and follows its task, if it becomes one, to the end.
    ///
    /// # Errors
    /// When the server answers with an error, or the task does not end.
    pub async fn call(&self, name: &str, arguments: Value) -> anyhow::Result<Ending> {
        match Box::pin(self.start(name, arguments)).await? {
            CallToolResponse::Complete(result) => Ok(Ending {
                task: None,
                payload: completed(&result)?,
            }),
            CallToolResponse::Task(created) => {
                let id = created.task.task_id;
                let task = tokio::time::timeout(END, Box::pin(self.follow(&id))).await??;
                Ok(Ending {
                    task: Some(id),
                    payload: task.payload,
                })
            }
            other => bail!("unexpected: {other:?}"),
        }
    }

    /// Starts a task and cancels it; returns how it ended.
    ///
    /// # Errors
    /// When the tool does not become a task, or that does not end.
    pub async fn cancel(&self, name: &str, arguments: Value) -> anyhow::Result<Ending> {
        let CallToolResponse::Task(created) = Box::pin(self.start(name, arguments)).await? else {
            bail!("`{name}` did not become a task");
        };
        let id = created.task.task_id;
        self.service
            .cancel_task(CancelTaskParams::new(id.clone()))
            .await?;
        let task = tokio::time::timeout(END, Box::pin(self.follow(&id))).await??;
        Ok(Ending {
            task: Some(id),
            payload: task.payload,
        })
    }

    async fn start(&self, name: &str, arguments: Value) -> anyhow::Result<CallToolResponse> {
        let arguments: JsonObject = serde_json::from_value(arguments)?;
        let request = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        Ok(Box::pin(self.service.call_tool_once(request)).await?)
    }

    async fn follow(&self, id: &str) -> anyhow::Result<DetailedTask> {
        loop {
            let task = self.service.get_task(GetTaskParams::new(id)).await?.task;
            if task.status().is_terminal() {
                return Ok(task);
            }
            if let TaskPayload::InputRequired { input_requests } = &task.payload {
                let answers = self.answers(input_requests)?;
                self.service
                    .update_task(UpdateTaskParams::new(id, answers))
                    .await?;
            }
            let poll = task.task.poll_interval_ms.unwrap_or(100);
            tokio::time::sleep(Duration::from_millis(poll)).await;
        }
    }

    fn answers(&self, questions: &InputRequests) -> anyhow::Result<rmcp::model::InputResponses> {
        let mut answers = JsonObject::new();
        for (key, question) in questions {
            let question = serde_json::to_value(question)?;
            let message = question.pointer("/params/message").and_then(Value::as_str);
            let message = message.with_context(|| format!("no message in {question}"))?;
            self.asked
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(message.to_owned());
            answers.insert(key.clone(), json!({ "action": "accept", "content": yes() }));
        }
        Ok(serde_json::from_value(Value::Object(answers))?)
    }
}

fn completed(result: &CallToolResult) -> anyhow::Result<TaskPayload> {
    let result = serde_json::from_value(serde_json::to_value(result)?)?;
    Ok(TaskPayload::Completed { result })
}

fn yes() -> Value {
    json!({ "confirm": true, "name": "Ada" })
}

/// Who answers the questions that come with a call rather than a task.
#[derive(Clone, Debug)]
struct Person {
    asked: Arc<Mutex<Vec<String>>>,
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder()
            .enable_elicitation()
            .enable_tasks()
            .build();
        ClientConfig::new(capabilities, Implementation::new("rmcp-peer", "3.11.0"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if let ElicitRequestParams::FormElicitationParams { message, .. } = request {
            self.asked
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(message);
        }
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(yes()))
    }
}
