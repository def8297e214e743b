//! One upstream's part of a listener's stream.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::{Instant, sleep, timeout_at};
use waypost_wire::code;
use waypost_wire::message::Notification;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::call::Call;
use crate::member::Member;
use crate::reply::{End, Event, EventStream};

const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// Resources and tasks of one upstream: its own names and those that the client used.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) member: Arc<Member>,
    pub(super) uris: Vec<(String, String)>,
    pub(super) tasks: Vec<(String, String)>,
}

/// A subscription to one upstream.
pub(super) struct Source {
    group: Group,
    events: Option<EventStream>,
    /// The server has no subscriptions at all.
    never: bool,
    wait: Duration,
    /// The next event in line, made when a subscription was opened anew.
    pending: Vec<Notification>,
}

impl Group {
    pub(super) fn new(member: &Arc<Member>) -> Self {
        Self {
            member: Arc::clone(member),
            uris: Vec::new(),
            tasks: Vec::new(),
        }
    }

    fn params(&self) -> Object {
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
        params
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
}

impl Source {
    /// Opens the subscription and waits for its acknowledgement until the given time. A server
    /// that does not answer in time is not waited for, but asked again later.
    pub(super) async fn open(group: Group, until: Instant) -> Self {
        let mut source = Self {
            group,
            events: None,
            never: false,
            wait: AGAIN_FIRST,
            pending: Vec::new(),
        };
        let opened = timeout_at(until, source.subscribe()).await;
        match opened {
            Ok(Some(acknowledged)) => source.group.keep_acknowledged(&acknowledged),
            Ok(None) if source.never => {
                source.group.uris.clear();
                source.group.tasks.clear();
            }
            Ok(None) | Err(_) => {}
        }
        source
    }

    /// The client's names of the resources that are listened to.
    pub(super) fn heard_uris(&self) -> impl Iterator<Item = &str> {
        self.group.uris.iter().map(|(_, exposed)| exposed.as_str())
    }

    /// The client's handles of the tasks that are listened to.
    pub(super) fn heard_tasks(&self) -> impl Iterator<Item = &str> {
        self.group.tasks.iter().map(|(_, exposed)| exposed.as_str())
    }

    /// The notifications, under the client's names. Never ends: a lost subscription is opened
    /// again, and what may have been missed meanwhile is reported as updated.
    pub(super) fn into_events(self) -> EventStream {
        Box::pin(stream::unfold(self, |mut source| async move {
            let event = source.next().await;
            Some((Ok(Event::Notification(event)), source))
        }))
    }

    async fn next(&mut self) -> Notification {
        loop {
            if let Some(notification) = self.pending.pop() {
                return notification;
            }
            if self.never || (self.group.uris.is_empty() && self.group.tasks.is_empty()) {
                return std::future::pending().await;
            }
            let Some(events) = &mut self.events else {
                self.reopen().await;
                continue;
            };
            match events.next().await {
                Some(Ok(Event::Notification(notification))) => {
                    if let Some(notification) = self.renamed(notification) {
                        return notification;
                    }
                }
                Some(Ok(Event::End(end))) => self.ended(&end),
                Some(Err(_)) | None => self.events = None,
            }
        }
    }

    /// Asks for a subscription; its acknowledgement, when there is one.
    async fn subscribe(&mut self) -> Option<Object> {
        let mut call = Call::own(method::LISTEN, self.group.params());
        if !self.group.tasks.is_empty() {
            call.meta.capabilities = call.meta.capabilities.with_tasks();
        }
        let reply = self.group.member.upstream.call(call).await.ok()?;
        let mut events = reply.into_stream();
        match events.next().await {
            Some(Ok(Event::Notification(n))) if n.method == method::ACKNOWLEDGED => {
                self.events = Some(events);
                Some(n.params)
            }
            Some(Ok(Event::End(end))) => {
                self.ended(&end);
                None
            }
            _ => None,
        }
    }

    async fn reopen(&mut self) {
        sleep(self.wait).await;
        self.wait = (self.wait * 2).min(AGAIN_MOST);
        if self.subscribe().await.is_some() {
            self.wait = AGAIN_FIRST;
            self.pending = self.heard_uris().map(updated).collect();
        }
    }

    fn ended(&mut self, end: &End) {
        self.events = None;
        if let End::Error(error) = end {
            self.never = error.code() == code::METHOD_NOT_FOUND;
        }
    }

    /// The notification under the client's names; `None` for what it did not ask for.
    fn renamed(&self, mut notification: Notification) -> Option<Notification> {
        let (member, names) = match notification.method.as_str() {
            method::RESOURCE_UPDATED => ("uri", &self.group.uris),
            method::TASK_STATUS => ("taskId", &self.group.tasks),
            _ => return None,
        };
        let original = notification.params.string(member)?;
        let exposed = names
            .iter()
            .find(|(own, _)| *own == original)
            .map(|(_, exposed)| exposed);
        match exposed {
            Some(exposed) => notification.params.set(member, Raw::string(exposed)),
            // A server may report a part of a resource that was subscribed to; a task it may not.
            None if member == "uri" => {}
            None => return None,
        }
        Some(notification)
    }
}

fn updated(uri: &str) -> Notification {
    let mut params = Object::new();
    params.set("uri", Raw::string(uri));
    Notification {
        method: method::RESOURCE_UPDATED.to_owned(),
        params,
    }
}
