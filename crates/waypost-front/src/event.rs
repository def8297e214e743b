//! What the front logs and counts: one type per event.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Counter, Histogram};
use waypost_hub::call::Principal;
use waypost_hub::error::{CallError, Kind};
use waypost_hub::event::{request_id_field, took_ms};
use waypost_wire::method;

use crate::refusal::Refusal;
use crate::rescue;

/// A request was answered, refused, or given up by its client.
#[derive(Debug)]
pub(crate) struct RequestFinished<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) principal: &'a str,
    /// Out of a fixed set, see [`label`].
    pub(crate) method: &'static str,
    pub(crate) outcome: &'static str,
    pub(crate) took: Duration,
}

impl RequestFinished<'_> {
    /// Writes the log line and the metrics of this event; nothing else does.
    pub(crate) fn emit(&self) {
        let Self {
            request_id,
            principal,
            method,
            outcome,
            took,
        } = *self;
        tracing::debug!(
            request_id = request_id_field(request_id),
            principal,
            method,
            outcome,
            took_ms = took_ms(took),
            "request finished"
        );
        count(method, outcome, took.as_secs_f64());
    }
}

/// Handles of this event's metrics: looking them up takes a lock that all cores share, so each
/// core keeps those it has used. Both labels come out of fixed sets, so few that they are compared
/// sooner than hashed.
struct Counted {
    requests: Counter,
    seconds: Histogram,
}

/// Counts a request with its time in seconds.
fn count(method: &'static str, outcome: &'static str, took: f64) {
    KEPT.with_borrow_mut(|kept| {
        let counted = kept.entry((method, outcome)).or_insert_with(|| Counted {
            requests: metrics::counter!(
                "waypost_requests_total", "method" => method, "outcome" => outcome
            ),
            seconds: metrics::histogram!("waypost_request_seconds", "method" => method),
        });
        counted.requests.increment(1);
        counted.seconds.record(took);
    });
}

thread_local! {
    static KEPT: RefCell<BTreeMap<(&'static str, &'static str), Counted>> = RefCell::default();
}

/// Sees to it that a request is logged and counted once, also one whose client went away.
#[derive(Debug)]
pub(crate) struct Finish {
    request_id: Arc<str>,
    principal: Principal,
    method: &'static str,
    outcome: &'static str,
    started: Instant,
}

impl Finish {
    /// A request has come; until told otherwise its client will have left before the answer.
    pub(crate) fn new(request_id: Arc<str>, principal: Principal) -> Self {
        Self {
            request_id,
            principal,
            method: OTHER,
            outcome: "cancelled",
            started: Instant::now(),
        }
    }

    /// The method is known.
    pub(crate) fn method(&mut self, method: &str) {
        self.method = label(method);
    }

    /// The outcome is known.
    pub(crate) fn outcome(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }

    /// The request was not let in.
    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        self.outcome = rescue::outcome(refusal);
        let Some((era, requested)) = refusal.switched_off() else {
            return;
        };
        SwitchedOff {
            request_id: &self.request_id,
            principal: self.principal.as_str(),
            era,
            requested,
        }
        .emit();
    }

    /// A call got no answer.
    pub(crate) fn failed(&mut self, error: &CallError) {
        self.outcome = error.kind.as_str();
        CallFailed {
            request_id: &self.request_id,
            error,
        }
        .emit();
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        RequestFinished {
            request_id: &self.request_id,
            principal: self.principal.as_str(),
            method: self.method,
            outcome: self.outcome,
            took: self.started.elapsed(),
        }
        .emit();
    }
}

/// A client speaks what is switched off.
#[derive(Debug)]
struct SwitchedOff<'a> {
    request_id: &'a str,
    principal: &'a str,
    /// As `front.eras` names it.
    era: &'static str,
    /// The version that it asks for, in its own words.
    requested: &'a str,
}

impl SwitchedOff<'_> {
    fn emit(&self) {
        /// Characters of what a client may write into the log; no version has as many.
        const MOST: usize = 32;
        let Self {
            request_id,
            principal,
            era,
            requested,
        } = *self;
        let requested: String = requested.chars().take(MOST).collect();
        // Clients decide how often this happens, so it is no warning.
        tracing::info!(
            request_id = request_id_field(request_id),
            principal,
            reason = "era",
            era,
            requested,
            "request refused"
        );
    }
}

/// A call got no answer; the client hears what happened, the log also why.
#[derive(Debug)]
struct CallFailed<'a> {
    request_id: &'a str,
    error: &'a CallError,
}

impl CallFailed<'_> {
    fn emit(&self) {
        match self.error.kind {
            Kind::UnknownTarget | Kind::Denied => self.refused(),
            Kind::Throttled | Kind::Unavailable | Kind::Timeout | Kind::BadUpstream => {
                self.failed();
            }
            Kind::Internal => self.broken(),
        }
    }

    fn refused(&self) {
        let (request_id, kind) = (request_id_field(self.request_id), self.error.kind.as_str());
        let error = self.error;
        tracing::debug!(request_id, kind, %error, "call refused");
    }

    fn failed(&self) {
        let (request_id, kind) = (request_id_field(self.request_id), self.error.kind.as_str());
        let (error, cause) = (self.error, causes(self.error));
        tracing::warn!(request_id, kind, %error, cause, "call failed");
    }

    fn broken(&self) {
        let request_id = request_id_field(self.request_id);
        let (error, cause) = (self.error, causes(self.error));
        tracing::error!(request_id, %error, cause, "the gateway failed");
    }
}

/// The chain of causes below an error, outermost first.
fn causes(error: &CallError) -> String {
    let mut texts = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        texts.push(cause.to_string());
        next = cause.source();
    }
    texts.join(": ")
}

/// An event stream to a client is open as long as this lives.
#[derive(Debug)]
pub(crate) struct OpenStream(());

impl OpenStream {
    /// Counts one.
    pub(crate) fn new() -> Self {
        metrics::gauge!("waypost_open_streams").increment(1);
        Self(())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        metrics::gauge!("waypost_open_streams").decrement(1);
    }
}

/// A `tasks/*` request came without `Mcp-Name` and was let through.
pub(crate) fn task_without_name() {
    metrics::counter!("waypost_task_requests_without_name_total").increment(1);
}

const OTHER: &str = "other";

/// The method as a label: client text must not make new time series.
fn label(method: &str) -> &'static str {
    const KNOWN: &[&str] = &[
        method::TOOLS_CALL,
        method::TOOLS_LIST,
        method::DISCOVER,
        method::INITIALIZE,
        method::PROMPTS_LIST,
        method::PROMPTS_GET,
        method::RESOURCES_LIST,
        method::RESOURCES_TEMPLATES_LIST,
        method::RESOURCES_READ,
        method::COMPLETE,
        method::LISTEN,
        method::TASKS_GET,
        method::TASKS_UPDATE,
        method::TASKS_CANCEL,
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ];
    KNOWN
        .iter()
        .find(|known| **known == method)
        .copied()
        .unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use waypost_hub::error::Origin;

    use super::*;

    #[test]
    fn labels_come_from_a_fixed_set() {
        assert_eq!(label("tools/call"), "tools/call");
        assert_eq!(label("x/\n{evil}"), "other");
    }

    #[test]
    fn the_chain_of_causes_is_one_text() {
        let inner = std::io::Error::other("refused");
        let error = CallError::new(Kind::Unavailable, Origin::Gateway).source(inner);
        assert_eq!(causes(&error), "refused");
    }
}
