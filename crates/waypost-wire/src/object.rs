//! A JSON object one level deep.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use crate::error::Malformed;
use crate::raw::Raw;
use crate::text::{NAME, clip};

/// Up to here a repeated key is looked for by comparing; above it by hashing.
const FEW: usize = 24;

/// A JSON object one level deep: key order kept, values still the bytes received.
///
/// Keys are compared unescaped, and an object that repeats one is refused: two readers that
/// pick different ones of a pair is how requests are smuggled past a gateway.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Object(Members);

type Members = Vec<(Key, Raw)>;

/// Keys that every message has are not worth an allocation.
type Key = Cow<'static, str>;

impl Object {
    /// An object without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a JSON object.
    ///
    /// # Errors
    /// [`Malformed::Json`] for bytes that are not JSON, [`Malformed::NotObject`] for another
    /// kind of value, [`Malformed::RepeatedKey`] for an object with one key twice.
    pub fn parse(bytes: &Bytes) -> Result<Self, Malformed> {
        let outer = Entries {
            whole: bytes,
            below: None,
        };
        // Of text every part is known to be UTF-8; of bytes each would be looked at again.
        let entries = match std::str::from_utf8(bytes) {
            Ok(text) => outer.read(serde_json::Deserializer::from_str(text)),
            // Fails; this way it is known where.
            Err(_) => outer.read(serde_json::Deserializer::from_slice(bytes)),
        };
        let entries = entries.map_err(|e| {
            if e.is_data() {
                data_error(&e, bytes)
            } else {
                Malformed::json(&e)
            }
        })?;
        let object = Self(entries);
        object.refuse_repeats()?;
        Ok(object)
    }

    /// Reads a JSON object and, in the same pass, the one that `key` of it is: `null` stands in its
    /// place. `None` for what [`Self::parse`] refuses, or where `key` is no such object.
    pub(crate) fn parse_both(bytes: &Bytes, key: &'static str) -> Option<(Self, Option<Self>)> {
        let mut below = None;
        let outer = Entries {
            whole: bytes,
            below: Some((key, &mut below)),
        };
        let text = serde_json::Deserializer::from_str(std::str::from_utf8(bytes).ok()?);
        let outer = Self(outer.read(text).ok()?);
        let below = below.map(Self);
        let mut both = std::iter::once(&outer).chain(&below);
        both.try_for_each(Self::refuse_repeats).ok()?;
        Some((outer, below))
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Raw> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The unescaped text of `key`, when it is a string; borrowed where it holds no escapes.
    pub fn str(&self, key: &str) -> Option<Cow<'_, str>> {
        self.get(key)?.as_str()
    }

    /// The unescaped text of `key`, when it is a string.
    pub fn string(&self, key: &str) -> Option<String> {
        self.get(key)?.as_string()
    }

    /// Whether `key` is there.
    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Replaces the value of `key` in place, or adds it at the end.
    pub fn set(&mut self, key: &str, value: Raw) {
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((interned(key), value)),
        }
    }

    /// Takes `key` out.
    pub fn remove(&mut self, key: &str) -> Option<Raw> {
        let at = self.0.iter().position(|(k, _)| k == key)?;
        Some(self.0.remove(at).1)
    }

    /// The members in the order received.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Raw)> {
        self.0.iter().map(|(k, v)| (&**k, v))
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// About how many bytes [`Object::write`] produces.
    pub fn encoded_len(&self) -> usize {
        2 + self
            .0
            .iter()
            .map(|(k, v)| k.len() + v.as_bytes().len() + 4)
            .sum::<usize>()
    }

    /// Appends the JSON text.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.write_members(out);
        out.push(b'}');
    }

    /// Appends the members without the braces around them.
    pub(crate) fn write_members(&self, out: &mut Vec<u8>) {
        for (index, (key, value)) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match key {
                Cow::Borrowed(known) => write_plain(out, known),
                Cow::Owned(key) => write_string(out, key),
            }
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
    }

    fn refuse_repeats(&self) -> Result<(), Malformed> {
        let repeated = if self.0.len() <= FEW {
            self.0
                .iter()
                .enumerate()
                .find(|(i, (key, _))| self.0.iter().take(*i).any(|(earlier, _)| earlier == key))
        } else {
            let mut seen = HashSet::with_capacity(self.0.len());
            self.0
                .iter()
                .enumerate()
                .find(|(_, (key, _))| !seen.insert(&**key))
        };
        match repeated {
            Some((_, (key, _))) => Err(Malformed::RepeatedKey {
                key: clip(key, NAME).into_owned(),
            }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: AsRef<str>> FromIterator<(K, Raw)> for Object {
    fn from_iter<I: IntoIterator<Item = (K, Raw)>>(iter: I) -> Self {
        Self(
            iter.into_iter()
                .map(|(k, v)| (interned(k.as_ref()), v))
                .collect(),
        )
    }
}

/// Appends `text` as a JSON string.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    // Most keys and names need no escape; then no serialiser is needed either.
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        write_plain(out, text);
    } else {
        out.extend_from_slice(Raw::string(text).as_bytes());
    }
}

/// Appends text that needs no escape, such as the keys that are known, as a JSON string.
pub(crate) fn write_plain(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Tells "not an object" from invalid JSON that serde reports as a data error (an invalid key).
fn data_error(error: &serde_json::Error, bytes: &Bytes) -> Malformed {
    match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'{') => Malformed::json(error),
        _ => Malformed::NotObject,
    }
}

struct Entries<'a, 'b> {
    whole: &'a Bytes,
    /// The key of an object that is read as well, and where its members go.
    below: Option<(&'static str, &'b mut Option<Members>)>,
}

impl<'de> Entries<'de, '_> {
    fn read<R: serde_json::de::Read<'de>>(
        self,
        mut text: serde_json::Deserializer<R>,
    ) -> serde_json::Result<Members> {
        let members = self.deserialize(&mut text)?;
        text.end()?;
        Ok(members)
    }
}

impl<'de> DeserializeSeed<'de> for Entries<'de, '_> {
    type Value = Members;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Members, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Entries<'de, '_> {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Members, A::Error> {
        let whole = self.whole;
        let mut members = Vec::with_capacity(8);
        while let Some(Text(key)) = map.next_key()? {
            let value = match self.below.take_if(|(below, _)| *below == key) {
                Some((_, below)) => {
                    *below = Some(map.next_value_seed(Entries { whole, below: None })?);
                    Raw::null()
                }
                None => Raw::slice_of(whole, map.next_value()?),
            };
            members.push((interned(&key), value));
        }
        Ok(members)
    }
}

/// A key that borrows when it holds no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> de::Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(v.to_owned())))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

/// The key, without an allocation for the protocol's own.
/// No key that is borrowed needs an escape where it is written.
fn interned(key: &str) -> Key {
    macro_rules! known {
        ($($text:literal)*) => {
            match key {
                $($text => Cow::Borrowed($text),)*
                _ => Cow::Owned(key.to_owned()),
            }
        };
    }
    known!(
        "jsonrpc" "id" "method" "params" "result" "error" "code" "message" "data"
        "_meta" "name" "arguments" "uri" "taskId" "resultType" "content" "structuredContent"
        "isError" "ttlMs" "cacheScope" "inputRequests" "inputResponses" "requestState"
        "progressToken" "traceparent" "tracestate" "extensions" "elicitation" "sampling" "roots"
        "type" "text" "version" "status" "createdAt" "lastUpdatedAt" "pollIntervalMs"
        "statusMessage" "progress" "total" "level" "logger" "description" "inputSchema" "title"
        "annotations"
        "io.modelcontextprotocol/protocolVersion" "io.modelcontextprotocol/clientInfo"
        "io.modelcontextprotocol/clientCapabilities" "io.modelcontextprotocol/logLevel"
        "io.modelcontextprotocol/subscriptionId" "io.modelcontextprotocol/serverInfo"
        "io.modelcontextprotocol/tasks" "io.modelcontextprotocol/ui"
        "dev.waypost/upstream" "dev.waypost/name" "dev.waypost/key"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(input: &str, expected: Result<&str, &str>) {
        let bytes = Bytes::from(input.to_owned());
        let got = Object::parse(&bytes)
            .map(|o| Raw::from(o).to_string())
            .map_err(|e| e.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn numbers_order_and_unknown_members_survive() {
        check(
            r#"{"z":1.0,"a":12345678901234567890123,"m":{"b" : 1,"a":[ ]}}"#,
            Ok(r#"{"z":1.0,"a":12345678901234567890123,"m":{"b" : 1,"a":[ ]}}"#),
        );
    }

    #[test]
    fn a_repeated_key_is_refused_however_it_is_spelled() {
        check(r#"{"name":1,"n\u0061me":2}"#, Err("key `name` is repeated"));
    }

    #[test]
    fn a_repeat_among_many_keys_is_found() {
        let members: Vec<String> = (0..100).map(|i| format!("\"k{}\":0", i % 99)).collect();
        check(
            &format!("{{{}}}", members.join(",")),
            Err("key `k0` is repeated"),
        );
    }

    #[test]
    fn other_values_are_not_objects() {
        for input in ["[]", "1", "\"a\"", "null", "true"] {
            check(input, Err("not a JSON object"));
        }
    }

    #[test]
    fn trailing_text_is_refused() {
        let bytes = Bytes::from_static(b"{} {}");
        assert!(matches!(Object::parse(&bytes), Err(Malformed::Json { .. })));
    }

    proptest! {
        #[test]
        fn parse_and_write_is_identity(pairs in proptest::collection::btree_map("[a-z\"\\\\\n]{0,6}", "-?[1-9][0-9]{0,30}(\\.[0-9]{1,5})?", 0..40)) {
            let object: Object = pairs.iter().map(|(k, v)| (k.as_str(), Raw::parse(&Bytes::from(v.clone())).unwrap())).collect();
            let raw = Raw::from(&object);
            prop_assert_eq!(Object::parse(raw.as_bytes()).unwrap(), object);
        }
    }
}
