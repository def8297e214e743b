//! `docs/configuration.md`, made from the shape, and so from the comments of the raw structs.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::shape::{self, KeyShape, Shape};

const HEAD: &str = include_str!("reference/head.md");

fn markdown() -> String {
    let mut out = HEAD.to_owned();
    let Shape::Keys(keys) = shape::root() else {
        panic!("the configuration is a map")
    };
    section("", &keys, &[], &mut out);
    out
}

/// A table of the keys, then a section for each map among them.
fn section(path: &str, keys: &[KeyShape], leave_out: &[&str], out: &mut String) {
    let title = if path.is_empty() {
        "Top level".to_owned()
    } else {
        format!("`{path}`")
    };
    write!(out, "\n## {title}\n\n").unwrap();
    if path == "mcpServers.<name>" {
        out.push_str(
            "Every key of `upstreams.<name>` may stand here too; these are different:\n\n",
        );
    }
    out.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
    let mut inner = Vec::new();
    for key in keys
        .iter()
        .filter(|key| !leave_out.contains(&key.name.as_str()))
    {
        let (kind, words) = kind(&key.shape);
        let meaning = format!("{}{words}", key.meaning).replace('|', "\\|");
        writeln!(
            out,
            "| `{}` | {kind} | {} | {meaning} |",
            key.name,
            default(key)
        )
        .unwrap();
        let path = if path.is_empty() {
            key.name.clone()
        } else {
            format!("{path}.{}", key.name)
        };
        match &key.shape {
            Shape::Keys(keys) => inner.push((path, keys.clone())),
            Shape::Map(value) => {
                if let Shape::Keys(keys) = &**value {
                    inner.push((format!("{path}.<name>"), keys.clone()));
                }
            }
            Shape::List(item) => {
                if let Shape::Keys(keys) = &**item {
                    inner.push((format!("{path}[]"), keys.clone()));
                }
            }
            _ => {}
        }
    }
    let shared = shared_keys();
    for (path, keys) in inner {
        let shared: Vec<&str> = shared.iter().map(String::as_str).collect();
        let leave_out = if path == "mcpServers.<name>" {
            &shared[..]
        } else {
            &[]
        };
        section(&path, &keys, leave_out, out);
    }
}

/// What an entry of `mcpServers` has in common with one of `upstreams`.
fn shared_keys() -> Vec<String> {
    let Shape::Keys(keys) = shape::root() else {
        panic!("the configuration is a map")
    };
    let upstreams = &keys
        .iter()
        .find(|key| key.name == "upstreams")
        .unwrap()
        .shape;
    let Shape::Map(upstream) = upstreams else {
        panic!("`upstreams` is a map")
    };
    let Shape::Keys(keys) = &**upstream else {
        panic!("an upstream is a map")
    };
    keys.iter()
        .map(|key| key.name.clone())
        .filter(|name| name != "timeout")
        .collect()
}

fn kind(shape: &Shape) -> (String, String) {
    let plain = |text: &str| (text.to_owned(), String::new());
    match shape {
        Shape::Keys(_) => plain("map"),
        Shape::Map(inner) => plain(&format!("map of {}", plural(inner))),
        Shape::List(inner) => plain(&format!("list of {}", plural(inner))),
        Shape::Text { secret: false } => plain("text"),
        Shape::Text { secret: true } => plain("secret"),
        Shape::Bool => plain("boolean"),
        Shape::Integer => plain("number"),
        Shape::Duration => plain("duration"),
        Shape::Millis => plain("milliseconds"),
        Shape::Size => plain("size"),
        Shape::Any => plain("value"),
        Shape::Word(words) => {
            let meanings = words
                .iter()
                .map(|(word, meaning)| format!("<br>`{word}`: {meaning}"));
            ("word".to_owned(), meanings.collect())
        }
    }
}

fn plural(shape: &Shape) -> String {
    match shape {
        Shape::List(inner) => format!("lists of {}", plural(inner)),
        Shape::Map(inner) => format!("maps of {}", plural(inner)),
        other => format!("{}s", kind(other).0),
    }
}

fn default(key: &KeyShape) -> String {
    match (&key.shape, &key.default) {
        (Shape::Keys(_), _) | (_, None) => String::new(),
        (_, Some(Value::String(text))) if text.is_empty() => String::new(),
        (_, Some(Value::String(text))) => format!("`{text}`"),
        (_, Some(Value::Array(items))) if items.is_empty() => String::new(),
        (_, Some(Value::Object(map))) if map.is_empty() => String::new(),
        (_, Some(value)) => format!("`{value}`"),
    }
}

/// Compares a generated file with the one checked in, or writes it when asked to.
#[track_caller]
fn golden(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == text,
        "{} is out of date: run the test with UPDATE_GOLDEN=1",
        path.display()
    );
}

/// Keys in alphabetical order, whatever else is compiled in.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map
                .into_iter()
                .map(|(key, value)| (key, sorted(value)))
                .collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

#[test]
fn the_reference_is_up_to_date() {
    golden("docs/configuration.md", &markdown());
}

#[test]
fn the_checked_in_schema_is_up_to_date() {
    let schema = serde_json::to_string_pretty(&sorted(crate::json_schema())).unwrap();
    golden("config/waypost.schema.json", &format!("{schema}\n"));
}
