//! Opens connections, and says in plain words why one did not open.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiFuture, GaiResolver, Name};
use hyper_util::rt::TokioIo;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use tokio::net::TcpStream;
use tower::Service;

use crate::fault::ConnectFault;

/// Finds a peer that vanished under a stream on which nothing is sent for long.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Opens a connection within its time; TLS included.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    inner: Inner,
    timeout: Duration,
}

#[derive(Clone, Debug)]
enum Inner {
    Plain(HttpConnector<Resolver>),
    Tls(HttpsConnector<HttpConnector<Resolver>>),
}

impl Connector {
    /// A connector for `https` when there are TLS settings, otherwise for `http`.
    pub(crate) fn new(tls: Option<Arc<ClientConfig>>, timeout: Duration) -> Self {
        let mut http = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
        http.set_nodelay(true);
        http.set_keepalive(Some(TCP_KEEP_ALIVE));
        let inner = match tls {
            None => Inner::Plain(http),
            Some(tls) => {
                http.enforce_http(false);
                let tls = ClientConfig::clone(&tls);
                Inner::Tls(
                    HttpsConnectorBuilder::new()
                        .with_tls_config(tls)
                        .https_only()
                        .enable_http1()
                        .wrap_connector(http),
                )
            }
        };
        Self { inner, timeout }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = ConnectFault;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectFault>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectFault>> {
        // Neither connector ever waits here.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let timeout = self.timeout;
        let mut inner = self.inner.clone();
        Box::pin(async move {
            let open = async {
                match &mut inner {
                    Inner::Plain(http) => match http.call(uri).await {
                        Ok(stream) => Ok(MaybeHttpsStream::Http(stream)),
                        Err(error) => Err(classify(&error)),
                    },
                    Inner::Tls(https) => https.call(uri).await.map_err(|e| classify(&*e)),
                }
            };
            let opened = tokio::time::timeout(timeout, open).await;
            opened.unwrap_or(Err(ConnectFault::Timeout(timeout)))
        })
    }
}

/// Looks host names up; a failure is told apart by its type, not by its text.
#[derive(Clone, Debug)]
struct Resolver(GaiResolver);

#[derive(Debug, thiserror::Error)]
#[error("host not found")]
struct NotFound;

impl Service<Name> for Resolver {
    type Response = GaiAddrs;
    type Error = NotFound;
    type Future = futures_util::future::MapErr<GaiFuture, fn(io::Error) -> NotFound>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NotFound>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let not_found: fn(io::Error) -> NotFound = |_| NotFound;
        futures_util::TryFutureExt::map_err(self.0.call(name), not_found)
    }
}

/// What a connector's error means.
fn classify(error: &(dyn Error + 'static)) -> ConnectFault {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<NotFound>() {
            return ConnectFault::HostNotFound;
        }
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return tls_fault(tls);
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            // `source` of such an error skips the error inside it.
            if let Some(inner) = io.get_ref() {
                let inner: &(dyn Error + 'static) = inner;
                return classify(inner);
            }
            return io_fault(io.kind());
        }
        next = error.source();
    }
    ConnectFault::Other
}

fn io_fault(kind: io::ErrorKind) -> ConnectFault {
    match kind {
        io::ErrorKind::ConnectionRefused => ConnectFault::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            ConnectFault::Unreachable
        }
        // The peer went away in the middle of the handshake.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => ConnectFault::Handshake,
        _ => ConnectFault::Other,
    }
}

fn tls_fault(error: &rustls::Error) -> ConnectFault {
    match error {
        rustls::Error::InvalidCertificate(why) => ConnectFault::Certificate(certificate(why)),
        rustls::Error::InvalidMessage(_) => ConnectFault::NotTls,
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::BadCertificate,
        ) => ConnectFault::Certificate("the server wants one of the client"),
        _ => ConnectFault::Handshake,
    }
}

fn certificate(why: &CertificateError) -> &'static str {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "made for another host name"
        }
        CertificateError::UnknownIssuer => "signed by an authority that is not trusted here",
        CertificateError::Revoked => "revoked",
        CertificateError::BadEncoding => "malformed",
        _ => "refused",
    }
}
