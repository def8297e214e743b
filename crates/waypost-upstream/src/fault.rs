//! Why a server gave no answer, before the hub makes a [`CallError`] of it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use waypost_hub::error::{CallError, Kind};
use waypost_wire::error::Malformed;

pub use crate::legacy::EndpointFault;
pub use crate::stdio::SpawnFault;

/// Why a server gave no answer.
///
/// Texts are safe to show: they are made from kinds, never from what a library or a server says,
/// since those may repeat an address with its query, a header or a body.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Fault {
    /// The connection did not open; nothing was sent.
    #[error("{0}")]
    Connect(ConnectFault),
    /// The server answered with a status that says why there is no answer.
    #[error("answered HTTP {status}{}", status_note(*status, *.retry_after))]
    Status {
        status: u16,
        /// `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// The connection ended first; the call may have run.
    #[error("closed the connection before the answer was complete")]
    Closed,
    /// The event stream ended properly, without an answer in it.
    #[error("the stream ended without an answer")]
    NoEnd,
    /// What came is not HTTP.
    #[error("answered something that is not HTTP/1.1")]
    NotHttp,
    /// The body is neither of the two that the protocol has.
    #[error("answered with {} instead of JSON or an event stream", content_type(.0.as_deref()))]
    ContentType(Option<String>),
    /// More than the limit.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// Not a JSON-RPC message.
    #[error("the answer is not valid: {0}")]
    Malformed(Malformed),
    /// A JSON-RPC message, but no answer to this request.
    #[error("the answer belongs to another request")]
    WrongAnswer,
    /// `resultType` is none that the protocol has.
    #[error("unknown `resultType`")]
    ResultType,
    /// `server/discover` was refused by a modern server.
    #[error("refused `server/discover` with error {code}")]
    Refused { code: i64 },
    /// The child could not be started.
    #[error("{0}")]
    Spawn(SpawnFault),
    /// The child ended during the call, which may have run if it was `sent`.
    #[error("{exit}")]
    Exited { exit: Arc<Exit>, sent: bool },
    /// There is no child, or there is none any more.
    #[error("not running{}", exit_note(.0.as_deref()))]
    NotRunning(Option<Arc<Exit>>),
    /// Waypost is stopping, or has let go of this upstream.
    #[error("stopping")]
    Stopping,
    /// The same during a call, which may have run.
    #[error("stopped while the call was open; it may have run")]
    Stopped,
    /// The session went while a call was open in it, which may have run.
    #[error("lost the session while the call was open; it may have run")]
    Forgotten,
    /// It did not take what the call waits for it to have: an answer to its question.
    #[error("did not take the answer to its question: {0}")]
    Untold(Arc<str>),
    /// So much waits to be told to it that there is no room for more.
    #[error("takes what it is told too slowly")]
    Backlog,
    /// So many tasks are waited for that there is no room for another.
    #[error("the ends of {most} tasks are waited for already")]
    Waits { most: usize },
    /// A child that has answered before does not.
    #[error("did not answer `server/discover` within {0:?}, it is being restarted")]
    Silent(Duration),
    /// The server does not know the session any more; the call did not run.
    #[error("does not know the session any more")]
    SessionLost,
    /// A server of HTTP+SSE does not say where to post messages.
    #[error("{0}")]
    Endpoint(#[from] EndpointFault),
    /// It refused to open a session.
    #[error("refused `initialize` with error {code}")]
    NoSession { code: i64 },
    /// It answered `initialize` with a version that is not known.
    #[error("answered `initialize` with a protocol version that is not known")]
    Version,
    /// It turned out to want no session.
    #[error("speaks protocol version 2026-07-28 after all")]
    Modern,
    /// It did not open a session, or was silent in one, for so long.
    #[error("did not answer within {0:?}")]
    Late(Duration),
    /// There is no room for another session.
    #[error(
        "all {most} sessions are in use\nhint: raise `max_sessions`, lower `idle_timeout` or set `isolation: shared`"
    )]
    Sessions { most: usize },
    /// The reader of a subscription is too slow.
    #[error("more notifications came than were read")]
    Overflow,
    /// What listens to the server has failed.
    #[error("internal error while listening")]
    Unheard,
    /// The system has no trusted certificates.
    #[error(
        "no trusted certificates on this system\nhint: install the `ca-certificates` package or set `SSL_CERT_FILE`"
    )]
    NoCertificates,
    /// A configured header cannot be sent.
    #[error("header `{name}` cannot be sent")]
    Header { name: String },
}

/// How a child ended, and what it said last.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{how}{}", if *.told { said(.tail) } else { "".into() })]
pub struct Exit {
    pub how: How,
    /// The last lines of its standard error, without secrets.
    pub tail: String,
    /// Callers may read the tail too.
    pub told: bool,
}

/// What the operator may know beside a fault's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Aside(String);

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum How {
    #[error("the process exited with code {0}")]
    Code(i32),
    #[error("the process was killed by signal {0}")]
    Signal(i32),
    #[error("the process closed its standard output")]
    ClosedOutput,
    #[error("the process closed its standard input")]
    ClosedInput,
    #[error("the process was stopped")]
    Stopped,
}

/// Why a connection did not open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectFault {
    #[error("connection refused")]
    Refused,
    #[error("no connection within {:?}", .0)]
    Timeout(Duration),
    #[error("host not found")]
    HostNotFound,
    #[error("host or network unreachable")]
    Unreachable,
    #[error("certificate: {0}")]
    Certificate(&'static str),
    #[error("the server does not speak TLS")]
    NotTls,
    #[error("the TLS handshake failed")]
    Handshake,
    #[error("the connection could not be opened")]
    Other,
}

impl Fault {
    /// The child ended, maybe while it was executing something; see [`Fault::of_request`].
    pub(crate) fn exited(exit: &Arc<Exit>) -> Self {
        let exit = Arc::clone(exit);
        Self::Exited { exit, sent: true }
    }

    /// The same for a request that was `sent`: what ends all that is open says nothing of it.
    pub(crate) fn of_request(self, sent: bool) -> Self {
        match self {
            Self::Stopping if sent => Self::Stopped,
            Self::Forgotten if !sent => Self::SessionLost,
            Self::Exited { exit, .. } => Self::Exited { exit, sent },
            other => other,
        }
    }

    /// The same where the fault has ended a session: what was not sent in it did not run.
    pub(crate) fn in_session(self, sent: bool) -> Self {
        let fault = self.of_request(sent);
        match sent || fault.not_executed() {
            true => fault,
            false => Self::SessionLost,
        }
    }

    /// Whether a request was never sent because what it was for has gone: another may take it.
    pub(crate) fn left_unsent(&self) -> bool {
        matches!(
            self,
            Self::SessionLost
                | Self::Stopping
                | Self::NotRunning(_)
                | Self::Exited { sent: false, .. }
        )
    }

    /// Whether the server certainly did not execute the call.
    pub fn not_executed(&self) -> bool {
        match self {
            Self::Connect(_)
            | Self::NoCertificates
            | Self::Header { .. }
            | Self::Spawn(_)
            | Self::NotRunning(_)
            | Self::Stopping
            | Self::SessionLost
            | Self::Endpoint(_)
            | Self::NoSession { .. }
            | Self::Version
            | Self::Modern
            | Self::Sessions { .. }
            | Self::Waits { .. }
            | Self::Exited { sent: false, .. } => true,
            // Refused at the door.
            Self::Status { status, .. } => matches!(status, 401 | 429),
            Self::Closed
            | Self::NoEnd
            | Self::NotHttp
            | Self::ContentType(_)
            | Self::TooLarge { .. }
            | Self::Malformed(_)
            | Self::WrongAnswer
            | Self::ResultType
            | Self::Refused { .. }
            | Self::Exited { sent: true, .. }
            | Self::Stopped
            | Self::Forgotten
            | Self::Untold(_)
            | Self::Backlog
            | Self::Silent(_)
            | Self::Late(_)
            | Self::Overflow
            | Self::Unheard => false,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Connect(_)
            | Self::Spawn(_)
            | Self::Exited { .. }
            | Self::NotRunning(_)
            | Self::Stopping
            | Self::Stopped
            | Self::SessionLost
            | Self::Forgotten
            | Self::Overflow => Kind::Unavailable,
            Self::Silent(_) | Self::Late(_) => Kind::Timeout,
            Self::Sessions { .. } | Self::Waits { .. } => Kind::Throttled,
            Self::Modern => Kind::Unavailable,
            Self::Status { status, .. } => match status {
                429 => Kind::Throttled,
                401 | 403 | 408 | 502..=504 => Kind::Unavailable,
                _ => Kind::BadUpstream,
            },
            Self::Closed
            | Self::NoEnd
            | Self::NotHttp
            | Self::ContentType(_)
            | Self::TooLarge { .. }
            | Self::Malformed(_)
            | Self::WrongAnswer
            | Self::ResultType
            | Self::NoSession { .. }
            | Self::Version
            | Self::Refused { .. }
            | Self::Untold(_)
            | Self::Backlog
            | Self::Endpoint(_) => Kind::BadUpstream,
            Self::NoCertificates | Self::Header { .. } | Self::Unheard => Kind::Internal,
        }
    }

    fn aside(&self) -> Option<String> {
        match self {
            Self::Spawn(fault) => fault.aside(),
            Self::Exited { exit, .. } | Self::NotRunning(Some(exit)) => {
                let kept = !exit.told && !exit.tail.is_empty();
                kept.then(|| exit.tail.clone())
            }
            _ => None,
        }
    }

    /// The failure as the hub knows it.
    pub(crate) fn into_call(self, upstream: &Arc<str>) -> CallError {
        let mut error = CallError::upstream(self.kind(), upstream).detail(self.to_string());
        if let Some(aside) = self.aside() {
            error = error.source(Aside(aside));
        }
        if let Self::Status {
            status,
            retry_after,
        } = self
        {
            let wait = retry_after.map(Duration::from_secs);
            error = error.http_status(status).retry_after(wait);
        }
        if matches!(self, Self::Closed) {
            error = error.disconnected();
        }
        if self.not_executed() {
            error.retryable()
        } else {
            error
        }
    }
}

fn status_note(status: u16, retry_after: Option<u64>) -> Cow<'static, str> {
    match (status, retry_after) {
        (401, _) => " (credentials are missing or wrong)".into(),
        (403, _) => " (not allowed)".into(),
        (404, _) => " (no MCP endpoint at this address)".into(),
        (300..=399, _) => " (redirects are not followed)".into(),
        (429 | 503, Some(seconds)) => format!(" (asks to wait {seconds} s)").into(),
        (429, None) => " (too many requests)".into(),
        _ => "".into(),
    }
}

fn content_type(essence: Option<&str>) -> Cow<'_, str> {
    match essence {
        Some(essence) => format!("`{essence}`").into(),
        None => "no content type".into(),
    }
}

fn said(tail: &str) -> Cow<'static, str> {
    if tail.is_empty() {
        "".into()
    } else {
        format!(": {tail}").into()
    }
}

fn exit_note(exit: Option<&Exit>) -> Cow<'static, str> {
    exit.map_or("".into(), |exit| format!(": {exit}").into())
}
