//! What several tests need.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use waypost::daemon::{Daemon, Options};
use waypost_config::{Config, Sources, load};
use waypost_testkit::client::{Client, Reply};

/// Long enough on a busy machine; what is waited for usually takes milliseconds.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A daemon with its state in a folder of its own.
pub(crate) struct Waypost {
    pub(crate) daemon: Daemon,
    pub(crate) folder: TempDir,
}

/// The checked configuration, on free ports, with the state in `folder`.
pub(crate) fn config(yaml: &str, folder: &TempDir) -> Config {
    let path = folder.path().join("waypost.db").display().to_string();
    let sources = Sources::from_text(yaml)
        .with_flag("listen", "127.0.0.1:0")
        .with_flag("admin", "127.0.0.1:0")
        .with_flag("state.path", path);
    load(&sources).unwrap().config
}

impl Waypost {
    pub(crate) async fn start(yaml: &str) -> Self {
        Self::with(yaml, Options::default()).await
    }

    pub(crate) async fn with(yaml: &str, options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(config(yaml, &folder), options).await.unwrap();
        Self { daemon, folder }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.daemon.url())
    }

    /// `GET` on the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> Reply {
        get(&format!("http://{}{path}", self.daemon.admin)).await
    }

    /// The entry of one upstream in `/api/v1/upstreams`.
    pub(crate) async fn upstream(&self, name: &str) -> Value {
        let reply = self.admin("/api/v1/upstreams").await;
        let all = reply.answer["upstreams"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["name"] == name).unwrap()
    }

    /// Waits until an upstream is in this state.
    pub(crate) async fn wait_for(&self, upstream: &str, state: &str) {
        let is = async || self.upstream(upstream).await["state"] == state;
        until(&format!("`{upstream}` to be {state}"), is).await;
    }
}

pub(crate) async fn get(url: &str) -> Reply {
    let client = Client::new(url);
    let mut post = client.post("", json!({}));
    post.http_method = Method::GET;
    post.headers.clear();
    client.ask(post.raw("")).await.unwrap()
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Names of a `tools/list`.
pub(crate) async fn tool_names(client: &Client) -> Vec<String> {
    let reply = client.call("tools/list", json!({})).await.unwrap();
    let tools = reply.result()["tools"].as_array().unwrap();
    let names = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.collect()
}
