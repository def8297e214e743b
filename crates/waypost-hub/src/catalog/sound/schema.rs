//! Schemas of what tools return, which clients hand to a validator when they read a list. One that
//! it stops at costs them the list.

use serde_json::{Map, Value};
use waypost_wire::raw::Raw;
use waypost_wire::uri;

/// Keywords and what their values may be.
const KEYWORDS: &[(&str, &[Is])] = {
    use Is::{Boolean, List, Number, Object, Text};
    &[
        ("type", &[Text, List]),
        ("enum", &[List]),
        ("format", &[Text]),
        ("pattern", &[Text]),
        ("$ref", &[Text]),
        ("nullable", &[Boolean]),
        ("uniqueItems", &[Boolean]),
        ("required", &[List]),
        ("maximum", &[Number]),
        ("minimum", &[Number]),
        ("exclusiveMaximum", &[Number]),
        ("exclusiveMinimum", &[Number]),
        ("multipleOf", &[Number]),
        ("maxLength", &[Number]),
        ("minLength", &[Number]),
        ("maxItems", &[Number]),
        ("minItems", &[Number]),
        ("maxProperties", &[Number]),
        ("minProperties", &[Number]),
        ("dependencies", &[Object]),
        ("allOf", &[List]),
        ("anyOf", &[List]),
        ("oneOf", &[List]),
        ("items", &[Object, List, Boolean]),
        ("properties", &[Object]),
        ("patternProperties", &[Object]),
    ]
};

/// Keywords whose value is a schema,
const ONE: [&str; 8] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
];
/// several,
const SEVERAL: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// or several with names.
const NAMED: [&str; 5] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];

const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

#[derive(Clone, Copy)]
enum Is {
    Boolean,
    List,
    Number,
    Object,
    Text,
}

/// A schema that is looked at.
struct Look<'a> {
    root: &'a Value,
    /// References in it may be to what is named in it, and not by its place.
    has_names: bool,
}

/// Where in a schema validators stop, if anywhere.
pub(super) fn stop(schema: &Raw) -> Option<String> {
    let root: Value = schema.decode()?;
    let has_names = ["\"$id\"", "\"id\"", "\"$anchor\""];
    let has_names = has_names.iter().any(|key| schema.text().contains(key));
    let root = &root;
    Look { root, has_names }.schema(root, String::new())
}

impl Look<'_> {
    fn schema(&self, schema: &Value, at: String) -> Option<String> {
        match schema {
            Value::Object(members) => self.members(members, &at),
            Value::Bool(_) => None,
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => Some(at),
        }
    }

    fn members(&self, schema: &Map<String, Value>, at: &str) -> Option<String> {
        for (keyword, kinds) in KEYWORDS {
            let Some(value) = schema.get(*keyword) else {
                continue;
            };
            if !kinds.iter().any(|kind| kind.is(value)) || !self.takes(schema, keyword, value) {
                return Some(format!("{at}.{keyword}"));
            }
        }
        let below = |keyword: &&'static str| Some((*keyword, schema.get(*keyword)?));
        let one = ONE.iter().filter_map(below);
        let mut one = one.chain(schema.get("items").map(|items| ("items", items)));
        let one = one.find_map(|(keyword, schema)| match schema {
            Value::Array(_) if keyword == "items" => None,
            _ => self.schema(schema, format!("{at}.{keyword}")),
        });
        let several = || {
            let mut several = SEVERAL.iter().filter_map(below);
            several.find_map(|(keyword, schemas)| {
                let mut schemas = schemas.as_array()?.iter().enumerate();
                schemas.find_map(|(i, schema)| self.schema(schema, format!("{at}.{keyword}[{i}]")))
            })
        };
        let named = || {
            let mut named = NAMED.iter().filter_map(below);
            named.find_map(|(keyword, schemas)| {
                let mut schemas = schemas.as_object()?.iter();
                schemas.find_map(|(name, schema)| {
                    self.schema(schema, format!("{at}.{keyword}.{name}"))
                })
            })
        };
        one.or_else(several).or_else(named)
    }

    /// Whether the value of a keyword that is of the right kind is of use.
    fn takes(&self, schema: &Map<String, Value>, keyword: &str, value: &Value) -> bool {
        match (keyword, value) {
            ("type", Value::Array(types)) => types.iter().all(is_type),
            ("type", one) => is_type(one),
            ("enum", Value::Array(values)) => !values.is_empty(),
            ("nullable", _) => schema.contains_key("type"),
            ("pattern", Value::String(pattern)) => is_javascript(pattern),
            ("$ref", Value::String(reference)) => self.leads_somewhere(reference),
            _ => true,
        }
    }

    fn leads_somewhere(&self, reference: &str) -> bool {
        if self.has_names {
            return true;
        }
        let Some(place) = reference.strip_prefix('#') else {
            return false;
        };
        self.root.pointer(&uri::decoded(place)).is_some()
    }
}

impl Is {
    fn is(self, value: &Value) -> bool {
        match self {
            Self::Boolean => value.is_boolean(),
            Self::List => value.is_array(),
            Self::Number => value.is_number(),
            Self::Object => value.is_object(),
            Self::Text => value.is_string(),
        }
    }
}

fn is_type(name: &Value) -> bool {
    name.as_str().is_some_and(|name| TYPES.contains(&name))
}

/// Whether a pattern has none of what other languages have and JavaScript does not: groups such as
/// `(?P<a>)` and `(?i)`, escapes such as `\A`.
fn is_javascript(pattern: &str) -> bool {
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        let fine = match next {
            '\\' => rest.next().is_some_and(|escaped| {
                let known = "dDsSwWbBfnrtvcxupPk^$\\.*+?()[]{}|/-";
                escaped.is_ascii_digit() || known.contains(escaped)
            }),
            '(' if rest.as_str().starts_with('?') => {
                let group = rest.as_str().chars().nth(1);
                group.is_some_and(|group| ":=!<".contains(group))
            }
            _ => true,
        };
        if !fine {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn stops(text: &str) -> Option<String> {
        stop(&Raw::parse(&Bytes::from(text.to_owned())).unwrap())
    }

    #[test]
    fn r28_a_schema_that_a_validator_takes_is_left_alone() {
        for text in [
            r#"{"type":["object","null"],"properties":{"a":true,"b":{"type":"string","format":"x"}}}"#,
            r##"{"$ref":"#/$defs/a%20b","$defs":{"a b":{"items":[{},{"not":{}}],"x":5}}}"##,
            r##"{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#/properties/a"}}}"##,
            r##"{"$defs":{"a":{"$anchor":"n"}},"$ref":"#n"}"##,
            r#"{"type":"object","properties":{"type":{"enum":[1]},"required":{"const":null}}}"#,
            r#"{"pattern":"^(?:[\\w.-]+|(?<y>\\d{4}))\\/\\p{L}$","nullable":true,"type":"string"}"#,
        ] {
            assert_eq!(stops(text), None, "{text}");
        }
    }

    #[test]
    fn r28_a_schema_that_a_validator_stops_at_is_found() {
        for (text, at) in [
            (r#"{"type":"strng"}"#, ".type"),
            (
                r#"{"properties":{"a":{"type":null}}}"#,
                ".properties.a.type",
            ),
            (r#"{"properties":{"a":null}}"#, ".properties.a"),
            (r#"{"items":{"required":"a"}}"#, ".items.required"),
            (r#"{"items":[{},{"enum":[]}]}"#, ".items[1].enum"),
            (r#"{"additionalProperties":null}"#, ".additionalProperties"),
            (r#"{"anyOf":[{"minimum":"1"}]}"#, ".anyOf[0].minimum"),
            (
                r##"{"$defs":{"a":{"$ref":"#/definitions/b"}}}"##,
                ".$defs.a.$ref",
            ),
            (r#"{"not":{"$ref":"https://a.example/b"}}"#, ".not.$ref"),
            (r#"{"pattern":"(?P<a>b)"}"#, ".pattern"),
            (r#"{"pattern":"\\A"}"#, ".pattern"),
            (r#"{"nullable":true}"#, ".nullable"),
        ] {
            assert_eq!(stops(text).as_deref(), Some(at), "{text}");
        }
    }
}
