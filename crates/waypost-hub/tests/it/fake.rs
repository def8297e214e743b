//! An upstream made of a closure, and a hub around several.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use waypost_config::config::Config;
use waypost_hub::call::{Call, Principal, Session, View};
use waypost_hub::error::{CallError, Kind};
use waypost_hub::hub::{Hub, Parts};
use waypost_hub::keys::Keys;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::member::Member;
use waypost_hub::registry::Learned;
use waypost_hub::reply::{End, Reply};
use waypost_hub::store::{Late, PinnedTool, Store, StoreError};
use waypost_hub::upstream::{BoxFuture, CallFuture, Facts, Upstream};
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::meta::RequestMeta;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::ResultType;

/// What a fake answers to a call.
type Answer = dyn Fn(&Call) -> Result<Reply, CallError> + Send + Sync;

/// A server in memory.
pub(crate) struct Fake {
    name: Arc<str>,
    pub(crate) capabilities: Mutex<Value>,
    /// Lists by method.
    pub(crate) lists: Mutex<BTreeMap<String, Value>>,
    pub(crate) calls: Mutex<Vec<Call>>,
    /// While set, nothing works.
    pub(crate) down: AtomicBool,
    /// While set, discovery hangs.
    pub(crate) slow: AtomicBool,
    /// While set, discovery answers this.
    pub(crate) confused: Mutex<Option<String>>,
    /// How often discovery was asked.
    pub(crate) looks: AtomicUsize,
    /// What it asks for while nothing works.
    pub(crate) retry_after: Mutex<Option<Duration>>,
    /// How long a list takes.
    pub(crate) lists_take: Mutex<Duration>,
    pub(crate) lost: Notify,
    /// Whether what it keeps was ended.
    pub(crate) closed: AtomicBool,
    /// A method that it refuses, and how.
    pub(crate) refuses: Mutex<Option<(String, ErrorObject)>>,
    /// Calls that wait for their callers.
    pub(crate) parked: AtomicUsize,
    /// The process that it is now.
    pub(crate) instance: Mutex<Option<Arc<str>>>,
    answer: Box<Answer>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fake({})", self.name)
    }
}

impl Fake {
    /// A server with these tools, which answers every call with its name and what was called.
    pub(crate) fn with_tools(name: &str, tools: &[&str]) -> Arc<Self> {
        let tools: Vec<Value> = tools.iter().map(|t| json!({ "name": t })).collect();
        let lists = [("tools/list", json!({ "tools": tools }))];
        Self::new(name, json!({ "tools": {} }), &lists, |call| Ok(echo(call)))
    }

    pub(crate) fn new(
        name: &str,
        capabilities: Value,
        lists: &[(&str, Value)],
        answer: impl Fn(&Call) -> Result<Reply, CallError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            capabilities: Mutex::new(capabilities),
            lists: Mutex::new(
                lists
                    .iter()
                    .map(|(m, v)| ((*m).to_owned(), v.clone()))
                    .collect(),
            ),
            calls: Mutex::default(),
            down: AtomicBool::new(false),
            slow: AtomicBool::new(false),
            confused: Mutex::default(),
            looks: AtomicUsize::new(0),
            retry_after: Mutex::default(),
            lists_take: Mutex::default(),
            lost: Notify::new(),
            closed: AtomicBool::new(false),
            refuses: Mutex::default(),
            parked: AtomicUsize::default(),
            instance: Mutex::default(),
            answer: Box::new(answer),
        })
    }

    /// Calls seen, lists and subscriptions of the hub itself left out.
    pub(crate) fn seen(&self) -> Vec<Call> {
        let calls = self.calls.lock().unwrap();
        let own = |c: &&Call| c.method.ends_with("/list") || c.method == "subscriptions/listen";
        calls.iter().filter(|c| !own(c)).cloned().collect()
    }

    /// How often a method was called.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.calls
            .lock()
            .unwrap()
            .iter()
            .filter(|c| c.method == method)
            .count()
    }

    fn refused(&self) -> CallError {
        CallError::upstream(Kind::Unavailable, &self.name)
            .detail("connection refused")
            .retry_after(*self.retry_after.lock().unwrap())
            .retryable()
    }
}

impl Upstream for Fake {
    fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
        async {
            self.looks.fetch_add(1, Ordering::SeqCst);
            if self.slow.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            if self.down.load(Ordering::SeqCst) {
                return Err(self.refused());
            }
            if let Some(why) = self.confused.lock().unwrap().clone() {
                return Err(CallError::upstream(Kind::BadUpstream, &self.name).detail(why));
            }
            let capabilities = object(&self.capabilities.lock().unwrap());
            let versions = vec!["2026-07-28".to_owned()];
            Ok(Facts {
                protocol: "2026-07-28".to_owned(),
                versions,
                capabilities,
                ..Facts::default()
            })
        }
        .boxed()
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        async move {
            if !call.carrier.admits(self.instance.lock().unwrap().as_ref()) {
                let gone = ErrorObject::new(-32602, "unknown task");
                return Ok(Reply::error(gone));
            }
            self.calls.lock().unwrap().push(call.clone());
            if self.down.load(Ordering::SeqCst) {
                return Err(self.refused());
            }
            let refuses = self.refuses.lock().unwrap().clone();
            if let Some((_, error)) = refuses.filter(|(method, _)| *method == call.method) {
                return Ok(Reply::error(error));
            }
            let page = self.lists.lock().unwrap().get(&page_key(&call)).cloned();
            let page = page.map(complete);
            match page {
                Some(page) => {
                    let takes = *self.lists_take.lock().unwrap();
                    tokio::time::sleep(takes).await;
                    Ok(reply(&page))
                }
                None => (self.answer)(&call),
            }
        }
        .boxed()
    }

    fn instance(&self, _: &Principal, _: Option<&Session>) -> Option<Arc<str>> {
        self.instance.lock().unwrap().clone()
    }

    fn parked(&self) -> usize {
        self.parked.load(Ordering::SeqCst)
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        self.lost.notified().boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closed.store(true, Ordering::SeqCst);
        async {}.boxed()
    }
}

/// The list with what the protocol wants each of its items to have, so that tests need to say only
/// what they are about.
fn complete(mut page: Value) -> Value {
    for (list, key, value) in [
        ("tools", "inputSchema", json!({ "type": "object" })),
        ("resources", "name", json!("r")),
        ("resourceTemplates", "name", json!("t")),
    ] {
        let items = page.get_mut(list).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            if let Some(item) = item.as_object_mut() {
                item.entry(key).or_insert_with(|| value.clone());
            }
        }
    }
    page
}

/// Lists are found by method, further pages by method and cursor.
fn page_key(call: &Call) -> String {
    match call.params.string("cursor") {
        Some(cursor) => format!("{}#{cursor}", call.method),
        None => call.method.clone(),
    }
}

/// A store in memory, which counts what it is given.
#[derive(Debug, Default)]
pub(crate) struct Memory(
    pub(crate) Mutex<Vec<Learned>>,
    pub(crate) AtomicUsize,
    /// Request states that were used.
    pub(crate) Mutex<HashSet<String>>,
    /// Whether it takes no more of them.
    pub(crate) AtomicBool,
    pub(crate) Pinned,
    /// Whether it takes them, and says that it was too late.
    pub(crate) AtomicBool,
);

/// The pins that a store has, or none that can be read.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    pub(crate) tools: Mutex<Vec<PinnedTool>>,
    pub(crate) broken: AtomicBool,
    /// An upstream whose tools it does not take.
    pub(crate) refuses: Mutex<Option<String>>,
}

impl Pinned {
    fn check(&self) -> Result<(), StoreError> {
        match self.broken.load(Ordering::SeqCst) {
            true => Err(StoreError {
                action: "load",
                source: "the disk is full".into(),
            }),
            false => Ok(()),
        }
    }
}

impl Store for Memory {
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>> {
        async { Ok(self.0.lock().unwrap().clone()) }.boxed()
    }

    fn save(&self, learned: Learned) -> BoxFuture<'_, Result<(), StoreError>> {
        async {
            self.1.fetch_add(1, Ordering::SeqCst);
            let mut all = self.0.lock().unwrap();
            all.retain(|l| l.upstream != learned.upstream);
            all.push(learned);
            Ok(())
        }
        .boxed()
    }

    fn forget(&self, upstream: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        self.0.lock().unwrap().retain(|l| l.upstream != upstream);
        async { Ok(()) }.boxed()
    }

    fn use_state(&self, name: &str, _: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
        if self.3.load(Ordering::SeqCst) {
            let (action, source) = ("save", "disk full".into());
            return async move { Err(StoreError { action, source }) }.boxed();
        }
        let is_new = self.2.lock().unwrap().insert(name.to_owned());
        if self.5.load(Ordering::SeqCst) {
            let within = Duration::from_secs(10);
            let (action, source) = ("save", Late { within }.into());
            return async move { Err(StoreError { action, source }) }.boxed();
        }
        async move { Ok(is_new) }.boxed()
    }

    fn pins(&self) -> BoxFuture<'_, Result<Vec<PinnedTool>, StoreError>> {
        async {
            self.4.check()?;
            Ok(self.4.tools.lock().unwrap().clone())
        }
        .boxed()
    }

    fn save_pins(
        &self,
        upstream: &str,
        tools: Vec<PinnedTool>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let upstream = upstream.to_owned();
        async move {
            self.4.check()?;
            if *self.4.refuses.lock().unwrap() == Some(upstream.clone()) {
                let (action, source) = ("save", "the disk is full".into());
                return Err(StoreError { action, source });
            }
            let mut all = self.4.tools.lock().unwrap();
            all.retain(|pin| pin.upstream != upstream);
            all.extend(tools);
            Ok(())
        }
        .boxed()
    }
}

/// A hub that has started, with its upstreams in the order of the file.
pub(crate) async fn hub(yaml: &str, fakes: &[&Arc<Fake>]) -> Arc<Hub> {
    hub_with(yaml, fakes, Arc::new(Memory::default())).await
}

pub(crate) async fn hub_with(yaml: &str, fakes: &[&Arc<Fake>], store: Arc<dyn Store>) -> Arc<Hub> {
    hub_in(Tasks::default(), yaml, fakes, store).await
}

/// The same, with its background work in hand.
pub(crate) async fn hub_in(
    background: Tasks,
    yaml: &str,
    fakes: &[&Arc<Fake>],
    store: Arc<dyn Store>,
) -> Arc<Hub> {
    let loaded = waypost_config::parse_str(yaml);
    let config: Config = loaded
        .unwrap_or_else(|problems| panic!("{problems:?}"))
        .config;
    let members = config.upstreams.iter().map(|settings| {
        let fake = fakes
            .iter()
            .find(|f| *f.name == *settings.name)
            .expect("a fake of this name");
        Arc::new(Member::new(
            settings.clone(),
            Arc::clone(*fake) as Arc<dyn Upstream>,
        ))
    });
    let members = members.collect();
    let keys = Keys::new(vec![vec![7; 32]]).unwrap();
    let parts = Parts {
        config: Arc::new(config),
        members,
        store,
        keys,
        background,
    };
    let hub = Hub::new(parts);
    hub.start().await;
    hub
}

/// YAML with upstreams of these names and nothing else set.
pub(crate) fn upstreams(names: &[&str]) -> String {
    let each = names
        .iter()
        .map(|n| format!("  {n}: {{ url: \"http://127.0.0.1:9/mcp\" }}\n"));
    format!("upstreams:\n{}", each.collect::<String>())
}

/// A client's call that declares nothing.
pub(crate) fn call(method: &str, params: &Value) -> Call {
    let meta = RequestMeta {
        protocol_version: "2026-07-28".into(),
        client_info: None,
        capabilities: ClientCapabilities::default(),
        log_level: None,
        progress_token: None,
        rest: Object::new(),
    };
    let ids = ("test".into(), Id::new(Raw::string("c1")).unwrap());
    let caller = (Principal::anonymous(), View::All);
    Call::new(ids, method.to_owned(), object(params), meta, caller)
}

/// The same with these capabilities declared.
pub(crate) fn declaring(mut call: Call, capabilities: &Value) -> Call {
    call.meta.capabilities = ClientCapabilities::new(object(capabilities));
    call
}

pub(crate) fn object(value: &Value) -> Object {
    Raw::from(value).as_object().unwrap()
}

pub(crate) fn value(object: &Object) -> Value {
    Raw::from(object).decode().unwrap()
}

/// A reply with this result.
pub(crate) fn reply(result: &Value) -> Reply {
    let result = object(result);
    Reply::End(match ResultType::of(&result) {
        ResultType::Complete | ResultType::Unknown => End::Complete(result),
        ResultType::InputRequired => End::InputRequired(result),
        ResultType::Task => End::Task(result),
    })
}

/// A reply that tells what was called.
pub(crate) fn echo(call: &Call) -> Reply {
    reply(&json!({ "method": call.method, "params": value(&call.params) }))
}

/// The result of a reply; panics on anything else.
pub(crate) async fn result(reply: Result<Reply, CallError>) -> Value {
    match reply.expect("a reply").into_end().await.expect("an end") {
        End::Complete(result) | End::InputRequired(result) | End::Task(result) => value(&result),
        End::Error(error) => panic!("{}", error.raw()),
    }
}

/// The error of a reply as JSON; panics on anything else.
pub(crate) async fn error(reply: Result<Reply, CallError>) -> Value {
    match reply.expect("a reply").into_end().await.expect("an end") {
        End::Error(error) => error.raw().decode().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The names of the tools that clients see, in listing order.
pub(crate) async fn names(hub: &Arc<Hub>) -> Vec<String> {
    let list = result(hub.call(call("tools/list", &json!({}))).await).await;
    let tools = list["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|t| t["name"].as_str().unwrap().to_owned())
        .collect()
}
