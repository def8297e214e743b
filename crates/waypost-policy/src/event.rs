//! What the layers log and count: one type per event.

use std::time::Duration;

use waypost_hub::event::{request_id_field, took_ms};

/// A layer refused an HTTP request.
#[derive(Debug)]
pub(crate) struct RequestRefused<'a> {
    /// `host`, `origin`, `unauthenticated` or `in_flight`.
    pub(crate) reason: &'static str,
    /// What was presented, where that is no secret.
    pub(crate) presented: &'a str,
}

impl RequestRefused<'_> {
    pub(crate) fn emit(&self) {
        let Self { reason, presented } = *self;
        // Strangers decide how often this happens, so it is no warning.
        tracing::info!(reason, presented, "request refused");
        metrics::counter!("waypost_refused_total", "reason" => reason).increment(1);
    }
}

/// A caller called something, and how that ended.
#[derive(Debug)]
pub(crate) struct CallAudited<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) principal: &'a str,
    /// `None` for that of all upstreams.
    pub(crate) view: Option<&'a str>,
    pub(crate) method: &'a str,
    /// The tool, prompt or resource, or the upstream that a task is at.
    pub(crate) target: Option<&'a str>,
    pub(crate) outcome: &'static str,
    /// Of a JSON-RPC error that was the answer.
    pub(crate) code: Option<i64>,
    pub(crate) took: Duration,
}

impl CallAudited<'_> {
    /// Whether anybody would read the line.
    pub(crate) fn is_wanted() -> bool {
        tracing::enabled!(target: "waypost::audit", tracing::Level::INFO)
    }

    /// Writes the audit line. Arguments and results never enter it.
    pub(crate) fn emit(&self) {
        let Self {
            request_id,
            principal,
            view,
            method,
            target,
            outcome,
            code,
            took,
        } = *self;
        tracing::info!(
            target: "waypost::audit",
            request_id = request_id_field(request_id),
            principal,
            view,
            method,
            target_name = target,
            outcome,
            code,
            took_ms = took_ms(took),
            "call"
        );
    }
}
