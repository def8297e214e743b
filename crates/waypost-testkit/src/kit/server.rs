//! What a demo server is, apart from how it is reached.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value};

use super::events::Events;
use super::fail::Fail;
use super::out::Out;
use super::request::Request;

/// The answer to a request: a result object (the kit adds `resultType: "complete"` where it is
/// missing, and `serverInfo`) or an error.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Value, Fail>> + Send + 'a>>;

/// One `tools/call`.
#[derive(Debug)]
pub struct ToolCall<'a> {
    /// The tool's name; it is one of [`Server::tools`].
    pub name: &'a str,
    /// The arguments, empty when none were given.
    pub arguments: &'a Map<String, Value>,
    /// All of the request.
    pub request: &'a Request,
}

/// Whether the session era may call a tool as a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskSupport {
    /// It may not.
    #[default]
    Forbidden,
    /// As the caller likes.
    Optional,
    /// Only as a task.
    Required,
}

/// The methods of a server. Transport rules, `server/discover`, `tools/list` and
/// `subscriptions/listen` are the kit's.
pub trait Server: Send + Sync + 'static {
    /// The name in `serverInfo`.
    fn name(&self) -> &str;
    /// How a model should use the server.
    fn instructions(&self) -> &str;
    /// The `capabilities` of `server/discover`; also decides what can be listened to.
    fn capabilities(&self) -> Value;
    /// The tools, in the order they are listed.
    fn tools(&self) -> Cow<'_, [Value]>;
    /// Where changes are announced.
    fn events(&self) -> &Events;
    /// Answers `tools/call` for a tool of [`Server::tools`].
    fn call_tool<'a>(&'a self, call: ToolCall<'a>, out: &'a Out) -> Answer<'a>;
    /// Answers every other method.
    fn call<'a>(&'a self, request: &'a Request, out: &'a Out) -> Answer<'a> {
        let _ = out;
        Box::pin(std::future::ready(Err(Fail::method_not_found(
            &request.method,
        ))))
    }
    /// How the experimental tasks of the session era treat a tool.
    fn task_support(&self, tool: &str) -> TaskSupport {
        let _ = tool;
        TaskSupport::Forbidden
    }
    /// A task as `tasks/get` shows it.
    fn task(&self, id: &str) -> Option<Value> {
        let _ = id;
        None
    }
}
