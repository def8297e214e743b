//! Clients of every kind the compatibility matrix has, driven alike.
//!
//! A [`Peer`] connects as its [`Kind`] says, then lists, calls, reads, is asked and is told in
//! the same words: a test is written once and run for every kind.

mod answers;
mod calls;
mod link;
mod manners;
mod outcome;
mod pipe;
mod router;
mod session;
mod sse;
mod tasks;
mod url;
mod watch;

use std::io;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};

use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

pub use self::answers::{Answers, Asked};
pub use self::calls::Begun;
use self::link::Link;
pub use self::manners::Manners;
pub use self::outcome::Outcome;
use self::pipe::Pipe;
use self::router::Router;
use self::session::Session;
use crate::client::Client;
use crate::kit::legacy::Revision;

/// What a client speaks, and over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 2026-07-28 over HTTP.
    Modern,
    /// A revision of the session era over Streamable HTTP.
    Http(Revision),
    /// 2026-07-28 over a pipe.
    ModernPipe,
    /// A revision of the session era over a pipe.
    LegacyPipe(Revision),
    /// A revision of the session era over HTTP+SSE.
    Sse(Revision),
}

impl Kind {
    /// The clients of the compatibility matrix, in its order.
    pub const MATRIX: [Self; 6] = [
        Self::Modern,
        Self::Http(Revision::Nov2025),
        Self::Http(Revision::Jun2025),
        Self::Http(Revision::Mar2025),
        Self::ModernPipe,
        Self::LegacyPipe(Revision::Nov2025),
    ];

    /// Its name in the matrix.
    pub fn name(self) -> String {
        match self {
            Self::Modern => "modern".to_owned(),
            Self::Http(revision) => revision.as_str().to_owned(),
            Self::ModernPipe => "stdio modern".to_owned(),
            Self::LegacyPipe(Revision::Nov2025) => "stdio legacy".to_owned(),
            Self::LegacyPipe(revision) => format!("stdio {}", revision.as_str()),
            Self::Sse(revision) => format!("SSE {}", revision.as_str()),
        }
    }

    /// Whether it needs a command instead of a URL.
    pub fn is_pipe(self) -> bool {
        matches!(self, Self::ModernPipe | Self::LegacyPipe(_))
    }

    /// The revision it asks for at `initialize`; `None` for modern ones.
    pub fn revision(self) -> Option<Revision> {
        match self {
            Self::Modern | Self::ModernPipe => None,
            Self::Http(revision) | Self::LegacyPipe(revision) | Self::Sse(revision) => {
                Some(revision)
            }
        }
    }
}

/// Where the server is.
#[derive(Clone, Debug)]
pub enum Target {
    /// Its endpoint.
    Url(String),
    /// Its program and arguments.
    Command(Vec<String>),
}

/// A connected client.
#[derive(Debug)]
pub struct Peer {
    kind: Kind,
    client: Client,
    link: Link,
    capabilities: Value,
    level: Mutex<Option<String>>,
    opening: Value,
    get_status: Option<StatusCode>,
    headers: Vec<(String, String)>,
}

impl Peer {
    /// Connects with the usual manners: `server/discover`, or `initialize` and what follows it.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached or does not open, or `to` does not fit `kind`.
    pub async fn connect(kind: Kind, to: &Target) -> io::Result<Self> {
        Self::with(kind, to, Manners::default()).await
    }

    /// As [`Peer::connect`], with these manners.
    ///
    /// # Errors
    ///
    /// As [`Peer::connect`].
    pub async fn with(kind: Kind, to: &Target, manners: Manners) -> io::Result<Self> {
        let link = match (kind, to) {
            (Kind::Modern, Target::Url(_)) => Link::Modern(Router::default()),
            (Kind::Http(_), Target::Url(url)) => Link::Session(Session::new(url, &manners)),
            (Kind::Sse(_), Target::Url(url)) => Link::Pipe(sse::open(url, &manners.headers).await?),
            (Kind::ModernPipe | Kind::LegacyPipe(_), Target::Command(command)) => {
                Link::Pipe(Pipe::start(command)?)
            }
            _ => {
                let why = format!("a client of kind `{}` cannot reach {to:?}", kind.name());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        };
        let url = match to {
            Target::Url(url) => url.as_str(),
            Target::Command(_) => "",
        };
        Self::open(kind, url, link, manners).await
    }

    /// Connects over any pipe, as a client of a pipe's kind.
    ///
    /// # Errors
    ///
    /// As [`Peer::connect`].
    pub async fn over<R, W>(kind: Kind, from: R, to: W, manners: Manners) -> io::Result<Self>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        Self::open(kind, "", Link::Pipe(Pipe::over(from, to)), manners).await
    }

    /// Goes on in the session `id`, which another client opened; it opens no GET stream.
    ///
    /// # Errors
    ///
    /// When `kind` has no such sessions.
    pub fn rejoin(kind: Kind, url: &str, id: &str, manners: &Manners) -> io::Result<Self> {
        let Kind::Http(revision) = kind else {
            let why = format!("a client of kind `{}` has no session id", kind.name());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        let session = Session::new(url, manners);
        session.named(id);
        session.agreed(revision);
        let mut peer = Self::new(kind, url, Link::Session(session), manners);
        peer.opening = json!({ "protocolVersion": revision.as_str() });
        Ok(peer)
    }

    fn new(kind: Kind, url: &str, link: Link, manners: &Manners) -> Self {
        Self {
            kind,
            client: Client::new(url).with_capabilities(manners.capabilities.clone()),
            link,
            capabilities: manners.capabilities.clone(),
            level: Mutex::default(),
            opening: Value::Null,
            get_status: None,
            headers: manners.headers.clone(),
        }
    }

    async fn open(kind: Kind, url: &str, link: Link, manners: Manners) -> io::Result<Self> {
        let mut peer = Self::new(kind, url, link, &manners);
        let Some(revision) = kind.revision() else {
            peer.opening = peer.ask("server/discover", json!({})).await?;
            return Ok(peer);
        };
        let offers = manners
            .offers
            .unwrap_or_else(|| revision.as_str().to_owned());
        let params = json!({
            "protocolVersion": offers,
            "capabilities": peer.capabilities,
            "clientInfo": { "name": "waypost-testkit", "version": env!("CARGO_PKG_VERSION") },
        });
        peer.opening = peer.ask("initialize", params).await?;
        if let (Link::Session(session), Some(agreed)) = (&peer.link, peer.agreed()) {
            session.agreed(agreed);
        }
        peer.notify("notifications/initialized", Value::Null)
            .await?;
        if let Link::Session(session) = &peer.link
            && manners.get_stream
        {
            peer.get_status = Some(session.listen().await?);
        }
        Ok(peer)
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The result of `server/discover` or `initialize`.
    pub fn opening(&self) -> &Value {
        &self.opening
    }

    /// The revision `initialize` agreed on, where it is a known one.
    pub fn agreed(&self) -> Option<Revision> {
        let version = self.opening.get("protocolVersion").and_then(Value::as_str);
        version.and_then(Revision::parse)
    }

    /// The session's id, if there is one.
    pub fn session_id(&self) -> Option<&str> {
        match &self.link {
            Link::Session(session) => session.id(),
            Link::Modern(_) | Link::Pipe(_) => None,
        }
    }

    /// What the GET for the stream of the session era got.
    pub fn get_status(&self) -> Option<StatusCode> {
        self.get_status
    }

    /// Sends a notification (session era, or over a pipe): its HTTP status, where there is one.
    ///
    /// # Errors
    ///
    /// When it cannot be sent.
    pub async fn notify(&self, method: &str, params: Value) -> io::Result<Option<StatusCode>> {
        let mut message = json!({ "jsonrpc": "2.0", "method": method });
        if let (false, Some(members)) = (params.is_null(), message.as_object_mut()) {
            members.insert("params".into(), params);
        }
        self.link.send(message).await
    }

    /// Asks for log messages from `level` on, in its era's way.
    ///
    /// # Errors
    ///
    /// When there is no answer, or it is an error.
    pub async fn set_level(&self, level: &str) -> io::Result<()> {
        if self.kind.revision().is_some() {
            let params = json!({ "level": level });
            return self.ask("logging/setLevel", params).await.map(drop);
        }
        let mut slot = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(level.to_owned());
        Ok(())
    }

    /// Leaves as its kind does: DELETE, or the end of the pipe. A child's exit status.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached, or a child does not end.
    pub async fn close(self) -> io::Result<Option<ExitStatus>> {
        match self.link {
            Link::Modern(_) => Ok(None),
            Link::Session(session) => {
                if session.id().is_some() {
                    session.delete().await?;
                }
                Ok(None)
            }
            Link::Pipe(pipe) => pipe.close().await,
        }
    }
}
