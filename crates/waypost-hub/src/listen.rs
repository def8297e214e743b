//! `subscriptions/listen`: changes of the catalogue, and what single upstreams report of
//! resources and tasks, on one stream (specification: subscriptions).

mod filter;
mod heard;
mod pending;
mod polled;
mod source;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use futures_util::stream::{self, StreamExt as _};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;
use waypost_wire::message::Notification;
use waypost_wire::meta::{META, SUBSCRIPTION_ID};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::RESULT_TYPE;

use crate::call::{Call, View};
use crate::catalog::entry::Kind;
use crate::error::{CallError, Kind as ErrorKind, Origin};
use crate::finish;
use crate::hub::{Change, Hub};
use crate::limit::Permit;
use crate::own;
use crate::reply::{End, Event, EventStream, Reply};
use crate::status::State;
use crate::subscription::Why;
use filter::{Filter, Wishes};
use heard::Heard;
use source::{Group, Source};

/// How long the acknowledgement waits for the upstreams' own subscriptions: it must not promise
/// what is not heard of yet, and a client waits for it.
const LIVE_WITHIN: Duration = Duration::from_millis(500);

/// How long the acknowledgement waits for the upstreams' answers about the resources and tasks
/// that are asked for. It says what will be told of (specification: subscriptions,
/// acknowledgment): resources of one that takes longer are subscribed to behind it.
const OPEN_WITHIN: Duration = Duration::from_secs(3);

/// Opens the stream: the acknowledgement, notifications, and at shutdown a graceful end.
pub(crate) async fn open(hub: Arc<Hub>, call: Call) -> Result<Reply, CallError> {
    let filter = match Filter::read(&call) {
        Ok(filter) => filter,
        Err(refusal) => return Ok(Reply::error(refusal)),
    };
    let permit = permit(&hub, &call)?;
    let shut_out = hub.shut_out.told(&call.principal, &call.view, call.since);
    // From here on nothing is missed, and the acknowledgement can be as late as it needs to be.
    let (changes, arranged) = (hub.changes(), hub.arranged());
    if !call.awaits_servers {
        let until = Instant::now() + LIVE_WITHIN;
        hub.wait_until(until, || all_followed(&hub, &call.view))
            .await;
    }
    hub.await_owners(&call.view, filter.uris(), OPEN_WITHIN)
        .await;
    hub.await_tasks(&call, filter.tasks(), OPEN_WITHIN).await;
    let until = Instant::now() + OPEN_WITHIN;
    let open = |handle: &str| hub.desk.open(&hub.catalog(), &call, handle).ok();
    let Wishes { groups, tasks } = filter.wishes(&hub, &call, open);
    let sources = match sources(groups, call.awaits_servers, until).await {
        Ok(sources) => sources,
        Err(Why::Refused(error)) => return Ok(Reply::error(error)),
        Err(Why::Failed(error)) => return Err(error),
    };

    let told = sources.iter().flat_map(Source::heard_tasks).collect();
    let polled = polled::open(&hub, &call, polled::untold(tasks, &told, 0), until).await;
    let stamp = Stamp {
        id: call.id.raw().clone(),
    };
    let acknowledged = stamp.event(method::ACKNOWLEDGED, filter.acknowledged(&sources, &polled));
    let heard = Heard::new(&hub, &call, &filter, arranged, (sources, polled));
    let own = OwnChanges::new(changes, filter, &call.view);
    let events = stream::select(own.into_events(), heard.into_events());
    let draining = hub.draining().cancelled_owned();
    let stop = async move {
        tokio::select! {
            () = draining => {}
            () = shut_out => {}
        }
    };
    let stamped = {
        let (stamp, hub, view) = (stamp.clone(), Arc::clone(&hub), call.view.clone());
        events.map(move |event| {
            // Counts as a listener for as long as something may still come.
            let _ = &permit;
            event.map(|mut event| {
                if let Event::Notification(told) = &mut event
                    && told.method == method::TASK_STATUS
                {
                    finish::lead_task_back(&mut told.params, &view, &hub);
                }
                stamp.put(event)
            })
        })
    };
    let end = stream::once(async move { Ok(stamp.end()) });
    let opening = stream::once(async { Ok(acknowledged) });
    Ok(Reply::Stream(Box::pin(
        opening.chain(stamped.take_until(stop)).chain(end),
    )))
}

/// Room among the listeners. One that waits counts as the request that it is for, and is over soon.
fn permit(hub: &Hub, call: &Call) -> Result<Option<Arc<Permit>>, CallError> {
    if call.awaits_servers {
        return Ok(None);
    }
    let seat = call.seat.clone().unwrap_or_default();
    let permit = seat.permit(&hub.listeners).ok_or_else(|| {
        CallError::new(ErrorKind::Throttled, Origin::Gateway)
            .detail("too many listeners: hint: the operator can raise `limits.listeners`")
            .retryable()
    })?;
    Ok(Some(permit))
}

async fn sources(groups: Vec<Group>, awaited: bool, until: Instant) -> Result<Vec<Source>, Why> {
    if awaited {
        return try_join_all(groups.into_iter().map(Source::open_patiently)).await;
    }
    let opened = groups.into_iter().map(|group| Source::open(group, until));
    Ok(join_all(opened).await.into_iter().flatten().collect())
}

/// Whether every upstream that works and announces changes is being listened to.
fn all_followed(hub: &Hub, view: &View) -> bool {
    let catalog = hub.catalog();
    catalog.shown(view).all(|member| {
        member.status.state() != State::Up || member.is_followed() || !member.announces()
    })
}

/// List changes of the view, as the filter wants them.
struct OwnChanges {
    changes: Receiver<Change>,
    filter: Filter,
    view: View,
    /// What is still to be told, each once.
    pending: Vec<&'static str>,
}

impl OwnChanges {
    fn new(changes: Receiver<Change>, filter: Filter, view: &View) -> Self {
        Self {
            changes,
            filter,
            view: view.clone(),
            pending: Vec::new(),
        }
    }

    fn into_events(self) -> EventStream {
        Box::pin(stream::unfold(self, |mut own| async move {
            let event = Event::Notification(Notification {
                method: own.next().await?.to_owned(),
                params: Object::new(),
            });
            Some((Ok(event), own))
        }))
    }

    async fn next(&mut self) -> Option<&'static str> {
        while self.pending.is_empty() {
            let mut said = self.changes.recv().await;
            loop {
                self.note(said)?;
                // Of what came while nobody took it, one of each kind is enough.
                said = match self.changes.try_recv() {
                    Ok(change) => Ok(change),
                    Err(TryRecvError::Lagged(count)) => Err(RecvError::Lagged(count)),
                    Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                };
            }
        }
        self.pending.pop()
    }

    fn note(&mut self, said: Result<Change, RecvError>) -> Option<()> {
        match said {
            Ok(change) if change.view == self.view => self.add(change.kind),
            Ok(_) => {}
            // Too slow for each single one: what matters is that there were some.
            Err(RecvError::Lagged(_)) => Kind::ALL.into_iter().for_each(|kind| self.add(kind)),
            Err(RecvError::Closed) => return None,
        }
        Some(())
    }

    fn add(&mut self, kind: Kind) {
        let method = kind.changed();
        if self.filter.wants(kind) && !self.pending.contains(&method) {
            self.pending.push(method);
        }
    }
}

/// Marks every message as belonging to this subscription.
#[derive(Clone)]
struct Stamp {
    /// The JSON-RPC id of the listen request, as the client spelled it.
    id: Raw,
}

impl Stamp {
    fn event(&self, method: &str, params: Object) -> Event {
        let mut notification = Notification {
            method: method.to_owned(),
            params,
        };
        self.mark(&mut notification.params);
        Event::Notification(notification)
    }

    fn put(&self, event: Event) -> Event {
        match event {
            Event::Notification(mut notification) => {
                own::unsign(&mut notification.params);
                self.mark(&mut notification.params);
                Event::Notification(notification)
            }
            end @ Event::End(_) => end,
        }
    }

    fn mark(&self, params: &mut Object) {
        let meta = params.get(META).and_then(|raw| raw.as_object().ok());
        let mut meta = meta.unwrap_or_default();
        meta.set(SUBSCRIPTION_ID, self.id.clone());
        params.set(META, meta.into());
    }

    fn end(&self) -> Event {
        let mut result = Object::new();
        result.set(RESULT_TYPE, Raw::string("complete"));
        own::sign(&mut result, None);
        self.mark(&mut result);
        Event::End(End::Complete(result))
    }
}
