//! `subscriptions/listen` at a server that has sessions instead.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{FutureExt as _, Stream};
use waypost_hub::call::Call;
use waypost_hub::error::CallError;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::{Event, Reply};
use waypost_wire::message::Notification;
use waypost_wire::meta::{META, SUBSCRIPTION_ID};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::listeners::{Ears, Filter};
use super::session::Session;

/// Subscribes to what of the wish the server can tell of.
pub(crate) async fn open(
    session: Arc<Session>,
    upstream: &Arc<str>,
    tasks: &Tasks,
    call: &Call,
) -> Reply {
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
        tasks: tasks.clone(),
        session,
        ears,
        ahead: None,
        uris: Vec::new(),
        over: false,
    };
    if listener.session.subscribes() {
        for uri in &wanted.uris {
            if listener.session.subscribe(uri).await {
                listener.uris.push(uri.clone());
            }
        }
    }
    filter.uris.clone_from(&listener.uris);
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
    tasks: Tasks,
    session: Arc<Session>,
    ears: Ears,
    /// To be told first.
    ahead: Option<Notification>,
    uris: Vec<String>,
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
        let uris = std::mem::take(&mut self.uris);
        if uris.is_empty() || self.session.table.is_gone() {
            return;
        }
        let session = Arc::clone(&self.session);
        self.tasks.spawn(|_| async move {
            for uri in uris {
                session.unsubscribe(&uri).await;
            }
        });
    }
}
