//! Listens to one upstream for changes of its lists.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::timeout;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::call::Call;
use crate::catalog::entry::Kind;
use crate::member::Member;
use crate::subscription::{Said, Subscription};
use crate::upstream::Facts;

/// What following an upstream brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The subscription stands.
    Live,
    /// Lists of these kinds became others.
    Changed(Vec<Kind>),
}

/// Follows one upstream.
pub(crate) struct Follower {
    member: Arc<Member>,
    /// `None` for a server that announces nothing.
    subscription: Option<Subscription>,
}

impl Follower {
    /// Follows what the server says that it announces.
    pub(crate) fn new(member: &Arc<Member>, facts: &Facts) -> Self {
        let filter = filter(facts);
        let subscription = (!filter.is_empty()).then(|| {
            let mut params = Object::new();
            params.set("notifications", Raw::from(&Value::Object(filter)));
            Subscription::new(member, Call::own(method::LISTEN, params))
        });
        Self {
            member: Arc::clone(member),
            subscription,
        }
    }

    /// Waits until the subscription stands or has failed for the first time, but not for long.
    pub(crate) async fn settle(&mut self, patience: Duration) {
        let Some(subscription) = &mut self.subscription else {
            return;
        };
        // Nothing comes before the acknowledgement, so nothing heard here is lost.
        if let Ok(said) = timeout(patience, subscription.next()).await {
            self.heard(said);
        }
    }

    /// The next thing heard; never, for a server without subscriptions. Dropping the future
    /// loses nothing.
    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            let Some(subscription) = &mut self.subscription else {
                return std::future::pending().await;
            };
            let said = subscription.next().await;
            if let Some(heard) = self.heard(said) {
                return heard;
            }
        }
    }

    fn heard(&self, said: Said) -> Option<Heard> {
        match said {
            Said::Live(_) => {
                self.member.set_followed(true);
                // It may have been told while nobody listened.
                self.member.reads().forget_all();
                Some(Heard::Live)
            }
            Said::Notification(notification) => {
                let kinds = changed(&notification.method);
                if kinds.contains(&Kind::Resource) {
                    self.member.reads().forget_all();
                }
                (!kinds.is_empty()).then_some(Heard::Changed(kinds))
            }
            Said::Lost => {
                self.member.set_followed(false);
                None
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.member.set_followed(false);
    }
}

/// The lists whose changes the server says it announces.
fn filter(facts: &Facts) -> Map<String, Value> {
    [
        ("tools", "toolsListChanged"),
        ("prompts", "promptsListChanged"),
        ("resources", "resourcesListChanged"),
    ]
    .into_iter()
    .filter(|(capability, _)| facts.announces_list(capability))
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
