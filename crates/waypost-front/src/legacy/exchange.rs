//! One request of a client, answered by stateless calls: as many as there are rounds of
//! questions.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Call, Comeback};
use waypost_hub::error::{CallError, Kind, Origin};
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::End;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{INPUT_RESPONSES, OWN_STATE, REQUEST_STATE};

use crate::Calls;
use crate::encode;
use crate::event::Finish;
use crate::events::Events;
use crate::legacy::rounds::Rounds;
use crate::legacy::session::Slot;
use crate::legacy::translate;
use crate::outlet::{Class, Outlet};
use crate::rescue;

/// Longest wait for a parked call to take note that nobody comes back for it.
const LET_GO: Duration = Duration::from_secs(5);

/// A request being answered.
pub(crate) struct Exchange {
    pub(crate) id: Id,
    pub(crate) outlet: Arc<dyn Outlet>,
    /// Its place in the session; a request without one stands alone.
    pub(crate) slot: Option<Slot>,
    pub(crate) cancelled: CancellationToken,
    /// Nothing is waited for any longer.
    pub(crate) given_up: CancellationToken,
    pub(crate) calls: Calls,
    pub(crate) tasks: Tasks,
    pub(crate) answer_within: Duration,
    pub(crate) finish: Finish,
    /// Whether the client can be asked on the outlet.
    pub(crate) asks: bool,
}

impl Exchange {
    /// Answers `call` through the outlet. Cancelled, it closes the outlet without an answer.
    pub(crate) async fn run(self, mut call: Call, stop: CancellationToken) {
        let cancelled = self.cancelled.clone();
        let mut asking = false;
        let slot = self.slot.as_ref().filter(|_| self.asks);
        let asks_on = slot.map(|slot| slot.hold.session().asks_on(&self.outlet));
        // One bad request is not an outage.
        let work =
            AssertUnwindSafe(Rounds::new(&self, &mut call, &mut asking).run()).catch_unwind();
        let end = tokio::select! {
            // Who cancels and gets the answer all the same was told to ignore it.
            biased;
            () = cancelled.cancelled() => self.is_left().then(|| Err(left())),
            () = stop.cancelled() => None,
            () = self.given_up.cancelled() => Some(Err(CallError::stopped())),
            end = work => Some(end.unwrap_or_else(|_| Err(internal()))),
        };
        if asking {
            self.let_go(call.clone());
        }
        drop(asks_on);
        // The id is free before the client can know that it is.
        let Self {
            id,
            outlet,
            slot,
            finish,
            ..
        } = self;
        let version = slot.as_ref().map(|slot| slot.version().to_owned());
        drop(slot);
        match end {
            Some(end) => {
                let end = end.map(|end| translate::end(version.as_deref(), &call.method, end));
                answer(&id, end, &outlet, finish);
            }
            None => outlet.close(),
        }
    }

    /// Whether its session is over, and not it alone.
    fn is_left(&self) -> bool {
        let slot = self.slot.as_ref();
        slot.is_some_and(|slot| slot.hold.session().released().is_cancelled())
    }

    /// Nobody will answer: what waits behind the state is told so.
    fn let_go(&self, mut call: Call) {
        let state = call.params.string(REQUEST_STATE).unwrap_or_default();
        if !state.starts_with(OWN_STATE) {
            return;
        }
        call.params.remove(INPUT_RESPONSES);
        call.comeback = Comeback::GivesUp;
        // A session that is over has no calls; what is bound to it went with it.
        let calls = self.calls.clone();
        self.tasks.spawn_here(|stop| async move {
            let come_and_go = async {
                if let Ok(mut events) = Events::of(calls, call).await {
                    // Taken up, and dropped right away.
                    drop(events.begin().await);
                }
            };
            let within = tokio::time::timeout(LET_GO, come_and_go);
            stop.run_until_cancelled(within).await;
        });
    }
}

/// What a bug is to its caller.
pub(crate) fn internal() -> CallError {
    CallError::new(Kind::Internal, Origin::Gateway)
}

/// What a call gets whose session went before its answer, where there is still a way for it: on
/// a pipe a client may begin anew.
pub(crate) fn left() -> CallError {
    let error = CallError::new(Kind::Unavailable, Origin::Gateway);
    error.detail("the session of this call is over; the call may have run")
}

/// Writes the answer.
fn answer(id: &Id, end: Result<End, CallError>, outlet: &Arc<dyn Outlet>, mut finish: Finish) {
    let message = match end {
        Ok(end) => {
            finish.outcome(end.word());
            encode::end(id, &end)
        }
        Err(error) => {
            finish.failed(&error);
            // The status is for another dialect: here every answer is a 200.
            let (_, object) = rescue::call_error(&error);
            encode::error(Some(id), &object)
        }
    };
    drop(finish);
    outlet.post(Class::End, message);
}

/// Answers at once.
pub(crate) fn answer_now(
    id: &Id,
    answer: Result<Object, ErrorObject>,
    outlet: &Arc<dyn Outlet>,
    mut finish: Finish,
) {
    let end = match answer {
        Ok(result) => End::Complete(result),
        Err(error) => End::Error(error),
    };
    finish.outcome(end.word());
    let message = encode::end(id, &end);
    drop(finish);
    outlet.post(Class::End, message);
}

/// A member of `params` that must be text.
pub(crate) fn text(params: &Object, member: &str) -> Result<String, ErrorObject> {
    let found = params.get(member).and_then(Raw::as_string);
    found.ok_or_else(|| {
        let text = format!("`params.{member}` must be a string");
        ErrorObject::new(code::INVALID_PARAMS, &text)
    })
}
