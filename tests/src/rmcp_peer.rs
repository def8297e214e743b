//! A task server made with rmcp, the official Rust SDK: the same tools as the demo server
//! `demo-tasks`, over Streamable HTTP without sessions.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities,
    ContentBlock, CreateTaskResult, ErrorData, GetTaskParams, GetTaskResult, InputRequest,
    JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Soon enough that no test waits for a poll.
const POLL_MS: u64 = 50;

/// A running rmcp server. It ends when this is dropped.
#[derive(Debug)]
pub struct RmcpServer {
    /// Its MCP endpoint.
    pub url: String,
    _serving: JoinSet<()>,
}

impl RmcpServer {
    /// Starts it on a free loopback port. It answers with plain JSON where nothing comes first if
    /// `json`, always with event streams, as rmcp does by default, otherwise.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(json: bool) -> anyhow::Result<Self> {
        let peer = Peer::default();
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(json);
        let sessions = Arc::new(NeverSessionManager::default());
        let service = StreamableHttpService::new(move || Ok(peer.clone()), sessions, config);
        Self::serve(Router::new().route_service("/mcp", service)).await
    }

    /// Starts it with sessions for those who open one, as rmcp does by default.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start_with_sessions() -> anyhow::Result<Self> {
        let peer = Peer::default();
        let config = StreamableHttpServerConfig::default().with_legacy_session_mode(true);
        let sessions = Arc::new(LocalSessionManager::default());
        let service = StreamableHttpService::new(move || Ok(peer.clone()), sessions, config);
        Self::serve(Router::new().route_service("/mcp", service)).await
    }

    async fn serve(router: Router) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}/mcp", listener.local_addr()?);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            // It runs until the set is dropped.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self {
            url,
            _serving: serving,
        })
    }
}

#[derive(Clone, Default)]
struct Peer {
    tasks: TaskManager,
}

/// The tools that never run but as a task.
const REQUIRED: [&str; 2] = ["failing_job", "protocol_error_job"];
/// The tools that run as a task for those who declared it.
const TASKABLE: [&str; 4] = [
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
];

impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tasks()
                .build(),
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.into_owned();
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let declared = context
            .client_capabilities()
            .is_some_and(|caps| caps.supports_tasks());
        if declared && TASKABLE.contains(&name.as_str()) {
            let options = TaskOptions::new().with_poll_interval_ms(POLL_MS);
            let task = self.tasks.spawn(options, move |task| {
                Box::pin(async move {
                    let cancelled = task.clone();
                    tokio::select! {
                        result = as_task(&name, &arguments, &task) => result,
                        () = cancelled.cancelled() => Err(TaskExit::Cancelled),
                    }
                })
            });
            return Ok(CallToolResponse::Task(CreateTaskResult::new(task)));
        }
        if REQUIRED.contains(&name.as_str()) {
            let required = ClientCapabilities::builder().enable_tasks().build();
            return Err(ErrorData::missing_required_client_capability(required));
        }
        plain(&name, &arguments)
            .await
            .map(CallToolResponse::Complete)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks
            .get_task(&request.task_id)
            .map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks
            .update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

fn tools() -> Vec<Tool> {
    let string = || json!({ "type": "string" });
    let tool = |name: &'static str, properties: Value| {
        let schema = JsonObject::from_iter([
            ("type".to_owned(), json!("object")),
            ("properties".to_owned(), properties),
        ]);
        Tool::new(name, name, schema)
    };
    vec![
        tool("greet", json!({ "name": string() })),
        tool(
            "slow_compute",
            json!({ "seconds": { "type": "number" }, "label": string() }),
        ),
        tool("failing_job", json!({})),
        tool("protocol_error_job", json!({})),
        tool("confirm_delete", json!({ "filename": string() })),
    ]
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn argument<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

async fn plain(name: &str, arguments: &Value) -> Result<CallToolResult, ErrorData> {
    match name {
        "greet" => Ok(text(format!("Hello, {}!", argument(arguments, "name")))),
        "slow_compute" => Ok(compute(arguments).await),
        _ => Err(ErrorData::invalid_params(
            format!("no plain tool `{name}`"),
            None,
        )),
    }
}

async fn compute(arguments: &Value) -> CallToolResult {
    let seconds = arguments
        .get("seconds")
        .and_then(Value::as_f64)
        .unwrap_or_default();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    text(format!(
        "{}: computed for {seconds} s",
        argument(arguments, "label")
    ))
}

async fn as_task(
    name: &str,
    arguments: &Value,
    task: &TaskContext,
) -> Result<CallToolResult, TaskExit> {
    match name {
        "slow_compute" => Ok(compute(arguments).await),
        "failing_job" => Ok(CallToolResult::error(vec![ContentBlock::text(
            "the job failed as asked",
        )])),
        "confirm_delete" => confirm(argument(arguments, "filename"), task).await,
        _ => Err(ErrorData::internal_error("the job broke as asked", None).into()),
    }
}

async fn confirm(filename: &str, task: &TaskContext) -> Result<CallToolResult, TaskExit> {
    let answer = question(&format!("Delete {filename}?"));
    let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let answer = task.request_input("confirm", answer).await?;
    let agreed = answer.pointer("/content/confirm") == Some(&Value::Bool(true));
    Ok(text(format!(
        "{} {filename}",
        if agreed { "deleted" } else { "kept" }
    )))
}

fn question(message: &str) -> anyhow::Result<InputRequest> {
    let schema = json!({
        "type": "object",
        "properties": { "confirm": { "type": "boolean" } },
        "required": ["confirm"],
    });
    let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
    let request = json!({ "method": "elicitation/create", "params": params });
    serde_json::from_value(request).context("not an elicitation")
}
