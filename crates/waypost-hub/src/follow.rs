//! Listens to one upstream for changes of its lists.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};
use waypost_wire::code;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::call::Call;
use crate::catalog::entry::Kind;
use crate::member::Member;
use crate::reply::{End, Event, EventStream};

/// Changes that come within this are read as one.
const GATHER: Duration = Duration::from_millis(50);

const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// What following an upstream brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The subscription stands.
    Live,
    /// Lists of these kinds became others.
    Changed(Vec<Kind>),
}

/// A subscription to one upstream, opened again when it ends.
pub(crate) struct Follower {
    member: Arc<Member>,
    filter: Map<String, Value>,
    state: Following,
    wait: Duration,
}

enum Following {
    /// Opens at this time.
    Closed(Instant),
    Open(EventStream),
    /// The server has no subscriptions, or nothing to subscribe to.
    Never,
}

impl Follower {
    pub(crate) fn new(member: &Arc<Member>) -> Self {
        let filter = filter(member);
        let state = if filter.is_empty() {
            Following::Never
        } else {
            Following::Closed(Instant::now())
        };
        Self {
            member: Arc::clone(member),
            filter,
            state,
            wait: AGAIN_FIRST,
        }
    }

    /// The next thing heard; never, for a server without subscriptions. Safe to drop: nothing is
    /// lost but what an interrupted opening would have brought.
    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            match &mut self.state {
                Following::Never => std::future::pending().await,
                Following::Closed(at) => {
                    sleep_until(*at).await;
                    self.open().await;
                }
                Following::Open(events) => match events.next().await {
                    Some(Ok(Event::Notification(n))) if n.method == method::ACKNOWLEDGED => {
                        self.wait = AGAIN_FIRST;
                        self.member.set_followed(true);
                        return Heard::Live;
                    }
                    Some(Ok(Event::Notification(n))) => {
                        let kinds = changed(&n.method);
                        if !kinds.is_empty() {
                            return Heard::Changed(gather(events, kinds).await);
                        }
                    }
                    Some(Ok(Event::End(end))) => self.ended(&end),
                    Some(Err(_)) | None => self.again(),
                },
            }
        }
    }

    async fn open(&mut self) {
        let mut params = Object::new();
        params.set(
            "notifications",
            Raw::from(&Value::Object(self.filter.clone())),
        );
        match self
            .member
            .upstream
            .call(Call::own(method::LISTEN, params))
            .await
        {
            Ok(reply) => self.state = Following::Open(reply.into_stream()),
            Err(error) => {
                tracing::debug!(upstream = &*self.member.name, %error, "cannot subscribe");
                self.again();
            }
        }
    }

    fn ended(&mut self, end: &End) {
        match end {
            End::Error(error) if error.code() == code::METHOD_NOT_FOUND => {
                tracing::debug!(upstream = &*self.member.name, "has no subscriptions");
                self.member.set_followed(false);
                self.state = Following::Never;
            }
            _ => self.again(),
        }
    }

    fn again(&mut self) {
        self.member.set_followed(false);
        self.state = Following::Closed(Instant::now() + self.wait);
        self.wait = (self.wait * 2).min(AGAIN_MOST);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.member.set_followed(false);
    }
}

/// The lists whose changes the server says it announces.
fn filter(member: &Member) -> Map<String, Value> {
    [
        ("tools", "toolsListChanged"),
        ("prompts", "promptsListChanged"),
        ("resources", "resourcesListChanged"),
    ]
    .into_iter()
    .filter(|(capability, _)| member.announces_list(capability))
    .map(|(_, wanted)| (wanted.to_owned(), json!(true)))
    .collect()
}

/// The lists that a notification is about.
fn changed(notification: &str) -> Vec<Kind> {
    Kind::ALL
        .into_iter()
        .filter(|kind| kind.changed() == notification)
        .collect()
}

async fn gather(events: &mut EventStream, mut kinds: Vec<Kind>) -> Vec<Kind> {
    let until = Instant::now() + GATHER;
    // What ends the stream meanwhile is seen again by the next poll or by the next opening.
    while let Ok(Some(Ok(Event::Notification(n)))) = timeout_at(until, events.next()).await {
        for kind in changed(&n.method) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    kinds
}
