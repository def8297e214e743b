//! Whom a server's questions are put to.

use std::sync::Arc;

use waypost_wire::capability::ClientCapabilities;
use waypost_wire::code;
use waypost_wire::message::{self, Request};
use waypost_wire::method;
use waypost_wire::object::Object;

use super::super::aim::{Audience, Nobody, target};
use super::super::exchange::{Exchange, Unasked};
use super::super::question::{Question, Whose};
use super::super::tasks;
use super::{EARLY, Table};

impl Table {
    /// Puts questions of a call that has ended to another of the same client, where nothing says
    /// that they were the ended one's, and refuses the others.
    pub(crate) fn rehome(&self, questions: Vec<Question>) {
        for question in questions {
            let Some(id) = question.id else { continue };
            let (method, params, whose) = (question.method, question.params, question.whose);
            let request = Request { id, method, params };
            let unseen = whose == Whose::Early || (whose == Whose::Guessed && !question.had);
            let unseen = unseen && self.audience == Audience::One;
            let moves = whose != Whose::Said && self.audience == Audience::One;
            let call = moves.then(|| self.state().target(&request));
            match call {
                Some(Ok(call)) => self.put_to(&call, request, whose),
                // Nobody has seen it: it may be none of this call's.
                _ if unseen && self.outside(&request) => {}
                _ => {
                    let why = "the call that this was asked in has ended";
                    self.refuse(&request.id, code::INTERNAL_ERROR, why);
                }
            }
        }
    }

    pub(super) fn asked(&self, of: Option<u64>, request: Request) {
        if request.method == "ping" {
            return self.say(message::encode_result(&request.id, &Object::new()));
        }
        if ClientCapabilities::needed_for(&request.method).is_none() {
            self.ignore("request");
            return self.refuse(&request.id, code::METHOD_NOT_FOUND, "method not found");
        }
        let task = tasks::related(&request.params);
        let state = self.state();
        let adrift = state.adrift.any_call();
        let named = (of, task.as_deref());
        let call = target(&state.open, (self.audience, adrift), named, &request);
        drop(state);
        match call {
            Ok(call) if of.is_some() || task.is_some() => {
                self.put_to(&call, request, Whose::Said);
            }
            // What roots a client has is about none of its calls, and its caller may not be one
            // that can be asked on this call.
            Ok(call) if self.is_aside(&call, &request) && self.put_outside(&request) => {}
            Ok(call) => self.put_to(&call, request, Whose::Guessed),
            Err(Nobody::Yet) if self.outside(&request) => {}
            Err(why) => {
                self.ignore("question");
                self.refuse(&request.id, code::INTERNAL_ERROR, why.text());
            }
        }
    }

    /// Puts a question to the client outside of its calls, or keeps it for the next one; `false`
    /// when that cannot be.
    fn outside(&self, request: &Request) -> bool {
        if self.put_outside(request) {
            return true;
        }
        let mut state = self.state();
        // One may have begun meanwhile, which looked before this was there.
        if let Ok(call) = state.target(request) {
            drop(state);
            self.put_to(&call, request.clone(), Whose::Early);
            return true;
        }
        let keeps = state.early.len() < EARLY && self.may_ask(request);
        if keeps {
            state.early.push(request.clone());
        }
        keeps
    }

    fn is_aside(&self, call: &Exchange, request: &Request) -> bool {
        let alone = self.audience == Audience::One;
        alone && (request.method == method::ROOTS_LIST || !call.carries(request))
    }

    pub(super) fn put_outside(&self, request: &Request) -> bool {
        self.may_ask(request) && self.outside.ask(request)
    }

    /// Whether the server was told that somebody here can answer this.
    fn may_ask(&self, request: &Request) -> bool {
        Question::undeclared(&request.method, &request.params, &self.declared).is_none()
    }

    pub(super) fn put_to(&self, call: &Arc<Exchange>, mut request: Request, whose: Whose) {
        tasks::unrelate(&mut request.params);
        let id = request.id.clone();
        match call.ask(request, whose, &self.declared) {
            Ok(()) => {}
            Err(Unasked::Undeclared(missing)) => {
                self.ignore("undeclared_question");
                let names: Vec<_> = missing.as_object().into_iter().flatten().collect();
                let name = names.first().map_or("", |(name, _)| name);
                let why = format!("the client of this call does not support `{name}`");
                self.refuse_in(call, &id, code::METHOD_NOT_FOUND, &why);
            }
            Err(Unasked::TooMany) => {
                self.ignore("question");
                let why = "too many questions of this call wait for an answer";
                self.refuse_in(call, &id, code::INTERNAL_ERROR, why);
            }
            Err(Unasked::Over) => {
                self.ignore("question");
                let why = "the call that this was asked in has ended";
                self.refuse(&id, code::INTERNAL_ERROR, why);
            }
        }
    }
}
