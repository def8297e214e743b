//! What can be wrong with a message, and the error member of an answer.

use bytes::Bytes;
use serde::Serialize;

use crate::code;
use crate::object::Object;
use crate::raw::Raw;

/// Bytes that are not a message of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not JSON, or not UTF-8.
    #[error("not valid JSON at line {line}, column {column}")]
    Json {
        /// Counted from 1.
        line: usize,
        /// Counted from 1 in bytes; 0 at the start of a line.
        column: usize,
    },
    /// JSON of another kind.
    #[error("not a JSON object")]
    NotObject,
    /// An array of messages, where there are no batches: only 2025-03-26 has them.
    #[error("batches are not supported, send one message per request")]
    Batch,
    /// One key twice.
    #[error("key `{key}` is repeated")]
    RepeatedKey {
        /// The key, unescaped; its first 64 characters.
        key: String,
    },
    /// Nested deeper than allowed.
    #[error("nested deeper than {limit} levels")]
    Depth {
        /// How many levels of arrays and objects are allowed.
        limit: usize,
    },
    /// A member that must be there.
    #[error("`{member}` is missing")]
    Missing {
        /// Its key.
        member: &'static str,
    },
    /// A member of the wrong kind.
    #[error("`{member}` must be {expected}")]
    Wrong {
        /// Its key.
        member: &'static str,
        /// What it must be, with an article: "an object".
        expected: &'static str,
    },
}

impl Malformed {
    pub(crate) fn json(error: &serde_json::Error) -> Self {
        Self::Json {
            line: error.line(),
            column: error.column(),
        }
    }

    /// The JSON-RPC code that says so.
    pub fn code(&self) -> i64 {
        match self {
            Self::Json { .. } => code::PARSE_ERROR,
            Self::NotObject
            | Self::Batch
            | Self::RepeatedKey { .. }
            | Self::Depth { .. }
            | Self::Missing { .. }
            | Self::Wrong { .. } => code::INVALID_REQUEST,
        }
    }
}

/// The `error` member of a JSON-RPC answer; one that came from a server keeps its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorObject {
    code: i64,
    raw: Raw,
    /// The code that a server of the session era gave. Beside the error and never in its bytes.
    said: Option<i64>,
}

impl ErrorObject {
    /// An error without data.
    pub fn new(code: i64, message: &str) -> Self {
        Self::build(code, message, None::<&()>)
    }

    /// An error with data.
    pub fn with_data<T: Serialize + ?Sized>(code: i64, message: &str, data: &T) -> Self {
        Self::build(code, message, Some(data))
    }

    fn build<T: Serialize + ?Sized>(code: i64, message: &str, data: Option<&T>) -> Self {
        #[derive(Serialize)]
        struct Body<'a, T: ?Sized> {
            code: i64,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            data: Option<&'a T>,
        }
        Self {
            code,
            raw: Raw::from_serialize(&Body {
                code,
                message,
                data,
            }),
            said: None,
        }
    }

    /// Reads the `error` member of an answer.
    ///
    /// # Errors
    /// [`Malformed`] unless it is an object with an integer `code`.
    pub fn parse(raw: &Raw) -> Result<Self, Malformed> {
        let wrong = Malformed::Wrong {
            member: "error.code",
            expected: "an integer",
        };
        let code = raw
            .as_object()?
            .get("code")
            .and_then(Raw::as_i64)
            .ok_or(wrong)?;
        Ok(Self {
            code,
            raw: raw.clone(),
            said: None,
        })
    }

    /// The caller lacks a capability (`-32021`); `required` has the shape of client capabilities.
    pub fn missing_capability(message: &str, required: &serde_json::Value) -> Self {
        let data = serde_json::json!({ "requiredCapabilities": required });
        Self::with_data(code::MISSING_CAPABILITY, message, &data)
    }

    /// The code.
    pub fn code(&self) -> i64 {
        self.code
    }

    /// The message, unescaped; empty when there is none.
    pub fn message(&self) -> String {
        self.raw
            .as_object()
            .ok()
            .and_then(|o| o.string("message"))
            .unwrap_or_default()
    }

    /// The data member.
    pub fn data(&self) -> Option<Raw> {
        self.raw.as_object().ok()?.get("data").cloned()
    }

    /// `data.requiredCapabilities` of `-32021`, or of the draft's `-32003` that names them.
    pub fn required_capabilities(&self) -> Option<Object> {
        if self.code != code::MISSING_CAPABILITY && self.code != code::DRAFT_MISSING_CAPABILITY {
            return None;
        }
        self.data()?
            .as_object()
            .ok()?
            .get("requiredCapabilities")?
            .as_object()
            .ok()
    }

    /// The same error with another code, message and data kept.
    #[must_use]
    pub fn with_code(&self, code: i64) -> Self {
        let Ok(mut object) = self.raw.as_object() else {
            return self.clone();
        };
        object.set("code", Raw::from_serialize(&code));
        Self {
            code,
            raw: object.into(),
            said: self.said,
        }
    }

    /// The same error of a server of the session era, whose code means `code` today. Clients of
    /// its own era get the one that it said.
    #[must_use]
    pub fn meaning(&self, code: i64) -> Self {
        let said = Some(self.said.unwrap_or(self.code));
        let today = if code == self.code {
            self.clone()
        } else {
            self.with_code(code)
        };
        Self { said, ..today }
    }

    /// The code that a server of the session era gave it.
    pub fn said(&self) -> Option<i64> {
        self.said
    }

    /// Whether a server that refuses so will refuse the same again later: it is about the method,
    /// the params or the resource, not about how the server is.
    pub fn is_final(&self) -> bool {
        matches!(
            self.code,
            code::METHOD_NOT_FOUND | code::INVALID_PARAMS | code::FORMER_RESOURCE_NOT_FOUND
        )
    }

    /// The JSON text.
    pub fn as_bytes(&self) -> &Bytes {
        self.raw.as_bytes()
    }

    /// The JSON value.
    pub fn raw(&self) -> &Raw {
        &self.raw
    }
}
