//! Two demo servers and Waypost in front of them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use waypost_config::{Sources, load};
use waypost_testkit::demo::{demo_everything, demo_tasks, tasks};
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_testkit::temporary::Temporary;

use crate::daemon::{Daemon, Options};
use crate::exit::Fatal;

/// The servers are in this process; a call right after the start should find them.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// All of the demo; it keeps nothing after its end.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) daemon: Daemon,
    servers: [Running; 2],
    state: Temporary,
}

impl Gateway {
    /// Starts everything; Waypost listens on `listen`.
    pub(crate) async fn start(listen: SocketAddr) -> Result<Self, Fatal> {
        let tasks = demo_tasks(ANY_PORT, tasks::Options::default()).await;
        let tasks = tasks.context("cannot start the demo server of tasks")?;
        let everything = demo_everything(ANY_PORT).await;
        let everything = everything.context("cannot start the demo server of everything")?;
        let state = Temporary::new().context("cannot make a folder for the demo's state")?;
        let yaml = yaml(&tasks.url, &everything.url);
        let sources = Sources::from_text(yaml)
            .with_flag("listen", listen.to_string())
            .with_flag(
                "state.path",
                state.path().join("waypost.db").display().to_string(),
            );
        let config = load(&sources).map_err(Fatal::Config)?.config;
        let daemon = Daemon::start(config, Options::default()).await?;
        if !daemon.ready(UP_WITHIN).await {
            tracing::warn!("a demo server does not answer");
        }
        let servers = [tasks, everything];
        Ok(Self {
            daemon,
            servers,
            state,
        })
    }

    /// Ends everything, Waypost first.
    pub(crate) async fn stop(self) {
        self.daemon.stop().await;
        for server in self.servers {
            server.stop().await;
        }
        drop(self.state);
    }
}

/// The configuration of the demo. `waiting` is the server `tasks` once more, under a policy by
/// which Waypost waits for tasks itself.
fn yaml(tasks: &str, everything: &str) -> String {
    let key = waypost_store::keys::generate();
    format!(
        r#"
admin: 127.0.0.1:0
upstreams:
  tasks: {{ url: "{tasks}" }}
  waiting: {{ url: "{tasks}", tasks: collapse, tools: {{ allow: [slow_compute] }} }}
  everything: {{ url: "{everything}" }}
state: {{ keys: ["{key}"] }}
drain_grace: 2s
"#
    )
}
