//! The members of a result that a gateway looks at.

use crate::object::Object;
use crate::raw::Raw;

/// Says what a result is: see [`ResultType`].
pub const RESULT_TYPE: &str = "resultType";
/// For how many milliseconds a result may be served from a cache; 0 is not at all (specification:
/// caching).
pub const TTL_MS: &str = "ttlMs";
/// Who may share a cached result: `public` is everyone, `private` one authorisation (specification:
/// caching).
pub const CACHE_SCOPE: &str = "cacheScope";

/// What a server asks, by key: a member of an `input_required` result (specification: multi
/// round-trip requests).
pub const INPUT_REQUESTS: &str = "inputRequests";
/// The answers, by the same keys: a member of the retry's params.
pub const INPUT_RESPONSES: &str = "inputResponses";
/// What the server wants to have back with the retry: a member of both.
pub const REQUEST_STATE: &str = "requestState";

/// What the request states begin with that Waypost makes: something waits behind them. Any other
/// stands for itself.
pub const OWN_STATE: &str = "wp1.";

/// `resultType` of a result (specification: basic, results).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultType {
    /// The call is over. Also what a result without `resultType` is.
    Complete,
    /// The server asks first; the client retries with the answers.
    InputRequired,
    /// The call goes on as a task.
    Task,
    /// Something this version does not know.
    Unknown,
}

impl ResultType {
    /// Reads it; no other member decides.
    pub fn of(result: &Object) -> Self {
        match result.get(RESULT_TYPE).map(Raw::text) {
            None | Some("\"complete\"") => Self::Complete,
            Some("\"input_required\"") => Self::InputRequired,
            Some("\"task\"") => Self::Task,
            Some(_) => Self::Unknown,
        }
    }
}

/// Ensures `ttlMs` and `cacheScope` where a result must have them: what is not said, or cannot be
/// understood, is stale at once and its reader's own (specification: caching).
pub fn ensure_freshness(result: &mut Object) {
    let ttl = result.get(TTL_MS).and_then(Raw::as_i64);
    if ttl.is_none_or(|ttl| ttl < 0) {
        result.set(TTL_MS, Raw::from_serialize(&0));
    }
    let scope = result.get(CACHE_SCOPE).map(Raw::text);
    if !matches!(scope, Some("\"public\"" | "\"private\"")) {
        result.set(CACHE_SCOPE, Raw::string("private"));
    }
}

/// Ensures `resultType: "complete"`, where a result does not say what it is or says something
/// else. `true` when something had to change; otherwise every byte stays as it came.
pub fn ensure_complete(result: &mut Object) -> bool {
    let said = result.contains(RESULT_TYPE);
    if said && ResultType::of(result) == ResultType::Complete {
        return false;
    }
    result.set(RESULT_TYPE, Raw::string("complete"));
    true
}
