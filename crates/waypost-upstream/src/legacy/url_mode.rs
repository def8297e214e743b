//! Calls that need the user to visit an address first (2025-11-25: elicitation, URL mode).
//!
//! A server of that revision refuses such a call with an error of its own, says when the visit is
//! over, and wants the call again. To a caller it is a question like any other.

use std::time::Duration;

use tokio::time::timeout;
use waypost_hub::reply::End;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Outcome;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::parked::Waiting;
use super::question::Answered;

/// The error's code; not one of today's.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// What the questions are.
pub(crate) const METHOD: &str = "elicitation/create";

/// The server says that a visit is over.
pub(crate) const COMPLETE: &str = "notifications/elicitation/complete";

/// The params of the elicitations that an answer wants first.
pub(crate) fn wanted(outcome: &Outcome) -> Option<Vec<Object>> {
    let Outcome::Error(error) = outcome else {
        return None;
    };
    if error.code() != URL_ELICITATION_REQUIRED {
        return None;
    }
    let data = error.data()?.as_object().ok()?;
    let all = data.get("elicitations")?.as_array()?;
    let all: Vec<Object> = all.iter().filter_map(|one| one.as_object().ok()).collect();
    let readable = !all.is_empty() && all.iter().all(is_url);
    readable.then_some(all)
}

fn is_url(params: &Object) -> bool {
    params.get("mode").map(Raw::text) == Some("\"url\"") && params.contains("url")
}

/// How long the user may take to visit the addresses, once the caller is back.
const VISITED_WITHIN: Duration = Duration::from_secs(30);

/// What became of the visits that a call wanted first.
#[derive(Debug)]
pub(crate) struct Visits {
    agreed: bool,
    elicitations: Vec<String>,
}

impl Visits {
    /// The visits among these answers; `None` when the call wanted none.
    pub(crate) fn of(told: &[Answered]) -> Option<Self> {
        let mut visits = told.iter().filter(|answer| answer.id.is_none()).peekable();
        visits.peek()?;
        let all: Vec<_> = visits.collect();
        Some(Self {
            agreed: all.iter().all(|answer| answer.accepted()),
            elicitations: all.iter().filter_map(|a| a.elicitation.clone()).collect(),
        })
    }

    /// Waits until they are over, but not for ever: the server knows best, and asks again.
    pub(crate) async fn pay(&self, waiting: &Waiting) {
        if !self.agreed {
            let text = "the call needs a visit to an address, which was declined";
            let error = ErrorObject::new(code::INTERNAL_ERROR, text);
            return waiting.exchange.conclude(End::Error(error));
        }
        let visits = waiting.table.visits(&self.elicitations);
        drop(timeout(VISITED_WITHIN, visits).await);
        waiting.exchange.release();
    }
}
