//! A running Waypost, and who asks it for lists.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use waypost_tests::interop::from_xtask;

use crate::process;

const START: Duration = Duration::from_secs(60);

/// It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Waypost {
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    child: Child,
    _logging: JoinSet<()>,
}

impl Waypost {
    pub(crate) async fn start(file: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(from_xtask("WAYPOST_BIN")?);
        command.args(["serve", "--config"]).arg(file);
        command.stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start Waypost")?;
        let log = child.stderr.take().context("Waypost has no log")?;
        let mut lines = BufReader::new(log).lines();
        let mut said = String::new();
        let (address, admin) = loop {
            let line = tokio::time::timeout(START, lines.next_line()).await??;
            let line = line.with_context(|| format!("Waypost ended:\n{said}"))?;
            let value = |name: &str| -> Option<SocketAddr> {
                let mut words = line.split_whitespace();
                words.find_map(|word| word.strip_prefix(name)?.parse().ok())
            };
            if let (Some(mcp), Some(admin)) = (value("mcp="), value("admin=")) {
                break (mcp, admin);
            }
            said.push_str(&line);
            said.push('\n');
        };
        let mut logging = JoinSet::new();
        // A log that nobody reads would stop whoever writes it.
        logging.spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self {
            address,
            admin,
            child,
            _logging: logging,
        })
    }

    /// Waits until the first attempts to connect are over.
    pub(crate) async fn ready(&self, within: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !process::answers_ok(self.admin, "/readyz").await? {
            anyhow::ensure!(begun.elapsed() < within, "Waypost is not ready");
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Makes it read its configuration again.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        self.signal("-HUP")
    }

    /// Lets it end by itself.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.signal("-TERM")?;
        self.child.wait().await?;
        Ok(())
    }

    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let pid = self.child.id().context("it has ended")?.to_string();
        let sent = std::process::Command::new("kill")
            .args([signal, &pid])
            .status()?;
        anyhow::ensure!(sent.success(), "`kill` failed");
        Ok(())
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.child.id().into_iter().collect()
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    sender: http1::SendRequest<Full<Bytes>>,
    _driving: JoinSet<hyper::Result<()>>,
}

/// A list, and how long it took to begin and to come whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Bytes,
    pub(crate) head: Duration,
    pub(crate) whole: Duration,
}

impl Answer {
    /// Counted by the one member that every definition has exactly once.
    pub(crate) fn tools(&self) -> usize {
        let text = std::str::from_utf8(&self.body).unwrap_or_default();
        text.matches("\"inputSchema\":").count()
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driving = JoinSet::new();
        driving.spawn(connection);
        Ok(Self {
            address,
            sender,
            _driving: driving,
        })
    }

    pub(crate) async fn list(&mut self, path: &str) -> anyhow::Result<Answer> {
        let request = self.request(path)?;
        self.sender.ready().await?;
        let begun = Instant::now();
        let response = self.sender.send_request(request).await?;
        let head = begun.elapsed();
        let body = response.into_body().collect().await?.to_bytes();
        let whole = begun.elapsed();
        Ok(Answer { body, head, whole })
    }

    fn request(&self, path: &str) -> anyhow::Result<Request<Full<Bytes>>> {
        let body = serde_json::json!({
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/list",
            "params": { "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "scale", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {},
            } },
        });
        Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/list")
            .body(Full::new(Bytes::from(body.to_string())))
            .context("not a request")
    }
}
