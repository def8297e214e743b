//! Carries one call through: sends it, shows its questions, sees it cancelled or answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use waypost_hub::aftermath;
use waypost_hub::call::Call;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message;
use waypost_wire::object::Object;
use waypost_wire::result::INPUT_RESPONSES;

use super::exchange::{Exchange, Need};
use super::parked::{Parked, Waiting};
use super::pool::Pool;
use super::question::Answered;
use super::session::Session;
use crate::fault::Fault;

/// Questions that come within this are shown as one.
const GATHER: Duration = Duration::from_millis(50);

/// How long the rest of an answer's stream may take, so that its connection can be used again.
const LINGER: Duration = Duration::from_secs(1);

/// The rest of a request, where there is none.
type Rest = std::future::Pending<Result<(), Fault>>;

/// One call on its way.
pub(crate) struct Drive {
    pub(crate) pool: Arc<Pool>,
    pub(crate) parked: Arc<Parked>,
    pub(crate) exchange: Arc<Exchange>,
    /// As it came; says which session it belongs to.
    pub(crate) call: Call,
    pub(crate) params: Object,
}

/// What came of sending it.
#[derive(Debug)]
enum Sent {
    Done,
    Again,
    /// Not at all: the session had gone.
    Lost(Fault),
}

impl Drive {
    /// Runs until the call is over.
    pub(crate) async fn run(self, mut session: Arc<Session>, stop: CancellationToken) {
        let mut renewed = false;
        loop {
            match self.send(&session, &stop).await {
                Sent::Done => return,
                Sent::Again => {}
                Sent::Lost(_) if self.exchange.need() == Need::GivenUp => return,
                Sent::Lost(fault) if renewed => return self.exchange.fail(fault),
                // Nothing was executed, so it may be sent once more.
                Sent::Lost(_) => {
                    renewed = true;
                    match self.pool.renew(Some(&self.call), &session).await {
                        Ok(new) => session = new,
                        Err(fault) => return self.exchange.fail(fault),
                    }
                }
            }
        }
    }

    async fn send(&self, session: &Session, stop: &CancellationToken) -> Sent {
        let exchange = &self.exchange;
        let id = match session.table.open(exchange) {
            Ok(id) => id,
            Err(fault) => return Sent::Lost(fault),
        };
        exchange.sent_to(&session.table, session.instance());
        let request = message::encode_request(&Id::number(id), exchange.method(), &self.params);
        let mut request = session.link.request(id, request);
        let (mut sent, mut gathered, mut state) = (false, None, None);
        let responses = self.call.params.get(INPUT_RESPONSES);
        let responses = responses.and_then(|raw| raw.as_object().ok());
        let mut foreseen = responses.unwrap_or_default();
        loop {
            let need = exchange.need();
            if need != Need::Gather {
                gathered = None;
            }
            tokio::select! {
                biased;
                outcome = &mut request, if !sent => {
                    sent = true;
                    match outcome {
                        Ok(()) => {}
                        Err(fault) => match session.table.failed(id, fault) {
                            fault if fault.left_unsent() => return Sent::Lost(fault),
                            fault => exchange.fail(fault),
                        },
                    }
                }
                () = due(need, &mut gathered) => match need {
                    // Others acted while this waited.
                    _ if exchange.need() != need => {}
                    Need::Gather => {
                        let told = exchange.answer_foreseen(&mut foreseen);
                        let responses = told.iter().filter_map(Answered::response);
                        responses.for_each(|response| {
                            session.table.say_of(Some(exchange), response);
                        });
                        if told.is_empty() {
                            state = self.show(session, state.take());
                        }
                    }
                    Need::Again => return Sent::Again,
                    Need::Lost => return Sent::Lost(exchange.take_lost()),
                    Need::Over => {
                        let rest = (!sent).then_some(request);
                        self.finish(session, state.as_deref(), rest, stop).await;
                        return Sent::Done;
                    }
                    Need::Parked(_) if !exchange.expire() => {}
                    Need::GivenUp | Need::Parked(_) => {
                        self.give_up(session, id, state.as_deref());
                        self.see_out((!sent).then_some(request), session, stop).await;
                        return Sent::Done;
                    }
                    Need::Nothing => {}
                },
                () = exchange.changed() => {}
                // Nobody comes back to a process that ends.
                () = stop.cancelled(), if matches!(need, Need::Parked(_)) => return Sent::Done,
            }
        }
    }

    /// Ends the caller's part with the questions, where there is room for a call that waits. Who
    /// waits beside questions that it has gets those of now, `shown` under the same state.
    fn show(&self, session: &Session, shown: Option<String>) -> Option<String> {
        let until = self.parked.until();
        // Before anybody can have seen to one.
        session.table.expect_visits(&self.exchange);
        if let Some(state) = &shown
            && self.exchange.show_again(state, until)
        {
            return shown;
        }
        let kept = self.exchange.has_place();
        let place = self.parked.place().filter(|_| !kept);
        if place.is_none() && !kept {
            let why = "too many calls wait for an answer of their caller";
            let error = ErrorObject::new(code::INTERNAL_ERROR, why);
            for id in self.exchange.take_unshown(&error) {
                session.table.refuse(&id, code::INTERNAL_ERROR, why);
            }
            return None;
        }
        let state = self.parked.add(Waiting {
            exchange: Arc::clone(&self.exchange),
            table: Arc::clone(&session.table),
        });
        if self.exchange.show(&state, until, place) {
            session.table.parked();
            return Some(state);
        }
        self.parked.take(&state);
        None
    }

    /// The call has its end, though there may be a rest of its stream.
    async fn finish(
        &self,
        session: &Session,
        state: Option<&str>,
        rest: Option<impl Future<Output = Result<(), Fault>>>,
        stop: &CancellationToken,
    ) {
        if let Some(state) = state {
            self.parked.take(state);
        }
        session.table.rehome(self.exchange.take_all());
        let late = self.exchange.untaken();
        if let Some(late) = &late {
            session.table.late(late);
        }
        if let Some(rest) = rest {
            drop(timeout(LINGER, rest).await);
        }
        if late.is_some() {
            self.see_out(None::<Rest>, session, stop).await;
        }
    }

    /// Waits a moment for the rest of a request that was given up, where its answer is a task: that
    /// may come on its connection alone. Then until the server is told to stop what it made.
    async fn see_out(
        &self,
        request: Option<impl Future<Output = Result<(), Fault>>>,
        session: &Session,
        stop: &CancellationToken,
    ) {
        if !self.exchange.creates_task() {
            return;
        }
        let Some(_room) = self.call.aftermath.room() else {
            return;
        };
        let rest = async {
            if let Some(request) = request {
                drop(timeout(aftermath::LINGER, request).await);
            }
            drop(timeout(aftermath::LINGER, session.table.outbox.stopped()).await);
        };
        stop.run_until_cancelled(rest).await;
    }

    fn give_up(&self, session: &Session, id: u64, state: Option<&str>) {
        if let Some(state) = state {
            self.parked.take(state);
        }
        self.exchange.abandon();
        if let Some(late) = self.exchange.untaken() {
            session.table.late(&late);
        }
        let at_work = session.table.close(id);
        session.table.rehome(self.exchange.take_all());
        if at_work {
            session.table.cancel(id, Some(&self.exchange));
        }
    }
}

/// Resolves when what is needed is due.
async fn due(need: Need, gathered: &mut Option<Instant>) {
    match need {
        Need::Nothing => std::future::pending().await,
        Need::Gather => {
            let at = gathered.get_or_insert_with(|| Instant::now() + GATHER);
            sleep_until(*at).await;
        }
        Need::Parked(until) => sleep_until(until).await,
        Need::Again | Need::GivenUp | Need::Lost | Need::Over => {}
    }
}
