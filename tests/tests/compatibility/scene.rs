//! One Waypost with the six servers behind it, and who talks to which of them.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Barrier, RwLock};
use waypost_testkit::demo::{demo_all, legacy_all, tasks};
use waypost_testkit::kit::legacy::{Options, Transport};
use waypost_testkit::peer::{Kind, Peer, Target};
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_tests::gateway::Gateway;

/// The servers of the matrix, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Modern,
    Session,
    Sessionless,
    Sse,
    PipeModern,
    PipeLegacy,
}

impl Server {
    pub(crate) const MATRIX: [Self; 6] = [
        Self::Modern,
        Self::Session,
        Self::Sessionless,
        Self::Sse,
        Self::PipeModern,
        Self::PipeLegacy,
    ];

    /// Its name in the matrix.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Modern => "modern HTTP",
            Self::Session => "session HTTP",
            Self::Sessionless => "sessionless HTTP",
            Self::Sse => "SSE",
            Self::PipeModern => "stdio modern",
            Self::PipeLegacy => "stdio legacy",
        }
    }

    /// Its name as an upstream.
    fn upstream(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Session => "session",
            Self::Sessionless => "sessionless",
            Self::Sse => "sse",
            Self::PipeModern => "pipe-modern",
            Self::PipeLegacy => "pipe-legacy",
        }
    }

    /// What it is, for the page.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Modern => "2026-07-28 over HTTP",
            Self::Session => "2025-11-25 over Streamable HTTP, `Mcp-Session-Id` demanded",
            Self::Sessionless => {
                "2025-11-25 over Streamable HTTP without sessions: it has no way to ask anything"
            }
            Self::Sse => "HTTP+SSE, the transport of 2024-11-05",
            Self::PipeModern => "2026-07-28, a child process",
            Self::PipeLegacy => "2025-11-25, a child process",
        }
    }

    fn place(self) -> usize {
        Self::MATRIX
            .iter()
            .position(|one| *one == self)
            .unwrap_or(0)
    }
}

/// Which endpoint the clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// `/mcp`, which shows everything as it is.
    Whole,
    /// One with filters of its own, behind which tools have other names.
    View,
    /// One on which tools are found and called through others.
    Search,
}

/// Behind [`Way::View`]: what the file makes of each server.
const SHAPED: &str = "\
    tools: { deny: [test_image_content], rename: { echo: repeat, slow_compute: compute } }, \
    prompts: { deny: [test_prompt_with_image] }, resources: { allow: ['test://*'] }";

/// The endpoints besides `/mcp`; nothing that is denied there is wanted by a feature.
const ENDPOINTS: &str = "\
endpoints:
  part: { tools: { allow: ['*'], deny: [test_audio_*] }, resources: { deny: ['test://static-binary'] } }
  search: { discovery: search }";

/// What neither the file nor the endpoint lets through of [`Way::View`].
pub(crate) const DENIED: [&str; 2] = ["test_image_content", "test_audio_content"];

/// The daemon and all that is behind it.
pub(crate) struct Stage {
    way: Way,
    gateway: Gateway,
    _servers: Vec<Running>,
    /// Written to by whoever must be alone with a server.
    locks: [RwLock<()>; 6],
    /// Passed when every client is through with what only one at a time can do.
    certain: [Barrier; 6],
}

fn quick() -> tasks::Options {
    tasks::Options {
        poll_interval: Duration::from_millis(50),
        work: Duration::from_millis(20),
        ..tasks::Options::default()
    }
}

/// The built program: what the runner names, else the one beside this test.
fn program() -> PathBuf {
    let named = std::env::var_os("WAYPOST_BIN").map(PathBuf::from);
    let path = named.unwrap_or_else(|| {
        let own = std::env::current_exe().unwrap();
        let folder = own.parent().and_then(std::path::Path::parent);
        folder.unwrap().join("waypost")
    });
    assert!(
        path.exists(),
        "no program at {}\n\nhint: run `cargo xtask test`, or `cargo build` first",
        path.display()
    );
    path
}

impl Stage {
    /// Nothing is said of eras or transports: all is found out.
    pub(crate) async fn start(way: Way) -> anyhow::Result<Self> {
        let shaped = match way {
            Way::View => format!("{SHAPED}, "),
            Way::Whole | Way::Search => String::new(),
        };
        let sessionless = Options {
            sessions: false,
            ..Options::default()
        };
        let sse = Options {
            transport: Transport::Sse,
            ..Options::default()
        };
        let servers = vec![
            demo_all(ANY_PORT, quick()).await?,
            legacy_all(ANY_PORT, quick(), Options::default()).await?,
            legacy_all(ANY_PORT, quick(), sessionless).await?,
            legacy_all(ANY_PORT, quick(), sse).await?,
        ];
        let url = |server: Server, running: &Running| {
            format!(
                "{}: {{ url: '{}', {shaped}required: true }}\n",
                server.upstream(),
                running.url
            )
        };
        let mut upstreams: String = Server::MATRIX
            .into_iter()
            .zip(&servers)
            .map(|(server, running)| url(server, running))
            .collect();
        for (server, era) in [
            (Server::PipeModern, "modern"),
            (Server::PipeLegacy, "legacy"),
        ] {
            upstreams.push_str(&format!(
                "{}: {{ command: '{}', args: [demo-server, all, --stdio, --era, {era}], \
                 {shaped}required: true }}\n",
                server.upstream(),
                program().display()
            ));
        }
        Ok(Self {
            way,
            gateway: Gateway::with(upstreams.trim_end(), ENDPOINTS).await?,
            _servers: servers,
            locks: Default::default(),
            certain: std::array::from_fn(|_| Barrier::new(Kind::MATRIX.len())),
        })
    }

    /// All clients with all servers.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (Kind, Server)> + use<> {
        let clients = Kind::MATRIX.into_iter();
        clients.flat_map(|client| Server::MATRIX.map(|server| (client, server)))
    }
}

/// One client that uses one server.
pub(crate) struct Scene<'a> {
    stage: &'a Stage,
    pub(crate) client: Kind,
    pub(crate) server: Server,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(stage: &'a Stage, client: Kind, server: Server) -> Self {
        Self {
            stage,
            client,
            server,
        }
    }

    /// The client, connected to its endpoint.
    pub(crate) async fn connect(&self) -> std::io::Result<Peer> {
        let whole = &self.stage.gateway.url;
        let url = match self.stage.way {
            Way::Whole => whole.clone(),
            Way::View => format!("{whole}/part"),
            Way::Search => format!("{whole}/search"),
        };
        let target = if self.client.is_pipe() {
            let program = program().display().to_string();
            Target::Command(vec![program, "stdio".into(), "--connect".into(), url])
        } else {
            Target::Url(url)
        };
        Peer::connect(self.client, &target).await
    }

    /// The public name of what the server calls `name`.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}_{name}", self.server.upstream())
    }

    /// What to call, and with what, so that the server's `tool` gets these arguments.
    pub(crate) fn tool(&self, tool: &str, arguments: Value) -> (String, Value) {
        match (self.stage.way, tool) {
            (Way::View, "echo") => (self.named("repeat"), arguments),
            (Way::View, "slow_compute") => (self.named("compute"), arguments),
            (Way::Whole | Way::View, tool) => (self.named(tool), arguments),
            (Way::Search, tool) => {
                let arguments = json!({ "name": self.named(tool), "arguments": arguments });
                ("call_tool".to_owned(), arguments)
            }
        }
    }

    /// Through which endpoint it comes.
    pub(crate) fn way(&self) -> Way {
        self.stage.way
    }

    /// What handles of this server's tasks begin with.
    pub(crate) fn handle(&self) -> String {
        format!("{}~", self.server.upstream())
    }

    /// Whether the client speaks 2026-07-28.
    pub(crate) fn is_modern(&self) -> bool {
        self.client.revision().is_none()
    }

    /// Read by those who use the server, written to by those who must be alone with it.
    pub(crate) fn server_lock(&self) -> &'a RwLock<()> {
        &self.stage.locks[self.server.place()]
    }

    /// Waits for the other clients of the server.
    pub(crate) async fn others_are_as_far(&self) {
        self.stage.certain[self.server.place()].wait().await;
    }
}
