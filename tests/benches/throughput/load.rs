//! The load: connections that send the next `tools/call` as soon as the last is answered.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::server::ANSWER;

/// Calls of one tool at one address.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    address: SocketAddr,
    path: &'static str,
    tool: &'static str,
    body: Bytes,
}

/// The answered calls of one round.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Latencies in microseconds, sorted.
    latencies: Vec<u32>,
    pub(crate) took: Duration,
}

impl Measured {
    pub(crate) fn calls(&self) -> f64 {
        u32::try_from(self.latencies.len()).map_or(f64::NAN, f64::from)
    }

    /// In microseconds.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let last = self.calls() - 1.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index within the latencies"
        )]
        let at = (last * share).max(0.0) as usize;
        self.latencies
            .get(at)
            .map_or(f64::NAN, |&micros| f64::from(micros))
    }
}

impl Load {
    pub(crate) fn new(address: SocketAddr, path: &'static str, tool: &'static str) -> Self {
        let body = serde_json::json!({
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": tool,
                "arguments": { "text": "hello" },
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": { "name": "load", "version": "1" },
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        });
        Self {
            address,
            path,
            tool,
            body: Bytes::from(body.to_string()),
        }
    }

    /// Keeps `connections` calls under way for so long.
    pub(crate) async fn run(&self, connections: usize, long: Duration) -> anyhow::Result<Measured> {
        let begun = Instant::now();
        let mut running = JoinSet::new();
        for _ in 0..connections {
            running.spawn(self.clone().connection(begun + long));
        }
        let mut latencies = Vec::new();
        while let Some(of_one) = running.join_next().await {
            latencies.extend(of_one??);
        }
        let took = begun.elapsed();
        latencies.sort_unstable();
        Ok(Measured { latencies, took })
    }

    async fn connection(self, end: Instant) -> anyhow::Result<Vec<u32>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driving = JoinSet::new();
        driving.spawn(connection);
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let begun = Instant::now();
            let response = sender.send_request(self.request()?).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            let answered = body
                .windows(ANSWER.len())
                .any(|part| part == ANSWER.as_bytes());
            anyhow::ensure!(
                status.is_success() && answered,
                "{status}: {}",
                String::from_utf8_lossy(&body)
            );
            latencies.push(u32::try_from(begun.elapsed().as_micros())?);
        }
        Ok(latencies)
    }

    fn request(&self) -> anyhow::Result<Request<Full<Bytes>>> {
        Request::builder()
            .method(Method::POST)
            .uri(self.path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", self.tool)
            .body(Full::new(self.body.clone()))
            .context("not a request")
    }
}
