//! `subscriptions/listen`: acknowledged first, then only what was asked for.

use serde_json::{Map, Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::dispatch::has;
use super::events::Event;
use super::fail::Fail;
use super::out::Out;
use super::request::Request;
use super::server::Server;
use super::words::{META_SUBSCRIPTION, TASKS};

/// What one listener asked for and gets.
struct Filter {
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: Vec<String>,
    tasks: Vec<String>,
}

struct Listener<'a> {
    id: &'a Value,
    filter: Filter,
    out: &'a Out,
    server: &'a dyn Server,
}

/// Serves a subscription until `stop`, then ends it with its result.
pub(crate) async fn run(
    server: &dyn Server,
    request: &Request,
    out: &Out,
    stop: CancellationToken,
) -> Result<Value, Fail> {
    // Before the filter is built, so that a change in between is not lost.
    let mut events = server.events().subscribe();
    let filter = Filter::read(server, request)?;
    let listener = Listener {
        id: &request.id,
        filter,
        out,
        server,
    };
    listener.acknowledge().await;
    listener.ended_tasks().await;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => break,
            event = events.recv() => event,
        };
        match event {
            Ok(event) => listener.tell(event).await,
            Err(RecvError::Lagged(_)) => listener.catch_up().await,
            Err(RecvError::Closed) => break,
        }
    }
    Ok(json!({ "_meta": { META_SUBSCRIPTION: request.id } }))
}

impl Filter {
    fn read(server: &dyn Server, request: &Request) -> Result<Self, Fail> {
        let Some(wanted) = request
            .params
            .get("notifications")
            .and_then(Value::as_object)
        else {
            return Err(Fail::invalid_params("`notifications` must be an object"));
        };
        let capabilities = server.capabilities();
        let on = |key: &str, path: &[&str]| {
            wanted.get(key).and_then(Value::as_bool) == Some(true) && has(&capabilities, path)
        };
        let mut uris = strings(wanted, "resourceSubscriptions")?;
        if !has(&capabilities, &["resources", "subscribe"]) {
            uris.clear();
        }
        let mut tasks = Vec::new();
        if wanted.contains_key("taskIds") && has(&capabilities, &["extensions", TASKS]) {
            if !request.has_tasks() {
                return Err(Fail::missing_tasks());
            }
            tasks = strings(wanted, "taskIds")?;
            tasks.retain(|id| server.task(id).is_some());
        }
        Ok(Self {
            tools: on("toolsListChanged", &["tools", "listChanged"]),
            prompts: on("promptsListChanged", &["prompts", "listChanged"]),
            resources: on("resourcesListChanged", &["resources", "listChanged"]),
            uris,
            tasks,
        })
    }

    fn honoured(&self) -> Value {
        let mut all = Map::new();
        let flags = [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ];
        for (key, _) in flags.iter().filter(|(_, on)| *on) {
            all.insert((*key).to_owned(), true.into());
        }
        if !self.uris.is_empty() {
            all.insert("resourceSubscriptions".into(), json!(self.uris));
        }
        if !self.tasks.is_empty() {
            all.insert("taskIds".into(), json!(self.tasks));
        }
        Value::Object(all)
    }
}

impl Listener<'_> {
    async fn acknowledge(&self) {
        let params = json!({ "notifications": self.filter.honoured() });
        self.send("notifications/subscriptions/acknowledged", params)
            .await;
    }

    /// A task that ended before it was listened to never changes again: say so now.
    async fn ended_tasks(&self) {
        for id in &self.filter.tasks {
            if let Some(task) = self.server.task(id).filter(is_terminal) {
                self.send("notifications/tasks", task).await;
            }
        }
    }

    async fn tell(&self, event: Event) {
        let filter = &self.filter;
        match event {
            Event::Tools if filter.tools => {
                self.send("notifications/tools/list_changed", json!({}))
                    .await;
            }
            Event::Prompts if filter.prompts => {
                self.send("notifications/prompts/list_changed", json!({}))
                    .await;
            }
            Event::Resources if filter.resources => {
                self.send("notifications/resources/list_changed", json!({}))
                    .await;
            }
            Event::Updated(uri) if filter.uris.contains(&uri) => {
                self.send("notifications/resources/updated", json!({ "uri": uri }))
                    .await;
            }
            Event::Task(id, task) if filter.tasks.contains(&id) => {
                self.send("notifications/tasks", task).await;
            }
            _ => {}
        }
    }

    /// Too slow a listener missed something: everything it asked about may have changed.
    async fn catch_up(&self) {
        for event in [Event::Tools, Event::Prompts, Event::Resources] {
            self.tell(event).await;
        }
        for uri in &self.filter.uris {
            self.tell(Event::Updated(uri.clone())).await;
        }
        for id in &self.filter.tasks {
            if let Some(task) = self.server.task(id) {
                self.send("notifications/tasks", task).await;
            }
        }
    }

    async fn send(&self, method: &str, mut params: Value) {
        if let Some(members) = params.as_object_mut() {
            members.insert("_meta".into(), json!({ META_SUBSCRIPTION: self.id }));
        }
        self.out.notify(method, params).await;
    }
}

fn is_terminal(task: &Value) -> bool {
    let status = task.get("status").and_then(Value::as_str);
    matches!(status, Some("completed" | "failed" | "cancelled"))
}

fn strings(from: &Map<String, Value>, key: &str) -> Result<Vec<String>, Fail> {
    let wrong = || Fail::invalid_params(format!("`{key}` must be a list of strings"));
    match from.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect(),
        Some(_) => Err(wrong()),
    }
}
