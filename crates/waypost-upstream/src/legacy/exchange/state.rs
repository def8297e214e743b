//! What is known of one call now.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use waypost_hub::asks;
use waypost_hub::reply::End;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{Notification, Outcome};
use waypost_wire::meta;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{INPUT_REQUESTS, REQUEST_STATE, RESULT_TYPE};

use super::{Ending, url_mode};
use crate::fault::Fault;
use crate::legacy::legs::{Leg, Wants};
use crate::legacy::question::{Answered, Question, Whose};
use crate::legacy::table::Table;

/// How much is kept of what comes while nobody listens.
const MISSED: usize = 256;
const MISSED_BYTES: usize = 1 << 20;

/// Characters of a key that a server may give.
const LONGEST_KEY: usize = 128;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) leg: Option<Leg>,
    pub(super) legs: u64,
    /// The answer that came while nobody waited.
    pub(super) answer: Option<Result<Ending, Fault>>,
    pub(super) questions: Vec<Question>,
    /// Questions that no caller had when the call ended.
    pub(super) left: Vec<Question>,
    /// What the last caller wanted to hear.
    pub(super) wants: Wants,
    /// What it can be asked.
    pub(super) declared: ClientCapabilities,
    /// What came while nobody was there to hear it.
    pub(super) missed: Missed,
    /// Where it was sent last.
    pub(super) table: Weak<Table>,
    /// The session of that.
    pub(super) instance: Option<Arc<str>>,
    pub(super) keys: u32,
    pub(super) prefix: String,
    /// What the server asked for and no caller declared.
    pub(super) refused: Map<String, Value>,
    /// It waits for somebody to come back, until then.
    pub(super) parked: Option<Instant>,
    /// Among the calls that wait, kept while any of its questions is with its caller.
    pub(super) place: Option<OwnedSemaphorePermit>,
    /// A question that somebody has is not asked any more.
    pub(super) stale: bool,
    /// The server wants the call again once its questions are answered.
    pub(super) again: bool,
    /// But not yet: what it wants done first is being done.
    pub(super) held: bool,
    /// Why the session went before the call was sent.
    pub(super) lost: Option<Fault>,
    pub(super) given_up: bool,
    /// Whoever looks at the answer has seen it.
    pub(super) delivered: bool,
    pub(super) over: bool,
}

/// Notifications that wait for a caller, the newest of them.
#[derive(Debug, Default)]
pub(super) struct Missed {
    kept: VecDeque<Notification>,
    bytes: usize,
}

impl Missed {
    fn keep(&mut self, notification: Notification) {
        self.bytes += notification.params.encoded_len();
        self.kept.push_back(notification);
        while self.kept.len() > MISSED || self.bytes > MISSED_BYTES {
            let Some(oldest) = self.kept.pop_front() else {
                return;
            };
            self.bytes -= oldest.params.encoded_len();
        }
    }

    fn take(&mut self) -> VecDeque<Notification> {
        self.bytes = 0;
        std::mem::take(&mut self.kept)
    }
}

impl State {
    pub(super) fn question(
        &mut self,
        id: Option<Id>,
        method: &str,
        params: Object,
    ) -> &mut Question {
        self.keys += 1;
        let named = self.named(&params);
        self.questions.push_mut(Question {
            named: named.is_some(),
            key: named.unwrap_or_else(|| format!("{}q{}", self.prefix, self.keys)),
            id,
            method: method.to_owned(),
            params,
            shown: false,
            had: false,
            whose: Whose::default(),
        })
    }

    /// The key that a server gives its question which had one before, as another Waypost does.
    fn named(&self, params: &Object) -> Option<String> {
        // A task's keys are never used twice, and that is ours to see to.
        if !self.prefix.is_empty() {
            return None;
        }
        let meta = params.get(meta::META)?.as_object().ok()?;
        let key = meta.string(meta::QUESTION_KEY)?;
        let fits = (1..=LONGEST_KEY).contains(&key.len());
        let taken = self.questions.iter().any(|question| question.key == key);
        (fits && !taken).then_some(key)
    }

    /// What of these visits the caller did not declare that it can be asked for.
    pub(super) fn undeclared(&self, visits: &[Object]) -> Option<Value> {
        let leg = self.leg.as_ref()?;
        let request = |params| Raw::from(Question::request(url_mode::METHOD, params));
        let asked = visits
            .iter()
            .enumerate()
            .map(|(at, params)| (at.to_string(), request(params)));
        asks::undeclared(&asked.collect(), &leg.declared)
    }

    pub(super) fn refuse(&mut self, missing: &Value) {
        for (name, value) in missing.as_object().into_iter().flatten() {
            self.refused.insert(name.clone(), value.clone());
        }
    }

    /// The error in place of a failure that our refusal of a question has caused.
    pub(super) fn excuse(&self, upstream: &str, outcome: &Outcome) -> Option<End> {
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

    /// All questions, which somebody has from now on.
    pub(super) fn show(&mut self) -> Object {
        let shown = self.questions.iter_mut().map(|question| {
            question.shown = true;
            question.had = true;
            let request = Question::request(&question.method, &question.params);
            (question.key.clone(), Raw::from(request))
        });
        shown.collect()
    }

    /// Ends the leg with all questions; the call waits for whoever comes back.
    pub(super) fn show_to_caller(&mut self, state: &str, until: Instant) -> bool {
        let Some(leg) = self.leg.take() else {
            return false;
        };
        let requests = self.show();
        self.stale = false;
        self.parked = Some(until);
        let result = Object::from_iter([
            (RESULT_TYPE, Raw::string("input_required")),
            (INPUT_REQUESTS, requests.into()),
            (REQUEST_STATE, Raw::string(state)),
        ]);
        // Who has gone this moment does not come back: then its state is never used.
        drop(leg.end(Ok(Ending::Ours(End::InputRequired(result)))));
        true
    }

    /// Takes out the questions that were shown and are answered now.
    pub(super) fn take_answered(&mut self, responses: &Object) -> Vec<Answered> {
        let mut told = Vec::new();
        self.questions.retain_mut(|question| {
            let answer = responses.get(&question.key).filter(|_| question.shown);
            if let Some(answer) = answer {
                told.push(question.answer(answer.clone()));
            }
            answer.is_none()
        });
        told
    }

    /// Takes answers that came with the call, each once: another try is asked for.
    pub(super) fn take_foreseen(&mut self, responses: &mut Object) -> Vec<Answered> {
        let mut told = Vec::new();
        self.questions.retain_mut(|question| {
            let open = question.named && !question.shown;
            let answer = open.then(|| responses.remove(&question.key)).flatten();
            let answer = answer.filter(Raw::is_object);
            let answered = answer.is_some();
            told.extend(answer.map(|answer| question.answer(answer)));
            !answered
        });
        told
    }

    pub(super) fn end(&mut self, ending: Result<Ending, Fault>) {
        self.over = true;
        self.again = false;
        let untaken = match self.leg.take() {
            Some(leg) => {
                let untaken = leg.end(ending);
                if untaken.is_none() {
                    self.parked = None;
                    self.place = None;
                }
                untaken
            }
            None => Some(ending),
        };
        if untaken.is_some() {
            self.answer = untaken;
        }
        // Whoever has a question may come back with its answer, for whatever it belongs to.
        let has = |question: &Question| self.parked.is_some() && question.shown;
        let all = std::mem::take(&mut self.questions);
        let (had, left): (Vec<_>, Vec<_>) = all.into_iter().partition(has);
        self.questions = had;
        self.left.extend(left);
    }

    /// Its session went before it was sent; `false` for a call that is over, or that somebody has
    /// to come back to.
    pub(super) fn lose(&mut self, fault: &Fault) -> bool {
        let begins = !self.over && self.parked.is_none();
        if begins {
            // They were asked in that session.
            self.questions.clear();
            self.left.clear();
            self.lost = Some(fault.clone());
        }
        begins
    }

    /// Ends it with an error of our own.
    pub(super) fn end_with(&mut self, code: i64, text: &str) {
        let error = ErrorObject::new(code, text);
        self.end(Ok(Ending::Ours(End::Error(error))));
    }

    /// Whether whoever waits is to be given the questions: some are new to it, or one that it has
    /// is not asked any more, which only a caller with a session is told.
    pub(super) fn has_news(&self) -> bool {
        let told = self.leg.as_ref().is_some_and(|leg| leg.wants.in_session());
        (self.stale && told) || self.questions.iter().any(|question| !question.shown)
    }

    /// Passes on what is not the end, to whoever waits or comes to wait.
    pub(super) fn pass(&mut self, notification: Notification) -> bool {
        match &self.leg {
            Some(leg) => leg.pass(notification),
            None if self.parked.is_some() && self.wants.covers(&notification) => {
                self.missed.keep(notification);
                true
            }
            None => false,
        }
    }

    /// Another caller takes the place of whoever waits, who can only be one that listens.
    pub(super) fn seat(&mut self, leg: Leg) {
        if let Some(before) = self.leg.take() {
            let over = End::InputRequired(Object::new());
            drop(before.end(Ok(Ending::Ours(over))));
        }
        self.wants = leg.wants.clone();
        self.declared = leg.declared.clone();
        if let Some(instance) = &self.instance {
            leg.carrier.note(instance);
        }
        for notification in self.missed.take() {
            leg.pass(notification);
        }
        self.leg = Some(leg);
        if let Some(answer) = self.answer.take() {
            self.end(answer);
        } else if self.over || self.given_up {
            let text = "the call that asked is over";
            self.end_with(code::INVALID_REQUEST, text);
        }
    }

    pub(super) fn give_up(&mut self) {
        self.leg = None;
        self.parked = None;
        self.place = None;
        self.given_up = true;
    }
}
