//! HTTP requests to the daemon.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use tower::{Service as _, ServiceExt as _};
use waypost_hub::own;
use waypost_wire::header::{self, METHOD, NAME, PROTOCOL_VERSION};
use waypost_wire::id::Id;
use waypost_wire::message;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::version;

use super::fault::Fault;
use super::reply::Reply;
use super::{Daemon, Sender};
use crate::media::{JSON, SSE};

/// Longest wait for the first answer.
const PROBE: Duration = Duration::from_secs(5);

/// The way to the daemon; cheap to clone.
#[derive(Clone)]
pub(crate) struct Link {
    uri: Uri,
    fixed: HeaderMap,
    sender: Sender,
    shown: Arc<str>,
    limit: usize,
}

impl Link {
    pub(crate) fn new(daemon: &Daemon) -> Self {
        Self {
            shown: shown(&daemon.uri).into(),
            uri: daemon.uri.clone(),
            fixed: daemon.headers.clone(),
            sender: daemon.sender.clone(),
            limit: daemon.limit,
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// See [`Daemon::probe`].
    pub(crate) async fn probe(&self) -> Result<(), Fault> {
        let id = Id::number(0);
        let body = message::encode_call(&id, method::DISCOVER, &Object::new(), &own::meta());
        let mut headers = HeaderMap::new();
        put(&mut headers, PROTOCOL_VERSION, version::MODERN);
        put(&mut headers, METHOD, method::DISCOVER);
        let first = async {
            let mut reply = self.post(body, headers).await?;
            // Whatever it says in JSON-RPC, an error included, says that the endpoint is there.
            let said = reply.next().await?;
            reply.check()?;
            said.map(drop).ok_or(Fault::NotMcp)
        };
        let first = tokio::time::timeout(PROBE, first).await;
        first.unwrap_or_else(|_| {
            Err(Fault::Silent {
                url: Arc::clone(&self.shown),
                within: PROBE,
            })
        })
    }

    /// Sends a message.
    pub(crate) async fn post(&self, body: Bytes, headers: HeaderMap) -> Result<Reply, Fault> {
        self.send(Method::POST, body.into(), headers).await
    }

    /// Sends a request without a body.
    pub(crate) async fn bare(&self, method: Method, headers: HeaderMap) -> Result<Reply, Fault> {
        self.send(method, Body::empty(), headers).await
    }

    async fn send(&self, method: Method, body: Body, headers: HeaderMap) -> Result<Reply, Fault> {
        let mut request = Request::new(body);
        let all = request.headers_mut();
        if method == Method::POST {
            all.insert(CONTENT_TYPE, JSON);
            let both = HeaderValue::from_static("application/json, text/event-stream");
            all.insert(ACCEPT, both);
        } else {
            all.insert(ACCEPT, SSE);
        }
        all.extend(self.fixed.clone());
        all.extend(headers);
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        let mut sender = self.sender.clone();
        let sent = async { sender.ready().await?.call(request).await };
        let response = sent.await;
        let response = response.map_err(|error| Fault::unreachable(&self.shown, &error))?;
        Ok(Reply::new(response, &self.shown, self.limit))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("to", &self.shown)
            .finish_non_exhaustive()
    }
}

/// The headers that a stateless request repeats itself in.
pub(crate) fn mirrored(version: &str, name: &str, params: &Object) -> HeaderMap {
    let mut headers = HeaderMap::new();
    put(&mut headers, PROTOCOL_VERSION, version);
    put(&mut headers, METHOD, name);
    let about = method::name_member(name).and_then(|member| params.str(member));
    if let Some(about) = about {
        put(&mut headers, NAME, &about);
    }
    headers
}

/// Adds `text` in the form that header values have (specification: transports, value encoding).
fn put(headers: &mut HeaderMap, name: &'static str, text: &str) {
    // Fails for no text: what is not visible ASCII is encoded.
    if let Ok(value) = HeaderValue::from_str(&header::encode(text)) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// An address without what may be secret in it.
fn shown(uri: &Uri) -> String {
    let host = uri.authority().map_or("", |all| {
        all.as_str()
            .rsplit_once('@')
            .map_or(all.as_str(), |(_, host)| host)
    });
    let scheme = uri.scheme_str().unwrap_or("http");
    format!("{scheme}://{host}{}", uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        let uri: Uri = "https://me:secret@host:1/mcp?key=secret".parse().unwrap();
        assert_eq!(shown(&uri), "https://host:1/mcp");
    }
}
