//! The `_meta` of a modern request (specification: basic, `_meta`).

use std::borrow::Cow;

use crate::capability::ClientCapabilities;
use crate::error::Malformed;
use crate::object::{Object, write_plain, write_string};
use crate::raw::Raw;
use crate::version;

/// The member of `params` and of results that holds what is said about the message itself.
pub const META: &str = "_meta";
/// The version that the request speaks. Required; its presence makes a request modern.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// `name` and `version` of the client. Optional and unverified: for display and logs only.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// What the client can do, for this one request. Required, may be empty.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The least level of the log messages wanted; without it the server sends none.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// On each message of a listen stream: the JSON-RPC id of its `subscriptions/listen` request
/// (specification: subscriptions).
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// `name` and `version` of the server, on results.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Asks for progress notifications, which repeat this string or integer (specification: progress).
pub const PROGRESS_TOKEN: &str = "progressToken";
/// Which upstream an answer came from; Waypost's own key.
pub const UPSTREAM: &str = "dev.waypost/upstream";
/// The name of a renamed tool or prompt at its server; Waypost's own key.
pub const ORIGINAL_NAME: &str = "dev.waypost/name";
/// On a question that a session carries as a request: its key among the `inputRequests` it was
/// made from. Requests of sessions have ids and no keys; Waypost's own key.
pub const QUESTION_KEY: &str = "dev.waypost/key";
/// In the answer to a question, in place of everything else: the JSON-RPC error that a session
/// client answered with. Answers of the stateless era cannot be errors; Waypost's own key.
pub const ANSWER_ERROR: &str = "dev.waypost/error";

/// What a modern request says of itself. The members that are rebuilt on each hop are taken out
/// of `rest`; everything else there passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestMeta {
    /// As the client wrote it; not checked here.
    pub protocol_version: Cow<'static, str>,
    /// An object where given; its members are not looked at.
    pub client_info: Option<Raw>,
    /// What the client declared on this request.
    pub capabilities: ClientCapabilities,
    /// As received; not checked to be a level.
    pub log_level: Option<Raw>,
    /// As received; not checked to be a string or an integer.
    pub progress_token: Option<Raw>,
    /// Everything else, in the order received: trace context, keys of extensions.
    pub rest: Object,
}

impl RequestMeta {
    /// The members of `_meta`, which must be there and an object.
    ///
    /// # Errors
    /// [`Malformed`] when it is not.
    pub fn object(meta: Option<Raw>) -> Result<Object, Malformed> {
        let raw = meta.ok_or(Malformed::Missing { member: META })?;
        if !raw.is_object() {
            return Err(Malformed::Wrong {
                member: META,
                expected: "an object",
            });
        }
        raw.as_object()
    }

    /// Reads the members of `_meta`.
    ///
    /// # Errors
    /// [`Malformed`] when a required one is missing or of the wrong kind; the caller answers it
    /// as `-32602`.
    pub fn read(mut rest: Object) -> Result<Self, Malformed> {
        let version = rest.remove(PROTOCOL_VERSION);
        let version = version.ok_or(Malformed::Missing {
            member: PROTOCOL_VERSION,
        })?;
        let wrong = Malformed::Wrong {
            member: PROTOCOL_VERSION,
            expected: "a string",
        };
        let protocol_version = version::interned(&version.as_str().ok_or(wrong)?);
        let capabilities = rest.remove(CLIENT_CAPABILITIES);
        let capabilities = capabilities.ok_or(Malformed::Missing {
            member: CLIENT_CAPABILITIES,
        })?;
        if !capabilities.is_object() {
            return Err(Malformed::Wrong {
                member: CLIENT_CAPABILITIES,
                expected: "an object",
            });
        }
        let capabilities = ClientCapabilities::new(capabilities.as_object()?);
        let client_info = rest.remove(CLIENT_INFO);
        if client_info.as_ref().is_some_and(|info| !info.is_object()) {
            return Err(Malformed::Wrong {
                member: CLIENT_INFO,
                expected: "an object",
            });
        }
        let progress_token = rest.remove(PROGRESS_TOKEN);
        let log_level = rest.remove(LOG_LEVEL);
        // A client has no business setting these two; they are ours to write on the next hop.
        rest.remove(SUBSCRIPTION_ID);
        rest.remove(SERVER_INFO);
        Ok(Self {
            protocol_version,
            client_info,
            capabilities,
            log_level,
            progress_token,
            rest,
        })
    }

    /// Appends the JSON text of `_meta` for the next hop.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.rest.write_members(out);
        if !self.rest.is_empty() {
            out.push(b',');
        }
        write_key(out, PROTOCOL_VERSION);
        write_string(out, &self.protocol_version);
        let optional = [
            (CLIENT_INFO, &self.client_info),
            (LOG_LEVEL, &self.log_level),
            (PROGRESS_TOKEN, &self.progress_token),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                out.push(b',');
                write_key(out, key);
                out.extend_from_slice(value.as_bytes());
            }
        }
        out.push(b',');
        write_key(out, CLIENT_CAPABILITIES);
        self.capabilities.object().write(out);
        out.push(b'}');
    }

    /// Writes `_meta` for the next hop.
    pub fn put(&self, params: &mut Object) {
        let mut text = Vec::with_capacity(256 + self.rest.encoded_len());
        self.write(&mut text);
        params.set(META, Raw::trusted(text));
    }
}

fn write_key(out: &mut Vec<u8>, key: &'static str) {
    write_plain(out, key);
    out.push(b':');
}
