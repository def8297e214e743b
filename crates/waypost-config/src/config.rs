//! The checked configuration: what the rest of Waypost is built from.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::secret::{Secret, Url};

/// A configuration in which everything has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the MCP endpoint listens.
    pub listen: SocketAddr,
    /// Where health, metrics and the admin API listen.
    pub admin: SocketAddr,
    /// Bearer token of the admin API; without one it is for loopback only.
    pub admin_token: Option<Secret>,
    /// Who may call.
    pub auth: Auth,
    /// How the MCP endpoint treats HTTP.
    pub front: Front,
    /// Bounds on size and number.
    pub limits: Limits,
    /// How tools and prompts are named towards clients.
    pub naming: Naming,
    /// Times of tasks followed on behalf of a caller.
    pub tasks: TaskTimes,
    /// How long answers stay good, and which are kept.
    pub cache: Cache,
    /// What is remembered, and where.
    pub state: State,
    /// What is written to standard error.
    pub log: Log,
    /// What makes Waypost read its configuration again.
    pub reload: Reload,
    /// How long calls in flight, and calls that wait for an answer of their caller, may go on after
    /// SIGTERM, and at an upstream that is left.
    pub drain_grace: Duration,
    /// Items on one page of a list at `/mcp` and `/mcp/<upstream>`; zero is all on one.
    pub page_size: usize,
    /// How clients of `/mcp` come to know tools.
    pub discovery: Discovery,
    /// Whether clients get the upstreams' instructions.
    pub instructions: bool,
    /// Extensions passed through, in file order.
    pub extensions_expose: Vec<ExposedExtension>,
    /// The servers behind, in file order; disabled ones included.
    pub upstreams: Vec<Upstream>,
    /// The named parts of everything, in file order.
    pub endpoints: Vec<Endpoint>,
}

/// Who may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// Empty: everybody, as one anonymous principal.
    pub keys: Vec<Key>,
}

/// A bearer key and whom it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The principal.
    pub name: String,
    /// What the presented key must hash to.
    pub hash: KeyHash,
    /// The one of [`Config::endpoints`] that is all it sees; `None` sees everything.
    pub endpoint: Option<String>,
}

/// SHA-256 of a bearer key. `Display` gives the form of the file, `sha256:<hex>`.
///
/// `==` is there to compare configurations. What somebody presents is compared in constant time,
/// by [`KeyHash::bytes`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(pub [u8; 32]);

/// How the MCP endpoint treats HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// Further names accepted in `Host`, lower case, without port.
    pub allowed_hosts: Vec<String>,
    /// Accepted values of `Origin`, lower case; one that ends with `:*` is for every port, and none.
    pub allowed_origins: Vec<String>,
    /// Whether `tasks/*` without `Mcp-Name` is refused.
    pub strict_headers: bool,
    /// Time between comments on open streams; zero is off.
    pub keep_alive: Duration,
    /// Which clients are served; at least one of the two.
    pub eras: Eras,
    /// Whether clients of the session era get no session id, where an upstream does not say
    /// otherwise for its endpoint.
    pub stateless: bool,
    /// Whether clients of HTTP+SSE are served; only where those of the session era are.
    pub sse: bool,
    /// Unused for so long, a client's session gives up what it holds; its id stays good.
    pub session_idle: Duration,
    /// Time in which a new session must be confirmed by its client.
    pub session_handshake: Duration,
}

/// Which eras of the protocol clients may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eras {
    /// Stateless: 2026-07-28 and later.
    pub modern: bool,
    /// Sessions: 2025-11-25 and earlier.
    pub legacy: bool,
}

/// Bounds on size and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request body.
    pub request_body: usize,
    /// Bytes of one message of an upstream.
    pub response_body: usize,
    /// Levels of JSON in a request body.
    pub json_depth: usize,
    /// Requests at once, listen streams left out.
    pub in_flight: usize,
    /// Open listen streams.
    pub listeners: usize,
    /// Calls waiting for their caller at once.
    pub parked: usize,
    /// Notifications waiting for one listener.
    pub listener_queue: usize,
    /// Open client connections. One of HTTP/2 carries up to 256 requests at once.
    pub connections: usize,
    /// Client sessions that hold something at once.
    pub sessions: usize,
}

/// How tools and prompts are named towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Longest exposed name, in characters.
    pub max_length: usize,
    /// What happens when two exposed names are equal.
    pub on_collision: OnCollision,
}

/// What happens when two upstreams would show the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnCollision {
    /// None of them is shown, not even one that was before the other came; all are named in the log
    /// and in the status.
    Error,
    /// Who has the name already keeps it, over restarts too; of those that come together the one
    /// earliest in the file gets it. The others get their upstream's name in front.
    Prefix,
    /// As `prefix`, but the others are not shown.
    First,
}

/// Times of tasks followed on behalf of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTimes {
    /// Wait before the first poll.
    pub poll_first: Duration,
    /// Shortest time between polls.
    pub poll_least: Duration,
    /// Longest time between polls.
    pub poll_most: Duration,
    /// Longest wait for a collapsed task.
    pub max_wait: Duration,
    /// Longest wait for an answer of the caller.
    pub input_wait: Duration,
}

/// How long answers stay good, and which are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Longest life of a list towards clients.
    pub list_ttl: Duration,
    /// Bytes of answers to `resources/read` that are kept; zero is none.
    pub resources: usize,
}

/// What is remembered, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The SQLite file; relative paths are already joined to the configuration file's folder.
    pub path: PathBuf,
    /// Secrets for seals: the first seals, all open. Empty: one is to be made beside `path`.
    pub keys: Vec<Secret>,
}

/// What is written to standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Directives for `tracing_subscriber::EnvFilter`.
    pub level: String,
    /// Form of each line.
    pub format: LogFormat,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What makes Waypost read its configuration again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reload {
    /// SIGHUP, and every change of a file that it was read from.
    #[default]
    Watch,
    /// SIGHUP alone.
    Signal,
}

/// An extension passed through by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExposedExtension {
    /// Its identifier, as in `com.example/search`.
    pub id: String,
    /// Methods routed to the upstreams that advertise it.
    pub methods: Vec<String>,
}

/// A server behind Waypost.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Its identity.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// What stands before its tools' and prompts' names; may be empty.
    pub prefix: String,
    /// What becomes of its tasks.
    pub tasks: TaskPolicy,
    /// Longest time of a call without progress.
    pub timeout: Duration,
    /// Longest time of a call.
    pub timeout_ceiling: Duration,
    /// Longest time until it is ready.
    pub startup_timeout: Duration,
    /// Longest time for a connection to open.
    pub connect_timeout: Duration,
    /// Longest time for a list.
    pub list_timeout: Duration,
    /// Whether readiness depends on it.
    pub required: bool,
    /// Whether it is left out.
    pub disabled: bool,
    /// Extensions it has although it does not say so.
    pub assume_extensions: Vec<String>,
    /// Calls at once.
    pub max_in_flight: usize,
    /// Former names.
    pub aliases: Vec<String>,
    /// Which tools of it there are, and what becomes of single ones.
    pub tools: ToolRules,
    /// Which prompts of it there are, and what becomes of single ones.
    pub prompts: PromptRules,
    /// Over original URIs, and over templates as text.
    pub resources: Filter,
    /// Whose tools its own are shown as one with; `None` is nobody's.
    pub family: Option<Family>,
    /// What becomes of tools that are not as they were; `None` looks at none.
    pub pin: Option<Pin>,
    /// Whether clients of its own endpoint get no session id; `None` is as [`Front::stateless`].
    pub stateless: Option<bool>,
    /// Which protocol it is spoken to in.
    pub era: UpstreamEra,
    /// Who shares a session or process of it; `None` leaves it to the era.
    pub isolation: Option<Isolation>,
    /// What a session that several callers share declares beside elicitation.
    pub declare: Vec<Declared>,
    /// Unused for so long, a session or process that belongs to one caller is ended.
    pub idle_timeout: Duration,
    /// Sessions or processes of it at once.
    pub max_sessions: usize,
    /// What `${...}` put into its settings from the environment and from files, wherever it stands
    /// in them: not to be shown. Defaults and variables such as HOME are not among them.
    pub secrets: Vec<Secret>,
    /// Changes when this may be another server: 64 hex digits over transport, address without
    /// the query's values, names of headers, command, arguments, working directory, names of
    /// environment variables. Values of headers, variables and the query do not enter, so a
    /// renewed token keeps what was learned.
    pub fingerprint: String,
}

/// What upstreams of one kind have in common, and what is one's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// The same for all of them; no upstream's name.
    pub name: String,
    /// The argument of their tools that says which of them is meant, the same for all of them.
    pub argument: String,
    /// What it says when this one is meant; no other of the family has it.
    pub value: String,
}

/// A part of everything, at `/mcp/<name>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name; no upstream has or had it.
    pub name: String,
    /// Names of the upstreams it shows; empty is all.
    pub upstreams: Vec<String>,
    /// Over original names.
    pub tools: Filter,
    /// Over original names.
    pub prompts: Filter,
    /// Over original URIs, and over templates as text.
    pub resources: Filter,
    /// What stands before tools' and prompts' names instead of their upstreams' prefixes.
    pub prefix: Option<String>,
    /// Items on one page of a list; zero is all on one.
    pub page_size: usize,
    /// How its clients come to know tools.
    pub discovery: Discovery,
    /// Whether its clients get no session id; `None` is as [`Front::stateless`].
    pub stateless: Option<bool>,
}

/// How clients come to know tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Discovery {
    /// `tools/list` has all of them.
    #[default]
    Direct,
    /// `tools/list` has a few tools that find, describe and call the others.
    Search,
}

/// What is shown; all patterns are valid `globset` globs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Empty: all.
    pub allow: Vec<String>,
    /// Stronger than `allow`.
    pub deny: Vec<String>,
}

/// Rules for tools, by original name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// Which of them there are.
    pub filter: Filter,
    /// Pattern, a valid `globset` glob, and timeout; the first that matches counts.
    pub timeouts: Vec<(String, Duration)>,
    /// Tool and its other name, which clients take and no other tool of the upstream gets.
    pub rename: Vec<(String, String)>,
    /// Tool and description.
    pub describe: Vec<(String, String)>,
    /// Tool and parameters that callers may not give.
    pub hide_params: Vec<(String, Vec<String>)>,
    /// Tool and values of parameters that callers may not give, as JSON.
    pub set_params: Vec<(String, Vec<(String, Secret)>)>,
    /// Tool and members of its `annotations`, as JSON.
    pub annotations: Vec<(String, Vec<(String, String)>)>,
}

/// Rules for prompts, by original name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptRules {
    /// Which of them there are.
    pub filter: Filter,
    /// Prompt and its other name, which clients take and no other prompt of the upstream gets.
    pub rename: Vec<(String, String)>,
    /// Prompt and description.
    pub describe: Vec<(String, String)>,
}

/// What becomes of tools that are new or not as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pin {
    /// They are in the log and the status.
    Warn,
    /// They are also kept from clients until they are approved.
    Block,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Reach {
    /// Streamable HTTP.
    Http {
        /// The endpoint.
        url: Url,
        /// Sent with each request; names are valid and lower case, values valid.
        headers: Vec<(String, Secret)>,
        /// Where messages are posted over HTTP+SSE, whatever the server says.
        message_url: Option<Url>,
    },
    /// A child process.
    Stdio {
        /// The program, to be looked up in the child's PATH.
        command: String,
        /// Its arguments, which may carry a secret.
        args: Vec<Secret>,
        /// Variables set for it.
        env: Vec<(String, Secret)>,
        /// Variables passed on from Waypost's environment; `*` is all.
        inherit_env: Vec<String>,
        /// Its working directory, already joined to the configuration file's folder.
        cwd: Option<PathBuf>,
    },
}

/// Which protocol an upstream is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamEra {
    /// What the server turns out to speak.
    #[default]
    Auto,
    /// Stateless requests: 2026-07-28.
    Modern,
    /// Sessions opened by `initialize`: 2025-11-25 and earlier.
    Legacy,
    /// Sessions over HTTP+SSE, the transport of 2024-11-05.
    Sse,
}

/// Who shares one session with an upstream, or one process of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Everybody.
    Shared,
    /// All calls of one client session; a client without sessions, all calls of one caller.
    Session,
    /// All calls of one caller.
    Principal,
}

/// A client capability that a shared session may declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Declared {
    /// The server may ask for a model's answer.
    Sampling,
    /// The server may ask for the client's folders; some take them for what they may touch.
    Roots,
}

/// What becomes of an upstream's tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskPolicy {
    /// Callers that know tasks get handles; the others get the final answer, waited for.
    #[default]
    Auto,
    /// As `auto`, but a tool that demands a task is refused to callers that do not know tasks.
    Passthrough,
    /// Everybody gets the final answer, waited for.
    Collapse,
    /// No tasks at all; one that comes anyway is cancelled.
    Refuse,
}

// === impl KeyHash ===

impl KeyHash {
    /// The hash of a bearer key.
    #[must_use]
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// The hash itself, for a comparison in constant time.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads `sha256:<64 hex digits>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let &[high, low] = pair else { return None };
            *byte = nibble(high)? << 4 | nibble(low)?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:***")
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_hash_reads_what_it_prints() {
        let hash = KeyHash::of("wp_abc");
        assert_eq!(KeyHash::parse(&hash.to_string()), Some(hash));
        assert_eq!(KeyHash::parse("wp_abc"), None);
        assert_eq!(KeyHash::parse(&format!("sha256:{}", "é".repeat(32))), None);
        assert_eq!(format!("{hash:?}"), "sha256:***");
    }
}
