//! `subscriptions/listen` at a server that has sessions instead.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::time::{Instant, timeout_at};
use waypost_hub::call::Call;
use waypost_hub::error::CallError;
use waypost_hub::event::SubscriptionRefused;
use waypost_hub::reply::{Event, Reply};
use waypost_hub::upstream::BoxFuture;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Notification;
use waypost_wire::meta::{META, SUBSCRIPTION_ID};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::listeners::{Ears, Filter};
use super::session::Session;
use super::subscribed::{Said, Subscribed, Subscription};
use super::translate;
use crate::fault::Fault;

/// How long the acknowledgement waits for the server's answers. What is still open then is
/// acknowledged too, as what will be told of: the server goes on being asked. The hub waits little
/// longer.
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(2);

/// Waits for what the server says of a resource.
type Settled = BoxFuture<'static, Settlement>;

/// What the server said of a resource.
struct Settlement {
    uri: String,
    /// How it refused to tell of it, if it did.
    refusal: Option<ErrorObject>,
    /// It is asked again: waits for what it says in the end.
    later: Option<Settled>,
}

fn settled(uri: &str, subscription: &Subscription) -> Settled {
    let uri = uri.to_owned();
    let (first, later) = (subscription.settled(false), subscription.settled(true));
    async move {
        let refusal = first.await;
        let goes_on = refusal.as_ref().is_some_and(|error| !error.is_final());
        let again = uri.clone();
        let later = async move {
            Settlement {
                uri: again,
                refusal: later.await,
                later: None,
            }
        };
        Settlement {
            uri,
            refusal,
            later: goes_on.then(|| later.boxed()),
        }
    }
    .boxed()
}

/// Subscribes to what of the wish the server can tell of.
///
/// # Errors
/// To a call that waits for the server's own answers: why there is one that it did not give.
pub(crate) async fn open(
    session: Arc<Session>,
    upstream: &Arc<str>,
    call: &Call,
) -> Result<Reply, Fault> {
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
        open: FuturesUnordered::new(),
        over: false,
    };
    if listener.session.subscribes() {
        let asker = listener.session.subscribed.asker(call);
        let awaits = call.awaits_servers;
        let add = |uri: &String| Subscribed::add(&listener.session, uri, &asker, awaits);
        listener.subscriptions = wanted.uris.iter().map(add).collect();
        let asked = wanted.uris.iter().zip(&listener.subscriptions);
        if call.awaits_servers {
            let said = asked.map(|(_, subscription)| subscription.said());
            for said in join_all(said).await {
                match said {
                    Said::Agreed => {}
                    Said::Refused(error) => {
                        let error = translate::refusal(method::RESOURCES_READ, &error);
                        return Ok(Reply::error(error));
                    }
                    Said::Failed(fault) => return Err(fault),
                }
            }
        } else {
            listener.open = asked
                .map(|(uri, subscription)| settled(uri, subscription))
                .collect();
            let refused = listener.wait().await;
            filter.uris.retain(|uri| !refused.contains(uri));
        }
    } else {
        filter.uris.clear();
    }
    let mut params = Object::new();
    params.set("notifications", filter.object().into());
    let acknowledged = Notification {
        method: method::ACKNOWLEDGED.to_owned(),
        params,
    };
    listener.ahead = Some(listener.signed(acknowledged));
    Ok(Reply::Stream(Box::pin(listener)))
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
    /// Those that the server has not agreed to yet.
    open: FuturesUnordered<Settled>,
    over: bool,
}

impl Listener {
    /// Waits for the server's answers as long as the acknowledgement may; what it refused for good.
    async fn wait(&mut self) -> Vec<String> {
        let until = Instant::now() + SUBSCRIBED_WITHIN;
        let (mut refused, mut later) = (Vec::new(), Vec::new());
        while let Ok(Some(said)) = timeout_at(until, self.open.next()).await {
            match (&said.refusal, said.later) {
                (Some(error), Some(again)) => {
                    self.tell_refusal(&said.uri, error);
                    later.push(again);
                }
                (Some(_), None) => refused.push(said.uri),
                (None, _) => {}
            }
        }
        self.open.extend(later);
        refused
    }

    fn tell_refusal(&self, uri: &str, error: &ErrorObject) {
        SubscriptionRefused {
            upstream: &self.upstream,
            uri,
            code: Some(error.code()),
        }
        .emit();
    }

    /// The server has agreed later than the client was told: it may have missed a change.
    fn caught_up(&self, uri: &str) -> Notification {
        self.signed(Notification {
            method: method::RESOURCE_UPDATED.to_owned(),
            params: [("uri", Raw::string(uri))].into_iter().collect(),
        })
    }

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
        while let Poll::Ready(Some(said)) = self.open.poll_next_unpin(cx) {
            let Some(error) = said.refusal else {
                let notification = self.caught_up(&said.uri);
                return Poll::Ready(Some(Ok(Event::Notification(notification))));
            };
            self.tell_refusal(&said.uri, &error);
            self.open.extend(said.later);
        }
        match self.ears.end.poll_unpin(cx) {
            Poll::Ready(fault) => {
                self.over = true;
                let fault = fault.unwrap_or(Fault::NoEnd);
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
