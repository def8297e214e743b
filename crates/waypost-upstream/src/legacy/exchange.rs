//! One call at one server: who waits for it, what the server asked meanwhile, how it ended.
//!
//! Callers come and go while the call is open: each time the server asks, the one that waits gets
//! the questions as the end of its reply, and the call is parked until another comes with the
//! answers. A *leg* is the part of the call that one caller waits for.

mod state;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;
use waypost_hub::asks;
use waypost_hub::call::Call;
use waypost_hub::reply::End;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{Notification, Outcome, Request};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::INPUT_RESPONSES;

use self::state::State;
use super::legs::{Leg, Outlet, Seat};
use super::question::{Answered, Question, Whose};
use super::table::Table;
use super::url_mode;
use crate::fault::Fault;

/// Notifications that wait for one caller. Its end has a place of its own.
pub(crate) const QUEUE: usize = 256;

/// Questions of one call that wait for answers; more are refused.
const QUESTIONS: usize = 64;

/// How a leg ends.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The server's answer, as it came.
    Answer(Outcome),
    /// Questions, or an error in place of the answer.
    Ours(End),
}

/// One call at one server.
pub(crate) struct Exchange {
    upstream: Arc<str>,
    method: String,
    /// What the server repeats in progress notifications; later legs have others.
    progress_token: Option<Raw>,
    /// The server was told to make a task of it.
    creates_task: bool,
    /// The task that it waits for; then it has no caller of its own.
    task: Option<String>,
    state: Mutex<State>,
    /// There is something to do for whoever drives the call.
    wake: Notify,
    /// The same for those who only look.
    changed: Notify,
}

/// Why a question cannot be put to a call.
#[derive(Debug)]
pub(crate) enum Unasked {
    /// No caller of it declared these capabilities.
    Undeclared(Value),
    /// Too many wait already.
    TooMany,
    /// It has ended.
    Over,
}

/// What is to be done for a call now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// Questions are to be shown, after others had time to join them.
    Gather,
    /// Somebody has to come back by then.
    Parked(Instant),
    /// The request is to be sent once more.
    Again,
    /// The caller has gone.
    GivenUp,
    /// The session went before it was sent.
    Lost,
    /// The answer has come.
    Over,
}

impl Exchange {
    /// A call that its first caller waits for at the outlet.
    pub(crate) fn new(upstream: &Arc<str>, call: &Call) -> (Arc<Self>, Outlet) {
        let exchange = Arc::new(Self {
            upstream: Arc::clone(upstream),
            method: call.method.clone(),
            progress_token: call.meta.progress_token.clone(),
            creates_task: call.params.contains("task"),
            task: None,
            state: Mutex::default(),
            wake: Notify::new(),
            changed: Notify::new(),
        });
        let outlet = exchange.attach(&mut exchange.state(), call);
        (exchange, outlet)
    }

    /// A wait for a task that no caller is bound to: what it brings is looked at from outside.
    pub(crate) fn unattended(upstream: &Arc<str>, method: &str, task: &str) -> Arc<Self> {
        Arc::new(Self {
            upstream: Arc::clone(upstream),
            method: method.to_owned(),
            progress_token: None,
            creates_task: false,
            task: Some(task.to_owned()),
            // Keys of one task are never used twice, also should it be waited for again.
            state: Mutex::new(State {
                prefix: format!("{:08x}-", rand::random::<u32>()),
                ..State::default()
            }),
            wake: Notify::new(),
            changed: Notify::new(),
        })
    }

    /// The task that it waits for.
    pub(crate) fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    /// Whether its answer is a task, as servers of 2025-11-25 make them.
    pub(crate) fn creates_task(&self) -> bool {
        self.creates_task
    }

    /// The upstream's name.
    pub(crate) fn upstream(&self) -> &Arc<str> {
        &self.upstream
    }

    /// The method that was called.
    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// Whether the server may ask while this call is open: the result says so to its caller
    /// (specification: multi round-trip requests).
    pub(crate) fn may_ask(&self) -> bool {
        matches!(
            &*self.method,
            method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ
        ) || self.task.is_some()
    }

    /// Whether progress with this token is about this call.
    pub(crate) fn has_token(&self, token: &Raw) -> bool {
        self.progress_token.as_ref() == Some(token)
    }

    /// Whether its caller wants log messages.
    pub(crate) fn wants_log(&self) -> bool {
        self.state().wants.log()
    }

    /// Whether nobody waits for it here.
    pub(crate) fn is_parked(&self) -> bool {
        self.task.is_some() || self.state().parked.is_some()
    }

    /// A notification that is about this call: progress, a log message, or what else came on its
    /// own stream. `false` when nobody will hear it.
    pub(crate) fn pass(&self, notification: Notification) -> bool {
        self.state().pass(notification)
    }

    /// The server asks something while the call is open; `session` is what it may ask at all.
    ///
    /// # Errors
    /// Why this call cannot carry the question.
    pub(crate) fn ask(
        &self,
        request: Request,
        whose: Whose,
        session: &ClientCapabilities,
    ) -> Result<(), Unasked> {
        let Request { id, method, params } = request;
        let mut state = self.state();
        if state.over || state.given_up {
            return Err(Unasked::Over);
        }
        if state.questions.len() >= QUESTIONS {
            return Err(Unasked::TooMany);
        }
        // Also of one that has gone for now: whoever comes back is the same.
        let caller = self.task.is_none().then_some(&state.declared);
        if let Some(missing) = caller.and_then(|c| Question::undeclared(&method, &params, c)) {
            state.refuse(&missing);
            return Err(Unasked::Undeclared(missing));
        }
        if let Some(missing) = Question::undeclared(&method, &params, session) {
            return Err(Unasked::Undeclared(missing));
        }
        state.question(Some(id), &method, params).whose = whose;
        drop(state);
        // Without a caller nobody drives it: somebody looks.
        self.wake.notify_one();
        self.changed.notify_waiters();
        Ok(())
    }

    /// Whether its caller can be asked this.
    pub(crate) fn carries(&self, request: &Request) -> bool {
        let declared = &self.state().declared;
        Question::undeclared(&request.method, &request.params, declared).is_none()
    }

    /// How many questions it has.
    pub(crate) fn burden(&self) -> usize {
        self.state().questions.len()
    }

    /// The server does not want to know any more; `false` when it never asked that here.
    pub(crate) fn withdraw(&self, id: &Id) -> bool {
        let mut state = self.state();
        let asked = |question: &Question| question.id.as_ref() == Some(id);
        let Some(at) = state.questions.iter().position(asked) else {
            return false;
        };
        let question = state.questions.remove(at);
        state.stale |= question.had;
        drop(state);
        self.wake.notify_one();
        true
    }

    /// The answer has come; it is given back when nobody will take it.
    pub(crate) fn answered(&self, outcome: Outcome) -> Option<Outcome> {
        let mut state = self.state();
        if state.given_up {
            return Some(outcome);
        }
        let wanted = url_mode::wanted(&outcome).filter(|_| self.may_ask());
        let missing = wanted.as_ref().and_then(|wanted| state.undeclared(wanted));
        let ending = match (wanted, missing) {
            (Some(wanted), None) => {
                for params in wanted {
                    state.question(None, url_mode::METHOD, params);
                }
                state.again = true;
                drop(state);
                self.wake.notify_one();
                return None;
            }
            (_, Some(missing)) => Ending::Ours(End::Error(asks::refusal(&self.upstream, &missing))),
            (None, None) => match state.excuse(&self.upstream, &outcome) {
                Some(error) => Ending::Ours(error),
                None => Ending::Answer(outcome),
            },
        };
        state.end(Ok(ending));
        drop(state);
        self.wake.notify_one();
        self.changed.notify_waiters();
        None
    }

    /// There will be no answer, unless it has come already.
    pub(crate) fn fail(&self, fault: Fault) {
        let mut state = self.state();
        if !state.over {
            state.end(Err(fault));
        }
        drop(state);
        self.wake.notify_one();
        self.changed.notify_waiters();
    }

    /// The session has gone, for this reason. What was not sent in it may be sent in another,
    /// where somebody drives it.
    pub(crate) fn lost(&self, fault: Fault) {
        let driven = self.task.is_none();
        if driven && fault.left_unsent() && self.state().lose(&fault) {
            return self.wake.notify_one();
        }
        self.fail(fault);
    }

    /// Why the session went before it was sent.
    pub(crate) fn take_lost(&self) -> Fault {
        let lost = self.state().lost.take();
        lost.unwrap_or(Fault::SessionLost)
    }

    /// Ends the call in words of our own.
    pub(crate) fn conclude(&self, end: End) {
        self.state().end(Ok(Ending::Ours(end)));
        self.wake.notify_one();
    }

    /// Nobody waits at this outlet any more. A leg that was answered is nobody's to give up, and
    /// who only listened may come back.
    pub(crate) fn leave(&self, leg: u64) {
        let mut state = self.state();
        match &state.leg {
            Some(now) if now.number == leg && now.listens => {
                state.leg = None;
                drop(state);
                self.wake.notify_one();
            }
            Some(now) if now.number == leg => {
                state.give_up();
                drop(state);
                self.wake.notify_one();
            }
            _ => {}
        }
    }

    /// Nobody will come back.
    pub(crate) fn abandon(&self) {
        self.state().give_up();
        self.wake.notify_one();
    }

    /// Resolves when there are questions, or the answer.
    pub(crate) async fn asked(&self) {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                if state.over || !state.questions.is_empty() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Resolves with the answer that nobody took.
    pub(crate) async fn ended(&self) -> Result<Outcome, Fault> {
        loop {
            let changed = self.changed.notified();
            match &self.state().answer {
                Some(Ok(Ending::Answer(outcome))) => return Ok(outcome.clone()),
                Some(Ok(Ending::Ours(_))) => return Err(Fault::NoEnd),
                Some(Err(fault)) => return Err(fault.clone()),
                None => {}
            }
            changed.await;
        }
    }

    /// Whether there will be no answer.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state().answer, Some(Err(_)))
    }

    /// The answer was looked at; `false` when it was before.
    pub(crate) fn deliver(&self) -> bool {
        !std::mem::replace(&mut self.state().delivered, true)
    }

    /// How many bytes the answer has that nobody took.
    pub(crate) fn weight(&self) -> usize {
        match &self.state().answer {
            Some(Ok(Ending::Answer(Outcome::Result(raw)))) => raw.text().len(),
            Some(Ok(Ending::Answer(Outcome::Error(error)))) => error.raw().text().len(),
            Some(Ok(Ending::Ours(_)) | Err(_)) | None => 0,
        }
    }

    /// What the server asks now.
    pub(crate) fn questions(&self) -> Object {
        self.state().show()
    }

    /// Answers of somebody who looked; the others stay.
    pub(crate) fn answer(&self, responses: &Object) -> Vec<Answered> {
        self.state().take_answered(responses)
    }

    /// Answers that the call brought along (specification: multi round-trip requests: any call
    /// may carry them).
    pub(crate) fn answer_foreseen(&self, responses: &mut Object) -> Vec<Answered> {
        self.state().take_foreseen(responses)
    }

    /// What is to be done now.
    pub(crate) fn need(&self) -> Need {
        let state = self.state();
        if state.given_up {
            Need::GivenUp
        } else if state.lost.is_some() {
            Need::Lost
        } else if let Some(until) = state.parked {
            if state.leg.is_some() && state.has_news() {
                Need::Gather
            } else {
                Need::Parked(until)
            }
        } else if state.over {
            Need::Over
        } else if state.has_news() {
            Need::Gather
        } else if state.again && !state.held && state.questions.is_empty() {
            Need::Again
        } else {
            Need::Nothing
        }
    }

    /// Resolves when [`Exchange::need`] may say something else.
    pub(crate) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Sent, or sent once more: the answer is yet to come.
    pub(crate) fn sent_to(&self, table: &Arc<Table>, instance: &Arc<str>) {
        let mut state = self.state();
        state.again = false;
        state.lost = None;
        state.instance = Some(Arc::clone(instance));
        if let Some(leg) = &state.leg {
            leg.carrier.note(instance);
        }
        state.table = Arc::downgrade(table);
    }

    /// Its caller went with this end unread.
    pub(super) fn unread(&self, ending: Ending) {
        let table = self.state().table.upgrade();
        if let (Ending::Answer(outcome), Some(table)) = (ending, table) {
            table.late(&outcome);
        }
    }

    /// The answer that came for nobody.
    pub(crate) fn untaken(&self) -> Option<Outcome> {
        match self.state().answer.take() {
            Some(Ok(Ending::Answer(outcome))) => Some(outcome),
            _ => None,
        }
    }

    /// The elicitations that are to be shown or were.
    pub(crate) fn elicitations(&self) -> Vec<String> {
        let state = self.state();
        let ids = state.questions.iter();
        ids.filter_map(|question| question.params.string("elicitationId"))
            .collect()
    }

    /// What the server wanted done before it is called again is done.
    pub(crate) fn release(&self) {
        self.state().held = false;
        self.wake.notify_one();
    }

    /// Whether it has a place among the calls that wait, now or from before.
    pub(crate) fn has_place(&self) -> bool {
        self.state().place.is_some()
    }

    /// Ends the leg with the questions and parks the call; whoever comes back has to bring
    /// `state`.
    pub(crate) fn show(
        &self,
        state: &str,
        until: Instant,
        place: Option<OwnedSemaphorePermit>,
    ) -> bool {
        let mut this = self.state();
        if place.is_some() {
            this.place = place;
        }
        this.show_to_caller(state, until)
    }

    /// Gives whoever waits beside questions those of now, under the `state` that is known;
    /// `false` for a call that nobody has to come back to.
    pub(crate) fn show_again(&self, state: &str, until: Instant) -> bool {
        let mut this = self.state();
        let parked = this.parked.is_some();
        if parked && this.leg.is_some() {
            this.show_to_caller(state, until);
        }
        parked
    }

    /// Gives up a call that nobody came back to in time, and tells whoever waits beside its
    /// questions; `false` when somebody just came.
    pub(crate) fn expire(&self) -> bool {
        let mut state = self.state();
        if state.parked.is_none() {
            return false;
        }
        if state.leg.is_some() {
            let text = "the server's question was not answered in time";
            state.end_with(code::INTERNAL_ERROR, text);
        }
        state.give_up();
        true
    }

    /// The questions that cannot be shown are refused: there is no room to wait. One that is a
    /// condition for the whole call, which would be sent again at once without it, ends the call
    /// with `error`.
    pub(crate) fn take_unshown(&self, error: &ErrorObject) -> Vec<Id> {
        let mut state = self.state();
        let (shown, unshown) = std::mem::take(&mut state.questions)
            .into_iter()
            .partition(|question| question.shown);
        state.questions = shown;
        state.stale = false;
        let unshown: Vec<Question> = unshown;
        if unshown.iter().any(|question| question.id.is_none()) {
            state.end(Ok(Ending::Ours(End::Error(error.clone()))));
            drop(state);
            self.wake.notify_one();
        }
        unshown
            .into_iter()
            .filter_map(|question| question.id)
            .collect()
    }

    /// Takes the questions that nobody had when the call ended.
    pub(crate) fn take_left(&self) -> Vec<Question> {
        std::mem::take(&mut self.state().left)
    }

    /// All questions that the server still waits for.
    pub(crate) fn take_all(&self) -> Vec<Question> {
        let mut state = self.state();
        let mut all = std::mem::take(&mut state.left);
        all.append(&mut state.questions);
        all
    }

    /// Somebody came back: gives what the server is to be told, and where the rest comes out.
    /// What was not answered is asked again.
    pub(crate) fn resume(self: &Arc<Self>, call: &Call) -> (Vec<Answered>, Outlet) {
        let mut state = self.state();
        let responses = call
            .params
            .get(INPUT_RESPONSES)
            .and_then(|raw| raw.as_object().ok());
        let responses = responses.unwrap_or_default();
        let told = state.take_answered(&responses);
        for question in &mut state.questions {
            question.shown = false;
        }
        state.parked = None;
        if state.questions.is_empty() {
            state.place = None;
        }
        state.held = told.iter().any(|answered| answered.id.is_none());
        let outlet = self.attach(&mut state, call);
        drop(state);
        self.wake.notify_one();
        (told, outlet)
    }

    /// Somebody waits beside the questions.
    pub(crate) fn listen(self: &Arc<Self>, call: &Call) -> Outlet {
        let outlet = self.attach(&mut self.state(), call);
        self.wake.notify_one();
        outlet
    }

    fn attach(self: &Arc<Self>, state: &mut State, call: &Call) -> Outlet {
        let (events_in, events) = mpsc::channel(QUEUE);
        let (end_in, end) = oneshot::channel();
        state.legs += 1;
        let number = state.legs;
        state.seat(Leg::new(number, call, events_in, end_in));
        let seat = Seat {
            exchange: Arc::clone(self),
            leg: number,
        };
        Outlet::new(seat, events, end)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}
