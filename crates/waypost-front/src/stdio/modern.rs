//! Stateless calls that share a pipe: what tells their messages apart are ids (specification:
//! transports, stdio).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use waypost_hub::call::Call;
use waypost_hub::error::{CallError, Kind, Origin};
use waypost_hub::reply::{End, Event};
use waypost_wire::message::{self, Request};
use waypost_wire::meta::RequestMeta;

use super::Host;
use super::lane::Lane;
use super::unanswered::Unanswered;
use crate::Calls;
use crate::encode;
use crate::event::Finish;
use crate::events::Events;
use crate::in_flight::Slot;
use crate::modern::Asker;
use crate::rescue;

/// Answers one request; returns before the answer is there.
pub(super) fn answer(
    host: &Host,
    asker: Asker,
    (request, meta): (Request, RequestMeta),
    (slot, given_up): (Slot, CancellationToken),
    (lane, unanswered): (Lane, Arc<Unanswered>),
    mut finish: Finish,
) {
    let Request { id, method, params } = request;
    let begun = unanswered.begins(&method, &params);
    finish.method(&method);
    let span = tracing::info_span!(
        "request",
        request_id = &*asker.request_id,
        // The hub's to say, once it knows.
        upstream = tracing::field::Empty,
    );
    let ids = (asker.request_id, id.clone());
    let mut call = Call::new(ids, method, params, meta, (asker.principal, asker.view));
    call.headers.absent = true;
    let calls = host.parts.calls.clone();
    host.tasks.spawn_here(|stop| {
        let work = async move {
            // One bad request is not an outage.
            let end = AssertUnwindSafe(to_end(calls, call, &lane)).catch_unwind();
            let end = tokio::select! {
                biased;
                () = slot.cancelled().cancelled() => return,
                () = stop.cancelled() => return,
                () = given_up.cancelled() => Err(CallError::stopped()),
                end = end => end.unwrap_or_else(|_| Err(CallError::new(Kind::Internal, Origin::Gateway))),
            };
            // The id is free before the client can know that it is.
            drop(slot);
            let message = match end {
                Ok(end) => {
                    if let End::InputRequired(result) = &end {
                        unanswered.asked(begun, result);
                    }
                    finish.outcome(end.word());
                    encode::end(&id, &end)
                }
                Err(error) => {
                    if error.retryable {
                        unanswered.failed(begun);
                    }
                    finish.failed(&error);
                    encode::error(Some(&id), &rescue::call_error(&error).1)
                }
            };
            drop(finish);
            lane.send(message).await;
        };
        work.instrument(span)
    });
}

/// Passes on what comes before the end.
async fn to_end(calls: Calls, call: Call, lane: &Lane) -> Result<End, CallError> {
    let mut events = Events::of(calls, call).await?;
    while let Some(event) = events.next().await {
        match event? {
            Event::Notification(told) => {
                let message = message::encode_notification(&told.method, &told.params);
                lane.send([message].into()).await;
            }
            Event::End(end) => return Ok(end),
        }
    }
    Err(CallError::no_end())
}
