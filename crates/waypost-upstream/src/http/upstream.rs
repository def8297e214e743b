//! One server reached by Streamable HTTP.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Response, StatusCode, Uri};
use rustls::ClientConfig;
use waypost_config::Secret;
use waypost_hub::call::Call;
use waypost_hub::error::CallError;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::Reply;
use waypost_wire::id::Id;

use super::answer::{self, BodyKind};
use super::connector::Connector;
use super::events::Events;
use super::lingering;
use super::pool::{Lent, Pool};
use super::request::Template;
use crate::core_local::PerCore;
use crate::door::Came;
use crate::fault::Fault;
use crate::outcome;
use crate::parts::Parts;
use crate::probe::{self, Answered, Discovery};

/// What of the configuration matters here.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) name: Arc<str>,
    pub(crate) uri: Uri,
    pub(crate) headers: Vec<(String, Secret)>,
    pub(crate) connect_timeout: Duration,
    /// Most connections kept unused per core.
    pub(crate) connections: usize,
    /// Where HTTP+SSE has its messages posted, whatever the server says.
    pub(crate) messages: Option<Uri>,
}

/// One server reached by Streamable HTTP.
pub(crate) struct HttpUpstream {
    name: Arc<str>,
    template: Template,
    pools: PerCore<Arc<Pool>>,
    tls: Option<Arc<ClientConfig>>,
    connect_timeout: Duration,
    connections: usize,
    limit: usize,
    tasks: Tasks,
    next_id: AtomicU64,
}

impl HttpUpstream {
    pub(crate) fn new(settings: Settings, parts: &Parts) -> Result<Self, Fault> {
        let tls = match settings.uri.scheme_str() {
            Some("https") => Some(parts.tls.config()?),
            _ => None,
        };
        Ok(Self {
            name: settings.name,
            template: Template::new(settings.uri, &settings.headers)?,
            pools: PerCore::new(parts.cores),
            tls,
            connect_timeout: settings.connect_timeout,
            connections: settings.connections,
            limit: parts.response_limit,
            tasks: parts.tasks.clone(),
            next_id: AtomicU64::new(1),
        })
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        self.pools.get_or_init(|| {
            let connector = Connector::new(self.tls.clone(), self.connect_timeout);
            Pool::new(connector, self.template.uri(), self.connections)
        })
    }

    /// Asks the server what it is.
    pub(crate) async fn probe(self: &Arc<Self>) -> Result<Discovery, CallError> {
        let ask = |call: Call| async move { self.exchange(&call).await };
        probe::discover(&self.name, ask).await
    }

    /// Sends `call` and reads the head of its answer, or the whole when that is one piece.
    pub(crate) async fn exchange(self: &Arc<Self>, call: &Call) -> Result<Answered, Fault> {
        let id = Id::number(self.next_id.fetch_add(1, Ordering::Relaxed));
        let request = self.template.request(call, &id);
        let answered = if call.aftermath.matters() {
            lingering::exchange(self, request, id, &call.aftermath).await?
        } else {
            let response = self.pool().send(request).await?;
            self.read(response, id).await?
        };
        let came = Came::Http(answered.status.unwrap_or_default());
        let reply = outcome::in_todays_codes(&call.method, came, answered.reply);
        Ok(Answered { reply, ..answered })
    }

    pub(super) async fn read(&self, response: Response<Lent>, id: Id) -> Result<Answered, Fault> {
        let (head, body) = response.into_parts();
        let (status, headers) = (head.status, &head.headers);
        if status == StatusCode::UNAUTHORIZED || status.is_redirection() {
            return Err(answer::status_fault(status, headers));
        }
        let mut nameless = false;
        let reply = match BodyKind::of(headers) {
            BodyKind::Json => {
                let body = answer::whole(body, self.limit, status, headers).await?;
                nameless = !status.is_success() && !answer::names(&body, &id);
                Reply::End(answer::end(&body, &id, status, headers)?)
            }
            BodyKind::Events => {
                let mut events = Events::new(body, id, self.limit, &self.name, &self.tasks);
                match events.glance().await? {
                    Some(end) => Reply::End(end),
                    None => Reply::Stream(Box::pin(events)),
                }
            }
            BodyKind::Other if status.is_success() => {
                return Err(answer::content_type_fault(headers));
            }
            BodyKind::Other => return Err(answer::status_fault(status, headers)),
        };
        Ok(Answered {
            status: Some(status),
            nameless,
            reply,
        })
    }
}

impl fmt::Debug for HttpUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may carry a key in its query.
        f.debug_struct("HttpUpstream")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
