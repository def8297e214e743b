//! An upstream that answers by a script, and callers.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::Instant;
use waypost_config::config::{TaskTimes, Upstream as Settings};
use waypost_hub::call::{Call, Principal, Session};
use waypost_hub::catalog::Catalog;
use waypost_hub::catalog::entry::Entry;
use waypost_hub::error::{CallError, Kind};
use waypost_hub::forward;
use waypost_hub::keys::Keys;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::member::Member;
use waypost_hub::registry::{Catalogue, Learned, Listing, Scope};
use waypost_hub::reply::{End, Event, EventStream, Reply};
use waypost_hub::store::Store;
use waypost_hub::tasks::TaskDesk;
use waypost_hub::upstream::{BoxFuture, CallFuture, Facts, Upstream};
use waypost_wire::capability::{ClientCapabilities, TASKS};
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Notification;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::fake::Memory;

/// What the fake does with one call.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    End(End),
    /// Notifications first.
    Stream(Vec<Notification>, End),
    Fail(Kind),
    /// As [`Act::Fail`], and certainly nothing ran.
    Refuse(Kind),
    Hang,
}

/// A call as the fake got it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) call: Call,
}

impl Seen {
    pub(crate) fn declares_tasks(&self) -> bool {
        self.call.meta.capabilities.has_tasks()
    }

    pub(crate) fn param(&self, name: &str) -> Value {
        self.call.params.get(name).map_or(Value::Null, value)
    }
}

/// Per method the acts to come; the last one stays.
#[derive(Default)]
pub(crate) struct Fake {
    script: Mutex<HashMap<String, VecDeque<Act>>>,
    seen: Mutex<Vec<Seen>>,
    /// Calls that were given up before they were answered.
    dropped: Arc<AtomicUsize>,
    instance: Mutex<Option<Arc<str>>>,
    opens: Mutex<Option<Arc<str>>>,
}

struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Fake {
    pub(crate) fn on(self: &Arc<Self>, method: &str, acts: impl IntoIterator<Item = Act>) {
        let mut script = self.script.lock().unwrap();
        script.insert(method.to_owned(), acts.into_iter().collect());
    }

    pub(crate) fn run_as(&self, instance: &str) {
        *self.instance.lock().unwrap() = Some(instance.into());
    }

    /// The next call is carried by this one, which is there only from then on.
    pub(crate) fn opens(&self, instance: &str) {
        *self.opens.lock().unwrap() = Some(instance.into());
    }

    pub(crate) fn seen(&self, method: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        let of_method = seen.iter().filter(|seen| seen.call.method == method);
        of_method.cloned().collect()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.seen(method).len()
    }

    pub(crate) fn given_up(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Waits until a method was called so often. Time is paused and runs on as fast as the
    /// runtime is idle, so a bound on it is enough.
    #[track_caller]
    pub(crate) fn called(
        self: &Arc<Self>,
        method: &'static str,
        times: usize,
    ) -> impl Future<Output = ()> + use<> {
        let fake = Arc::clone(self);
        async move {
            let deadline = Instant::now() + Duration::from_secs(3600);
            while fake.count(method) < times {
                assert!(
                    Instant::now() < deadline,
                    "`{method}` was not called {times} times"
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    fn next(&self, method: &str) -> Act {
        let mut script = self.script.lock().unwrap();
        let acts = script
            .get_mut(method)
            .unwrap_or_else(|| panic!("unexpected `{method}`"));
        match acts.len() {
            0 => panic!("no act for `{method}`"),
            1 => acts[0].clone(),
            _ => acts.pop_front().unwrap(),
        }
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

impl Upstream for Fake {
    fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
        Box::pin(async { Ok(Facts::default()) })
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        // What carries a caller's first call is opened for it.
        let mut instance = self.instance.lock().unwrap();
        if let Some(opened) = self.opens.lock().unwrap().take() {
            *instance = Some(opened);
        }
        if !call.carrier.admits(instance.as_ref()) {
            let gone = ErrorObject::new(-32602, "unknown task");
            return Box::pin(async { Ok(Reply::error(gone)) });
        }
        drop(instance);
        let act = self.next(&call.method);
        let token = call.meta.progress_token.clone();
        self.seen.lock().unwrap().push(Seen {
            at: Instant::now(),
            call,
        });
        let dropped = Arc::clone(&self.dropped);
        Box::pin(async move {
            match act {
                Act::End(end) => Ok(Reply::End(end)),
                Act::Stream(mut notifications, end) => {
                    // Scripts do not know which token stands for their caller's.
                    for notification in &mut notifications {
                        if let Some(token) = &token
                            && notification.params.contains("progressToken")
                        {
                            notification.params.set("progressToken", token.clone());
                        }
                    }
                    let events = notifications.into_iter().map(Event::Notification);
                    let events = events.chain([Event::End(end)]).map(Ok);
                    Ok(Reply::Stream(stream::iter(events).boxed()))
                }
                Act::Fail(kind) => Err(CallError::upstream(kind, &"up".into())),
                Act::Refuse(kind) => Err(CallError::upstream(kind, &"up".into()).retryable()),
                Act::Hang => {
                    let _dropped = Dropped(dropped);
                    std::future::pending().await
                }
            }
        })
    }

    fn instance(&self, _: &Principal, _: Option<&Session>) -> Option<Arc<str>> {
        self.instance.lock().unwrap().clone()
    }
}

/// One upstream, one desk.
pub(crate) struct World {
    pub(crate) fake: Arc<Fake>,
    pub(crate) member: Arc<Member>,
    pub(crate) desk: TaskDesk,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) background: Tasks,
}

/// How a world differs from the usual one.
pub(crate) struct Setup {
    pub(crate) upstream: &'static str,
    pub(crate) policy: &'static str,
    pub(crate) more: &'static str,
    pub(crate) times: &'static str,
    pub(crate) extension: bool,
    pub(crate) parked: usize,
    pub(crate) keys: &'static [u8],
    pub(crate) store: Arc<dyn Store>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            upstream: "up",
            policy: "auto",
            more: "",
            times: "",
            extension: true,
            parked: 1000,
            keys: &[1],
            store: Arc::new(Memory::default()),
        }
    }
}

impl Setup {
    pub(crate) fn build(self) -> World {
        let fake = Arc::new(Fake::default());
        fake.on("tasks/cancel", [complete(json!({}))]);
        fake.on("tasks/update", [complete(json!({}))]);
        self.around(&fake)
    }

    /// Another process with the same upstream behind it.
    pub(crate) fn around(self, fake: &Arc<Fake>) -> World {
        let (settings, times) = self.settings();
        let member = Arc::new(Member::new(settings, Arc::clone(fake) as Arc<dyn Upstream>));
        member.learn(learned(self.upstream, self.extension));
        let entry = |original: &str| {
            Arc::new(Entry {
                exposed: format!("up_{original}").into(),
                original: original.into(),
                member: Arc::clone(&member),
                definition: Raw::empty_object(),
                renamed: None,
                arguments: None,
                ui: Vec::new(),
                choice: None,
                params: [].into(),
            })
        };
        let catalog = Arc::new(
            Catalog::of(vec![Arc::clone(&member)], 0).with_tools(&[entry("other"), entry("build")]),
        );
        let background = Tasks::default();
        World {
            fake: Arc::clone(fake),
            desk: TaskDesk::new(
                &keys(self.keys),
                times,
                self.parked,
                (self.store, background.clone()),
            ),
            background,
            catalog,
            member,
        }
    }

    fn settings(&self) -> (Settings, TaskTimes) {
        let yaml = format!(
            "upstreams: {{ {}: {{ command: x, tasks: {}, {} }} }}\ntasks: {{ {} }}",
            self.upstream, self.policy, self.more, self.times
        );
        let config = waypost_config::parse_str(&yaml).unwrap().config;
        (config.upstreams[0].clone(), config.tasks)
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Setup::default().build()
    }

    pub(crate) fn with(policy: &'static str) -> Self {
        Setup {
            policy,
            ..Setup::default()
        }
        .build()
    }

    /// A call of `build` whose caller declares this.
    pub(crate) async fn call(&self, capabilities: Value) -> Result<Reply, CallError> {
        self.send(call(capabilities)).await
    }

    pub(crate) async fn send(&self, call: Call) -> Result<Reply, CallError> {
        self.desk.call(&self.member, "build", call).await
    }

    pub(crate) async fn end(&self, capabilities: Value) -> Result<End, CallError> {
        self.call(capabilities).await?.into_end().await
    }

    /// A retry with the state of the last answer.
    pub(crate) async fn retry(
        &self,
        capabilities: Value,
        state: &Value,
        responses: Value,
    ) -> Result<Reply, CallError> {
        self.send(retry(capabilities, state, responses)).await
    }

    /// A `tasks/*` call in the name of `who`.
    pub(crate) async fn tasks(
        &self,
        method: &str,
        who: &str,
        params: Value,
    ) -> Result<End, CallError> {
        let mut call = call(tasks());
        call.method = method.to_owned();
        call.params = object(&params);
        call.principal = Principal::new(who);
        let (reply, _) = Box::pin(self.serve(call)).await?;
        reply.into_end().await
    }

    /// A `tasks/*` call, and who answered it.
    pub(crate) async fn serve(
        &self,
        call: Call,
    ) -> Result<(Reply, Option<Arc<Member>>), CallError> {
        let background = Tasks::default();
        let send = |member, call| {
            let background = background.clone();
            async move { Box::pin(forward::send(&background, &member, call, None)).await }
        };
        self.desk.tasks_method(&self.catalog, call, send).await
    }
}

pub(crate) fn keys(bytes: &[u8]) -> Keys {
    Keys::new(bytes.iter().map(|b| vec![*b; 32]).collect()).unwrap()
}

fn learned(upstream: &str, extension: bool) -> Learned {
    let capabilities = if extension {
        json!({ "tools": {}, "extensions": tasks()["extensions"] })
    } else {
        json!({ "tools": {} })
    };
    Learned {
        upstream: upstream.to_owned(),
        fingerprint: String::new(),
        facts: Facts {
            capabilities: object(&capabilities),
            ..Facts::default()
        },
        catalogue: Catalogue {
            tools: Some(Listing {
                items: Vec::new(),
                ttl_ms: 0,
                scope: Scope::Public,
                fetched_at: 0,
            }),
            ..Catalogue::default()
        },
        task_only: Default::default(),
        claims: Default::default(),
        learned_at: 0,
        last_error: None,
    }
}

/// Capabilities with the Tasks extension.
pub(crate) fn tasks() -> Value {
    json!({ "extensions": { TASKS: {} } })
}

pub(crate) fn call(capabilities: Value) -> Call {
    let params = json!({ "name": "build", "arguments": { "n": 1 } });
    let mut call = Call::own("tools/call", object(&params));
    call.meta.capabilities = ClientCapabilities::new(object(&capabilities));
    call.principal = Principal::new("ann");
    call
}

pub(crate) fn retry(capabilities: Value, state: &Value, responses: Value) -> Call {
    let mut call = call(capabilities);
    call.params.set("requestState", Raw::from(state));
    call.params.set("inputResponses", Raw::from(&responses));
    call
}

pub(crate) fn object(value: &Value) -> Object {
    Raw::from(value).as_object().unwrap()
}

pub(crate) fn value(raw: &Raw) -> Value {
    raw.decode().unwrap()
}

/// The members of a complete, asking or task end.
#[track_caller]
pub(crate) fn result(end: &End) -> Value {
    match end {
        End::Complete(object) | End::InputRequired(object) | End::Task(object) => {
            value(&Raw::from(object))
        }
        End::Error(error) => panic!("an error: {:?}", error.raw()),
    }
}

#[track_caller]
pub(crate) fn error(end: End) -> ErrorObject {
    match end {
        End::Error(error) => error,
        other => panic!("no error: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn stream(reply: Reply) -> EventStream {
    match reply {
        Reply::Stream(events) => events,
        Reply::End(end) => panic!("no stream: {end:?}"),
    }
}

pub(crate) fn complete(value: Value) -> Act {
    Act::End(End::Complete(object(&value)))
}

/// A `CreateTaskResult` of the task `t1`.
pub(crate) fn created() -> Value {
    json!({
        "resultType": "task",
        "taskId": "t1",
        "status": "working",
        "createdAt": "2026-11-30T08:00:00Z",
        "lastUpdatedAt": "2026-11-30T08:00:00Z",
        "ttlMs": null,
        "pollIntervalMs": 1000,
    })
}

pub(crate) fn task(value: Value) -> Act {
    Act::End(End::Task(object(&value)))
}

/// An answer to `tasks/get`.
pub(crate) fn got(status: &str, more: Value) -> Act {
    let mut task = created();
    task["resultType"] = json!("complete");
    task["status"] = json!(status);
    for (key, value) in more.as_object().unwrap() {
        task[key] = value.clone();
    }
    complete(task)
}

pub(crate) fn done() -> Act {
    got("completed", json!({ "result": { "content": [], "n": 1 } }))
}

pub(crate) fn fails(code: i64) -> Act {
    Act::End(End::Error(ErrorObject::new(code, "unknown task")))
}

/// The upstream's demand for tasks under this code.
pub(crate) fn demand(code: i64) -> Act {
    let data = json!({ "requiredCapabilities": tasks() });
    Act::End(End::Error(ErrorObject::with_data(
        code,
        "needs tasks",
        &data,
    )))
}
