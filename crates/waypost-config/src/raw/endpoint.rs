//! A named endpoint as people write it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Discovery;

/// A part of everything, at an address of its own.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawEndpoint {
    /// The upstreams it shows. All when empty.
    pub(crate) upstreams: Vec<String>,
    /// Which of their tools it shows and lets be called.
    pub(crate) tools: RawFilter,
    /// Which of their prompts it shows and lets be used.
    pub(crate) prompts: RawFilter,
    /// Which of their resources and resource templates it shows, and which URIs it lets be read; patterns are for the upstream's own URI.
    pub(crate) resources: RawFilter,
    /// What stands before each tool's and prompt's name at this endpoint: letters, digits, `_` and `-`, or empty for their original names. The names of `/mcp` when absent.
    pub(crate) prefix: Option<String>,
    /// Items on one page of a list; `0` is all on one. The `page_size` of the top level when absent.
    pub(crate) page_size: Option<usize>,
    /// How its clients come to know tools. The `discovery` of the top level when absent.
    pub(crate) discovery: Option<Discovery>,
    /// Gives clients that open a session at `/mcp/<name>` no session id. As `front.stateless` says when absent.
    pub(crate) stateless: Option<bool>,
}

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RawFilter {
    /// Shows only what matches one of these patterns (`*`, `?`, `[ab]`, `{a,b}`) by its original name. All when empty.
    pub(crate) allow: Vec<String>,
    /// Hides what matches one of these patterns by its original name; stronger than `allow`.
    pub(crate) deny: Vec<String>,
}
