//! What can go wrong between bridge and daemon.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tower::BoxError;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;

/// Why the daemon gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Fault {
    /// Nothing was sent.
    #[error("cannot reach Waypost at `{url}`: {reason}")]
    Unreachable {
        /// The endpoint, without what may be secret in it.
        url: Arc<str>,
        /// In the words of the system.
        reason: String,
    },
    /// It took the request and said nothing.
    #[error("Waypost at `{url}` did not answer within {} s", within.as_secs())]
    Silent {
        /// The endpoint.
        url: Arc<str>,
        /// How long was waited.
        within: Duration,
    },
    /// An HTTP error without a JSON-RPC one in it.
    #[error("Waypost at `{url}` answered HTTP {status}")]
    Status {
        /// The endpoint.
        url: Arc<str>,
        /// What it answered.
        status: StatusCode,
    },
    /// The connection ended before the answer.
    #[error("the connection to Waypost broke off before its answer")]
    BrokenOff,
    /// The answer is larger than is taken.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// In bytes.
        limit: usize,
    },
    /// The session is gone, and there is no other; nothing was executed.
    #[error("Waypost does not know the session any more, and no other could be opened: {reason}")]
    NotReopened {
        /// In the words of who refused.
        reason: String,
    },
    /// What came is not the protocol.
    #[error("what answered does not speak MCP")]
    NotMcp,
}

impl Fault {
    pub(super) fn unreachable(url: &Arc<str>, error: &BoxError) -> Self {
        // The innermost cause is the one that says something.
        let mut cause: &dyn std::error::Error = &**error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        Self::Unreachable {
            url: Arc::clone(url),
            reason: cause.to_string(),
        }
    }

    pub(crate) fn not_reopened(reason: &str) -> Self {
        let reason = reason.to_owned();
        Self::NotReopened { reason }
    }

    /// What one can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } => Some(
                "see that `waypost serve` runs and listens there; the next request tries again",
            ),
            Self::Status { status, .. } => match status.as_u16() {
                401 | 403 => Some("give a key that it knows in `WAYPOST_KEY`"),
                404 | 405 => {
                    Some("give the address of the MCP endpoint, as in `http://127.0.0.1:7400/mcp`")
                }
                _ => None,
            },
            Self::BrokenOff => Some("it was restarted, perhaps; the next request tries again"),
            Self::TooLarge { .. } => None,
            Self::NotReopened { .. } => {
                Some("start this server anew in the host; the next request tries again")
            }
            Self::NotMcp => {
                Some("give the address of the MCP endpoint, as in `http://127.0.0.1:7400/mcp`")
            }
        }
    }

    /// What the host is answered.
    pub(super) fn error(&self) -> ErrorObject {
        let hint = self.hint();
        let text = match hint {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        };
        let unsent = matches!(self, Self::Unreachable { .. } | Self::NotReopened { .. });
        let data = json!({ "kind": "unavailable", "retryable": unsent, "hint": hint });
        ErrorObject::with_data(code::INTERNAL_ERROR, &text, &data)
    }
}
