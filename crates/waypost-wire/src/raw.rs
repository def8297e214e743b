//! One JSON value as the bytes that were received.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::Malformed;
use crate::object::{Object, write_string};

/// One valid JSON value, as received: number spelling, key order and white space survive.
///
/// Cloning is cheap; a value read from a larger message shares that message's buffer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Raw(Bytes);

impl Raw {
    /// Reads one JSON value.
    ///
    /// # Errors
    /// [`Malformed::Json`] when `bytes` is not exactly one JSON value in UTF-8.
    pub fn parse(bytes: &Bytes) -> Result<Self, Malformed> {
        let value: &RawValue = serde_json::from_slice(bytes).map_err(|e| Malformed::json(&e))?;
        Ok(Self::slice_of(bytes, value))
    }

    /// The part of `whole` that `value` was borrowed from.
    pub(crate) fn slice_of(whole: &Bytes, value: &RawValue) -> Self {
        Self(whole.slice_ref(value.get().as_bytes()))
    }

    /// Serialises `value`; for what Waypost itself says.
    pub fn from_serialize<T: serde::Serialize + ?Sized>(value: &T) -> Self {
        // Serialising into memory fails only for map keys that are not text: no type of ours.
        serde_json::to_vec(value).map_or_else(|_| Self::null(), |bytes| Self(bytes.into()))
    }

    /// A JSON string with this text.
    pub fn string(text: &str) -> Self {
        Self::from_serialize(text)
    }

    /// Text that was made to be valid JSON.
    pub(crate) fn trusted(text: Vec<u8>) -> Self {
        Self(text.into())
    }

    /// `null`.
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// `{}`.
    pub fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// `true` or `false`.
    pub fn bool(value: bool) -> Self {
        Self(Bytes::from_static(if value { b"true" } else { b"false" }))
    }

    /// An array of these items, each as it is.
    pub fn array<'a>(items: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut out = vec![b'['];
        for item in items {
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(item.as_bytes());
        }
        out.push(b']');
        Self(out.into())
    }

    /// One array with the items of these, which are arrays as [`Raw::array`] makes them.
    pub fn concat<'a>(arrays: impl IntoIterator<Item = &'a Self>) -> Self {
        let inner = |array: &'a Self| {
            let items = array.0.strip_prefix(b"[");
            items.and_then(|items| items.strip_suffix(b"]"))
        };
        let parts = arrays.into_iter().filter_map(inner);
        let parts: Vec<&[u8]> = parts.filter(|items| !items.is_empty()).collect();
        let length: usize = parts.iter().map(|items| items.len() + 1).sum();
        let mut out = Vec::with_capacity(length + 2);
        out.push(b'[');
        for items in parts {
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(items);
        }
        out.push(b']');
        Self(out.into())
    }

    /// The same with other values in place of parts of it, which were read from it; every other
    /// byte stays. What is no part of it, or overlaps the one before, is passed over.
    #[must_use]
    pub fn with_parts(&self, changed: &[(Self, Self)]) -> Self {
        let part = |(old, new): &'_ (Self, Self)| Some((self.range_of(old)?, new.clone()));
        let mut parts: Vec<(Range<usize>, Self)> = changed.iter().filter_map(part).collect();
        parts.sort_by_key(|(range, _)| range.start);
        let added: usize = parts.iter().map(|(_, new)| new.0.len()).sum();
        let mut out = Vec::with_capacity(self.0.len() + added);
        let mut done = 0;
        for (range, new) in parts {
            if let Some(before) = self.0.get(done..range.start) {
                out.extend_from_slice(before);
                out.extend_from_slice(&new.0);
                done = range.end;
            }
        }
        out.extend_from_slice(self.0.get(done..).unwrap_or_default());
        Self(out.into())
    }

    /// The JSON text.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The JSON text; empty should the bytes not be UTF-8, which no constructor allows.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        &*self.0 == b"null"
    }

    /// Whether this is a JSON object.
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// Whether this is a JSON string.
    pub fn is_string(&self) -> bool {
        self.0.first() == Some(&b'"')
    }

    /// The text of a JSON string, unescaped.
    pub fn as_string(&self) -> Option<String> {
        self.as_str().map(Cow::into_owned)
    }

    /// The same without a copy where it holds no escapes.
    pub fn as_str(&self) -> Option<Cow<'_, str>> {
        let inner = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        if memchr::memchr(b'\\', inner).is_some() {
            return self.decode().map(Cow::Owned);
        }
        std::str::from_utf8(inner).ok().map(Cow::Borrowed)
    }

    /// The value of a JSON integer that fits.
    pub fn as_i64(&self) -> Option<i64> {
        self.decode()
    }

    /// The value of a JSON boolean.
    pub fn as_bool(&self) -> Option<bool> {
        self.decode()
    }

    /// The members of a JSON object, one level deep.
    ///
    /// # Errors
    /// [`Malformed`] when it is something else or repeats a key.
    pub fn as_object(&self) -> Result<Object, Malformed> {
        Object::parse(&self.0)
    }

    /// The same object with this value for `key`, in place or at its end; every other byte stays.
    ///
    /// # Errors
    /// [`Malformed`] when it is no object or repeats a key.
    pub fn with_member(&self, key: &str, value: &Self) -> Result<Self, Malformed> {
        let object = self.as_object()?;
        let range = object.get(key).and_then(|old| self.range_of(old));
        let end = self.0.len().saturating_sub(1);
        let range = range.unwrap_or(end..end);
        let parts = (self.0.get(..range.start), self.0.get(range.end..));
        let (Some(before), Some(after)) = parts else {
            return Err(Malformed::NotObject);
        };
        let mut out = Vec::with_capacity(self.0.len() + key.len() + value.0.len() + 4);
        out.extend_from_slice(before);
        if range.is_empty() {
            if !object.is_empty() {
                out.push(b',');
            }
            write_string(&mut out, key);
            out.push(b':');
        }
        out.extend_from_slice(&value.0);
        out.extend_from_slice(after);
        Ok(Self(out.into()))
    }

    /// Where in its bytes a value is that was read from it.
    fn range_of(&self, part: &Self) -> Option<Range<usize>> {
        let start = part.0.as_ptr().addr();
        let start = start.checked_sub(self.0.as_ptr().addr())?;
        let end = start.checked_add(part.0.len())?;
        (end <= self.0.len()).then_some(start..end)
    }

    /// The items of a JSON array.
    pub fn as_array(&self) -> Option<Vec<Self>> {
        if self.0.first() != Some(&b'[') {
            return None;
        }
        let items: Vec<&RawValue> = serde_json::from_slice(&self.0).ok()?;
        Some(
            items
                .into_iter()
                .map(|item| Self::slice_of(&self.0, item))
                .collect(),
        )
    }

    /// Decodes the value; for the few that are routed on.
    pub fn decode<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.0).ok()
    }
}

impl From<Object> for Raw {
    fn from(object: Object) -> Self {
        Self::from(&object)
    }
}

impl From<&Object> for Raw {
    fn from(object: &Object) -> Self {
        let mut out = Vec::with_capacity(object.encoded_len());
        object.write(&mut out);
        Self(out.into())
    }
}

impl From<&serde_json::Value> for Raw {
    fn from(value: &serde_json::Value) -> Self {
        Self::from_serialize(value)
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(items: &[&str], expected: &str) {
        let parse = |text: &&str| Raw::parse(&Bytes::from((*text).to_owned())).unwrap();
        let items: Vec<Raw> = items.iter().map(parse).collect();
        let array = Raw::array(&items);
        assert_eq!(array.text(), expected);
        assert_eq!(array.as_array().unwrap(), items);
        let one_by_one: Vec<Raw> = items.iter().map(|item| Raw::array([item])).collect();
        assert_eq!(Raw::concat(&one_by_one), array);
        let empty = Raw::array([]);
        assert_eq!(Raw::concat([&empty, &array, &empty]), array);
    }

    #[test]
    fn a_member_is_put_in_and_every_other_byte_stays() {
        let with = |text: &str, key: &str| {
            let raw = Raw::parse(&Bytes::from(text.to_owned())).unwrap();
            raw.with_member(key, &Raw::string("new"))
                .map(|raw| raw.to_string())
        };
        let text = r#"{ "z" : 1.0 , "d\u0065" : "old" , "a":[ ] }"#;
        let expected = r#"{ "z" : 1.0 , "d\u0065" : "new" , "a":[ ] }"#;
        assert_eq!(with(text, "de").unwrap(), expected);
        let added = r#"{ "z":1 ,"q\"":"new"}"#;
        assert_eq!(with(r#"{ "z":1 }"#, "q\"").unwrap(), added);
        assert_eq!(with("{ }", "a").unwrap(), r#"{ "a":"new"}"#);
        assert!(with("[1]", "a").is_err() && with(r#"{"a":1,"a":2}"#, "a").is_err());
    }

    #[test]
    fn only_the_parts_that_change_become_others() {
        let parse = |text: &str| Raw::parse(&Bytes::from(text.to_owned())).unwrap();
        let whole = parse(r#"[ 1.0, "b" ,[2e1]]"#);
        let parts = whole.as_array().unwrap();
        let (new, foreign) = (parse("\"longer\""), parse("3"));
        let changed = [
            (parts[2].clone(), foreign.clone()),
            (parts[1].clone(), new.clone()),
            (parts[2].as_array().unwrap()[0].clone(), new.clone()),
            (foreign, new),
        ];
        let text = whole.with_parts(&changed);
        assert_eq!(text.text(), r#"[ 1.0, "longer" ,3]"#);
        assert_eq!(whole.with_parts(&[]), whole);
    }

    #[test]
    fn an_array_holds_its_items_as_they_are() {
        check(&[], "[]");
        check(&["1.0"], "[1.0]");
        check(
            &["[ ]", r#"{"a" : 1e5}"#, "null"],
            r#"[[ ],{"a" : 1e5},null]"#,
        );
    }
}
