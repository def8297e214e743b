//! Which keys there are, and of what type: read from the raw structs once, then used for
//! checking, for the JSON Schema and for the reference.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::raw::Raw;

/// What a value must look like.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A map with known keys, in alphabetical order.
    Keys(Vec<KeyShape>),
    /// A map with any keys.
    Map(Box<Self>),
    List(Box<Self>),
    /// Any text; a secret one is never shown.
    Text {
        secret: bool,
    },
    /// One of these words, each with its meaning.
    Word(Vec<(String, String)>),
    Bool,
    Integer,
    Duration,
    /// A duration, or a number of milliseconds.
    Millis,
    Size,
    /// Anything; read as the JSON of it, as text.
    Any,
}

/// A known key of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyShape {
    pub(crate) name: String,
    /// The documentation comment of the raw struct's field.
    pub(crate) meaning: String,
    /// Its default as JSON; `None` when it has no value by default.
    pub(crate) default: Option<Value>,
    pub(crate) shape: Shape,
}

/// The whole configuration's shape.
pub(crate) fn root() -> Shape {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    read(
        settings
            .into_generator()
            .into_root_schema_for::<Raw>()
            .as_value(),
    )
}

fn read(schema: &Value) -> Shape {
    let schema = without_null(schema);
    if let Some(words) = words(schema) {
        return Shape::Word(words);
    }
    match kind(schema) {
        "boolean" => Shape::Bool,
        "integer" => Shape::Integer,
        "array" => Shape::List(Box::new(read(&schema["items"]))),
        "object" => match schema["properties"].as_object() {
            Some(keys) => Shape::Keys(
                keys.iter()
                    .map(|(name, key)| key_shape(name, key))
                    .collect(),
            ),
            None => Shape::Map(Box::new(read(&schema["additionalProperties"]))),
        },
        _ => match schema["format"].as_str() {
            Some("waypost-duration") => Shape::Duration,
            Some("waypost-milliseconds") => Shape::Millis,
            Some("waypost-size") => Shape::Size,
            Some("waypost-value") => Shape::Any,
            format => Shape::Text {
                secret: format == Some("waypost-secret"),
            },
        },
    }
}

fn key_shape(name: &str, schema: &Value) -> KeyShape {
    let default = schema
        .get("default")
        .filter(|default| !default.is_null())
        .cloned();
    let meaning = schema["description"]
        .as_str()
        .unwrap_or_default()
        .replace('\n', " ");
    KeyShape {
        name: name.to_owned(),
        meaning,
        default,
        shape: read(schema),
    }
}

/// The schema of `T` out of that of `Option<T>`.
fn without_null(schema: &Value) -> &Value {
    let Some(alternatives) = schema["anyOf"].as_array() else {
        return schema;
    };
    alternatives
        .iter()
        .find(|alternative| kind(alternative) != "null")
        .unwrap_or(schema)
}

fn kind(schema: &Value) -> &str {
    let kind = &schema["type"];
    let first = kind
        .as_array()
        .and_then(|kinds| kinds.iter().find(|kind| *kind != "null"));
    first.unwrap_or(kind).as_str().unwrap_or_default()
}

fn words(schema: &Value) -> Option<Vec<(String, String)>> {
    let variants = schema["oneOf"].as_array()?;
    let word = |variant: &Value| {
        let meaning = variant["description"]
            .as_str()
            .unwrap_or_default()
            .replace('\n', " ");
        Some((variant["const"].as_str()?.to_owned(), meaning))
    };
    variants.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<'a>(shape: &'a Shape, name: &str) -> &'a KeyShape {
        let Shape::Keys(keys) = shape else {
            panic!("`{name}` is looked up in {shape:?}")
        };
        keys.iter().find(|key| key.name == name).unwrap()
    }

    #[test]
    fn types_defaults_and_meanings_come_from_the_raw_structs() {
        let root = root();
        let keep_alive = key(&key(&root, "front").shape, "keep_alive");
        assert_eq!(keep_alive.shape, Shape::Duration);
        assert_eq!(keep_alive.default, Some("15s".into()));
        assert!(keep_alive.meaning.contains("`0` turns it off"));

        let Shape::Map(upstream) = &key(&root, "upstreams").shape else {
            panic!("not a map")
        };
        assert_eq!(key(upstream, "url").shape, Shape::Text { secret: true });
        assert_eq!(key(upstream, "timeout").default, Some("5m".into()));
        let Shape::Word(words) = &key(upstream, "tasks").shape else {
            panic!("not words")
        };
        assert_eq!(
            words.iter().map(|word| word.0.as_str()).collect::<Vec<_>>(),
            ["auto", "passthrough", "collapse", "refuse"]
        );

        let Shape::Map(server) = &key(&root, "mcpServers").shape else {
            panic!("not a map")
        };
        assert_eq!(key(server, "timeout").shape, Shape::Millis);
        assert_eq!(
            key(server, "args").shape,
            Shape::List(Box::new(Shape::Text { secret: false }))
        );
    }

    #[test]
    fn every_key_has_a_meaning() {
        fn walk(shape: &Shape) {
            match shape {
                Shape::Keys(keys) => keys.iter().for_each(|key| {
                    assert!(
                        !key.meaning.is_empty(),
                        "`{}` has no documentation",
                        key.name
                    );
                    walk(&key.shape);
                }),
                Shape::Map(inner) | Shape::List(inner) => walk(inner),
                _ => {}
            }
        }
        walk(&root());
    }
}
