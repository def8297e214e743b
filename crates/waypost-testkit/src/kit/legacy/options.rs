//! How a session-era server is set up, honest or not.

use std::time::Duration;

use clap::ValueEnum;

use super::revision::Revision;

/// Settings of a session-era server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Serve modern requests as well, decided for each request.
    pub modern: bool,
    /// Issue and demand `Mcp-Session-Id`. Without sessions there is no way to ask a client.
    pub sessions: bool,
    /// The newest revision spoken: offered to whoever asks for an unknown or a newer one.
    pub newest: Revision,
    /// The transport, where it is HTTP.
    pub transport: Transport,
    /// How it differs from an honest server.
    pub quirks: Quirks,
    /// What is wrong with it over a pipe.
    pub fault: Option<Fault>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            modern: false,
            sessions: true,
            newest: Revision::Nov2025,
            transport: Transport::Http,
            quirks: Quirks::default(),
            fault: None,
        }
    }
}

/// Over which HTTP transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP, one endpoint: `/mcp`.
    #[default]
    Http,
    /// HTTP+SSE of 2024-11-05: `GET /sse`, whose first event names where to post.
    Sse,
}

/// What can be wrong with a child on standard input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// A call of `echo` ends the process: two lines on standard error, exit code 3.
    Crash,
    /// Lines that are no messages come before every message.
    StrayLines,
    /// `server/discover` is never answered.
    SilentProbe,
    /// The process goes on when its input ends.
    Lingers,
}

/// Deviations; by default none.
#[derive(Clone, Debug, Default)]
pub struct Quirks {
    /// What a request in an unknown session gets.
    pub lost: Lost,
    /// Whose words refuse a request without a session.
    pub sdk: Sdk,
    /// What a GET gets.
    pub get: GetStream,
    /// `notifications/initialized` is accepted only after so long; earlier requests are errors.
    pub initialized_takes: Option<Duration>,
    /// `initialize` is answered only after so long.
    pub initialize_takes: Option<Duration>,
    /// Questions of a call go out on the GET stream instead of the call's own.
    pub questions_on_get: bool,
    /// Every answer is an event stream, as some frameworks do it.
    pub always_streams: bool,
    /// Lists that change are announced although `initialize` did not say so.
    pub unannounced: bool,
    /// How lines of event streams end.
    pub line_end: LineEnd,
    /// How the `endpoint` event names the place to post to.
    pub endpoint: Endpoint,
}

/// How a server says that it does not know a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lost {
    /// 404 with a JSON-RPC error, as the specification's servers do.
    #[default]
    NotFound,
    /// 404 with `text/plain`.
    PlainText,
    /// 400 with a JSON-RPC error that says so.
    BadRequest,
    /// 400 with the JSON-RPC error `id: "server-error"`.
    ServerError,
    /// 200 with a JSON-RPC error that says so.
    JsonRpc,
}

/// Whose way of refusing a request outside a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sdk {
    /// The TypeScript SDK 1.x: 400, `-32000`, `id: null`.
    #[default]
    TypeScript,
    /// The Python SDK 1.x: 400, `-32600`, `id: "server-error"`, and a session id to be ignored.
    Python,
}

/// What becomes of a GET.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GetStream {
    /// A stream for what belongs to no call.
    #[default]
    Offered,
    /// This status.
    Refused(u16),
    /// 200 and an event stream that ends at once.
    Closes,
}

/// How a line ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnd {
    /// `\n`
    #[default]
    Lf,
    /// `\r\n`
    CrLf,
    /// `\r`
    Cr,
}

impl LineEnd {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
        }
    }
}

/// What the `endpoint` event of HTTP+SSE says. The stream itself is at `/p/sse` then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Endpoint {
    /// `/p/messages?sessionId=…`
    #[default]
    AbsolutePath,
    /// `messages?sessionId=…`
    Relative,
    /// `http://HOST/p/messages?sessionId=…`, with the request's own host.
    FullUrl,
    /// The same on another origin, given without a path.
    OtherOrigin(String),
}
