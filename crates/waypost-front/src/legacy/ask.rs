//! What a server asks in the middle of a call: requests to the client, whose answers become the
//! retry of the call.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use waypost_hub::asks;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::{self, Outcome};
use waypost_wire::meta::{META, QUESTION_KEY};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::legacy::session::{Question, Session};
use crate::legacy::translate;
use crate::outlet::{Class, Outlet};

const ELICIT: &str = "elicitation/create";

/// Whom questions are put to.
pub(crate) struct Asked<'a> {
    pub(crate) session: &'a Arc<Session>,
    /// The stream of the call that they belong to.
    pub(crate) outlet: &'a Arc<dyn Outlet>,
    /// Longest wait for all answers of one round.
    pub(crate) within: Duration,
}

/// One question that is out. Given up before it is answered, the client is told.
struct Pending {
    key: String,
    method: String,
    question: Question,
    outlet: Arc<dyn Outlet>,
    answered: bool,
}

impl Asked<'_> {
    /// Puts all questions of one round at once; gives `inputResponses`.
    ///
    /// # Errors
    /// The error that the call ends with when there is no answer to go on with.
    pub(crate) async fn ask(&self, requests: Option<&Raw>) -> Result<Object, ErrorObject> {
        let Some(requests) = requests else {
            return Ok(Object::new());
        };
        let questions = asks::questions(requests).ok_or_else(|| {
            let text = "the server asks something that cannot be passed on";
            ErrorObject::new(code::INTERNAL_ERROR, text)
        })?;
        let mut pending = Vec::with_capacity(questions.len());
        for (key, request) in questions.iter() {
            pending.push(self.put(key, request).await);
        }
        let answers = join_all(pending.into_iter().map(Pending::answer));
        let answers = tokio::time::timeout(self.within, answers).await;
        let answers = answers.map_err(|_| {
            let text = "the client did not answer the server's question in time";
            ErrorObject::new(code::INTERNAL_ERROR, text)
        })?;
        answers.into_iter().collect()
    }

    async fn put(&self, key: &str, request: &Raw) -> Pending {
        let request = request.as_object().unwrap_or_default();
        let method = request.string("method").unwrap_or_default();
        let params = request.get("params").and_then(|raw| raw.as_object().ok());
        let mut params = params.unwrap_or_default();
        translate::question(&self.session.ticket.version, &method, &mut params);
        name(&mut params, key);
        let question = self.session.ask();
        let message = message::encode_request(&question.id, &method, &params);
        let pending = Pending {
            key: key.to_owned(),
            method,
            question,
            outlet: Arc::clone(self.outlet),
            answered: false,
        };
        self.outlet.send(Class::Ask, [message].into()).await;
        pending
    }
}

/// Lets a client that is a gateway itself put the question on under the key it has here.
fn name(params: &mut Object, key: &str) {
    let meta = params.get(META).and_then(|raw| raw.as_object().ok());
    let mut meta = meta.unwrap_or_default();
    meta.set(QUESTION_KEY, Raw::string(key));
    params.set(META, meta.into());
}

impl Pending {
    async fn answer(mut self) -> Result<(String, Raw), ErrorObject> {
        let outcome = (&mut self.question.answer).await;
        self.answered = true;
        let key = std::mem::take(&mut self.key);
        match outcome {
            Ok(Outcome::Result(result)) if result.is_object() => Ok((key, result)),
            // Nobody chose: that is what this dialect calls cancelling.
            Ok(_) | Err(_) if self.method == ELICIT => {
                let cancel = Object::from_iter([("action", Raw::string("cancel"))]);
                Ok((key, cancel.into()))
            }
            Ok(Outcome::Error(error)) => {
                let text = format!("the client refused `{}`: {}", self.method, error.message());
                Err(ErrorObject::new(code::INTERNAL_ERROR, &text))
            }
            Ok(Outcome::Result(_)) | Err(_) => {
                let text = format!("the client did not answer `{}`", self.method);
                Err(ErrorObject::new(code::INTERNAL_ERROR, &text))
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let params = Object::from_iter([
            ("requestId", self.question.id.raw().clone()),
            ("reason", Raw::string("the call is over")),
        ]);
        let message = message::encode_notification(method::CANCELLED, &params);
        self.outlet.post(Class::Note, [message].into());
    }
}
