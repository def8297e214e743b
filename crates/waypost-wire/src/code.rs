//! JSON-RPC error codes of the specification.

/// The bytes are not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// JSON, but not a JSON-RPC message this server takes.
pub const INVALID_REQUEST: i64 = -32600;
/// The method does not exist, or the server does not have its capability.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are wrong: a missing `_meta` field, an unknown tool, resource or task.
pub const INVALID_PARAMS: i64 = -32602;
/// The server failed.
pub const INTERNAL_ERROR: i64 = -32603;
/// A header is missing, malformed or says something else than the body.
pub const HEADER_MISMATCH: i64 = -32020;
/// The server needs a client capability that the request did not declare.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The request's protocol version is not one the server speaks.
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// What earlier drafts sent instead of [`MISSING_CAPABILITY`]; understood, never emitted.
pub const DRAFT_MISSING_CAPABILITY: i64 = -32003;
/// What servers before 2026-07-28 send where a resource is not found, in place of
/// [`INVALID_PARAMS`]; understood from everybody, sent to session clients only.
pub const FORMER_RESOURCE_NOT_FOUND: i64 = -32002;
