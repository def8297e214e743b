//! The same demo server behind Waypost, over HTTP and as a child.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use waypost_testkit::client::Client;
use waypost_testkit::demo::{demo_all, tasks};
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_tests::gateway::Gateway;

use crate::process::program;
use crate::support::until;

/// How the upstream is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Http,
    Stdio,
}

/// Waypost with one upstream `d`, the demo server *all*, all of whose input is recorded.
pub(crate) struct Stage {
    pub(crate) gateway: Gateway,
    record: Record,
}

enum Record {
    Http(Running),
    /// What was written to the child, a message a line.
    Stdio {
        file: PathBuf,
        _folder: TempDir,
    },
}

/// Demo servers that lose no time.
pub(crate) fn quick() -> tasks::Options {
    tasks::Options {
        poll_interval: Duration::from_millis(50),
        work: Duration::from_millis(20),
        ..tasks::Options::default()
    }
}

/// A child that records its input in `file`.
///
/// `tee` writes to its standard output first. That is the record here, so that what was answered is
/// recorded already.
pub(crate) fn recorded_child(server: &str, file: &std::path::Path) -> String {
    let script = format!(
        "tee -a /dev/fd/3 3>&1 >>'{}' | '{}' demo-server {server} --stdio",
        file.display(),
        program().display()
    );
    format!("{{ command: sh, args: [-c, {script:?}], required: true }}")
}

impl Stage {
    pub(crate) async fn new(way: Way) -> Self {
        Self::with(way, "").await
    }

    /// With more keys in the configuration.
    pub(crate) async fn with(way: Way, more: &str) -> Self {
        match way {
            Way::Http => {
                let demo = demo_all(ANY_PORT, quick()).await.unwrap();
                let upstream = format!("d: {{ url: '{}', required: true }}", demo.url);
                let gateway = Gateway::with(&upstream, more).await.unwrap();
                let record = Record::Http(demo);
                Self { gateway, record }
            }
            Way::Stdio => {
                let folder = tempfile::tempdir().unwrap();
                let file = folder.path().join("input");
                let upstream = format!("d: {}", recorded_child("all", &file));
                let gateway = Gateway::with(&upstream, more).await.unwrap();
                let record = Record::Stdio {
                    file,
                    _folder: folder,
                };
                Self { gateway, record }
            }
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.gateway.url)
    }

    /// What the upstream was sent with this method.
    pub(crate) fn sent(&self, method: &str) -> Vec<Value> {
        match &self.record {
            Record::Http(demo) => {
                let seen = demo.seen().of(method);
                seen.iter().map(|seen| seen.json()).collect()
            }
            Record::Stdio { file, .. } => messages(file, method),
        }
    }

    /// Waits until the upstream was told that this call is over for its caller.
    pub(crate) async fn wait_for_cancel(&self, method: &str) {
        match &self.record {
            Record::Http(demo) => {
                assert!(demo.seen().wait_for(|seen| seen.aborted(method) == 1).await);
            }
            Record::Stdio { .. } => {
                // Not every `tee` writes its standard output first.
                let recorded = async || !self.sent(method).is_empty();
                until(&format!("the record of `{method}`"), recorded).await;
                let id = self.sent(method)[0]["id"].clone();
                let told = async || {
                    let all = self.sent("notifications/cancelled");
                    all.iter().any(|told| told["params"]["requestId"] == id)
                };
                until("`notifications/cancelled`", told).await;
            }
        }
    }
}

/// The recorded messages with this method; a line half written does not count yet.
pub(crate) fn messages(file: &std::path::Path, method: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let all = whole
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|message| message["method"] == method).collect()
}

/// Makes of each `async fn(Way)` two tests.
macro_rules! both_ways {
    ($($name:ident),* $(,)?) => {
        mod http {
            $(#[tokio::test]
            async fn $name() {
                Box::pin(super::$name($crate::stage::Way::Http)).await;
            })*
        }
        mod stdio {
            $(#[tokio::test]
            async fn $name() {
                Box::pin(super::$name($crate::stage::Way::Stdio)).await;
            })*
        }
    };
}
pub(crate) use both_ways;
