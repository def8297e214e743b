//! What the hub logs and counts: one type per event.

use std::time::Duration;

/// A call left the gateway for an upstream and came back, or did not.
#[derive(Debug)]
pub struct CallFinished<'a> {
    pub request_id: &'a str,
    pub upstream: &'a str,
    pub method: &'a str,
    /// The original name at the upstream, once the catalogue knows it; bounds the label's values.
    pub target: Option<&'a str>,
    pub outcome: &'static str,
    pub took: Duration,
}

impl CallFinished<'_> {
    /// Writes the log line and the metrics of this event; nothing else does.
    pub fn emit(&self) {
        let Self {
            request_id,
            upstream,
            method,
            target,
            outcome,
            took,
        } = self;
        let took = took.as_secs_f64();
        tracing::debug!(
            request_id,
            upstream,
            method,
            target_name = target.unwrap_or_default(),
            outcome,
            took_ms = took * 1e3,
            "call finished"
        );
        let labels = [
            ("upstream", (*upstream).to_owned()),
            ("method", (*method).to_owned()),
            ("target", target.unwrap_or("-").to_owned()),
            ("outcome", (*outcome).to_owned()),
        ];
        metrics::counter!("waypost_upstream_calls_total", &labels).increment(1);
        metrics::histogram!("waypost_upstream_call_seconds", "upstream" => (*upstream).to_owned())
            .record(took);
    }
}
