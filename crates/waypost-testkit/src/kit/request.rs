//! One request of a client, checked as far as every method demands.

use serde_json::{Map, Value, json};

use super::fail::Fail;
use super::words::{
    META_CAPABILITIES, META_LOG_LEVEL, META_RESUMABLE, META_SESSION, META_VERSION, TASKS, VERSION,
};

/// What arrived: a request, or something that is not answered.
#[derive(Debug)]
pub(crate) enum Message {
    Request(Request),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
}

/// A request with its `_meta` checked.
#[derive(Clone, Debug)]
pub struct Request {
    /// A string or a number, echoed as it came.
    pub id: Value,
    /// The method.
    pub method: String,
    /// The parameters, `_meta` included.
    pub params: Map<String, Value>,
}

impl Message {
    /// Reads one JSON-RPC message.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, (Value, Fail)> {
        let value: Value =
            serde_json::from_slice(body).map_err(|_| (Value::Null, Fail::parse()))?;
        let Value::Object(mut message) = value else {
            return Err((
                Value::Null,
                Fail::invalid_request("one JSON-RPC message per request"),
            ));
        };
        let id = message.remove("id");
        let echo = match &id {
            Some(id @ (Value::String(_) | Value::Number(_))) => id.clone(),
            _ => Value::Null,
        };
        let refuse = |why: &str| Err((echo.clone(), Fail::invalid_request(why)));
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return refuse("`jsonrpc` must be \"2.0\"");
        }
        let Some(Value::String(method)) = message.remove("method") else {
            return refuse("a message needs a `method`");
        };
        let params = match message.remove("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return refuse("`params` must be an object"),
        };
        match id {
            None => Ok(Self::Notification { method, params }),
            Some(id @ (Value::String(_) | Value::Number(_))) => {
                Ok(Self::Request(Request { id, method, params }))
            }
            Some(_) => refuse("`id` must be a string or a number"),
        }
    }
}

impl Request {
    /// The request's `_meta`, if it is an object.
    pub fn meta(&self) -> Option<&Map<String, Value>> {
        self.params.get("_meta").and_then(Value::as_object)
    }

    /// The protocol version the body names.
    pub(crate) fn version(&self) -> Option<&str> {
        self.meta()?.get(META_VERSION)?.as_str()
    }

    /// The capabilities declared on this request.
    pub fn capabilities(&self) -> Option<&Map<String, Value>> {
        self.meta()?.get(META_CAPABILITIES)?.as_object()
    }

    /// What every request must carry (specification, lifecycle): version and capabilities.
    pub(crate) fn check_meta(&self) -> Result<(), Fail> {
        if self.method == "initialize" && self.version().is_none() {
            let offered = self.params.get("protocolVersion").and_then(Value::as_str);
            return Err(Fail::unsupported_version(offered.unwrap_or("unknown")));
        }
        if self.version().is_none() {
            return Err(Fail::bad_meta(format!("`_meta` needs `{META_VERSION}`")));
        }
        if self.capabilities().is_none() {
            return Err(Fail::bad_meta(format!(
                "`_meta` needs `{META_CAPABILITIES}`"
            )));
        }
        Ok(())
    }

    /// Whether the version is one this server speaks.
    pub(crate) fn check_version(&self) -> Result<(), Fail> {
        match self.version() {
            Some(VERSION) => Ok(()),
            other => Err(Fail::unsupported_version(other.unwrap_or("unknown"))),
        }
    }

    /// Whether the caller declared the tasks extension on this request.
    pub fn has_tasks(&self) -> bool {
        self.capabilities()
            .and_then(|all| all.get("extensions"))
            .and_then(|all| all.get(TASKS))
            .is_some_and(Value::is_object)
    }

    /// Whether the caller declared `capability` at all.
    pub fn declares(&self, capability: &str) -> bool {
        self.capabilities()
            .is_some_and(|all| all.get(capability).is_some_and(Value::is_object))
    }

    /// Whether the caller can show a form: `elicitation: {}` or with a `form` member.
    pub fn has_forms(&self) -> bool {
        let elicitation = self
            .capabilities()
            .and_then(|all| all.get("elicitation"))
            .and_then(Value::as_object);
        elicitation.is_some_and(|modes| modes.is_empty() || modes.contains_key("form"))
    }

    /// Refuses a caller that declared less than `tasks` and `forms` ask for, naming all of it.
    ///
    /// # Errors
    ///
    /// `-32021`, with the missing capabilities.
    pub fn need(&self, tasks: bool, forms: bool) -> Result<(), Fail> {
        let mut missing = Map::new();
        if tasks && !self.has_tasks() {
            missing.insert("extensions".into(), json!({ TASKS: {} }));
        }
        if forms && !self.has_forms() {
            missing.insert("elicitation".into(), json!({ "form": {} }));
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Fail::missing_capability(&Value::Object(missing)))
    }

    /// The progress token, a string or a number.
    pub fn progress_token(&self) -> Option<&Value> {
        self.meta()?
            .get("progressToken")
            .filter(|token| token.is_string() || token.is_number())
    }

    /// Whether the answer can be fetched by another request if its stream closes (session era).
    pub fn is_resumable(&self) -> bool {
        self.meta()
            .is_some_and(|meta| meta.contains_key(META_RESUMABLE))
    }

    /// The session the request came in, in the session era; the empty one is no session.
    pub fn session(&self) -> Option<&str> {
        self.meta()?.get(META_SESSION)?.as_str()
    }

    /// Whether the caller takes questions in this mode of elicitation: `form` or `url`.
    pub fn has_elicitation(&self, mode: &str) -> bool {
        let declared = self.capabilities().and_then(|all| all.get("elicitation"));
        declared.is_some_and(|modes| modes.get(mode).is_some_and(Value::is_object))
    }

    /// The lowest severity of log messages the caller asked for on this request.
    pub fn log_level(&self) -> Option<&str> {
        self.meta()?.get(META_LOG_LEVEL)?.as_str()
    }

    /// A string parameter.
    ///
    /// # Errors
    ///
    /// `-32602` when it is absent or not a string.
    pub fn string(&self, key: &str) -> Result<&str, Fail> {
        let text = self.params.get(key).and_then(Value::as_str);
        text.ok_or_else(|| Fail::invalid_params(format!("`{key}` must be a string")))
    }

    /// The answers of a retry (multi round-trip requests): `None` on the first round.
    ///
    /// # Errors
    ///
    /// `-32602` when the member or one of its values has the wrong shape.
    pub fn input_responses(&self) -> Result<Option<&Map<String, Value>>, Fail> {
        let responses = match self.params.get("inputResponses") {
            None => return Ok(None),
            Some(Value::Object(responses)) => responses,
            Some(_) => return Err(Fail::invalid_params("`inputResponses` must be an object")),
        };
        match responses.iter().find(|(_, value)| !value.is_object()) {
            Some((key, _)) => Err(Fail::invalid_params(format!(
                "the response `{key}` must be an object"
            ))),
            None => Ok(Some(responses)),
        }
    }

    /// The opaque state of an earlier round.
    pub fn request_state(&self) -> Option<&str> {
        self.params.get("requestState").and_then(Value::as_str)
    }
}
