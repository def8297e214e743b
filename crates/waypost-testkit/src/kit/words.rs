//! The few protocol names the demo servers need.

/// The one revision these servers speak.
pub const VERSION: &str = "2026-07-28";
/// The tasks extension.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

pub(crate) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Not of the protocol: set by the kit's own session era.
pub(crate) const META_RESUMABLE: &str = "demo/resumable";
/// Not of the protocol: names the session a request came in.
pub(crate) const META_SESSION: &str = "demo/session";
pub(crate) const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
pub(crate) const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

pub(crate) const HEADER_VERSION: &str = "mcp-protocol-version";
pub(crate) const HEADER_METHOD: &str = "mcp-method";
pub(crate) const HEADER_NAME: &str = "mcp-name";
pub(crate) const HEADER_PARAM: &str = "mcp-param-";
