//! The messages of a session client, whatever carries them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};
use waypost_hub::call::Call;
use waypost_hub::error::CallError;
use waypost_hub::limit::Permit;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::level::{self, Level};
use waypost_wire::message::{Message, Notification, Request};
use waypost_wire::meta::RequestMeta;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::result::{INPUT_RESPONSES, REQUEST_STATE};

use crate::Calls;
use crate::event::Finish;
use crate::legacy::exchange::{Exchange, answer_now, internal, left, text};
use crate::legacy::listen;
use crate::legacy::session::{Hold, Session, Slot};
use crate::legacy::sessions::Sessions;
use crate::legacy::translate;
use crate::modern::Asker;
use crate::outlet::{Closing, Outlet};
use crate::refusal::Refusal;
use crate::rescue;

pub(crate) const PING: &str = "ping";
pub(crate) const SET_LEVEL: &str = "logging/setLevel";
pub(crate) const SUBSCRIBE: &str = "resources/subscribe";
pub(crate) const UNSUBSCRIBE: &str = "resources/unsubscribe";
pub(crate) const INITIALIZED: &str = "notifications/initialized";

/// A request and how it came.
pub(crate) struct Incoming {
    /// Without `_meta`.
    pub(crate) request: Request,
    pub(crate) meta: Object,
    pub(crate) asker: Asker,
    /// The session it is of; one that stands alone has none.
    pub(crate) hold: Option<Hold>,
    /// Where its answer goes, and what comes before it.
    pub(crate) outlet: Arc<dyn Outlet>,
    /// Whether questions can reach the client there.
    pub(crate) asks: bool,
    /// Gives up one that stands alone.
    pub(crate) cancelled: CancellationToken,
    /// What it holds of a bound on what is in flight. A request of a session goes on when the
    /// connection that brought it is gone, and counts on.
    pub(crate) permit: Option<Arc<Permit>>,
    pub(crate) finish: Finish,
}

/// Answers a request; returns before the answer is there.
///
/// # Errors
/// [`Refusal`] for one that cannot be taken in this session now.
pub(crate) fn request(
    sessions: &Sessions,
    calls: &Calls,
    mut incoming: Incoming,
) -> Result<(), Refusal> {
    incoming.finish.method(&incoming.request.method);
    let slot = match incoming.hold.take() {
        None => None,
        Some(hold) => match Session::begin(hold, &incoming.request.id) {
            Ok(slot) => Some(slot),
            Err(refusal) => {
                incoming.finish.refused(&refusal);
                return Err(refusal);
            }
        },
    };
    match (&*incoming.request.method, slot) {
        (SUBSCRIBE | UNSUBSCRIBE | SET_LEVEL, Some(slot)) => set(sessions, calls, incoming, slot),
        (SUBSCRIBE | UNSUBSCRIBE, None) => incoming.answer(Err(nobody_to_tell())),
        // Without a session there is nothing that could remember it.
        (SET_LEVEL, None) => {
            let answer = level(&incoming.request).map(|_| Object::new());
            incoming.answer(answer);
        }
        (PING, slot) => {
            drop(slot);
            incoming.answer(Ok(Object::new()));
        }
        (name, _) if is_unknown(name) => {
            let text = format!("method `{name}` is not served in sessions");
            incoming.answer(Err(ErrorObject::new(code::METHOD_NOT_FOUND, &text)));
        }
        (_, slot) => call(sessions, calls, incoming, slot),
    }
    Ok(())
}

/// What belongs to a session, asked for where there are none.
fn nobody_to_tell() -> ErrorObject {
    const HINT: &str = "set `stateless: false` for this endpoint, in `front` or in its upstream, and open a session";
    let why = "without a session there is nobody to tell of changes of resources";
    let data = json!({ "hint": HINT });
    let text = format!("{why}; hint: {HINT}");
    ErrorObject::with_data(code::METHOD_NOT_FOUND, &text, &data)
}

/// Methods that are the stateless era's own, and those of tasks: a session has none, whatever
/// its client declared.
fn is_unknown(method: &str) -> bool {
    let own = [method::INITIALIZE, method::DISCOVER, method::LISTEN];
    own.contains(&method) || method.starts_with("tasks/")
}

/// The level that a client asks for.
fn level(request: &Request) -> Result<String, ErrorObject> {
    let level = text(&request.params, "level")?;
    if Level::named(&level).is_none() {
        let text = format!("`params.level` must be one of {}", level::NAMES.join(", "));
        return Err(ErrorObject::new(code::INVALID_PARAMS, &text));
    }
    Ok(level)
}

/// Remembers what the session's client wants. The answer waits for the store, so that nobody has
/// more on its way there than requests.
fn set(sessions: &Sessions, calls: &Calls, incoming: Incoming, slot: Slot) {
    let (sessions, calls) = (sessions.clone(), calls.clone());
    let tasks = sessions.parts().tasks.clone();
    let given_up = sessions.given_up().clone();
    let span = span(&incoming.asker.request_id);
    let work = async move |stop: CancellationToken| {
        let _closing = Closing(Arc::clone(&incoming.outlet));
        let session = slot.hold.session();
        let answer = async {
            let request = &incoming.request;
            if request.method == SET_LEVEL {
                session.set_log_level(&level(request)?);
                sessions.save(session).await;
                return Ok(Object::new());
            }
            let uri = text(&request.params, "uri")?;
            if request.method == SUBSCRIBE {
                listen::subscribe(&sessions, &calls, session, &uri).await
            } else {
                listen::unsubscribe(&sessions, session, &uri).await
            }
        };
        // One bad request is not an outage.
        let answer = AssertUnwindSafe(answer).catch_unwind();
        let answer = tokio::select! {
            biased;
            // Who cancels and gets the answer all the same was told to ignore it.
            () = slot.cancelled().cancelled() => {
                session.released().is_cancelled().then(|| Err(left()))
            }
            () = stop.cancelled() => None,
            () = given_up.cancelled() => Some(Err(CallError::stopped())),
            answer = answer => Some(answer.map_err(|_| internal())),
        };
        let answer =
            answer.map(|answer| answer.unwrap_or_else(|error| Err(rescue::call_error(&error).1)));
        drop(slot);
        match answer {
            Some(answer) => incoming.answer(answer),
            None => incoming.outlet.close(),
        }
    };
    tasks.spawn_here(|stop| work(stop).instrument(span));
}

/// Under which the log has what a request does: a task does not inherit it.
fn span(request_id: &str) -> Span {
    tracing::info_span!(
        parent: None,
        "request",
        request_id,
        // The hub's to say, once it knows.
        upstream = tracing::field::Empty,
    )
}

fn call(sessions: &Sessions, calls: &Calls, incoming: Incoming, slot: Option<Slot>) {
    let Incoming {
        request,
        meta,
        asker,
        outlet,
        asks,
        cancelled,
        permit,
        finish,
        hold: _,
    } = incoming;
    let Request { id, method, params } = request;
    let span = span(&asker.request_id);
    let session = slot.as_ref().map(|slot| slot.hold.session());
    let (ids, meta) = (
        (asker.request_id, id.clone()),
        call_meta(session, meta, asks),
    );
    let caller = (asker.principal, asker.view);
    let mut call = Call::new(ids, method, plain(params), meta, caller);
    call.session = session.map(|session| session.for_call());
    call.headers.absent = true;
    let parts = sessions.parts();
    let exchange = Exchange {
        id,
        outlet,
        cancelled: slot.as_ref().map_or(cancelled, |s| s.cancelled().clone()),
        given_up: sessions.given_up().clone(),
        slot,
        calls: calls.clone(),
        tasks: parts.tasks.clone(),
        answer_within: parts.answer_within,
        finish,
        asks,
    };
    // On the core at hand: its connections to servers are the warm ones.
    parts.tasks.spawn_here(|stop| {
        let work = async move {
            let _closing = Closing(Arc::clone(&exchange.outlet));
            exchange.run(call, stop).await;
            drop(permit);
        };
        work.instrument(span)
    });
}

/// The old way of asking for a task, and what only retries carry: neither is a session client's
/// to say.
fn plain(mut params: Object) -> Object {
    for member in ["task", INPUT_RESPONSES, REQUEST_STATE] {
        params.remove(member);
    }
    params
}

fn call_meta(session: Option<&Arc<Session>>, said: Object, asks: bool) -> RequestMeta {
    let Some(session) = session else {
        return translate::request_meta(said, ClientCapabilities::default(), None, None);
    };
    let ticket = &session.ticket;
    let capabilities = if asks {
        ticket.capabilities.clone()
    } else {
        translate::without_questions(&ticket.capabilities)
    };
    let info = ticket.client_info.clone();
    translate::request_meta(said, capabilities, info, Some(session.log_level()))
}

impl Incoming {
    fn answer(self, answer: Result<Object, ErrorObject>) {
        answer_now(&self.request.id, answer, &self.outlet, self.finish);
    }
}

/// Takes what is no request.
pub(crate) fn told(session: &Session, message: Message) {
    match message {
        Message::Notification(one) => notification(session, &one),
        // One that nobody waits for comes too late; that is no error of the client's.
        Message::Response(Some(id), outcome) => drop(session.answer(&id, outcome)),
        Message::Response(None, _) | Message::Request(_) => {}
    }
}

/// Takes note of a notification.
pub(crate) fn notification(session: &Session, notification: &Notification) {
    match &*notification.method {
        INITIALIZED => session.confirm(),
        method::CANCELLED => {
            let id = notification.params.get("requestId").cloned();
            if let Some(Ok(id)) = id.map(Id::new) {
                session.cancel(&id);
            }
        }
        // Nothing inside keeps a list of them: servers ask, and ask again.
        method::ROOTS_CHANGED => session.for_call().roots_changed(),
        _ => {}
    }
}
