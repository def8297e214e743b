//! `subscriptions/listen` at a server that has sessions instead.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt as _, Stream};
use tokio::time::timeout;
use waypost_hub::call::Call;
use waypost_hub::error::CallError;
use waypost_hub::reply::{Event, Reply};
use waypost_wire::message::Notification;
use waypost_wire::meta::{META, SUBSCRIPTION_ID};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::listeners::{Ears, Filter};
use super::session::Session;
use super::subscribed::{Subscribed, Subscription};

/// How long the server may take to agree: what stands then is acknowledged. The hub waits little
/// longer.
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(2);

/// Subscribes to what of the wish the server can tell of.
pub(crate) async fn open(session: Arc<Session>, upstream: &Arc<str>, call: &Call) -> Reply {
    let wanted = call.params.get("notifications");
    let wanted = wanted
        .and_then(|raw| raw.as_object().ok())
        .unwrap_or_default();
    let wanted = Filter::read(&wanted);
    let mut filter = Filter {
        tools: wanted.tools && session.has("tools"),
        prompts: wanted.prompts && session.has("prompts"),
        resources: wanted.resources && session.has("resources"),
        ..Filter::default()
    };
    // Before the server is asked: what it says at once is heard.
    filter.uris.clone_from(&wanted.uris);
    let ears = session.table.listeners.add(filter.clone());
    let mut listener = Listener {
        subscription: call.id.raw().clone(),
        upstream: Arc::clone(upstream),
        session,
        ears,
        ahead: None,
        subscriptions: Vec::new(),
        over: false,
    };
    filter.uris.clear();
    if listener.session.subscribes() {
        let asked = wanted.uris.iter().map(|uri| {
            let subscription = Subscribed::add(&listener.session, uri);
            async move {
                let stands = timeout(SUBSCRIBED_WITHIN, subscription.stands()).await;
                (uri, stands.unwrap_or_default().then_some(subscription))
            }
        });
        for (uri, subscription) in join_all(asked).await {
            if let Some(subscription) = subscription {
                filter.uris.push(uri.clone());
                listener.subscriptions.push(subscription);
            }
        }
    }
    let mut params = Object::new();
    params.set("notifications", filter.object().into());
    let acknowledged = Notification {
        method: method::ACKNOWLEDGED.to_owned(),
        params,
    };
    listener.ahead = Some(listener.signed(acknowledged));
    Reply::Stream(Box::pin(listener))
}

struct Listener {
    subscription: Raw,
    upstream: Arc<str>,
    session: Arc<Session>,
    ears: Ears,
    /// To be told first.
    ahead: Option<Notification>,
    /// With their drop the server is told, where nobody else listens.
    subscriptions: Vec<Subscription>,
    over: bool,
}

impl Listener {
    fn signed(&self, mut notification: Notification) -> Notification {
        let meta = notification
            .params
            .get(META)
            .and_then(|raw| raw.as_object().ok());
        let mut meta = meta.unwrap_or_default();
        meta.set(SUBSCRIPTION_ID, self.subscription.clone());
        notification.params.set(META, meta.into());
        notification
    }
}

impl Stream for Listener {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(acknowledged) = self.ahead.take() {
            return Poll::Ready(Some(Ok(Event::Notification(acknowledged))));
        }
        if self.over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Some(notification)) = self.ears.events.poll_recv(cx) {
            let notification = self.signed(notification);
            return Poll::Ready(Some(Ok(Event::Notification(notification))));
        }
        match self.ears.end.poll_unpin(cx) {
            Poll::Ready(fault) => {
                self.over = true;
                let fault = fault.unwrap_or(crate::fault::Fault::NoEnd);
                Poll::Ready(Some(Err(fault.into_call(&self.upstream))))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.session.table.listeners.remove(self.ears.number);
    }
}
