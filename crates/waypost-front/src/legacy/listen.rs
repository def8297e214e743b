//! Changes that belong to no request: one `subscriptions/listen` for each session that wants to
//! hear of them, relayed to its standing stream.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use waypost_hub::backoff::Backoff;
use waypost_hub::call::Call;
use waypost_hub::error::{CallError, Kind, Origin};
use waypost_hub::limit::SharedPermit;
use waypost_hub::reply::{End, Event};
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Notification};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::Calls;
use crate::events::Events;
use crate::legacy::event;
use crate::legacy::session::{Heard, Session};
use crate::legacy::sessions::Sessions;
use crate::legacy::translate;
use crate::legacy::wishes::{MOST_RESOURCES, Resources, Wish};
use crate::rescue;

/// Longest wait for the hub's acknowledgement.
const OPEN_WITHIN: Duration = Duration::from_secs(8);

/// A stream that ended is opened again after this, and after twice as long each further time.
const AGAIN_FIRST: Duration = Duration::from_millis(500);
const AGAIN_MOST: Duration = Duration::from_secs(30);

/// Changes of one list are told at most this often.
const PACE: Duration = Duration::from_secs(1);

/// How often it is looked whether anybody still wants to hear.
const LOOK: Duration = Duration::from_secs(30);

/// Sees to it that the session's standing stream gets what it should.
pub(crate) fn start(sessions: &Sessions, calls: &Calls, session: &Arc<Session>) {
    if !session.begin_listening() {
        return;
    }
    let (calls, session) = (calls.clone(), Arc::clone(session));
    let released = session.released().clone();
    sessions.parts().tasks.spawn(|stop| async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = released.cancelled() => {}
            () = listen(&calls, &session) => {}
        }
    });
}

/// Listens as long as somebody wants to hear, whatever fails on the way: the session counts as one
/// that is listened for.
async fn listen(calls: &Calls, session: &Arc<Session>) {
    let mut again = Backoff::new(AGAIN_FIRST, AGAIN_MOST);
    loop {
        let listener = Listener {
            calls: calls.clone(),
            session: Arc::clone(session),
            pace: Pace::default(),
            seat: SharedPermit::default(),
            asked: Vec::new(),
        };
        // One bad message is not an outage.
        if AssertUnwindSafe(listener.run())
            .catch_unwind()
            .await
            .is_ok()
        {
            return;
        }
        sleep(again.failed()).await;
    }
}

/// `resources/subscribe`, answered as the server that has the resource answers it.
///
/// # Errors
/// The server's own; that no upstream has the resource, or none that has it tells of changes; or
/// why there is no answer.
pub(crate) async fn subscribe(
    sessions: &Sessions,
    calls: &Calls,
    session: &Arc<Session>,
    uri: &str,
) -> Result<Object, ErrorObject> {
    let full = || {
        let text = format!("more than {MOST_RESOURCES} resources in one session");
        ErrorObject::new(code::INVALID_PARAMS, &text)
    };
    let begun = Begun::new(session, uri).ok_or_else(full)?;
    let asked = match ask(calls, session, uri).await {
        Ok(asked) => asked,
        Err(untold) => {
            // One that was told of until now is again, once that works.
            if untold.is_final() && begun.refuse() {
                sessions.save(session).await;
            }
            return Err(untold.into_error(uri));
        }
    };
    let count = match begun.wish() {
        (_, Some(count)) => count,
        (Wish::Full, None) => return Err(full()),
        (Wish::Made | Wish::TakenBack, None) => return Ok(Object::new()),
    };
    let mut heard = session.heard.subscribe();
    start(sessions, calls, session);
    let taken_up = heard.wait_for(|heard| heard.count >= count);
    let untold = match tokio::time::timeout(OPEN_WITHIN, taken_up).await {
        Ok(Ok(heard)) => match &heard.failed {
            Some(error) => Some(rescue::call_error(error).1),
            None if heard.resources.iter().any(|known| known == uri) => None,
            None => Some(Untold::Nobody.into_error(uri)),
        },
        Ok(Err(_)) | Err(_) => Some(rescue::call_error(&late()).1),
    };
    if let Some(error) = untold.filter(|_| !begun.is_taken_back()) {
        return Err(error);
    }
    if begun.stand() {
        // What came before the session's own stream had it is here alone.
        drain(session, asked);
        sessions.save(session).await;
    }
    Ok(Object::new())
}

/// A `resources/subscribe` that is being answered. Dropped, it leaves nothing behind that its
/// client was not told of.
struct Begun<'a> {
    session: &'a Session,
    number: u64,
}

impl<'a> Begun<'a> {
    /// `None` where the session has too many.
    fn new(session: &'a Session, uri: &str) -> Option<Self> {
        let number = session.with_resources(|resources| resources.begin(uri))?;
        Some(Self { session, number })
    }

    /// The server agrees; which count of wishes says so.
    fn wish(&self) -> (Wish, Option<u64>) {
        let mut wish = Wish::TakenBack;
        let count = self.session.wish(|resources| {
            wish = resources.wish(self.number);
            wish == Wish::Made
        });
        (wish, count)
    }

    fn is_taken_back(&self) -> bool {
        let is = |resources: &mut Resources| resources.is_taken_back(self.number);
        self.session.with_resources(is)
    }

    /// Whether the client is subscribed, of which it is told now.
    fn stand(&self) -> bool {
        let stand = |resources: &mut Resources| resources.stand(self.number);
        self.session.with_resources(stand)
    }

    /// Whether a refusal ends what the client was told of.
    fn refuse(&self) -> bool {
        let refuse = |resources: &mut Resources| resources.refuse(self.number);
        self.session.wish(refuse).is_some()
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.session
            .wish(|resources| resources.give_up(self.number));
    }
}

/// Why changes of a resource will not be told.
enum Untold {
    /// No upstream has the resource, or none that has it tells of changes.
    Nobody,
    /// The server's own answer.
    Refused(ErrorObject),
    Failed(CallError),
}

impl Untold {
    /// Whether it stays so.
    fn is_final(&self) -> bool {
        match self {
            Self::Nobody => true,
            Self::Refused(error) => error.is_final(),
            Self::Failed(_) => false,
        }
    }

    fn into_error(self, uri: &str) -> ErrorObject {
        match self {
            Self::Refused(error) => translate::error(method::RESOURCES_READ, error),
            Self::Failed(error) => rescue::call_error(&error).1,
            Self::Nobody => {
                let text = "no upstream tells of changes of this resource";
                let data = Object::from_iter([("uri", Raw::string(uri))]);
                let data = Raw::from(data).decode::<serde_json::Value>();
                ErrorObject::with_data(code::FORMER_RESOURCE_NOT_FOUND, text, &data)
            }
        }
    }
}

/// Asks the server that has this resource to tell of it, which it does for as long as the result
/// is held at least. Waits for the answer as for that of any call.
async fn ask(calls: &Calls, session: &Session, uri: &str) -> Result<Events, Untold> {
    let uris = Raw::from_serialize(&[uri]);
    let mut call = listening(
        session,
        Object::from_iter([("resourceSubscriptions", uris)]),
    );
    call.awaits_servers = true;
    let events = Events::of(calls.clone(), call).await;
    let mut events = events.map_err(Untold::Failed)?;
    match events.next().await {
        Some(Ok(Event::Notification(first))) if first.method == method::ACKNOWLEDGED => {
            let is_told = acknowledged(&first).iter().any(|told| told == uri);
            is_told.then_some(events).ok_or(Untold::Nobody)
        }
        Some(Ok(Event::End(End::Error(error)))) => Err(Untold::Refused(error)),
        Some(Err(error)) => Err(Untold::Failed(error)),
        Some(Ok(_)) | None => Err(Untold::Failed(CallError::no_end())),
    }
}

/// What the session wants to hear, as the call that asks for it.
fn listening(session: &Session, wanted: Object) -> Call {
    let ids = (
        format!("session-{:08x}", session.mark).into(),
        Id::number(0),
    );
    let params = Object::from_iter([("notifications", Raw::from(wanted))]);
    let meta = translate::request_meta(
        Object::new(),
        session.ticket.capabilities.clone(),
        session.ticket.client_info.clone(),
        None,
    );
    let caller = (session.principal.clone(), session.view.clone());
    let mut call = Call::new(ids, method::LISTEN.to_owned(), params, meta, caller);
    call.session = Some(session.for_call());
    call
}

/// Tells what came to a stream that only updates come to.
fn drain(session: &Session, mut events: Events) {
    while let Some(Some(Ok(Event::Notification(mut one)))) = events.next().now_or_never() {
        translate::notification(&mut one);
        write(session, &one.method, &one.params);
    }
}

fn write(session: &Session, method: &str, params: &Object) {
    let message = message::encode_notification(method, params);
    session.standing.coalesce([message].into());
}

/// `resources/unsubscribe`; what was never subscribed to is no error.
pub(crate) async fn unsubscribe(
    sessions: &Sessions,
    session: &Arc<Session>,
    uri: &str,
) -> Result<Object, ErrorObject> {
    let taken_back = session.wish(|resources| resources.take_back(uri));
    if taken_back.is_some() {
        sessions.save(session).await;
    }
    Ok(Object::new())
}

struct Listener {
    calls: Calls,
    session: Arc<Session>,
    pace: Pace,
    /// What its streams share: each follows on the one before.
    seat: SharedPermit,
    /// The resources of the stream there is.
    asked: Vec<String>,
}

/// What ended one stretch of listening.
enum Turn {
    /// The client wants to hear of something else.
    Wishes,
    /// The stream ended.
    Lost,
    /// Nobody wants to hear anything.
    Over,
}

impl Listener {
    async fn run(mut self) {
        let mut wishes = self.session.wishes.subscribe();
        let mut again = Backoff::new(AGAIN_FIRST, AGAIN_MOST);
        let mut stream: Option<Events> = None;
        loop {
            let count = *wishes.borrow_and_update();
            let wanted = self.session.resources();
            let opened = tokio::time::timeout(OPEN_WITHIN, self.open(&wanted)).await;
            let (resources, failed) = match opened.unwrap_or_else(|_| Err(late())) {
                Ok((new, resources)) => {
                    // What came in between is on the old stream.
                    if let Some(old) = stream.replace(new) {
                        self.drain(old);
                    }
                    self.asked = wanted;
                    again.reset();
                    (resources, None)
                }
                Err(error) => {
                    event::not_listened(&self.session, &error);
                    (Vec::new(), Some(Arc::new(error)))
                }
            };
            // What there is goes on until what is wished for can be had.
            let reopens = failed.is_some().then(|| Instant::now() + again.failed());
            self.session.heard.send_replace(Heard {
                count,
                resources,
                failed,
            });
            let turn = self
                .relay(&mut stream, &mut wishes, (&mut again, reopens))
                .await;
            if matches!(turn, Turn::Over) {
                return;
            }
        }
    }

    async fn open(&self, resources: &[String]) -> Result<(Events, Vec<String>), CallError> {
        let mut wanted = Object::from_iter([
            ("toolsListChanged", Raw::bool(true)),
            ("promptsListChanged", Raw::bool(true)),
            ("resourcesListChanged", Raw::bool(true)),
        ]);
        if !resources.is_empty() {
            wanted.set("resourceSubscriptions", Raw::from_serialize(resources));
        }
        let mut call = listening(&self.session, wanted);
        call.seat = Some(self.seat.clone());
        let mut events = Events::of(self.calls.clone(), call).await?;
        match events.next().await {
            Some(Ok(Event::Notification(first))) if first.method == method::ACKNOWLEDGED => {
                Ok((events, acknowledged(&first)))
            }
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Err(CallError::no_end()),
        }
    }

    /// Passes on what comes until there is a reason to open another stream.
    async fn relay(
        &mut self,
        stream: &mut Option<Events>,
        wishes: &mut watch::Receiver<u64>,
        (again, mut reopens): (&mut Backoff, Option<Instant>),
    ) -> Turn {
        let mut look = Instant::now() + LOOK;
        loop {
            let due = self.pace.due();
            if stream.is_none() && reopens.is_none() {
                reopens = Some(Instant::now() + again.failed());
            }
            tokio::select! {
                changed = wishes.changed() => {
                    return if changed.is_ok() { Turn::Wishes } else { Turn::Over };
                }
                () = sleep_until(look) => {
                    if self.session.end_listening() {
                        return Turn::Over;
                    }
                    look = Instant::now() + LOOK;
                }
                () = sleep_until(due.unwrap_or(look)), if due.is_some() => self.catch_up(),
                () = sleep_until(reopens.unwrap_or(look)), if reopens.is_some() => {
                    return Turn::Lost;
                }
                event = next(stream) => match event {
                    Some(Ok(Event::Notification(notification))) => self.pass(notification),
                    Some(Ok(Event::End(_)) | Err(_)) | None => *stream = None,
                },
            }
        }
    }

    fn drain(&mut self, mut old: Events) {
        while let Some(Some(Ok(Event::Notification(notification)))) = old.next().now_or_never() {
            self.pass(notification);
        }
    }

    fn pass(&mut self, mut notification: Notification) {
        if notification.method == method::ACKNOWLEDGED {
            return;
        }
        translate::notification(&mut notification);
        let is_update = notification.method == method::RESOURCE_UPDATED;
        if is_update && self.is_unsubscribed(&notification) {
            return;
        }
        let now = is_update || self.pace.may_go(&notification.method);
        if now {
            write(&self.session, &notification.method, &notification.params);
        }
    }

    /// Whether it is of a resource that the stream was opened for and the client has left since. Of
    /// others a server may tell too: what is below one that it was asked about.
    fn is_unsubscribed(&self, update: &Notification) -> bool {
        let Some(uri) = update.params.str("uri") else {
            return false;
        };
        let is_in = |uris: &[String]| uris.iter().any(|known| *known == *uri);
        is_in(&self.asked) && !self.session.with_resources(|wished| is_in(wished.all()))
    }

    fn catch_up(&mut self) {
        for method in self.pace.late() {
            write(&self.session, &method, &Object::new());
        }
    }
}

/// The hub did not acknowledge in time.
fn late() -> CallError {
    let text = "what is listened to was not acknowledged in time";
    CallError::new(Kind::Timeout, Origin::Gateway)
        .detail(text)
        .retryable()
}

async fn next(stream: &mut Option<Events>) -> Option<Result<Event, CallError>> {
    match stream {
        Some(events) => Pin::new(events).next().await,
        None => std::future::pending().await,
    }
}

fn acknowledged(first: &Notification) -> Vec<String> {
    let honoured = first.params.get("notifications");
    let honoured = honoured.and_then(|raw| raw.as_object().ok());
    let resources = honoured.and_then(|h| h.get("resourceSubscriptions")?.decode());
    resources.unwrap_or_default()
}

/// When each list's change was told last, and whether another one waits.
#[derive(Debug, Default)]
struct Pace(Vec<(String, Instant, bool)>);

impl Pace {
    /// Whether a change may be told now; otherwise it is once it may.
    fn may_go(&mut self, method: &str) -> bool {
        let now = Instant::now();
        let Some((_, last, waits)) = self.0.iter_mut().find(|(known, ..)| known == method) else {
            self.0.push((method.to_owned(), now, false));
            return true;
        };
        if now.duration_since(*last) < PACE {
            *waits = true;
            return false;
        }
        (*last, *waits) = (now, false);
        true
    }

    fn due(&self) -> Option<Instant> {
        let waiting = self.0.iter().filter(|(.., waits)| *waits);
        waiting.map(|(_, last, _)| *last + PACE).min()
    }

    /// Those that waited long enough.
    fn late(&mut self) -> Vec<String> {
        let now = Instant::now();
        let due = |(_, last, waits): &&mut (String, Instant, bool)| *waits && *last + PACE <= now;
        let late = self.0.iter_mut().filter(due);
        let told = late.map(|(method, last, waits)| {
            (*last, *waits) = (now, false);
            method.clone()
        });
        told.collect()
    }
}
