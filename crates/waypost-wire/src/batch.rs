//! Several messages in one array: batches, which 2025-03-26 has and no other version.

use std::fmt;

use bytes::Bytes;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::Malformed;
use crate::raw::Raw;

/// The version that has batches.
pub const VERSION: &str = "2025-03-26";

/// Whether `bytes` begin as an array does.
pub fn is_batch(bytes: &[u8]) -> bool {
    bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[')
}

/// The messages of a batch, each yet to be read; `None` when there are more than `most`.
///
/// # Errors
/// [`Malformed::Json`] when `bytes` is not exactly one JSON array.
pub fn members(bytes: &Bytes, most: usize) -> Result<Option<Vec<Raw>>, Malformed> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = json.deserialize_seq(AtMost { bytes, most });
    let read = read.and_then(|members| json.end().map(|()| members));
    read.map_err(|error| Malformed::json(&error))
}

/// Keeps no more than so many: an array of short items is many times larger in memory.
struct AtMost<'a> {
    bytes: &'a Bytes,
    most: usize,
}

impl<'de> Visitor<'de> for AtMost<'de> {
    type Value = Option<Vec<Raw>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while members.len() < self.most {
            match seq.next_element::<&RawValue>()? {
                Some(value) => members.push(Raw::slice_of(self.bytes, value)),
                None => return Ok(Some(members)),
            }
        }
        let mut more = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok((!more).then_some(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, most: usize) -> Result<Option<Vec<String>>, Malformed> {
        let members = members(&Bytes::from(text.to_owned()), most)?;
        let text = |raw: &Raw| raw.text().to_owned();
        Ok(members.map(|members| members.iter().map(text).collect()))
    }

    #[test]
    fn a_batch_is_taken_apart_and_its_messages_stay_as_they_are() {
        assert!(is_batch(b" \n[1]") && !is_batch(b"{}") && !is_batch(b""));
        let members = texts(r#" [ {"a": 1.0} , [2],3 ] "#, 3).unwrap().unwrap();
        assert_eq!(members, [r#"{"a": 1.0}"#, "[2]", "3"]);
        assert_eq!(texts("[]", 3), Ok(Some(Vec::new())));
        assert_eq!(texts("[1,2,3,4]", 3), Ok(None));
        for odd in ["[1", "[1,]", "[1] 2", "{}", "[1,2,3,4"] {
            assert_eq!(texts(odd, 3).unwrap_err().code(), -32700, "{odd}");
        }
    }
}
