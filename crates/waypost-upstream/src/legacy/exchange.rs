//! One call at one server: who waits for it, what the server asked meanwhile, how it ended.
//!
//! Callers come and go while the call is open: each time the server asks, the one that waits gets
//! the questions as the end of its reply, and the call is parked until another comes with the
//! answers. A *leg* is the part of the call that one caller waits for.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;
use waypost_hub::asks;
use waypost_hub::call::Call;
use waypost_hub::reply::End;
use waypost_wire::id::Id;
use waypost_wire::message::{Notification, Outcome};
use waypost_wire::meta;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::RESULT_TYPE;

use super::legs::{Leg, Outlet};
use super::level::Level;
use super::question::{Answered, Question};
use super::url_mode;
use crate::fault::Fault;

/// Notifications that wait for one caller. Its end has a place of its own.
const QUEUE: usize = 256;

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
    state: Mutex<State>,
    /// There is something to do for whoever drives the call.
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    leg: Option<Leg>,
    legs: u64,
    /// The answer that came while nobody waited.
    answer: Option<Result<Ending, Fault>>,
    questions: Vec<Question>,
    keys: u32,
    /// What the server asked for and no caller declared.
    refused: Map<String, Value>,
    parked: Option<Parking>,
    /// The server wants the call again once its questions are answered.
    again: bool,
    /// But not yet: what it wants done first is being done.
    held: bool,
    given_up: bool,
    over: bool,
}

#[derive(Debug)]
struct Parking {
    until: Instant,
    _permit: OwnedSemaphorePermit,
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
            state: Mutex::default(),
            wake: Notify::new(),
        });
        let outlet = exchange.attach(&mut exchange.state(), call);
        (exchange, outlet)
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
        )
    }

    /// Whether progress with this token is about this call.
    pub(crate) fn has_token(&self, token: &Raw) -> bool {
        self.progress_token.as_ref() == Some(token)
    }

    /// Whether somebody waits who wants log messages.
    pub(crate) fn wants_log(&self) -> bool {
        self.state()
            .leg
            .as_ref()
            .is_some_and(|leg| leg.level.is_some())
    }

    /// Whether it waits for answers that only a caller can give.
    pub(crate) fn is_parked(&self) -> bool {
        self.state().parked.is_some()
    }

    /// Progress of this call, under the token of whoever waits now.
    pub(crate) fn progress(&self, mut notification: Notification) -> bool {
        let state = self.state();
        let Some((leg, token)) = state
            .leg
            .as_ref()
            .and_then(|leg| Some((leg, leg.token.clone()?)))
        else {
            return false;
        };
        notification.params.set(meta::PROGRESS_TOKEN, token);
        leg.events.try_send(notification).is_ok()
    }

    /// A log message, for a caller that wants messages of its level.
    pub(crate) fn log(&self, notification: Notification) -> bool {
        let level = notification.params.get("level").and_then(Level::read);
        let state = self.state();
        let Some(leg) = &state.leg else { return false };
        let wanted = leg
            .level
            .zip(level)
            .is_some_and(|(least, level)| level >= least);
        wanted && leg.events.try_send(notification).is_ok()
    }

    /// Some other notification that came on the call's own stream.
    pub(crate) fn tell(&self, notification: Notification) -> bool {
        let state = self.state();
        let leg = state.leg.as_ref();
        leg.is_some_and(|leg| leg.events.try_send(notification).is_ok())
    }

    /// The server asks something while the call is open.
    ///
    /// # Errors
    /// The capabilities that no caller of this call declared.
    pub(crate) fn ask(&self, id: Id, method: &str, params: Object) -> Result<(), Value> {
        let mut state = self.state();
        let Some(leg) = &state.leg else {
            // Whoever comes back decides; it declares anew.
            state.question(Some(id), method, params);
            return Ok(());
        };
        let asked = Question::request(method, &params);
        let asked: Object = [("q", Raw::from(asked))].into_iter().collect();
        if let Some(missing) = asks::undeclared(&asked, &leg.declared) {
            state.refuse(&missing);
            return Err(missing);
        }
        state.question(Some(id), method, params);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// The server does not want to know any more; `false` when it never asked that here.
    pub(crate) fn withdraw(&self, id: &Id) -> bool {
        let mut state = self.state();
        let before = state.questions.len();
        state
            .questions
            .retain(|question| question.id.as_ref() != Some(id));
        state.questions.len() != before
    }

    /// The answer has come.
    pub(crate) fn answered(&self, outcome: Outcome) {
        let mut state = self.state();
        let wanted = url_mode::wanted(&outcome).filter(|_| self.may_ask());
        let missing = wanted.as_ref().and_then(|wanted| state.undeclared(wanted));
        let ending = match (wanted, missing) {
            (Some(wanted), None) => {
                for params in wanted {
                    state.question(None, url_mode::METHOD, params);
                }
                state.again = true;
                drop(state);
                return self.wake.notify_one();
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
    }

    /// There will be no answer, unless it has come already.
    pub(crate) fn fail(&self, fault: Fault) {
        let mut state = self.state();
        if !state.over {
            state.end(Err(fault));
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Ends the call in words of our own.
    pub(crate) fn conclude(&self, end: End) {
        self.state().end(Ok(Ending::Ours(end)));
        self.wake.notify_one();
    }

    /// Nobody waits at this outlet any more. A leg that was answered is nobody's to give up.
    pub(crate) fn leave(&self, leg: u64) {
        let mut state = self.state();
        if state.leg.as_ref().is_some_and(|now| now.number == leg) {
            state.give_up();
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Nobody will come back.
    pub(crate) fn abandon(&self) {
        self.state().give_up();
        self.wake.notify_one();
    }

    /// What is to be done now.
    pub(crate) fn need(&self) -> Need {
        let state = self.state();
        if state.given_up {
            Need::GivenUp
        } else if let Some(parked) = &state.parked {
            Need::Parked(parked.until)
        } else if state.over {
            Need::Over
        } else if state.questions.iter().any(|question| !question.shown) {
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

    /// Sent once more: the answer is yet to come.
    pub(crate) fn sent_again(&self) {
        self.state().again = false;
    }

    /// What the server wanted done before it is called again is done.
    pub(crate) fn release(&self) {
        self.state().held = false;
        self.wake.notify_one();
    }

    /// Ends the leg with the questions; whoever comes back has to bring `state`.
    pub(crate) fn show(&self, state: &str, until: Instant, permit: OwnedSemaphorePermit) -> bool {
        let mut this = self.state();
        let Some(leg) = this.leg.take() else {
            return false;
        };
        let requests = Object::from_iter(this.questions.iter_mut().map(|question| {
            question.shown = true;
            let request = Question::request(&question.method, &question.params);
            (question.key.clone(), Raw::from(request))
        }));
        this.parked = Some(Parking {
            until,
            _permit: permit,
        });
        drop(this);
        let result = Object::from_iter([
            (RESULT_TYPE, Raw::string("input_required")),
            ("inputRequests", requests.into()),
            ("requestState", Raw::string(state)),
        ]);
        // Who has gone this moment does not come back: then its state is never used.
        leg.end(Ok(Ending::Ours(End::InputRequired(result))));
        true
    }

    /// The questions that cannot be shown are refused: there is no room to wait.
    pub(crate) fn take_unshown(&self) -> Vec<Id> {
        let mut state = self.state();
        let (shown, unshown) = std::mem::take(&mut state.questions)
            .into_iter()
            .partition(|question| question.shown);
        state.questions = shown;
        let unshown: Vec<Question> = unshown;
        unshown
            .into_iter()
            .filter_map(|question| question.id)
            .collect()
    }

    /// All questions that the server still waits for.
    pub(crate) fn take_all(&self) -> Vec<Id> {
        let all = std::mem::take(&mut self.state().questions);
        all.into_iter().filter_map(|question| question.id).collect()
    }

    /// Somebody came back: gives what the server is to be told, and where the rest comes out.
    /// What was not answered is asked again.
    pub(crate) fn resume(self: &Arc<Self>, call: &Call) -> (Vec<Answered>, Outlet) {
        let mut state = self.state();
        let responses = call
            .params
            .get("inputResponses")
            .and_then(|raw| raw.as_object().ok());
        let responses = responses.unwrap_or_default();
        let mut told = Vec::new();
        state
            .questions
            .retain_mut(|question| match responses.get(&question.key) {
                Some(answer) if question.shown => {
                    told.push(question.answer(answer.clone()));
                    false
                }
                _ => {
                    question.shown = false;
                    true
                }
            });
        state.parked = None;
        state.held = told.iter().any(|answered| answered.id.is_none());
        let outlet = self.attach(&mut state, call);
        if let Some(answer) = state.answer.take() {
            state.end(answer);
        }
        drop(state);
        self.wake.notify_one();
        (told, outlet)
    }

    fn attach(self: &Arc<Self>, state: &mut State, call: &Call) -> Outlet {
        let (events_in, events) = mpsc::channel(QUEUE);
        let (end_in, end) = oneshot::channel();
        state.legs += 1;
        let number = state.legs;
        state.leg = Some(Leg::new(number, call, events_in, end_in));
        Outlet::new(Arc::clone(self), number, events, end)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn question(&mut self, id: Option<Id>, method: &str, params: Object) {
        self.keys += 1;
        self.questions.push(Question {
            key: format!("q{}", self.keys),
            id,
            method: method.to_owned(),
            params,
            shown: false,
        });
    }

    /// What of these visits the caller did not declare that it can be asked for.
    fn undeclared(&self, visits: &[Object]) -> Option<Value> {
        let leg = self.leg.as_ref()?;
        let request = |params| Raw::from(Question::request(url_mode::METHOD, params));
        let asked = visits
            .iter()
            .enumerate()
            .map(|(at, params)| (at.to_string(), request(params)));
        asks::undeclared(&asked.collect(), &leg.declared)
    }

    fn refuse(&mut self, missing: &Value) {
        for (name, value) in missing.as_object().into_iter().flatten() {
            self.refused.insert(name.clone(), value.clone());
        }
    }

    /// The error in place of a failure that our refusal of a question has caused.
    fn excuse(&self, upstream: &str, outcome: &Outcome) -> Option<End> {
        if self.refused.is_empty() {
            return None;
        }
        let failed = match outcome {
            Outcome::Error(_) => true,
            Outcome::Result(raw) => raw
                .as_object()
                .ok()
                .and_then(|result| result.get("isError").and_then(Raw::as_bool))
                .unwrap_or_default(),
        };
        let missing = Value::Object(self.refused.clone());
        failed.then(|| End::Error(asks::refusal(upstream, &missing)))
    }

    fn end(&mut self, ending: Result<Ending, Fault>) {
        self.over = true;
        self.again = false;
        self.questions.clear();
        match self.leg.take() {
            Some(leg) => leg.end(ending),
            None => self.answer = Some(ending),
        }
    }

    fn give_up(&mut self) {
        self.leg = None;
        self.parked = None;
        self.given_up = true;
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}
