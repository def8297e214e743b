//! The JSON Schema of the file, for editors and for `waypost schema`.

use serde_json::{Map, Value, json};

use crate::shape::{self, KeyShape, Shape};

/// A text that gets its value from elsewhere.
const EXPANDED: &str = r"\$\{.+\}";

/// The JSON Schema (2020-12) of a configuration file.
///
/// It knows keys, types and defaults; what depends on several keys only [`load`](crate::load)
/// checks.
#[must_use]
pub fn json_schema() -> Value {
    let mut schema = of(&shape::root());
    set(
        &mut schema,
        "$schema",
        "https://json-schema.org/draft/2020-12/schema",
    );
    set(&mut schema, "title", "Configuration of Waypost");
    schema
}

fn of(shape: &Shape) -> Value {
    match shape {
        Shape::Keys(keys) => of_keys(keys),
        Shape::Map(inner) => {
            let mut schema = json!({ "type": "object", "additionalProperties": of(inner) });
            if is_server(inner) {
                set(
                    &mut schema,
                    "propertyNames",
                    json!({ "pattern": "^[a-z][a-z0-9-]{0,31}$" }),
                );
            }
            schema
        }
        Shape::List(inner) => json!({ "type": "array", "items": of(inner) }),
        Shape::Text { .. } => json!({ "type": ["string", "number", "boolean"] }),
        Shape::Any => json!({}),
        Shape::Bool => json!({ "type": ["boolean", "string"], "pattern": EXPANDED }),
        Shape::Integer => {
            json!({ "type": ["integer", "string"], "minimum": 0, "pattern": EXPANDED })
        }
        Shape::Duration => json!({
            "type": ["string", "integer"],
            "pattern": format!("^([0-9]+ ?(ms|s|m|h)|0)$|{EXPANDED}"),
            "minimum": 0,
            "maximum": 0,
        }),
        Shape::Millis => json!({
            "type": ["string", "integer"],
            "pattern": format!("^[0-9]+ ?(ms|s|m|h)?$|{EXPANDED}"),
            "minimum": 0,
        }),
        Shape::Size => json!({
            "type": ["string", "integer"],
            "pattern": format!("^[0-9]+ ?(B|KiB|MiB|GiB)?$|{EXPANDED}"),
            "minimum": 0,
        }),
        Shape::Word(words) => {
            let word = |(word, meaning): &(String, String)| json!({ "const": word, "description": meaning });
            let mut any: Vec<_> = words.iter().map(word).collect();
            any.push(json!({ "type": "string", "pattern": EXPANDED }));
            json!({ "anyOf": any })
        }
    }
}

fn of_keys(keys: &[KeyShape]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut schema = of(&key.shape);
        if key.name == "admin" {
            schema = json!({ "anyOf": [{ "type": "string" }, schema] });
        }
        set(&mut schema, "description", key.meaning.as_str());
        if let Some(default) = key
            .default
            .as_ref()
            .filter(|_| !matches!(key.shape, Shape::Keys(_)))
        {
            set(&mut schema, "default", default.clone());
        }
        properties.insert(key.name.clone(), schema);
    }
    let mut schema =
        json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if keys.iter().any(|key| key.name == "command") {
        set(
            &mut schema,
            "oneOf",
            json!([{ "required": ["url"] }, { "required": ["command"] }]),
        );
    }
    schema
}

fn is_server(shape: &Shape) -> bool {
    matches!(shape, Shape::Keys(keys) if keys.iter().any(|key| key.name == "command"))
}

fn set(schema: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert(key.to_owned(), value.into());
    }
}
