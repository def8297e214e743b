//! One upstream as people write it, in Waypost's shape and in that of `mcpServers`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Given, Ordered, RawFilter, time};
use crate::config::{Declared, Isolation, Pin, TaskPolicy, UpstreamEra};
use crate::secret::Secret;
use crate::units::{DurationText, MillisText};

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawUpstream {
    /// How long a call may take without a sign of progress; then it is cancelled there.
    pub(crate) timeout: DurationText,
    #[serde(flatten)]
    pub(crate) server: RawServer,
}

/// An entry of `mcpServers`. Every key of an upstream may stand here too.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawMcpServer {
    /// `stdio`, `http`, `streamable-http`, `sse`; told from `command` and `url` when absent.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    /// Another name for `type`.
    pub(crate) transport: Option<String>,
    /// How long a call may take without a sign of progress: a number of milliseconds, or a duration.
    pub(crate) timeout: Option<MillisText>,
    #[serde(flatten)]
    pub(crate) server: RawServer,
}

/// The keys both shapes share.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawServer {
    /// Address of a remote server, as in `https://ci.example/mcp`. Either this or `command`.
    pub(crate) url: Option<Secret>,
    /// Headers sent to a remote server with each request.
    pub(crate) headers: Ordered<Secret>,
    /// Where messages to a server of HTTP+SSE are posted instead of where its stream says, for one whose proxy takes a part of the path away: a path at the host of `url`, or a whole address, which may be another host's and gets `headers` too. The query that the server names is kept.
    pub(crate) message_url: Option<Secret>,
    /// Program of a local server that speaks on standard input and output. Either this or `url`.
    pub(crate) command: Option<String>,
    /// Arguments of the program, one item each. Relative paths in them are relative to its working directory, see `cwd`.
    pub(crate) args: Vec<String>,
    /// Environment variables of the program.
    pub(crate) env: Ordered<Secret>,
    /// Variables the program gets from Waypost's own environment, besides PATH, HOME, USER, LANG, TMPDIR, SHELL, TERM and those for proxies and certificates; `"*"` for all.
    pub(crate) inherit_env: Vec<String>,
    /// Working directory of the program, relative to this configuration file. The one that Waypost was started in when absent.
    pub(crate) cwd: Option<String>,
    /// What stands before each tool's and prompt's name: letters, digits, `_` and `-`, or empty. `<name>_` when absent.
    pub(crate) prefix: Option<String>,
    /// What becomes of tasks of this upstream.
    pub(crate) tasks: TaskPolicy,
    /// How long a call may take altogether, however much progress it reports.
    pub(crate) timeout_ceiling: DurationText,
    /// How long the server may take to get ready. `10s` for a remote server, `60s` for a local one when absent.
    pub(crate) startup_timeout: Option<DurationText>,
    /// How long a connection may take to open.
    pub(crate) connect_timeout: DurationText,
    /// How long a list may take; after that clients get the lists of the other upstreams.
    pub(crate) list_timeout: DurationText,
    /// Makes `/readyz` wait until this upstream answers and its lists were read once.
    pub(crate) required: bool,
    /// Leaves this upstream out.
    pub(crate) disabled: bool,
    /// Extensions the server has although it does not advertise them.
    pub(crate) assume_extensions: Vec<String>,
    /// Calls to this upstream at once.
    pub(crate) max_in_flight: usize,
    /// Former names, under which handles and resource addresses stay valid.
    pub(crate) aliases: Vec<String>,
    /// Which of its tools there are, and what becomes of single ones.
    pub(crate) tools: RawTools,
    /// Which of its prompts there are, and what becomes of single ones.
    pub(crate) prompts: RawPrompts,
    /// Which of its resources and resource templates there are, and which URIs may be read; patterns are for the server's own URI. A pattern that is a template's text, as in `db://{table}/rows`, is for that template and what it stands for.
    pub(crate) resources: RawFilter,
    /// Shows its tools as one with those of other upstreams of its kind: as `<family>_<tool>`, with an argument that says which upstream is meant. See docs/shaping.md.
    pub(crate) family: Option<RawFamily>,
    /// Remembers the tools' definitions over restarts: those of the first look are trusted, later ones that are new or changed are pointed out. `waypost tools pending` shows them, `waypost tools approve` trusts them.
    pub(crate) pin: Option<Pin>,
    /// Gives clients that open a session at `/mcp/<name>` no session id. As `front.stateless` says when absent.
    pub(crate) stateless: Option<bool>,
    /// Which protocol the server is spoken to in: `modern` is 2026-07-28, `legacy` sessions opened by `initialize`, `sse` the same over the HTTP+SSE transport of 2024-11-05. `auto` asks the server.
    pub(crate) era: UpstreamEra,
    /// Who shares one session with the server, or one process of it: `shared` is everybody, `session` one client session, `principal` one caller. When absent, everybody shares a modern server, and one of the session era is kept apart: by client session, or by caller where clients have no sessions. Each session of a local server costs a process.
    pub(crate) isolation: Option<Isolation>,
    /// What a session that several callers share declares to the server besides elicitation.
    pub(crate) declare: Vec<Declared>,
    /// How long a session or process that belongs to one caller may be unused until it is ended; the next call starts another.
    pub(crate) idle_timeout: DurationText,
    /// Sessions with the server, or processes of it, at once; beyond it callers get an error.
    pub(crate) max_sessions: usize,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawFamily {
    /// What all of the family have in common, and what stands before the names of their tools with a `_` between: a lower-case letter, then lower-case letters, digits and `-`. No upstream's name.
    pub(crate) name: Option<String>,
    /// The argument that says which upstream is meant, the same for the whole family: letters, digits, `_` and `-`.
    pub(crate) argument: Option<String>,
    /// What the argument says when this upstream is meant. Its name when absent.
    pub(crate) value: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawTools {
    /// Shows only tools whose original name matches one of these patterns (`*`, `?`, `[ab]`, `{a,b}`). All when empty.
    pub(crate) allow: Vec<String>,
    /// Hides tools whose original name matches one of these patterns; stronger than `allow`.
    pub(crate) deny: Vec<String>,
    /// Timeouts of tools by pattern, instead of the upstream's `timeout`; the first that matches counts.
    pub(crate) timeouts: Ordered<DurationText>,
    /// Other names for tools, by original name: letters, digits, `_` and `-`. `prefix` still comes before them.
    pub(crate) rename: Ordered<String>,
    /// Descriptions instead of the server's, by original name.
    pub(crate) describe: Ordered<String>,
    /// Parameters that callers neither see nor may give, by original name.
    pub(crate) hide_params: Ordered<Vec<String>>,
    /// Values for parameters that callers neither see nor may give, by original name: any YAML value; what `${...}` is in is text.
    pub(crate) set_params: Ordered<Ordered<Given>>,
    /// Members put into a tool's `annotations`, as in `readOnlyHint: true`, by original name; its others stay.
    pub(crate) annotations: Ordered<Ordered<Given>>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawPrompts {
    /// Shows only prompts whose original name matches one of these patterns. All when empty.
    pub(crate) allow: Vec<String>,
    /// Hides prompts whose original name matches one of these patterns; stronger than `allow`.
    pub(crate) deny: Vec<String>,
    /// Other names for prompts, by original name: letters, digits, `_` and `-`. `prefix` still comes before them.
    pub(crate) rename: Ordered<String>,
    /// Descriptions instead of the server's, by original name.
    pub(crate) describe: Ordered<String>,
}

impl Default for RawUpstream {
    fn default() -> Self {
        Self {
            timeout: time("5m"),
            server: RawServer::default(),
        }
    }
}

impl Default for RawServer {
    fn default() -> Self {
        Self {
            url: None,
            headers: Ordered::default(),
            message_url: None,
            command: None,
            args: Vec::new(),
            env: Ordered::default(),
            inherit_env: Vec::new(),
            cwd: None,
            prefix: None,
            tasks: TaskPolicy::Auto,
            timeout_ceiling: time("1h"),
            startup_timeout: None,
            connect_timeout: time("5s"),
            list_timeout: time("5s"),
            required: false,
            disabled: false,
            assume_extensions: Vec::new(),
            max_in_flight: 256,
            aliases: Vec::new(),
            tools: RawTools::default(),
            prompts: RawPrompts::default(),
            resources: RawFilter::default(),
            family: None,
            pin: None,
            stateless: None,
            era: UpstreamEra::Auto,
            isolation: None,
            declare: Vec::new(),
            idle_timeout: time("30m"),
            max_sessions: 64,
        }
    }
}
