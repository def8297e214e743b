//! One upstream's part of a listener's stream.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, timeout, timeout_at};
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::message::Notification;
use waypost_wire::meta::META;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::RESULT_TYPE;
use waypost_wire::uri;

use super::pending::Pending;
use crate::asks;
use crate::call::{Call, Carrier};
use crate::error::CallError;
use crate::event::SubscriptionRefused;
use crate::forward::usable;
use crate::member::Member;
use crate::reply::End;
use crate::subscription::{Said, Subscription, Why};
use crate::tasks::passthrough::ensure_complete_inside;

/// Questions about tasks that are asked at once after a subscription was lost, and how long one
/// may take.
const ASKED_AT_ONCE: usize = 8;
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// So many notifications are taken at once from what waits at an upstream.
const GATHERED: usize = 256;

/// Resources and tasks of one upstream: its own names and those that the client used.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) member: Arc<Member>,
    uris: Vec<(String, String)>,
    tasks: Vec<(String, String)>,
    /// The process or session that has the tasks.
    instance: Option<Arc<str>>,
    /// The listener's call, without params: what is kept for its caller is where its own calls go.
    frame: Call,
    sight: Sight,
}

/// Whether a listener may read what an upstream calls so.
#[derive(Clone)]
pub(super) struct Sight(Arc<LetsRead>);

type LetsRead = dyn Fn(&Member, &str) -> bool + Send + Sync;

impl Sight {
    pub(super) fn new(lets_read: impl Fn(&Member, &str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(lets_read))
    }
}

impl fmt::Debug for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sight")
    }
}

/// What is listened to at one upstream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Names {
    upstream: Arc<str>,
    /// Each with what the client calls it.
    pub(super) uris: Vec<(String, String)>,
    /// Handles.
    pub(super) tasks: Vec<String>,
}

/// A subscription to one upstream, as far as the upstream acknowledged it.
pub(super) struct Source {
    group: Group,
    subscription: Subscription,
    /// The client was told that this will be heard, and the server has not said so yet.
    is_promised: bool,
    /// What is still to be told.
    pending: Pending,
    /// What the upstream said after that.
    said: Option<Said>,
}

impl Group {
    pub(super) fn new(member: &Arc<Member>, listener: &Call, sight: &Sight) -> Self {
        let mut frame = Call::own(method::LISTEN, Object::new());
        frame.request_id = Arc::clone(&listener.request_id);
        frame.meta = listener.meta.clone();
        frame.meta.progress_token = None;
        frame.meta.log_level = None;
        frame.principal = listener.principal.clone();
        frame.session = listener.session.clone();
        frame.awaits_servers = listener.awaits_servers;
        Self {
            member: Arc::clone(member),
            uris: Vec::new(),
            tasks: Vec::new(),
            instance: None,
            frame,
            sight: sight.clone(),
        }
    }

    /// Listens to a resource, known to the client as `exposed`.
    pub(super) fn add_uri(&mut self, original: String, exposed: &str) {
        self.uris.push((original, exposed.to_owned()));
    }

    /// Listens to a task, known to the client as `handle`.
    pub(super) fn add_task(&mut self, id: String, handle: &str, instance: Option<Arc<str>>) {
        if self.tasks.is_empty() {
            self.instance = instance;
        } else if self.instance != instance {
            // What had the others has gone a moment ago.
            return;
        }
        self.tasks.push((id, handle.to_owned()));
    }

    pub(super) fn names(&self) -> Names {
        let handles = self.tasks.iter().map(|(_, handle)| handle.clone());
        Names {
            upstream: Arc::clone(&self.member.name),
            uris: self.uris.clone(),
            tasks: handles.collect(),
        }
    }

    /// The same with no tasks but these.
    pub(super) fn with_tasks(mut self, handles: &HashSet<String>) -> Self {
        self.tasks.retain(|(_, handle)| handles.contains(handle));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.uris.is_empty() && self.tasks.is_empty()
    }

    fn call(&self) -> Call {
        let originals = |names: &[(String, String)]| {
            Raw::from_serialize(
                &names
                    .iter()
                    .map(|(original, _)| original)
                    .collect::<Vec<_>>(),
            )
        };
        let mut filter = Object::new();
        if !self.uris.is_empty() {
            filter.set("resourceSubscriptions", originals(&self.uris));
        }
        if !self.tasks.is_empty() {
            filter.set("taskIds", originals(&self.tasks));
        }
        let mut params = Object::new();
        params.set("notifications", filter.into());
        self.send(method::LISTEN, params)
    }

    /// A call in the listener's name; about tasks, only to what has them.
    fn send(&self, method: &str, params: Object) -> Call {
        let mut call = self.frame.clone();
        method.clone_into(&mut call.method);
        call.params = params;
        let declared = &self.frame.meta.capabilities;
        (call.meta.capabilities, call.carrier) = if self.tasks.is_empty() {
            (declared.without_tasks(), Carrier::default())
        } else {
            let only = Carrier::only(self.instance.as_ref());
            (declared.with_tasks(), only)
        };
        call
    }

    /// Whether what has the tasks is gone: the next one may give their ids to other callers'.
    fn has_lost_tasks(&self) -> bool {
        let (frame, upstream) = (&self.frame, &self.member.upstream);
        let now = || upstream.instance(&frame.principal, frame.session.as_ref());
        !self.tasks.is_empty() && self.instance != now()
    }

    /// Keeps what can be promised before the server has said anything: resources, where it says
    /// that it tells of them. How a task is can be asked.
    fn keep_promised(&mut self) {
        self.tasks.clear();
        if !self.member.subscribes() {
            self.uris.clear();
        }
    }

    /// Keeps the names that the server acknowledged.
    fn keep_acknowledged(&mut self, params: &Object) {
        let honoured = params
            .get("notifications")
            .and_then(|raw| raw.as_object().ok());
        let honoured = honoured.unwrap_or_default();
        let list = |member: &str| {
            honoured
                .get(member)
                .and_then(Raw::decode::<Vec<String>>)
                .unwrap_or_default()
        };
        let (uris, tasks) = (list("resourceSubscriptions"), list("taskIds"));
        self.uris.retain(|(original, _)| uris.contains(original));
        self.tasks.retain(|(original, _)| tasks.contains(original));
    }

    /// Every resource may have changed meanwhile; of tasks it can be asked how they are.
    async fn missed(&self) -> Vec<Notification> {
        let ask = |(id, _): &(String, String)| {
            let params = Object::from_iter([("taskId", Raw::string(id))]);
            let call = self.send(method::TASKS_GET, params);
            ask(Arc::clone(&self.member), id.clone(), call)
        };
        let asked: Vec<_> = self.tasks.iter().map(ask).collect();
        let asked = stream::iter(asked).buffer_unordered(ASKED_AT_ONCE);
        let told: Vec<Option<Notification>> = asked.collect().await;
        let told = told.into_iter().flatten();
        let mut missed: Vec<_> = told.filter_map(|told| self.renamed(told)).collect();
        for (original, _) in &self.uris {
            self.member.reads().forget(original);
        }
        missed.extend(self.uris.iter().map(|(_, exposed)| updated(exposed)));
        missed
    }

    /// The notification under the client's names; `None` for what it did not ask for.
    pub(super) fn renamed(&self, mut notification: Notification) -> Option<Notification> {
        let (member, names) = match notification.method.as_str() {
            method::RESOURCE_UPDATED => ("uri", &self.uris),
            method::TASK_STATUS => ("taskId", &self.tasks),
            _ => return None,
        };
        let original = notification.params.string(member)?;
        if member == "uri" {
            self.member.reads().forget(&original);
        }
        let exposed = names
            .iter()
            .find(|(own, _)| *own == original)
            .map(|(_, exposed)| exposed);
        match exposed {
            Some(exposed) => notification.params.set(member, Raw::string(exposed)),
            // A server may report a part of a resource that was subscribed to; a task it may not.
            None if member == "uri" => {
                let part = self.part(&original)?;
                notification.params.set(member, Raw::string(&part));
            }
            None => return None,
        }
        let is_task = notification.method == method::TASK_STATUS;
        let declared = &self.frame.meta.capabilities;
        (!is_task || is_fit(&mut notification.params, declared)).then_some(notification)
    }

    /// What the client calls a part of a resource that it listens to: as it does the resource, with
    /// the rest behind.
    fn part(&self, original: &str) -> Option<String> {
        let exposed = |(whole, exposed): &(String, String)| {
            let rest = original.strip_prefix(whole.as_str());
            let rest = rest.filter(|_| uri::is_part(original, whole))?;
            Some(format!("{exposed}{rest}"))
        };
        let part = self.uris.iter().find_map(exposed)?;
        (self.sight.0)(&self.member, original).then_some(part)
    }
}

impl Source {
    /// Opens the subscription. Where the server has not answered by then, or cannot be reached
    /// now, it goes on being asked, and what it says that it can tell of is promised. `None` for
    /// a server that cannot be called or has refused.
    pub(super) async fn open(group: Group, until: Instant) -> Option<Self> {
        usable(&group.member).ok()?;
        let mut subscription = Subscription::new(&group.member, group.call());
        let said = timeout_at(until, subscription.next()).await;
        let mut source = Self {
            group,
            subscription,
            is_promised: false,
            pending: Pending::default(),
            said: None,
        };
        match said {
            Ok(Said::Live(acknowledged)) => source.group.keep_acknowledged(&acknowledged),
            Ok(_) if matches!(source.subscription.why(), Some(Why::Refused(_))) => return None,
            Ok(_) | Err(_) => {
                source.group.keep_promised();
                source.is_promised = true;
            }
        }
        source.subscription.ask_next_time(source.group.call());
        (!source.group.is_empty()).then_some(source)
    }

    /// The same for who waits for the server's own answer, for as long as a call may take.
    pub(super) async fn open_patiently(mut group: Group) -> Result<Self, Why> {
        usable(&group.member).map_err(Why::Failed)?;
        let mut subscription = Subscription::new(&group.member, group.call());
        let Said::Live(acknowledged) = subscription.next().await else {
            let missing = || Why::Failed(CallError::no_end_of(&group.member.name));
            return Err(subscription.why().unwrap_or_else(missing));
        };
        group.keep_acknowledged(&acknowledged);
        // Nobody waits for what is opened again.
        group.frame.awaits_servers = false;
        subscription.ask_next_time(group.call());
        Ok(Self {
            group,
            subscription,
            is_promised: false,
            pending: Pending::default(),
            said: None,
        })
    }

    /// One whose group was told of before, by this upstream or another: what may have been missed
    /// is told once it stands.
    pub(super) fn anew(group: Group) -> Self {
        Self {
            subscription: Subscription::new(&group.member, group.call()),
            group,
            is_promised: false,
            pending: Pending::default(),
            said: None,
        }
    }

    pub(super) fn names(&self) -> Names {
        self.group.names()
    }

    /// Whether its upstream left, be there one in its place or not.
    pub(super) fn has_left(&self) -> bool {
        self.group.member.has_left()
    }

    /// The client's names of the resources that are listened to.
    pub(super) fn heard_uris(&self) -> impl Iterator<Item = &str> {
        self.group.uris.iter().map(|(_, exposed)| exposed.as_str())
    }

    /// The client's handles of the tasks that are listened to.
    pub(super) fn heard_tasks(&self) -> impl Iterator<Item = &str> {
        self.group.tasks.iter().map(|(_, exposed)| exposed.as_str())
    }

    /// Goes on at the member that took the place of one that left; `false` if there is none, or
    /// nothing is left to hear of there.
    fn follow(&mut self) -> bool {
        let Some(next) = self.group.member.successor() else {
            return false;
        };
        if self.group.instance.is_some() && !next.shares(&self.group.member) {
            self.group.tasks.clear();
        }
        self.group.member = next;
        self.subscription = Subscription::new(&self.group.member, self.group.call());
        !self.group.is_empty()
    }

    /// The next notification, under the client's names. A lost subscription is opened again, and
    /// what may have been missed meanwhile is told then; there is none only when everything that
    /// was listened to is gone.
    pub(super) async fn next(&mut self) -> Option<Notification> {
        loop {
            self.gather();
            if let Some(notification) = self.pending.pop() {
                return Some(notification);
            }
            let heard = self.said.take();
            let said = tokio::select! {
                // Its rules count no more.
                biased;
                () = self.group.member.left() => {
                    if self.follow() {
                        continue;
                    }
                    return None;
                }
                said = async {
                    match heard {
                        Some(said) => said,
                        None => self.subscription.next().await,
                    }
                } => said,
            };
            match said {
                Said::Notification(notification) => {
                    let told = self.group.renamed(notification);
                    told.into_iter().for_each(|told| self.pending.add(told));
                }
                Said::Live(acknowledged) => {
                    let asked = self.group.uris.clone();
                    let tasks = self.group.tasks.clone();
                    self.group.keep_acknowledged(&acknowledged);
                    self.broken(&asked, None);
                    if !std::mem::take(&mut self.is_promised) {
                        // They were told of until now, and are asked for again next time.
                        (self.group.uris, self.group.tasks) = (asked, tasks);
                    } else {
                        if self.group.is_empty() {
                            return None;
                        }
                        self.subscription.ask_next_time(self.group.call());
                    }
                    let missed = self.group.missed().await;
                    missed.into_iter().for_each(|told| self.pending.add(told));
                }
                Said::Lost if self.group.has_lost_tasks() => {
                    self.group.tasks.clear();
                    if self.group.is_empty() {
                        return None;
                    }
                    self.subscription.ask_next_time(self.group.call());
                }
                Said::Lost if self.is_promised => {
                    // Any other answer may be another one next time, and it is asked for again.
                    if let Some(Why::Refused(error)) = self.subscription.why()
                        && error.is_final()
                    {
                        let promised = std::mem::take(&mut self.group.uris);
                        self.broken(&promised, Some(error.code()));
                        return None;
                    }
                }
                Said::Lost => {}
            }
        }
    }

    /// Takes what waits at the upstream while something is to be told, as far as there is room. What
    /// changed often meanwhile is told of once.
    fn gather(&mut self) {
        for _ in 0..GATHERED {
            if self.pending.is_empty() || self.pending.is_full() || self.said.is_some() {
                return;
            }
            let Some(said) = self.subscription.next().now_or_never() else {
                return;
            };
            match said {
                Said::Notification(notification) => {
                    let told = self.group.renamed(notification);
                    told.into_iter().for_each(|told| self.pending.add(told));
                }
                said @ (Said::Live(_) | Said::Lost) => self.said = Some(said),
            }
        }
    }

    /// Of these resources that were promised, only those that are listened to are told of.
    fn broken(&self, promised: &[(String, String)], code: Option<i64>) {
        let refused = promised.iter().filter(|one| !self.group.uris.contains(one));
        for (uri, _) in refused {
            SubscriptionRefused {
                upstream: &self.group.member.name,
                uri,
                code,
            }
            .emit();
        }
    }
}

/// Whether what is said of a task can be told. A listener that could not answer its question learns
/// that there is one from the status; `tasks/get` tells it what to declare.
pub(super) fn is_fit(task: &mut Object, declared: &ClientCapabilities) -> bool {
    if !ensure_complete_inside(task) {
        return false;
    }
    if let Some(requests) = task.get("inputRequests") {
        let questions = asks::questions(requests);
        let fine = questions.is_some_and(|q| asks::undeclared(&q, declared).is_none());
        if !fine {
            task.remove("inputRequests");
        }
    }
    true
}

/// How a task is now, by the answer to `call`, as the notification that was missed would have told
/// it.
async fn ask(member: Arc<Member>, id: String, call: Call) -> Option<Notification> {
    let carrier = call.carrier.clone();
    let answer = async {
        let reply = member.upstream.call(call).await?;
        reply.into_end_of(&member.name).await
    };
    let mut params = match timeout(ANSWERED_WITHIN, answer).await {
        Ok(Ok(End::Complete(task) | End::Task(task) | End::InputRequired(task))) => task,
        // Who wants to know more of it asks, and gets the error.
        Ok(Ok(End::Error(_)) | Err(_)) | Err(_) => return None,
    };
    if carrier.is_astray() || params.string("taskId") != Some(id) {
        return None;
    }
    params.remove(RESULT_TYPE);
    params.remove(META);
    Some(Notification {
        method: method::TASK_STATUS.to_owned(),
        params,
    })
}

fn updated(uri: &str) -> Notification {
    let mut params = Object::new();
    params.set("uri", Raw::string(uri));
    Notification {
        method: method::RESOURCE_UPDATED.to_owned(),
        params,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::error::Kind;
    use crate::upstream::{BoxFuture, CallFuture, Facts, Upstream};

    #[derive(Debug)]
    struct Nobody;

    impl Upstream for Nobody {
        fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
            Box::pin(async { Ok(Facts::default()) })
        }
        fn call(&self, _: Call) -> CallFuture<'_> {
            let error = CallError::new(Kind::Unavailable, crate::error::Origin::Gateway);
            Box::pin(async { Err(error) })
        }
    }

    fn object(value: &Value) -> Object {
        Raw::from(value).as_object().unwrap()
    }

    fn group(declared: &Value) -> Group {
        let yaml = "upstreams: { a: { url: 'http://127.0.0.1:9' } }";
        let config = waypost_config::parse_str(yaml).unwrap().config;
        let member = Member::new(config.upstreams[0].clone(), Arc::new(Nobody));
        let mut listener = Call::own(method::LISTEN, Object::new());
        listener.meta.capabilities = ClientCapabilities::new(object(declared));
        Group::new(&Arc::new(member), &listener, &Sight::new(|_, _| true))
    }

    #[track_caller]
    fn check(declared: &Value, questions_pass: bool) {
        let mut group = group(declared);
        group.add_task("t1".to_owned(), "a~handle", None);
        let said = Notification {
            method: method::TASK_STATUS.to_owned(),
            params: object(&json!({ "taskId": "t1", "status": "input_required",
                "inputRequests": { "k": { "method": "elicitation/create" } } })),
        };
        let told = group.renamed(said).unwrap();
        assert_eq!(told.params.string("taskId").as_deref(), Some("a~handle"));
        assert_eq!(told.params.contains("inputRequests"), questions_pass);
    }

    #[test]
    fn a_listener_is_not_asked_what_it_did_not_declare() {
        check(&json!({ "elicitation": {} }), true);
        check(&json!({}), false);
    }

    #[test]
    fn an_update_of_another_resource_is_not_told() {
        let mut group = group(&json!({}));
        group.add_uri("file:///home/ann".to_owned(), "file:///home/ann");
        assert!(group.renamed(updated("file:///home/ann/notes")).is_some());
        assert!(group.renamed(updated("file:///home/anna")).is_none());
        group.sight = Sight::new(|_, uri| !uri.ends_with("/notes"));
        assert!(group.renamed(updated("file:///home/ann/notes")).is_none());
        assert!(group.renamed(updated("file:///home/ann/other")).is_some());
    }
}
