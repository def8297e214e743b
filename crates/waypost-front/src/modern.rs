//! A request of the stateless era: HTTP to [`Call`], reply to HTTP.

use std::sync::Arc;

use axum::response::Response;
use futures_util::StreamExt as _;
use http::StatusCode;
use tokio::time::Instant;
use waypost_hub::call::{Call, Principal, View};
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Event, Lasting};
use waypost_wire::id::Id;
use waypost_wire::method::LISTEN;

use crate::Parts;
use crate::admit::Admission;
use crate::answer;
use crate::body::EventBody;
use crate::event::Finish;
use crate::events::Events;
use crate::media::Wants;

/// Who asks, and where.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) request_id: Arc<str>,
    pub(crate) principal: Principal,
    pub(crate) view: View,
    /// When it was let in.
    pub(crate) since: Instant,
}

/// Answers one request.
pub(crate) async fn answer(
    parts: &Parts,
    asker: Asker,
    admission: Admission,
    mut finish: Finish,
) -> Response {
    let Admission {
        id,
        method,
        params,
        meta,
        headers,
        wants,
    } = admission;
    finish.method(&method);
    let lasting = method == LISTEN;
    let ids = (asker.request_id, id.clone());
    let mut call = Call::new(ids, method, params, meta, (asker.principal, asker.view));
    call.headers = headers;
    call.since = asker.since;
    let mut response = match Events::of(parts.calls.clone(), call).await {
        Err(error) => whole(&id, &Err(error), finish),
        Ok(events) if wants == Wants::Json => buffered(id, events, finish).await,
        Ok(events) => either(parts, id, events, wants, finish).await,
    };
    if lasting {
        response.extensions_mut().insert(Lasting);
    }
    response
}

/// One JSON answer for a client that takes nothing else; what comes before the end is dropped.
async fn buffered(id: Id, mut events: Events, finish: Finish) -> Response {
    loop {
        match events.next().await {
            Some(Ok(Event::Notification(_))) => {}
            Some(Ok(Event::End(end))) => return whole(&id, &Ok(end), finish),
            Some(Err(error)) => return whole(&id, &Err(error), finish),
            None => return whole(&id, &Err(CallError::no_end()), finish),
        }
    }
}

/// One JSON answer when the end comes first, otherwise a stream.
async fn either(
    parts: &Parts,
    id: Id,
    mut events: Events,
    wants: Wants,
    finish: Finish,
) -> Response {
    let keep_alive = parts.keep_alive;
    let first = if keep_alive.is_zero() {
        events.next().await
    } else {
        match tokio::time::timeout(keep_alive, events.next()).await {
            Ok(first) => first,
            Err(_) => {
                let mut body = EventBody::new(events, id, keep_alive, finish);
                body.comment();
                return answer::streaming(body);
            }
        }
    };
    let end = match first.unwrap_or_else(|| Err(CallError::no_end())) {
        Ok(Event::Notification(notification)) => {
            let mut body = EventBody::new(events, id, keep_alive, finish);
            body.push(Ok(Event::Notification(notification)));
            return answer::streaming(body);
        }
        Ok(Event::End(end)) => Ok(end),
        Err(error) => Err(error),
    };
    // A status says more than the form of what comes with it.
    if wants == Wants::Either || answer::status(&end) != StatusCode::OK {
        return whole(&id, &end, finish);
    }
    let mut body = EventBody::new(Events::Over, id, keep_alive, finish);
    let name = answer::task_name(&end);
    body.push(end.map(Event::End));
    answer::named(answer::streaming(body), name)
}

fn whole(id: &Id, end: &Result<End, CallError>, mut finish: Finish) -> Response {
    match end {
        Ok(end) => finish.outcome(end.word()),
        Err(error) => finish.failed(error),
    }
    answer::whole(id, end)
}
