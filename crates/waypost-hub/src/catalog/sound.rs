//! Definitions that would make strict clients refuse the whole list they are in.
//!
//! Such clients read a list as one value of the protocol's schema. So what breaks the schema is left
//! out, and the rest of the list stays; little slips whose meaning is plain are put right instead.

use waypost_wire::meta::META;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::entry::{Kind, Rejected};

/// What the protocol wants a member of a definition to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Text.
    String,
    /// An object.
    Object,
    /// A list.
    Array,
}

impl Shape {
    fn is_of(self, raw: &Raw) -> bool {
        match self {
            Self::String => raw.is_string(),
            Self::Object => raw.is_object(),
            Self::Array => raw.as_bytes().first() == Some(&b'['),
        }
    }

    /// In words.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Object => "object",
            Self::Array => "array",
        }
    }
}

/// Members that may be left out, of whatever is listed (specification: schema).
const OPTIONAL: [(&str, Shape); 8] = [
    ("title", Shape::String),
    ("description", Shape::String),
    ("mimeType", Shape::String),
    ("icons", Shape::Array),
    ("annotations", Shape::Object),
    ("outputSchema", Shape::Object),
    ("arguments", Shape::Array),
    (META, Shape::Object),
];

fn required(kind: Kind) -> &'static [(&'static str, Shape)] {
    match kind {
        Kind::Tool => &[("name", Shape::String), ("inputSchema", Shape::Object)],
        Kind::Prompt => &[("name", Shape::String)],
        Kind::Resource => &[("uri", Shape::String), ("name", Shape::String)],
        Kind::Template => &[("uriTemplate", Shape::String), ("name", Shape::String)],
    }
}

/// The definition, put right where that is needed.
///
/// # Errors
/// [`Rejected`] for one that breaks the schema.
pub(super) fn sound(kind: Kind, raw: &Raw, object: &Object) -> Result<Raw, Rejected> {
    for (member, shape) in required(kind) {
        let value = object.get(member).filter(|raw| shape.is_of(raw));
        if value.is_none() {
            let (member, shape) = (*member, *shape);
            return Err(Rejected::Shape { member, shape });
        }
    }
    let mut without = Vec::new();
    for (member, shape) in OPTIONAL {
        match object.get(member) {
            // Says nothing, as if it were not there.
            Some(value) if value.is_null() => without.push(member),
            Some(value) if !shape.is_of(value) => return Err(Rejected::Shape { member, shape }),
            Some(_) | None => {}
        }
    }
    let mut mended = raw.clone();
    if !without.is_empty() {
        let mut object = object.clone();
        for member in without {
            object.remove(member);
        }
        mended = object.into();
    }
    if kind == Kind::Tool {
        mended = with_type(mended, object)?;
    }
    Ok(mended)
}

/// Arguments are an object whatever their schema says.
fn with_type(definition: Raw, object: &Object) -> Result<Raw, Rejected> {
    let Some(schema) = object.get("inputSchema") else {
        return Ok(definition);
    };
    match schema.as_object()?.get("type").map(Raw::as_str) {
        Some(Some(kind)) if kind == "object" => Ok(definition),
        Some(_) => Err(Rejected::Arguments),
        None => {
            let schema = schema.with_member("type", &Raw::string("object"))?;
            Ok(definition.with_member("inputSchema", &schema)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn read(kind: Kind, text: &str) -> Result<String, String> {
        let raw = Raw::parse(&Bytes::from(text.to_owned())).unwrap();
        let object = raw.as_object().unwrap();
        let sound = sound(kind, &raw, &object);
        sound.map(|raw| raw.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn r28_what_is_sound_keeps_every_byte() {
        for (kind, text) in [
            (
                Kind::Tool,
                r#"{ "x":1.0, "name":"a", "inputSchema":{ "type" : "object" } }"#,
            ),
            (Kind::Prompt, r#"{"name":"a", "arguments":[ ] }"#),
            (
                Kind::Resource,
                r#"{"uri":"a:b", "name":"a", "size":1e2, "icons":[ ]}"#,
            ),
            (Kind::Template, r#"{"uriTemplate":"a:{b}", "name":""}"#),
        ] {
            assert_eq!(read(kind, text).unwrap(), text);
        }
    }

    #[test]
    fn r28_what_would_break_a_list_is_refused() {
        for (kind, text, member) in [
            (Kind::Tool, r#"{"inputSchema":{"type":"object"}}"#, "name"),
            (
                Kind::Tool,
                r#"{"name":1,"inputSchema":{"type":"object"}}"#,
                "name",
            ),
            (Kind::Tool, r#"{"name":"a"}"#, "inputSchema"),
            (
                Kind::Tool,
                r#"{"name":"a","inputSchema":[]}"#,
                "inputSchema",
            ),
            (
                Kind::Tool,
                r#"{"name":"a","inputSchema":null}"#,
                "inputSchema",
            ),
            (
                Kind::Tool,
                r#"{"name":"a","inputSchema":{"type":"array"}}"#,
                "inputSchema",
            ),
            (
                Kind::Tool,
                r#"{"name":"a","inputSchema":{"type":["object"]}}"#,
                "inputSchema",
            ),
            (
                Kind::Tool,
                r#"{"name":"a","inputSchema":{"type":"object"},"description":1}"#,
                "description",
            ),
            (Kind::Prompt, r#"{"name":"a","arguments":{}}"#, "arguments"),
            (Kind::Resource, r#"{"uri":"a:b"}"#, "name"),
            (
                Kind::Template,
                r#"{"uriTemplate":{},"name":"a"}"#,
                "uriTemplate",
            ),
        ] {
            let why = read(kind, text).unwrap_err();
            assert!(why.contains(&format!("`{member}`")), "{text}: {why}");
        }
    }

    #[test]
    fn r28_small_slips_are_put_right() {
        let nulls = r#"{"name":"a","title":null,"inputSchema":{ "properties":{} },"_meta":null}"#;
        let mended = r#"{"name":"a","inputSchema":{ "properties":{} ,"type":"object"}}"#;
        assert_eq!(read(Kind::Tool, nulls).unwrap(), mended);
    }
}
