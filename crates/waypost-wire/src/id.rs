//! JSON-RPC request ids.

use crate::error::Malformed;
use crate::raw::Raw;

/// A request id as it was spelled: `1` and `"1"` are different ids and come back as they went in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Raw);

impl Id {
    /// Takes a value as an id.
    ///
    /// # Errors
    /// [`Malformed::Wrong`] unless it is a string or an integer.
    pub fn new(raw: Raw) -> Result<Self, Malformed> {
        let text = raw.text();
        let digits = text.strip_prefix('-').unwrap_or(text);
        let integer = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if raw.is_string() || integer {
            return Ok(Self(raw));
        }
        Err(Malformed::Wrong {
            member: "id",
            expected: "a string or an integer",
        })
    }

    /// An id of our own.
    pub fn number(value: u64) -> Self {
        Self(Raw::from_serialize(&value))
    }

    /// The JSON value.
    pub fn raw(&self) -> &Raw {
        &self.0
    }
}
