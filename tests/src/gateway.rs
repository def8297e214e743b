//! A Waypost in this process, on free ports, with its state in a folder of its own.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use waypost::daemon::{Daemon, Options};

/// How long the first connections to all upstreams may take; some are Python.
const READY: Duration = Duration::from_secs(60);

/// A running Waypost. It ends when this is dropped.
#[derive(Debug)]
pub struct Gateway {
    /// The endpoint of everything.
    pub url: String,
    /// Of admin, without a path.
    pub admin: String,
    /// Drop before the folder it works in.
    daemon: Daemon,
    state: TempDir,
    text: String,
}

impl Gateway {
    /// Starts one with these upstreams, YAML as under `upstreams:`, and waits until it is ready.
    ///
    /// # Errors
    /// When the configuration is refused, or an upstream marked `required` does not answer in time.
    pub async fn start(upstreams: &str) -> anyhow::Result<Self> {
        Self::with(upstreams, "").await
    }

    /// As [`Gateway::start`], with `more` keys of the configuration.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub async fn with(upstreams: &str, more: &str) -> anyhow::Result<Self> {
        let state = tempfile::tempdir()?;
        let database = state.path().join("waypost.db");
        let indented: String = upstreams
            .lines()
            .map(|line| format!("  {line}\n"))
            .collect();
        let text = format!(
            "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nstate: {{ path: {} }}\n{more}\nupstreams:\n{indented}",
            database.display()
        );
        Self::run(text, state).await
    }

    /// Stops, and starts again on what was remembered; on other ports.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub async fn restart(self) -> anyhow::Result<Self> {
        let Self {
            daemon,
            state,
            text,
            ..
        } = self;
        anyhow::ensure!(daemon.stop().await, "it had to be cut off");
        Self::run(text, state).await
    }

    /// Where clients of HTTP+SSE open their streams.
    #[must_use]
    pub fn sse_url(&self) -> String {
        format!("{}/sse", self.url.trim_end_matches("/mcp"))
    }

    /// What it has counted, as admin shows it.
    ///
    /// # Errors
    /// When admin does not answer.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let answer = client
            .get(format!("{}/metrics", self.admin).parse()?)
            .await?;
        let body = answer.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Stops; `false` when something had to be cut off.
    pub async fn stop(self) -> bool {
        self.daemon.stop().await
    }

    async fn run(text: String, state: TempDir) -> anyhow::Result<Self> {
        let loaded = waypost_config::parse_str(&text);
        let loaded = loaded.map_err(|problems| anyhow::anyhow!("{problems:#?}\n{text}"))?;
        let daemon = Box::pin(Daemon::start(loaded.config, Options::default())).await;
        let daemon = daemon.map_err(|fatal| anyhow::anyhow!("{fatal:?}"))?;
        let gateway = Self {
            url: daemon.url(),
            admin: format!("http://{}", daemon.admin),
            daemon,
            state,
            text,
        };
        gateway.ready().await?;
        Ok(gateway)
    }

    /// Waits for `/readyz`.
    async fn ready(&self) -> anyhow::Result<()> {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let url: http::Uri = format!("{}/readyz", self.admin).parse()?;
        let begun = Instant::now();
        while !client
            .get(url.clone())
            .await
            .context("admin does not answer")?
            .status()
            .is_success()
        {
            anyhow::ensure!(begun.elapsed() < READY, "not ready in {READY:?}");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}
