//! Why a request was not let in.

use waypost_hub::limit::NoRoom;
use waypost_wire::error::Malformed;
use waypost_wire::id::Id;

/// The HTTP contract is broken, or the body is no request of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("no such endpoint, MCP is at `/mcp`")]
    NoSuchPath,
    /// One of HTTP+SSE, which is off.
    #[error("HTTP+SSE is off: `front.sse: true` turns it on, or use `/mcp`")]
    NoSse,
    #[error("no such endpoint, `/mcp` shows everything")]
    NoSuchView,
    #[error("only POST is served here")]
    NotPost,
    #[error("only GET is served here, it opens a stream that names the address to POST to")]
    NotGet,
    /// Where a stream has to be open to send to it: none has this name, for this caller.
    #[error(
        "no such stream is open: GET `/sse` and send to the address that its first event names"
    )]
    NoStream,
    #[error("the answer is `application/json` or `text/event-stream`, `Accept` takes neither")]
    NotAcceptable,
    #[error("this method answers with a stream, `Accept` must take `text/event-stream`")]
    NeedsStream,
    #[error("`Content-Type` must be `application/json` in UTF-8")]
    MediaType,
    #[error("the request body is larger than {limit} bytes")]
    BodyTooLarge { limit: usize },
    #[error("the request body did not arrive in time")]
    BodyTimeout,
    #[error("the request body broke off")]
    BodyBroken,
    /// Not a JSON-RPC message.
    #[error("{0}")]
    Malformed(Malformed),
    /// What only goes wrong with several messages at once.
    #[error("{0}")]
    Batch(#[from] BatchFault),
    /// Servers of the stateless era ask nothing, so there is nothing to respond to.
    #[error("a response was sent where only requests are taken")]
    NotRequest,
    /// `_meta`, or a required member of it.
    #[error("{0}")]
    Meta(Malformed),
    #[error("{0}")]
    Header(#[from] HeaderFault),
    #[error("header `{header}` is there more than once, with different values")]
    Contradictory { header: &'static str },
    #[error("protocol version `{requested}` is not supported")]
    Version { requested: String },
    /// A request of the session era.
    #[error(
        "protocol version `{requested}` and its sessions are not supported, send stateless requests with `_meta`"
    )]
    Legacy { requested: String },
    #[error("method `{method}` is not served in this protocol version")]
    NoSuchMethod { method: String },
    /// A stateless request where only sessions are served.
    #[error("stateless requests are not served here, open a session with `initialize`")]
    Modern {
        requested: String,
        /// A client that only looks which era is served goes on better with this.
        probe: bool,
    },
    /// Says neither which version it speaks nor which session it is of.
    #[error(
        "the request names no protocol version: send `_meta` with `io.modelcontextprotocol/protocolVersion` for a stateless request, or header `mcp-session-id` with the id that `initialize` gave"
    )]
    NoVersion,
    /// The same over a pipe, where a session needs no id.
    #[error(
        "the request names no protocol version and no session is open: send `_meta` with `io.modelcontextprotocol/protocolVersion`, or `initialize` first"
    )]
    NotOpened,
    #[error("header `mcp-session-id` is missing: send the id that the answer to `initialize` gave")]
    NoSession,
    #[error("session not found, open a new one with `initialize`")]
    UnknownSession,
    #[error("too many sessions are open, try again later")]
    TooManySessions,
    #[error("what is remembered of sessions cannot be reached, try again later")]
    NoMemory,
    #[error("a request with this id is already in flight in this session")]
    DuplicateId,
    #[error("too many requests are in flight in this session")]
    SessionBusy,
    /// Where the answer is no way to say so: it would come on the stream that is full.
    #[error("too many requests wait for the stream to be read")]
    StreamFull,
    /// It begins work, and nothing may begin.
    #[error("{}", .0.message())]
    NoRoom(NoRoom),
}

/// A batch breaks its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BatchFault {
    #[error("the batch is empty")]
    Empty,
    #[error("the batch has more than {limit} messages")]
    TooLong { limit: usize },
    #[error("`initialize` may not be in a batch, send it alone")]
    Initialize,
}

/// A header of the protocol breaks its rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderFault {
    #[error("header `{header}` is missing")]
    Missing { header: &'static str },
    #[error("header `{header}` is there more than once")]
    Repeated { header: &'static str },
    #[error("header `{header}` has a value that cannot be read")]
    Unreadable { header: String },
    #[error("header `{header}` differs from `{member}` in the body")]
    Differs {
        header: &'static str,
        member: &'static str,
    },
}

/// A refusal and the id to answer with, where that much was readable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) id: Option<Id>,
    pub(crate) refusal: Refusal,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { id: None, refusal }
    }
}

impl Refusal {
    /// Echoes `id` in the answer.
    pub(crate) fn to(self, id: Id) -> Refused {
        Refused {
            id: Some(id),
            refusal: self,
        }
    }

    /// The era, as `front.eras` names it, that its client would have to be served in, and the
    /// version that it asks for. One that only looks which era is served goes on in the other.
    pub(crate) fn switched_off(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Legacy { requested } => Some(("legacy", requested)),
            Self::Modern {
                requested,
                probe: false,
            } => Some(("modern", requested)),
            _ => None,
        }
    }
}
