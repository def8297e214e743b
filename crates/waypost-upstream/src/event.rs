//! What this crate logs and counts: one type per event.

/// A server sent something that nobody here waits for.
#[derive(Debug)]
pub(crate) struct Ignored<'a> {
    pub(crate) upstream: &'a str,
    /// `request`, `other_answer`, `unmatched`, `queue_full`, `not_a_message`.
    pub(crate) reason: &'static str,
}

impl Ignored<'_> {
    /// Writes the log line and the metric of this event; nothing else does.
    pub(crate) fn emit(&self) {
        let Self { upstream, reason } = self;
        tracing::debug!(upstream, reason, "message of an upstream ignored");
        metrics::counter!(
            "waypost_upstream_ignored_messages_total",
            "upstream" => (*upstream).to_owned(), "reason" => *reason
        )
        .increment(1);
    }
}
