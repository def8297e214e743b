//! What this crate logs and counts: one type per event.

use crate::fault::{Exit, Fault, How};

/// A server sent something that nobody here waits for.
#[derive(Debug)]
pub(crate) struct Ignored<'a> {
    pub(crate) upstream: &'a str,
    /// `request`, `question`, `undeclared_question`, `other_answer`, `late_answer`, `unmatched`,
    /// `queue_full`, `outbox_full`, `not_a_message`, `too_large`.
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

/// A server did not take a message that is no request of a call.
#[derive(Debug)]
pub(crate) struct Untold<'a> {
    pub(crate) upstream: &'a str,
    pub(crate) fault: &'a Fault,
    /// What becomes of the call that waits for the server to have it, where one does.
    pub(crate) call: Option<Waits>,
}

/// What becomes of a call whose answer the server did not take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waits {
    Fails,
    /// The server may have it, and was only slow to say so.
    GoesOn,
}

impl Untold<'_> {
    /// Writes the log line of this event; nothing else does.
    pub(crate) fn emit(&self) {
        let Self {
            upstream,
            fault,
            call,
        } = self;
        let Some(call) = call else {
            return tracing::debug!(upstream, %fault, "the server did not take a message");
        };
        let becomes = match call {
            Waits::Fails => "fails",
            Waits::GoesOn => "goes on",
        };
        tracing::warn!(upstream, %fault, call = becomes, "the server did not take an answer");
    }
}

/// A server has only a transport that was not tried first.
#[derive(Debug)]
pub(crate) struct TransportChosen<'a> {
    pub(crate) upstream: &'a str,
    /// `sse`.
    pub(crate) transport: &'static str,
}

impl TransportChosen<'_> {
    /// Writes the log line of this event; nothing else does.
    pub(crate) fn emit(&self) {
        let Self {
            upstream,
            transport,
        } = self;
        tracing::info!(
            upstream,
            transport,
            "the server refuses POST; using its event stream"
        );
    }
}

/// A server made a task for a caller that had gone, and is told to stop it.
#[derive(Debug)]
pub(crate) struct TaskAbandoned<'a> {
    pub(crate) upstream: &'a str,
}

impl TaskAbandoned<'_> {
    /// Writes the log line and the metric of this event; nothing else does.
    pub(crate) fn emit(&self) {
        let Self { upstream } = self;
        tracing::info!(
            upstream,
            "cancelling a task that was made after its caller had gone"
        );
        metrics::counter!(
            "waypost_upstream_abandoned_tasks_total", "upstream" => (*upstream).to_owned()
        )
        .increment(1);
    }
}

/// A child wrote a line that is no message.
#[derive(Debug)]
pub(crate) struct StrayLine<'a> {
    pub(crate) upstream: &'a str,
    /// How it begins, without secrets; only with the first of each child.
    pub(crate) sample: Option<&'a str>,
}

impl StrayLine<'_> {
    /// Writes the log line and the metric of this event; nothing else does.
    pub(crate) fn emit(&self) {
        let Self { upstream, sample } = self;
        if let Some(sample) = sample {
            tracing::warn!(
                upstream,
                sample,
                "standard output carries lines that are not messages; skipping them"
            );
        }
        metrics::counter!("waypost_upstream_stray_lines_total", "upstream" => (*upstream).to_owned())
            .increment(1);
    }
}

/// A child has ended, wanted or not.
#[derive(Debug)]
pub(crate) struct ChildEnded<'a> {
    pub(crate) upstream: &'a str,
    pub(crate) exit: &'a Exit,
}

impl ChildEnded<'_> {
    /// Writes the log line and the metric of this event; nothing else does.
    pub(crate) fn emit(&self) {
        let Self { upstream, exit } = self;
        let wanted = exit.how == How::Stopped;
        if wanted {
            tracing::info!(upstream, "child stopped");
        } else {
            tracing::warn!(upstream, exit = %exit.how, said = exit.tail, "child ended");
        }
        metrics::counter!(
            "waypost_upstream_child_exits_total",
            "upstream" => (*upstream).to_owned(), "wanted" => if wanted { "yes" } else { "no" }
        )
        .increment(1);
    }
}

/// It is known now what a server speaks, or it speaks something else than before.
#[derive(Debug)]
pub(crate) struct EraKnown<'a> {
    pub(crate) upstream: &'a str,
    pub(crate) protocol: &'a str,
}

impl EraKnown<'_> {
    /// Writes the log line of this event; nothing else does.
    pub(crate) fn emit(&self) {
        let Self { upstream, protocol } = self;
        tracing::info!(upstream, protocol, "protocol version known");
    }
}
