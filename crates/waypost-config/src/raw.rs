//! The configuration as people write it. The comments here are the reference: the JSON Schema
//! and `docs/configuration.md` are made from them.

mod endpoint;
mod given;
mod ordered;
mod upstream;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use endpoint::{RawEndpoint, RawFilter};
pub(crate) use given::Given;
pub(crate) use ordered::Ordered;
pub(crate) use upstream::{RawFamily, RawMcpServer, RawPrompts, RawServer, RawTools, RawUpstream};

use crate::config::{Discovery, LogFormat, OnCollision, Reload};
use crate::secret::Secret;
use crate::units::{DurationText, SizeText};

/// Configuration of Waypost.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Raw {
    /// Address the MCP endpoint listens on: `/mcp` for everything, `/mcp/<upstream>` for one upstream, `/mcp/<endpoint>` for one of `endpoints`.
    pub(crate) listen: String,
    /// The admin listener; `admin: 127.0.0.1:7401` is short for `admin: { listen: 127.0.0.1:7401 }`.
    pub(crate) admin: RawAdmin,
    /// Allows `listen` to be reachable from other machines although there are no `auth.keys`.
    pub(crate) insecure: bool,
    /// Who may call.
    pub(crate) auth: RawAuth,
    /// How the MCP endpoint treats HTTP.
    pub(crate) front: RawFront,
    /// Bounds on size and number.
    pub(crate) limits: RawLimits,
    /// How tools and prompts are named towards clients.
    pub(crate) naming: RawNaming,
    /// Times of tasks that Waypost follows on behalf of a caller.
    pub(crate) tasks: RawTasks,
    /// How long answers stay good, and which are kept.
    pub(crate) cache: RawCache,
    /// What Waypost remembers.
    pub(crate) state: RawState,
    /// What Waypost writes to standard error.
    pub(crate) log: RawLog,
    /// When this file, those it includes and those that `${file:...}` names are read again.
    pub(crate) reload: Reload,
    /// How long calls in flight, and calls that wait for an answer of their caller, may go on after SIGTERM, and at an upstream that a reload changes or removes.
    pub(crate) drain_grace: DurationText,
    /// Items on one page of a list; `0` is all on one, as many clients never ask for a second.
    pub(crate) page_size: usize,
    /// How clients of `/mcp` come to know tools. `/mcp/<upstream>` always lists its own.
    pub(crate) discovery: Discovery,
    /// Passes the instructions of the upstreams on to clients.
    pub(crate) instructions: bool,
    /// Protocol extensions passed through by name.
    pub(crate) extensions: RawExtensions,
    /// More configuration files, relative to this one; the last part of a path may have `*` and `?`. Their keys win over this file's; an upstream may be in one file only.
    pub(crate) include: Vec<String>,
    /// The MCP servers behind Waypost, by name: lower-case letters, digits and `-`, at most 32 characters.
    pub(crate) upstreams: Ordered<RawUpstream>,
    /// Parts of everything, each at `/mcp/<name>`; names as those of upstreams, and none that an upstream has or had. What an endpoint does not show cannot be called there either.
    pub(crate) endpoints: Ordered<RawEndpoint>,
    /// More MCP servers, in the shape of the files of Claude and Cursor; they come after `upstreams`.
    #[serde(rename = "mcpServers")]
    pub(crate) mcp_servers: Ordered<RawMcpServer>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawAdmin {
    /// Address of health, metrics and the admin API. Keep it on loopback, or set `admin.token`.
    pub(crate) listen: String,
    /// Bearer token of the admin API. Without one, other machines see health and metrics only.
    pub(crate) token: Option<Secret>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawAuth {
    /// Bearer keys that callers present. Without any, everybody who reaches the endpoint may call.
    pub(crate) keys: Vec<RawKey>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawKey {
    /// Name of the caller: its identity in logs, rules and task handles.
    pub(crate) name: String,
    /// SHA-256 of the key as `sha256:<64 hex digits>`; `waypost auth add-key` makes both.
    pub(crate) hash: Option<Secret>,
    /// The one of `endpoints` that this caller gets at `/mcp`; no other address shows it anything.
    pub(crate) endpoint: Option<String>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawFront {
    /// Names that requests may carry in `Host`, without port, besides the loopback names and the address listened on. On an address beyond loopback every name passes while this is empty.
    pub(crate) allowed_hosts: Vec<String>,
    /// Web origins whose pages may call, as in `https://app.example`; `http://app.internal:*` is for every port. Pages of loopback names may call a listener on loopback without being named.
    pub(crate) allowed_origins: Vec<String>,
    /// Refuses `tasks/*` requests without an `Mcp-Name` header, which some clients leave out.
    pub(crate) strict_headers: bool,
    /// How often an open stream gets a comment so that proxies keep it; `0` turns it off.
    pub(crate) keep_alive: DurationText,
    /// Which clients are served: `modern` are those of 2026-07-28, `legacy` those that open a session with `initialize`, 2025-11-25 and earlier.
    pub(crate) eras: Vec<EraName>,
    /// Gives clients that open a session no session id: every request stands alone, so nothing can be asked of the client, and it hears of no changes. The `stateless` of an upstream or of one of `endpoints` says otherwise for its own address.
    pub(crate) stateless: bool,
    /// Also serves clients of HTTP+SSE, the transport of 2024-11-05: `/sse`, or `/sse/<upstream or endpoint>`, opens a stream and names the address to send to. Such a session lives as long as its stream, whatever `stateless` says, and stays on one replica.
    pub(crate) sse: bool,
    /// How long a client's session may be unused until what it holds is freed; the client notices nothing, its next request takes it up again.
    pub(crate) session_idle: DurationText,
    /// How long a client may take from `initialize` to `notifications/initialized`, and from opening `/sse` to `initialize`.
    pub(crate) session_handshake: DurationText,
}

/// An era of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EraName {
    /// Stateless: 2026-07-28 and later.
    Modern,
    /// Sessions: 2025-11-25 and earlier.
    Legacy,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawLimits {
    /// Largest request body taken from a client.
    pub(crate) request_body: SizeText,
    /// Largest message taken from an upstream.
    pub(crate) response_body: SizeText,
    /// How deep JSON from clients may nest.
    pub(crate) json_depth: usize,
    /// Requests worked on at once; beyond it clients get an error at once. Open listen streams do not count, nor do answers, cancels and ends of sessions.
    pub(crate) in_flight: usize,
    /// Open listen streams, with those that client sessions have for their changes; beyond it a new one is told to come back.
    pub(crate) listeners: usize,
    /// Calls that wait for an answer of their caller at once. Each asks at most 256 questions at a time, and a retry brings at most 256 answers.
    pub(crate) parked: usize,
    /// Changes of lists that may wait for one slow listener; more of the same kind become one.
    pub(crate) listener_queue: usize,
    /// Open client connections. One of HTTP/2 carries up to 256 requests at once.
    pub(crate) connections: usize,
    /// Client sessions that hold something at once; beyond it a new one is told to come back.
    pub(crate) sessions: usize,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawNaming {
    /// Longest name shown to clients, 16 to 64; longer ones are shortened with a stable hash. The default leaves room for the client's own prefix within 64.
    pub(crate) max_length: usize,
    /// What happens when two upstreams would show the same name.
    pub(crate) on_collision: OnCollision,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawTasks {
    /// Wait before the first poll of a task.
    pub(crate) poll_first: DurationText,
    /// Shortest time between two polls, whatever the upstream asks for.
    pub(crate) poll_least: DurationText,
    /// Longest time between two polls, whatever the upstream asks for.
    pub(crate) poll_most: DurationText,
    /// How long a caller without tasks is kept waiting for one; then it is cancelled.
    pub(crate) max_wait: DurationText,
    /// How long a task, or a call whose server asks, waits for an answer of its caller; then it is
    /// cancelled.
    pub(crate) input_wait: DurationText,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawCache {
    /// Longest `ttlMs` that a list has towards clients, whatever the upstreams say; `0` lets no client keep one.
    pub(crate) list_ttl: DurationText,
    /// Room for answers to `resources/read`, of all upstreams together. One is kept as long as its upstream's `ttlMs` says, and not at all where it says nothing; `0` keeps none. Read once.
    pub(crate) resources: SizeText,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawState {
    /// SQLite file, relative to this configuration file.
    pub(crate) path: String,
    /// Secrets of at least 32 characters that task handles, session ids and request states are sealed with: the first seals, all are accepted, so a new one goes in front and the old one stays until nobody uses what it sealed. Without any, one is made and kept beside `path`.
    pub(crate) keys: Vec<Secret>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawLog {
    /// `error`, `warn`, `info`, `debug` or `trace`, for single modules too: `info,waypost_upstream=debug`.
    pub(crate) level: String,
    /// Form of each line.
    pub(crate) format: LogFormat,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawExtensions {
    /// Extensions shown to clients when an upstream advertises them, each with the methods that are then routed there.
    pub(crate) expose: Ordered<Vec<String>>,
}

fn time(text: &str) -> DurationText {
    DurationText(text.to_owned())
}

// === defaults ===

impl Default for Raw {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7400".to_owned(),
            admin: RawAdmin::default(),
            insecure: false,
            auth: RawAuth::default(),
            front: RawFront::default(),
            limits: RawLimits::default(),
            naming: RawNaming::default(),
            tasks: RawTasks::default(),
            cache: RawCache::default(),
            state: RawState::default(),
            log: RawLog::default(),
            reload: Reload::Watch,
            drain_grace: time("20s"),
            page_size: 0,
            discovery: Discovery::Direct,
            instructions: true,
            extensions: RawExtensions::default(),
            include: Vec::new(),
            upstreams: Ordered::default(),
            endpoints: Ordered::default(),
            mcp_servers: Ordered::default(),
        }
    }
}

impl Default for RawAdmin {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7401".to_owned(),
            token: None,
        }
    }
}

impl Default for RawFront {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            strict_headers: false,
            keep_alive: time("15s"),
            eras: vec![EraName::Modern, EraName::Legacy],
            stateless: false,
            sse: false,
            session_idle: time("30m"),
            session_handshake: time("30s"),
        }
    }
}

impl Default for RawLimits {
    fn default() -> Self {
        Self {
            request_body: SizeText("4MiB".to_owned()),
            response_body: SizeText("64MiB".to_owned()),
            json_depth: 64,
            in_flight: 1024,
            listeners: 16_384,
            parked: 1000,
            listener_queue: 256,
            connections: 10_000,
            sessions: 10_000,
        }
    }
}

impl Default for RawNaming {
    fn default() -> Self {
        Self {
            max_length: 45,
            on_collision: OnCollision::Prefix,
        }
    }
}

impl Default for RawTasks {
    fn default() -> Self {
        Self {
            poll_first: time("250ms"),
            poll_least: time("250ms"),
            poll_most: time("60s"),
            max_wait: time("30m"),
            input_wait: time("10m"),
        }
    }
}

impl Default for RawCache {
    fn default() -> Self {
        Self {
            list_ttl: time("1h"),
            resources: SizeText("32MiB".to_owned()),
        }
    }
}

impl Default for RawState {
    fn default() -> Self {
        Self {
            path: "./waypost.db".to_owned(),
            keys: Vec::new(),
        }
    }
}

impl Default for RawLog {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}
