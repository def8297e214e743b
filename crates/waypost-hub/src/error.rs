//! Why a call got no answer.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The kinds of failure; each has one row in the front's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No such tool, prompt, resource or task for this caller.
    UnknownTarget,
    /// The caller may not; looks like [`Kind::UnknownTarget`] from outside.
    Denied,
    /// Too much at once.
    Throttled,
    /// The upstream cannot be reached; nothing ran, unless the detail says otherwise.
    Unavailable,
    /// The upstream did not answer in time; it was told to stop.
    Timeout,
    /// The upstream answered something that is not the protocol.
    BadUpstream,
    /// The gateway itself failed.
    Internal,
}

impl Kind {
    /// The word in `data.kind`, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTarget => "unknown_target",
            Self::Denied => "denied",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::BadUpstream => "bad_upstream",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownTarget => "unknown target",
            Self::Denied => "not allowed",
            Self::Throttled => "too many calls",
            Self::Unavailable => "not available",
            Self::Timeout => "no answer in time",
            Self::BadUpstream => "invalid answer",
            Self::Internal => "internal error",
        })
    }
}

/// Who caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The request asks for what cannot be.
    Client,
    /// Waypost itself: a limit, a rule, a defect.
    Gateway,
    /// The server of this name, or the way to it.
    Upstream(Arc<str>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("the request"),
            Self::Gateway => f.write_str("the gateway"),
            Self::Upstream(name) => write!(f, "upstream `{name}`"),
        }
    }
}

/// Why a call got no answer from its upstream.
///
/// An error *answer* of an upstream is not one: it passes through as it came.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct CallError {
    /// Decides the code and HTTP status that the client sees.
    pub kind: Kind,
    /// Decides whom the message names, and whose health it counts against.
    pub origin: Origin,
    /// What happened, in our words and safe to show: "connection refused", "answered HTTP 502".
    pub detail: Option<Cow<'static, str>>,
    /// Whether the server certainly did not execute the call.
    pub retryable: bool,
    /// The HTTP status that the server answered, where that was the trouble.
    pub http_status: Option<u16>,
    /// How long the server asked to be left alone.
    pub retry_after: Option<Duration>,
    /// The connection broke off.
    pub disconnected: bool,
    /// For the log only; never sent to the client.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl CallError {
    /// A failure without more to say.
    pub fn new(kind: Kind, origin: Origin) -> Self {
        Self {
            kind,
            origin,
            detail: None,
            retryable: false,
            http_status: None,
            retry_after: None,
            disconnected: false,
            source: None,
        }
    }

    /// A failure of this upstream.
    pub fn upstream(kind: Kind, name: &Arc<str>) -> Self {
        Self::new(kind, Origin::Upstream(Arc::clone(name)))
    }

    /// Names who is at fault, unless that is whoever reads it.
    fn text(&self) -> String {
        let what = self.detail.as_deref();
        let what = what.map_or_else(|| self.kind.to_string(), str::to_owned);
        match &self.origin {
            Origin::Client => what,
            origin => format!("{origin}: {what}"),
        }
    }

    /// The request names something that does not exist, as `detail` says.
    pub fn unknown(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::UnknownTarget, Origin::Client).detail(detail)
    }

    /// Every task that cannot be used answers the same, whatever is wrong with its id.
    pub fn unknown_task() -> Self {
        Self::unknown("unknown task")
    }

    /// Waypost ends, and the call is not over.
    pub fn stopped() -> Self {
        Self::new(Kind::Unavailable, Origin::Gateway)
            .detail("Waypost has stopped before the call was over")
    }

    /// A stream that stopped before its end, whoever made it.
    pub fn no_end() -> Self {
        Self::new(Kind::BadUpstream, Origin::Gateway).detail("the stream ended without an answer")
    }

    /// A stream of this upstream that stopped before its end.
    pub fn no_end_of(upstream: &Arc<str>) -> Self {
        Self {
            origin: Origin::Upstream(Arc::clone(upstream)),
            ..Self::no_end()
        }
    }

    /// Whether it looks as if nobody could reach the server, so that it is worth asking it anew.
    /// Being too slow or too busy for one call is no reason, and one that asks for time gets it.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self.origin, Origin::Upstream(_))
            && (self.kind == Kind::Unavailable || self.disconnected)
            && self.retry_after.is_none()
    }

    /// Whether the server, rather than what it was asked for, seems to be out of order.
    pub(crate) fn is_outage(&self) -> bool {
        let broken = matches!(self.kind, Kind::Unavailable | Kind::Timeout)
            || self.disconnected
            || self.http_status.is_some_and(|status| status >= 500);
        matches!(self.origin, Origin::Upstream(_)) && broken
    }

    /// Says what happened.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Marks that nothing was executed.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Says which HTTP status the server answered.
    #[must_use]
    pub fn http_status(mut self, status: u16) -> Self {
        self.http_status = Some(status);
        self
    }

    /// Says how long the server asked to be left alone.
    #[must_use]
    pub fn retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// Marks that the connection broke off.
    #[must_use]
    pub fn disconnected(mut self) -> Self {
        self.disconnected = true;
        self
    }

    /// Adds the cause for the log.
    #[must_use]
    pub fn source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}
