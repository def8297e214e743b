//! One request of a session, answered by a server that knows no sessions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::log::Log;
use super::options::Options;
use super::revision::Revision;
use super::session::Session;
use super::sessions::Sessions;
use super::{shape, tasks};
use crate::kit::dispatch::{self, has};
use crate::kit::fail::Fail;
use crate::kit::out::{LEVELS, Out};
use crate::kit::request::Request;
use crate::kit::schema;
use crate::kit::server::Server;
use crate::kit::words::{
    META_CAPABILITIES, META_LOG_LEVEL, META_RESUMABLE, META_SESSION, META_VERSION, TASKS, VERSION,
};

/// Where one request of a session is answered.
#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) server: Arc<dyn Server>,
    pub(super) session: Arc<Session>,
    /// Gets the notifications and the answer.
    pub(super) said: Log,
    /// Gets the questions.
    pub(super) asks: Log,
    pub(super) sessions: bool,
    pub(super) all: Sessions,
    /// Whether a closed stream can be resumed.
    pub(super) resumable: bool,
}

/// Opens the session an `initialize` asks for: the session, and the result.
pub(super) fn initialize(
    server: &dyn Server,
    options: &Options,
    request: &Request,
    standalone: Log,
) -> Result<(Arc<Session>, Value), Fail> {
    let offered = Revision::parse(request.string("protocolVersion")?);
    let revision = offered.map_or(options.newest, |offered| offered.min(options.newest));
    let declared = request.params.get("capabilities").cloned();
    let session = Session::new(revision, declared.unwrap_or_else(|| json!({})), standalone);
    let result = shape::initialized(server, revision, options);
    Ok((Arc::new(session), result))
}

/// Takes a notification of the client.
pub(super) fn notified(session: &Session, method: &str, params: &Map<String, Value>) {
    match method {
        "notifications/initialized" => session.initialized.store(true, Ordering::SeqCst),
        "notifications/cancelled" => session.cancel(params),
        _ => {}
    }
}

impl Exchange {
    /// Answers a request on its stream; nothing when it is cancelled, or its session ends.
    pub(super) async fn answer(&self, request: &Request) {
        let over = self.session.started(request);
        let answer = over.run_until_cancelled(self.run(request)).await;
        self.session.finished(request);
        match answer {
            Some(Ok(result)) => self.said.push(json!({
                "jsonrpc": "2.0",
                "id": request.id,
                "result": shape::result(result, self.session.revision),
            })),
            Some(Err(fail)) => {
                let fail = shape::fail(fail, &request.method);
                self.said.push(fail.to_response(&request.id));
            }
            None => {}
        }
    }

    pub(super) fn has_tasks(&self) -> bool {
        let capabilities = self.server.capabilities();
        shape::has_tasks(&capabilities, self.session.revision, self.sessions)
    }

    async fn run(&self, request: &Request) -> Result<Value, Fail> {
        let capabilities = self.server.capabilities();
        match request.method.as_str() {
            "ping" => Ok(json!({})),
            "logging/setLevel" if has(&capabilities, &["logging"]) => {
                let level = request.string("level")?;
                if !LEVELS.contains(&level) {
                    return Err(Fail::invalid_params(format!("unknown level `{level}`")));
                }
                self.session.set_level(level);
                Ok(json!({}))
            }
            "resources/subscribe" if has(&capabilities, &["resources", "subscribe"]) => {
                self.session.subscribe(request.string("uri")?);
                Ok(json!({}))
            }
            "resources/unsubscribe" if has(&capabilities, &["resources", "subscribe"]) => {
                self.session.unsubscribe(request.string("uri")?);
                Ok(json!({}))
            }
            "tools/list" if self.has_tasks() => {
                let list = self.stateless(request, false).await?;
                Ok(shape::tools(list, &*self.server))
            }
            "tools/call" if self.has_tasks() => tasks::call(self, request).await,
            "tools/call" => self.tool(request, false).await,
            "initialize" => Err(Fail::invalid_request("this session is initialized already")),
            method @ ("server/discover" | "subscriptions/listen") => {
                Err(Fail::method_not_found(method))
            }
            method if method.starts_with("tasks/") => {
                if self.has_tasks() {
                    tasks::run(self, request).await
                } else {
                    Err(Fail::method_not_found(method))
                }
            }
            _ => self.stateless(request, false).await,
        }
    }

    /// As [`Exchange::stateless`]; what a client cannot answer is a failure of the tool.
    pub(super) async fn tool(&self, request: &Request, tasks: bool) -> Result<Value, Fail> {
        match self.stateless(request, tasks).await {
            Err(fail) if fail.code == -32021 => Ok(schema::error(shape::lacks(&fail))),
            Err(fail) if fail.code == REFUSED => Ok(schema::error(fail.message)),
            other => other,
        }
    }

    /// Answers with what the stateless server says, asking the client for what it asks.
    pub(super) async fn stateless(&self, request: &Request, tasks: bool) -> Result<Value, Fail> {
        let mut request = self.complete(request, tasks);
        loop {
            let result = self.once(&request).await?;
            if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
                return Ok(result);
            }
            let questions = result.get("inputRequests").and_then(Value::as_object);
            let answers = self.ask_all(questions, None).await?;
            request
                .params
                .insert("inputResponses".into(), answers.into());
            match result.get("requestState") {
                Some(state) => request.params.insert("requestState".into(), state.clone()),
                None => request.params.remove("requestState"),
            };
        }
    }

    /// The request with the context a stateless server wants in it.
    fn complete(&self, request: &Request, tasks: bool) -> Request {
        let mut request = request.clone();
        let mut capabilities = self.session.capabilities.as_object().cloned();
        let capabilities = capabilities.get_or_insert_default();
        capabilities.retain(|key, _| key != "extensions" && key != "tasks");
        if tasks {
            capabilities.insert("extensions".into(), json!({ TASKS: {} }));
        }
        let meta = request.params.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(META_VERSION.into(), VERSION.into());
            meta.insert(META_CAPABILITIES.into(), json!(capabilities));
            meta.insert(META_LOG_LEVEL.into(), self.session.level().into());
            meta.insert(META_SESSION.into(), self.session_name().into());
            if self.resumable {
                meta.insert(META_RESUMABLE.into(), true.into());
            }
        }
        request
    }

    fn session_name(&self) -> &str {
        if self.sessions { &self.session.id } else { "" }
    }

    /// One round, its notifications put on the call's stream.
    async fn once(&self, request: &Request) -> Result<Value, Fail> {
        let (out, mut said) = Out::new();
        let stop = CancellationToken::new();
        let mut work = std::pin::pin!(dispatch::run(&*self.server, request, &out, stop));
        let end = loop {
            tokio::select! {
                biased;
                Some(message) = said.recv() => self.say(message),
                end = &mut work => break end,
            }
        };
        while let Ok(message) = said.try_recv() {
            self.say(message);
        }
        end
    }

    /// Puts a notification of the server on its stream; one of them acts on the stream itself.
    fn say(&self, message: Value) {
        match message.get("method").and_then(Value::as_str) {
            Some(CLOSE_STREAM) if self.resumable => self.said.cut(),
            Some(CLOSE_STREAM) => {}
            Some(ASK_OUTSIDE) => self.ask_outside(&message),
            _ => self.said.push(message),
        }
    }

    /// Asks on the stream that belongs to no call, and keeps the answer for tests.
    fn ask_outside(&self, message: &Value) {
        let (session, all) = (Arc::clone(&self.session), self.all.clone());
        let params = message.get("params").cloned().unwrap_or_default();
        crate::kit::spawn::spawn(async move {
            // The call that wanted it is over by then.
            tokio::time::sleep(AFTER_THE_CALL).await;
            let log = session.standalone.clone();
            if let Some(answer) = session.ask(&log, "elicitation/create", &params).await {
                all.keep_outside(answer);
            }
        });
    }

    /// Asks everything at once, on behalf of `task` if there is one: the answers by key.
    pub(super) async fn ask_all(
        &self,
        questions: Option<&Map<String, Value>>,
        task: Option<&str>,
    ) -> Result<Map<String, Value>, Fail> {
        let all = questions
            .into_iter()
            .flatten()
            .map(|(key, question)| async move {
                Ok((key.clone(), self.ask(key, question, task).await?))
            });
        join_all(all).await.into_iter().collect()
    }

    async fn ask(&self, key: &str, question: &Value, task: Option<&str>) -> Result<Value, Fail> {
        let member = |key: &str| question.get(key).cloned().unwrap_or(Value::Null);
        let method = member("method");
        let method = method.as_str().unwrap_or_default();
        let mut params = member("params").as_object().cloned().unwrap_or_default();
        if self.session.revision < Revision::Nov2025 {
            params.remove("mode");
        }
        let meta = match task {
            Some(task) => json!({ tasks::RELATED: { "taskId": task } }),
            // A gateway that has sessions with this server may put the question on under its key.
            None => json!({ KEY: key }),
        };
        params.insert("_meta".into(), meta);
        let params = Value::Object(params);
        let asked = self.session.ask(&self.asks, method, &params).await;
        let answer = asked.unwrap_or_default();
        match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => {
                let why = answer.pointer("/error/message").and_then(Value::as_str);
                let why = why.unwrap_or("the session ended");
                Err(Fail::with_code(
                    REFUSED,
                    format!("`{method}` was refused: {why}"),
                ))
            }
        }
    }
}

/// What a question is called where it is not a request; other clients pass it over.
const KEY: &str = "dev.waypost/key";
/// The code of a question the client refused, until it becomes a failure of the tool.
const REFUSED: i64 = -32603;
/// Not of the protocol: a tool that wants its stream closed while it goes on.
pub(crate) const CLOSE_STREAM: &str = "demo/close-stream";
/// Not of the protocol: a tool that wants to ask when its call is over.
pub(crate) const ASK_OUTSIDE: &str = "demo/ask-outside";
const AFTER_THE_CALL: Duration = Duration::from_millis(50);
