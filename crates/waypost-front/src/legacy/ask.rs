//! What a server asks in the middle of a call: requests to the client, whose answers become the
//! retry of the call.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use waypost_hub::asks;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::{self, Outcome};
use waypost_wire::meta::{ANSWER_ERROR, META, QUESTION_KEY};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::legacy::session::{Question, Session};
use crate::legacy::translate;
use crate::outlet::{Class, Outlet};

const ELICIT: &str = "elicitation/create";

/// The questions of one call that its client has and has not answered.
pub(crate) struct Questions {
    session: Arc<Session>,
    /// The stream of the call that they belong to.
    outlet: Arc<dyn Outlet>,
    out: Vec<Pending>,
}

/// What a client said to a question.
pub(crate) struct Answered {
    pub(crate) key: String,
    method: String,
    /// `None` when its session is over.
    outcome: Option<Outcome>,
}

/// One question that is out. Given up before it is answered, the client is told.
pub(crate) struct Pending {
    key: String,
    method: String,
    question: Question,
    outlet: Arc<dyn Outlet>,
    /// It was answered, or is not out yet.
    settled: bool,
}

// === impl Questions ===

impl Questions {
    /// None yet.
    pub(crate) fn new(session: &Arc<Session>, outlet: &Arc<dyn Outlet>) -> Self {
        Self {
            session: Arc::clone(session),
            outlet: Arc::clone(outlet),
            out: Vec::new(),
        }
    }

    /// Whether nothing is to be answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Asks what of `requests` the client was not asked yet, and takes back what they do not
    /// contain any more.
    ///
    /// # Errors
    /// The error that the call ends with when they cannot be passed on.
    pub(crate) async fn become_these(&mut self, requests: &Raw) -> Result<(), ErrorObject> {
        let questions = asks::questions(requests).ok_or_else(|| {
            let why = asks::unreadable(requests);
            let text = format!("the server asks something that cannot be passed on: {why}");
            ErrorObject::new(code::INTERNAL_ERROR, &text)
        })?;
        self.out.retain(|pending| questions.contains(&pending.key));
        for (key, request) in questions.iter() {
            if !self.out.iter().any(|pending| pending.key == key) {
                self.put(key, request).await;
            }
        }
        Ok(())
    }

    /// An answer that is there already.
    pub(crate) fn ready(&mut self) -> Option<Answered> {
        self.next().now_or_never()
    }

    /// The next answer; none comes while nothing is asked.
    pub(crate) async fn next(&mut self) -> Answered {
        poll_fn(|cx| {
            let mut answers = self.out.iter_mut().enumerate();
            let next = answers.find_map(|(at, pending)| match pending.poll(cx) {
                Poll::Ready(outcome) => Some((at, outcome)),
                Poll::Pending => None,
            });
            let Some((at, outcome)) = next else {
                return Poll::Pending;
            };
            let mut pending = self.out.remove(at);
            Poll::Ready(Answered {
                key: std::mem::take(&mut pending.key),
                method: std::mem::take(&mut pending.method),
                outcome,
            })
        })
        .await
    }

    async fn put(&mut self, key: &str, request: &Raw) {
        let request = request.as_object().unwrap_or_default();
        let method = request.string("method").unwrap_or_default();
        let params = request.get("params").and_then(|raw| raw.as_object().ok());
        let mut params = params.unwrap_or_default();
        name(&mut params, key);
        let own = Arc::clone(&self.outlet);
        let (mut pending, message) = Pending::new(&self.session, own, key, &method, params);
        let class = pending.class();
        let other = self.session.reaching(&self.outlet);
        match other.filter(|other| other.offer(class, [message.clone()].into())) {
            Some(other) => pending.outlet = other,
            None => self.outlet.send(class, [message].into()).await,
        }
        // One that was not sent needs not be taken back.
        pending.is_out();
        self.out.push(pending);
    }
}

/// Lets a client that is a gateway itself put the question on under the key it has here.
fn name(params: &mut Object, key: &str) {
    let meta = params.get(META).and_then(|raw| raw.as_object().ok());
    let mut meta = meta.unwrap_or_default();
    meta.set(QUESTION_KEY, Raw::string(key));
    params.set(META, meta.into());
}

// === impl Answered ===

impl Answered {
    /// The member of `inputResponses`. With `errors`, what asked takes errors too.
    ///
    /// # Errors
    /// The error that the call ends with when there is no answer to go on with.
    pub(crate) fn response(self, errors: bool) -> Result<Raw, ErrorObject> {
        match self.outcome {
            Some(Outcome::Result(result)) if result.is_object() => Ok(result),
            Some(Outcome::Error(error)) if errors => {
                let meta = Object::from_iter([(ANSWER_ERROR, error.raw().clone())]);
                Ok(Object::from_iter([(META, Raw::from(meta))]).into())
            }
            // Nobody chose: that is what this dialect calls cancelling.
            _ if self.method == ELICIT => {
                Ok(Object::from_iter([("action", Raw::string("cancel"))]).into())
            }
            Some(Outcome::Error(error)) => {
                let text = format!("the client refused `{}`: {}", self.method, error.message());
                Err(ErrorObject::new(code::INTERNAL_ERROR, &text))
            }
            Some(Outcome::Result(_)) | None => {
                let text = format!("the client did not answer `{}`", self.method);
                Err(ErrorObject::new(code::INTERNAL_ERROR, &text))
            }
        }
    }
}

// === impl Pending ===

impl Pending {
    /// The question, and the message that puts it to the client.
    pub(crate) fn new(
        session: &Arc<Session>,
        outlet: Arc<dyn Outlet>,
        key: &str,
        method: &str,
        mut params: Object,
    ) -> (Self, Bytes) {
        translate::question(&session.ticket.version, method, &mut params);
        let question = session.ask();
        let message = message::encode_request(&question.id, method, &params);
        let pending = Self {
            key: key.to_owned(),
            method: method.to_owned(),
            question,
            outlet,
            settled: true,
        };
        (pending, message)
    }

    /// How the message is to be sent.
    pub(crate) fn class(&self) -> Class {
        Class::Ask(self.question.number)
    }

    /// The message was sent: from now on the client is told when no answer is wanted any more.
    pub(crate) fn is_out(&mut self) {
        self.settled = false;
    }

    /// What the client says; `None` when its session is over.
    pub(crate) async fn answer(mut self) -> Option<Outcome> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Outcome>> {
        let outcome = Pin::new(&mut self.question.answer).poll(cx);
        self.settled = outcome.is_ready();
        outcome.map(Result::ok)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let params = Object::from_iter([
            ("requestId", self.question.id.raw().clone()),
            ("reason", Raw::string("no answer is wanted any more")),
        ]);
        let message = message::encode_notification(method::CANCELLED, &params);
        // Not one of those that may be lost: the client would show the question for ever.
        let class = Class::TakeBack(self.question.number);
        if !self.outlet.offer(class, [message.clone()].into())
            && let Some(other) = self.question.session.reachable()
        {
            other.post(class, [message].into());
        }
    }
}
