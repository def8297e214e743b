//! Both demo servers behind one endpoint, for runs of the official suite without a gateway.

use std::borrow::Cow;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::everything::EverythingServer;
use super::tasks::{Options, TaskServer};
use crate::kit::events::Events;
use crate::kit::out::Out;
use crate::kit::request::Request;
use crate::kit::server::{Answer, Server, TaskSupport, ToolCall};

/// *demo-everything* with the tools and tasks of *demo-tasks*. Make both with the same events.
#[derive(Debug)]
pub struct AllServer {
    everything: EverythingServer,
    tasks: TaskServer,
}

impl AllServer {
    /// Opens both; `stop` ends all work.
    ///
    /// # Errors
    ///
    /// When the state directory cannot be created or read.
    pub fn open(options: Options, stop: CancellationToken) -> std::io::Result<Self> {
        let events = Events::default();
        let tasks = TaskServer::open(options, events.clone(), stop)?;
        Ok(Self::new(EverythingServer::new(events), tasks))
    }

    /// Joins the two.
    pub fn new(everything: EverythingServer, tasks: TaskServer) -> Self {
        Self { everything, tasks }
    }
}

impl Server for AllServer {
    fn name(&self) -> &'static str {
        "demo-all"
    }

    fn instructions(&self) -> &'static str {
        "demo-everything and demo-tasks in one."
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = self.everything.capabilities();
        if let (Some(all), Some(extensions)) = (
            capabilities.as_object_mut(),
            self.tasks.capabilities().get("extensions"),
        ) {
            all.insert("extensions".into(), extensions.clone());
        }
        capabilities
    }

    fn tools(&self) -> Cow<'_, [Value]> {
        Cow::Owned([self.everything.tools(), self.tasks.tools()].concat())
    }

    fn events(&self) -> &Events {
        self.everything.events()
    }

    fn call_tool<'a>(&'a self, call: ToolCall<'a>, out: &'a Out) -> Answer<'a> {
        let name = Some(Value::from(call.name));
        if self
            .tasks
            .tools()
            .iter()
            .any(|tool| tool.get("name") == name.as_ref())
        {
            self.tasks.call_tool(call, out)
        } else {
            self.everything.call_tool(call, out)
        }
    }

    fn call<'a>(&'a self, request: &'a Request, out: &'a Out) -> Answer<'a> {
        if request.method.starts_with("tasks/") {
            self.tasks.call(request, out)
        } else {
            self.everything.call(request, out)
        }
    }

    fn task_support(&self, tool: &str) -> TaskSupport {
        self.tasks.task_support(tool)
    }

    fn task(&self, id: &str) -> Option<Value> {
        self.tasks.task(id)
    }
}
