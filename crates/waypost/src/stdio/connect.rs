//! `waypost stdio --connect`: the host's lines, carried to a running daemon.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum::body::Body;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Response, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{stdin, stdout};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder};
use waypost_config::Log;
use waypost_front::stdio::bridge::{Bridge, Daemon, Fault, Sender};
use waypost_hub::lifecycle::Tasks;

use crate::exit::Fatal;
use crate::logging;
use crate::serve::runtime;
use crate::signal::Signals;
use crate::stdio::read_on;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// How long requests may take to finish once the host closed its end; its signal cuts it short.
const GRACE: Duration = Duration::from_secs(20);

/// What may still run after that.
const REST: Duration = Duration::from_secs(1);

/// Bytes of one message: as many as the daemon takes of an answer from its upstreams.
const MOST: usize = 64 << 20;

/// Where to connect to, as the command line says it.
#[derive(Debug)]
pub(crate) struct Connect {
    pub(crate) url: String,
    /// `Name: value`.
    pub(crate) headers: Vec<String>,
    pub(crate) key: Option<String>,
    pub(crate) log: Log,
}

/// Runs until the host closes its end, or a signal.
pub(crate) fn run(connect: &Connect) -> Result<(), Fatal> {
    let _last = logging::start(&connect.log)?;
    let uri = uri(&connect.url)?;
    let headers = headers(&connect.headers, connect.key.as_deref())?;
    let runtime = runtime()?;
    let result = runtime.block_on(until_over(uri, headers));
    // Whoever still reads standard input is not waited for.
    runtime.shutdown_background();
    result
}

async fn until_over(uri: Uri, headers: HeaderMap) -> Result<(), Fatal> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let tasks = Tasks::on(Handle::current());
    let daemon = Daemon {
        sender: sender(&uri)?,
        uri,
        headers,
        tasks: tasks.clone(),
        limit: MOST,
    };
    let Some(there) = signals.until(daemon.probe()).await else {
        return Ok(());
    };
    match there {
        // Hosts start this as early as they start themselves: the daemon may yet come.
        Err(fault @ (Fault::Unreachable { .. } | Fault::Silent { .. })) => {
            tracing::warn!(error = %fault, hint = fault.hint(), "nobody is there yet");
        }
        there => there.map_err(|fault| match fault.hint() {
            Some(hint) => Fatal::hint(fault, hint),
            None => anyhow::Error::from(fault).into(),
        })?,
    }
    let bridge = Bridge::new(&daemon, stdout());
    let finished = Box::pin(carry(bridge, &mut signals)).await;
    let ended = tasks.drain(REST).await;
    let clean = finished == Some(true) && ended;
    tracing::info!(clean, "ended");
    Ok(())
}

/// Carries until the host closes its end, or a signal, and lets what is open finish. Whether it did;
/// `None` when a further signal ended the wait.
async fn carry(bridge: Bridge, signals: &mut Signals) -> Option<bool> {
    let mut read = Box::pin(bridge.read(stdin()));
    let mut over = signals.until(&mut read).await.is_some();
    let until = Instant::now() + GRACE;
    if !over {
        bridge.begin_drain();
        over = read_on(signals, &mut read, until, || bridge.is_idle()).await;
    }
    drop(read);
    let left = until.saturating_duration_since(Instant::now());
    let left = if over { left } else { Duration::ZERO };
    signals.until(Box::pin(bridge.finish(left))).await
}

fn sender(uri: &Uri) -> Result<Sender, Fatal> {
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT));
    let open = |response: Response<hyper::body::Incoming>| response.map(Body::new);
    let layers = ServiceBuilder::new().map_response(open);
    let layers = layers.map_err(BoxError::from);
    if uri.scheme() != Some(&Scheme::HTTPS) {
        let client = Client::builder(TokioExecutor::new()).build::<_, Body>(http);
        return Ok(BoxCloneSyncService::new(layers.service(client)));
    }
    http.enforce_http(false);
    let tls = HttpsConnectorBuilder::new().with_native_roots();
    let tls = tls.context("cannot read the certificates that this system trusts")?;
    let https = tls.https_only().enable_http1().wrap_connector(http);
    let client = Client::builder(TokioExecutor::new()).build::<_, Body>(https);
    Ok(BoxCloneSyncService::new(layers.service(client)))
}

fn uri(url: &str) -> Result<Uri, Fatal> {
    let parsed: Option<Uri> = url.parse().ok();
    let is_http = |uri: &Uri| {
        let scheme = uri.scheme();
        uri.host().is_some() && (scheme == Some(&Scheme::HTTP) || scheme == Some(&Scheme::HTTPS))
    };
    parsed.filter(is_http).ok_or_else(|| {
        let error = anyhow!("`--connect` is no address of HTTP");
        Fatal::hint(
            error,
            "give the MCP endpoint, as in `http://127.0.0.1:7400/mcp`",
        )
    })
}

fn headers(lines: &[String], key: Option<&str>) -> Result<HeaderMap, Fatal> {
    let mut headers = HeaderMap::new();
    if let Some(key) = key.filter(|key| !key.is_empty()) {
        let value = secret(&format!("Bearer {key}"));
        let value = value.ok_or_else(|| anyhow!("`WAYPOST_KEY` is no key"))?;
        headers.insert(AUTHORIZATION, value);
    }
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| {
            let error = anyhow!("a `--header` has no colon");
            Fatal::hint(error, "write it as `Name: value`")
        })?;
        let text = name.trim();
        let name = HeaderName::from_bytes(text.as_bytes()).ok();
        let (Some(name), Some(value)) = (name, secret(value.trim())) else {
            return Err(anyhow!("header `{text}` cannot be sent").into());
        };
        let own = [ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST].contains(&name);
        if own || name.as_str().starts_with("mcp-") {
            return Err(anyhow!("header `{text}` is the protocol's own").into());
        }
        headers.insert(name, value);
    }
    Ok(headers)
}

/// A value that is not to be shown anywhere.
fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Result<HeaderMap, Fatal> {
        let lines: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
        headers(&lines, Some("wp_key"))
    }

    #[test]
    fn headers_come_from_the_command_line_and_the_key_from_the_environment() {
        let headers = lines(&["X-Team: a: b"]).unwrap();
        assert_eq!(headers["authorization"], "Bearer wp_key");
        assert_eq!(headers["x-team"], "a: b");
        let headers = lines(&["authorization: Basic x"]).unwrap();
        assert_eq!(headers["authorization"], "Basic x", "what is written wins");
        for wrong in ["X-Team", "a b: c", "x: a\nb", "Mcp-Name: x", "Host: x"] {
            assert!(lines(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_http_can_be_connected_to() {
        assert!(uri("http://127.0.0.1:7400/mcp").is_ok());
        assert!(uri("https://waypost.example/mcp").is_ok());
        for wrong in ["", "/mcp", "127.0.0.1:7400", "ws://host/mcp"] {
            assert!(uri(wrong).is_err(), "{wrong}");
        }
    }
}
