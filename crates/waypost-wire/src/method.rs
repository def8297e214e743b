//! Method names of the protocol.

/// Asks for versions, capabilities and instructions; every modern server has it (specification:
/// discovery).
pub const DISCOVER: &str = "server/discover";
/// Opens a legacy session; the modern era has none (2025-11-25: lifecycle).
pub const INITIALIZE: &str = "initialize";
/// Reads one page of the tools; cacheable (specification: tools).
pub const TOOLS_LIST: &str = "tools/list";
/// Runs a tool. May ask back, and is the only request that may become a task today (specification:
/// tools; SEP-2663).
pub const TOOLS_CALL: &str = "tools/call";
/// Reads one page of the prompts; cacheable (specification: prompts).
pub const PROMPTS_LIST: &str = "prompts/list";
/// Fills in a prompt with its arguments. May ask back (specification: prompts).
pub const PROMPTS_GET: &str = "prompts/get";
/// Reads one page of the resources; cacheable (specification: resources).
pub const RESOURCES_LIST: &str = "resources/list";
/// Reads one page of the URI templates of resources; cacheable (specification: resources).
pub const RESOURCES_TEMPLATES_LIST: &str = "resources/templates/list";
/// Reads the contents behind a URI; cacheable. May ask back (specification: resources).
pub const RESOURCES_READ: &str = "resources/read";
/// Asks for values that could complete an argument of a prompt or template (specification:
/// completion).
pub const COMPLETE: &str = "completion/complete";
/// Opens a stream of changes: of lists, resources and tasks (specification: subscriptions).
pub const LISTEN: &str = "subscriptions/listen";
/// Asks how a task is doing; at its end the answer holds the result or error (SEP-2663).
pub const TASKS_GET: &str = "tasks/get";
/// Answers questions of a task that is `input_required` (SEP-2663).
pub const TASKS_UPDATE: &str = "tasks/update";
/// Asks a task to stop; it may still end otherwise (SEP-2663).
pub const TASKS_CANCEL: &str = "tasks/cancel";

/// How far a request is, for a caller that gave a progress token (specification: progress).
pub const PROGRESS: &str = "notifications/progress";
/// A log message, for a request that set a log level (specification: logging).
pub const MESSAGE: &str = "notifications/message";
/// Gives up a request. On modern HTTP closing the stream says so instead, and a task has
/// [`TASKS_CANCEL`] (specification: cancellation).
pub const CANCELLED: &str = "notifications/cancelled";
/// Asks a client for its roots (2025-11-25: roots).
pub const ROOTS_LIST: &str = "roots/list";
/// A client's roots are others than before (2025-11-25: roots).
pub const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
/// The first message on a listen stream: which of the wishes the server honours (specification:
/// subscriptions).
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
/// The list of tools is another one now; cached copies are stale.
pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
/// The list of prompts is another one now; cached copies are stale.
pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
/// The list of resources or of templates is another one now; cached copies are stale.
pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
/// A resource has other contents now, for listeners that named its URI.
pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
/// The whole task after a change, for listeners that named its id (SEP-2663).
pub const TASK_STATUS: &str = "notifications/tasks";

/// Whether it is about a task, which the caller has.
pub fn is_of_task(method: &str) -> bool {
    matches!(method, TASKS_GET | TASKS_UPDATE | TASKS_CANCEL)
}

/// Whether its answer may be a question to the caller, whose retry brings the answer.
pub fn may_ask(method: &str) -> bool {
    matches!(method, TOOLS_CALL | PROMPTS_GET | RESOURCES_READ)
}

/// The `params` member that the `Mcp-Name` header repeats for this method, if any.
pub fn name_member(method: &str) -> Option<&'static str> {
    match method {
        TOOLS_CALL | PROMPTS_GET => Some("name"),
        RESOURCES_READ => Some("uri"),
        TASKS_GET | TASKS_UPDATE | TASKS_CANCEL => Some("taskId"),
        _ => None,
    }
}
