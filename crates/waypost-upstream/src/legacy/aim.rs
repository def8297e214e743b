//! Which of several calls a question of a server belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use waypost_wire::message::Request;

use super::exchange::Exchange;

/// Who shares a session, and so whom a question or log message that names no call may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// One client alone.
    One,
    /// Several that must not learn of each other.
    Many,
    /// Waypost itself, which answers no questions.
    Nobody,
}

/// Why there is no call that could carry a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nobody {
    /// One may come.
    Yet,
    Here,
    /// Which of several is not known, and it is not guessed.
    Certain,
    /// It may be that of a call which nobody waits for any more.
    Left,
}

impl Nobody {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Yet | Self::Here => "no call is in flight that a client could be asked on",
            Self::Certain => "several calls are in flight and nothing says whose question this is",
            Self::Left => {
                "a call that was given up may still run and nothing says whose question this is"
            }
        }
    }
}

/// The call whose caller is to be asked, of those open. `of` is the request on whose own stream
/// the question came, `task` the task that it says it is about: who names one means no other.
/// `adrift` is whether a call that was given up may still run.
pub(super) fn target(
    open: &BTreeMap<u64, Arc<Exchange>>,
    (audience, adrift): (Audience, bool),
    (of, task): (Option<u64>, Option<&str>),
    request: &Request,
) -> Result<Arc<Exchange>, Nobody> {
    let is_about = |call: &&Arc<Exchange>| task.is_some() && call.task() == task;
    if let Some(call) = open.values().find(is_about) {
        return Ok(Arc::clone(call));
    }
    if let Some(id) = of {
        let call = open.get(&id).filter(|call| call.may_ask());
        return call.cloned().ok_or(Nobody::Here);
    }
    if task.is_some() {
        return Err(Nobody::Here);
    }
    let calls = open.values().filter(|call| call.task().is_none());
    let mut can = calls.filter(|call| call.may_ask());
    match audience {
        Audience::Nobody => Err(Nobody::Here),
        // Most servers ask one thing after the other in a call: the one that has asked least.
        Audience::One => can
            .min_by_key(|call| (!call.carries(request), call.burden()))
            .cloned()
            .ok_or(Nobody::Yet),
        Audience::Many => {
            let first = can.next().ok_or(Nobody::Here)?;
            match can.next() {
                Some(_) => Err(Nobody::Certain),
                None if adrift => Err(Nobody::Left),
                None => Ok(Arc::clone(first)),
            }
        }
    }
}
