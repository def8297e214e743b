//! How one server is reached over HTTP.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{HeaderName, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use waypost_hub::lifecycle::Tasks;
use waypost_wire::header;

use super::endpoint::{self, EndpointFault};
use crate::ear::Ear;
use crate::fault::Fault;
use crate::http::Settings;
use crate::http::answer::{self, BodyKind};
use crate::http::connector::Connector;
use crate::http::frames::Frames;
use crate::http::pool::{Lent, Pool};
use crate::http::request::Template;
use crate::parts::Parts;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Servers of earlier versions do not know the header (2025-06-18: transports, protocol version
/// header).
const VERSION_HEADER_SINCE: &str = "2025-06-18";

/// How many messages that are no requests are posted at once: a server that is slow to take one
/// holds up few others.
pub(super) const SIDE_BY_SIDE: usize = 16;

/// How long calls may go on after Waypost was told to stop.
const GRACE: Duration = Duration::from_secs(15);

/// How one server is reached; all its sessions share the connections, and none depends on one.
pub(super) struct Wire {
    pub(super) name: Arc<str>,
    /// Bytes of one message.
    pub(super) limit: usize,
    pub(super) tasks: Tasks,
    template: Template,
    pool: Arc<Pool>,
    messages: Option<Messages>,
}

/// Where messages go over HTTP+SSE, as the configuration has it.
struct Messages {
    uri: Uri,
    /// `None` where they go to the same server as everything.
    pool: Option<Arc<Pool>>,
}

impl Wire {
    pub(super) fn new(settings: &Settings, parts: &Parts) -> Result<Self, Fault> {
        let pool = |uri: &Uri| -> Result<_, Fault> {
            let tls = match uri.scheme_str() {
                Some("https") => Some(parts.tls.config()?),
                _ => None,
            };
            let connector = Connector::new(tls, settings.connect_timeout);
            Ok(Pool::new(connector, uri, settings.connections))
        };
        let own = |uri: &Uri| {
            let same = uri.scheme() == settings.uri.scheme();
            same && uri.authority() == settings.uri.authority()
        };
        let messages = settings.messages.clone().map(|uri| {
            let pool = (!own(&uri)).then(|| pool(&uri)).transpose()?;
            Ok::<_, Fault>(Messages { uri, pool })
        });
        Ok(Self {
            name: Arc::clone(&settings.name),
            limit: parts.response_limit,
            tasks: parts.tasks.clone(),
            template: Template::new(settings.uri.clone(), &settings.headers)?,
            pool: pool(&settings.uri)?,
            messages: messages.transpose()?,
        })
    }

    /// The address from the configuration.
    fn uri(&self) -> &Uri {
        self.template.uri()
    }

    /// Where messages of HTTP+SSE are to be posted, given what the server says of it.
    pub(super) fn endpoint(&self, said: &[u8]) -> Result<Uri, EndpointFault> {
        match &self.messages {
            Some(messages) => endpoint::instead(&messages.uri, self.uri(), said),
            None => endpoint::resolve(self.uri(), said),
        }
    }

    pub(super) fn post(&self, message: Bytes) -> Request<Full<Bytes>> {
        self.template.bare(Method::POST, message)
    }

    /// A request for an event stream.
    pub(super) fn get(&self) -> Request<Full<Bytes>> {
        let mut request = self.template.bare(Method::GET, Bytes::new());
        let headers = request.headers_mut();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        request
    }

    pub(super) fn delete(&self) -> Request<Full<Bytes>> {
        let mut request = self.template.bare(Method::DELETE, Bytes::new());
        request.headers_mut().remove(CONTENT_TYPE);
        request
    }

    /// Sends `request` and waits for the head of the response. To be polled on the control
    /// runtime. Repeats by itself only what it never began to write.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Lent>, Fault> {
        Self::admitted(self.pool.send(request).await?)
    }

    /// As [`Wire::send`], where messages of HTTP+SSE go.
    pub(super) async fn send_message(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Lent>, Fault> {
        let elsewhere = self.messages.as_ref().and_then(|m| m.pool.as_ref());
        let pool = elsewhere.unwrap_or(&self.pool);
        Self::admitted(pool.send(request).await?)
    }

    fn admitted(response: Response<Lent>) -> Result<Response<Lent>, Fault> {
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED || status.is_redirection() {
            return Err(answer::status_fault(status, response.headers()));
        }
        Ok(response)
    }

    /// Sends `request`, whose response must be an event stream.
    pub(super) async fn events(&self, request: Request<Full<Bytes>>) -> Result<Frames, Fault> {
        let (head, body) = self.send(request).await?.into_parts();
        match BodyKind::of(&head.headers) {
            _ if !head.status.is_success() => Err(answer::status_fault(head.status, &head.headers)),
            BodyKind::Events => Ok(Frames::new(body, self.limit)),
            BodyKind::Json | BodyKind::Other => Err(answer::content_type_fault(&head.headers)),
        }
    }

    /// Does `work` on the control runtime, so that its connections do not die with the core that
    /// asked. Dropped, it stops the work.
    pub(super) async fn on_control<T, F>(&self, work: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let (mut done, answer) = oneshot::channel();
        self.tasks.spawn(|_| async move {
            tokio::select! {
                result = work => drop(done.send(result)),
                () = done.closed() => {}
            }
        });
        answer
            .await
            .unwrap_or_else(|_| match self.tasks.is_stopping() {
                true => Err(Fault::Stopping),
                // What failed inside may have sent it.
                false => Err(Fault::Unheard),
            })
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may carry a key in its query.
        f.debug_struct("Wire")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Resolves when a stream is to be let go: at once when its session is `over`, and when Waypost
/// stops, as soon as nothing is in flight that is answered or asked about on it.
pub(super) async fn dismissed(over: &CancellationToken, stop: &CancellationToken, ear: &dyn Ear) {
    let gently = async {
        stop.cancelled().await;
        drop(timeout(GRACE, ear.idle()).await);
    };
    tokio::select! {
        () = over.cancelled() => {}
        () = gently => {}
    }
}

/// What `MCP-Protocol-Version` says in a session of this version.
pub(super) fn version_header(protocol: &str) -> Option<HeaderValue> {
    if protocol < VERSION_HEADER_SINCE {
        return None;
    }
    HeaderValue::from_str(protocol).ok()
}
