//! What a server asks its client while a call is open.

use bytes::Bytes;
use serde_json::Value;
use waypost_hub::asks;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message;
use waypost_wire::meta::{ANSWER_ERROR, META};
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

/// One question.
#[derive(Debug)]
pub(crate) struct Question {
    /// Its name towards callers.
    pub(crate) key: String,
    /// The server gave it that name, so that it may have been answered before it was asked.
    pub(crate) named: bool,
    /// The server's request; `None` for what the server wants done before it is called again.
    pub(crate) id: Option<Id>,
    pub(crate) method: String,
    pub(crate) params: Object,
    /// A caller has it.
    pub(crate) shown: bool,
    /// A caller had it, and may have it still.
    pub(crate) had: bool,
    pub(crate) whose: Whose,
}

/// How it is known which call a question belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The server said so.
    #[default]
    Said,
    /// It is guessed.
    Guessed,
    /// It was asked when there was no call.
    Early,
}

/// The answer to a question.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) id: Option<Id>,
    /// What elicitation of an address it was about.
    pub(crate) elicitation: Option<String>,
    pub(crate) answer: Raw,
}

impl Question {
    /// A member of `inputRequests` (specification: multi round-trip requests).
    pub(crate) fn request(method: &str, params: &Object) -> Object {
        let mut request = Object::new();
        request.set("method", Raw::string(method));
        if !params.is_empty() {
            request.set("params", params.into());
        }
        request
    }

    /// The capabilities that this needs and `declared` has not.
    pub(crate) fn undeclared(
        method: &str,
        params: &Object,
        declared: &ClientCapabilities,
    ) -> Option<Value> {
        let asked = Raw::from(Self::request(method, params));
        let asked: Object = [("q", asked)].into_iter().collect();
        asks::undeclared(&asked, declared)
    }

    /// It was answered so.
    pub(crate) fn answer(&mut self, answer: Raw) -> Answered {
        Answered {
            id: self.id.take(),
            elicitation: self.params.string("elicitationId"),
            answer,
        }
    }
}

impl Answered {
    /// The response to the server, where it waits for one.
    pub(crate) fn response(&self) -> Option<Bytes> {
        let id = self.id.as_ref()?;
        let result = self.answer.as_object().unwrap_or_default();
        Some(match refused(&result) {
            Some(error) => message::encode_error(Some(id), &error),
            None => message::encode_result(id, &result),
        })
    }

    /// Whether the user agreed.
    pub(crate) fn accepted(&self) -> bool {
        let answer = self.answer.as_object().unwrap_or_default();
        answer.string("action").as_deref() == Some("accept")
    }
}

/// The error that stands for an answer.
fn refused(answer: &Object) -> Option<ErrorObject> {
    let meta = answer.get(META)?.as_object().ok()?;
    ErrorObject::parse(meta.get(ANSWER_ERROR)?).ok()
}
