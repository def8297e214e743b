//! Fits a tree to the shape: unknown keys and wrong types become problems, the rest becomes JSON
//! that the raw structs can read without fail.
//!
//! What a problem was found in is left out, so that its default stands in and the later stages
//! can go on and find more.

use crate::node::{Entry, Kind, Node, Scalar, Style};
use crate::path::KeyPath;
use crate::problem::{Problem, Report};
use crate::shape::{KeyShape, Shape};
use crate::{foreign, suggest, yaml};

/// Fits `node`; the answer is JSON with the keys in the order of the file.
pub(crate) fn fit(shape: &Shape, node: &Node, report: &mut Report<'_>) -> String {
    let mut json = String::new();
    if !value(shape, node, &KeyPath::default(), report, &mut json) {
        json = "{}".to_owned();
    }
    json
}

/// Appends the value's JSON to `out`, or nothing and gives `false`.
fn value(
    shape: &Shape,
    node: &Node,
    at: &KeyPath,
    report: &mut Report<'_>,
    out: &mut String,
) -> bool {
    match (shape, &node.kind) {
        (_, Kind::Null) => false,
        (_, Kind::Refused) => {
            report.already_refused(at);
            false
        }
        (Shape::Any, _) => any(node).is_some_and(|json| {
            out.push_str(&quote(&json));
            true
        }),
        (Shape::Keys(keys), Kind::Map(_)) => {
            map(
                node,
                at,
                report,
                out,
                |key| {
                    keys.iter()
                        .find(|known| known.name == key)
                        .map(|k| &k.shape)
                },
                keys,
            );
            true
        }
        (Shape::Map(inner), Kind::Map(_)) => {
            for entry in node.entries() {
                if matches!(entry.value.kind, Kind::Null) {
                    let path = at.key(&entry.key);
                    let what = "has a name and nothing else";
                    let problem = Problem::error(&entry.value.place, &path, what);
                    let hint = "give it what it needs, or take the name out";
                    report.refuse(&path, problem.with_hint(hint));
                }
            }
            map(node, at, report, out, |_| Some(inner), &[]);
            true
        }
        (Shape::List(inner), Kind::List(items)) => {
            list(inner, items, at, report, out);
            true
        }
        (Shape::Keys(_) | Shape::Map(_) | Shape::List(_), Kind::Scalar(scalar))
            if scalar.style == Style::Outside =>
        {
            nested(shape, node, scalar, at, report, out)
        }
        (_, Kind::Scalar(scalar)) => match leaf(shape, scalar) {
            Ok(json) => {
                out.push_str(&json);
                true
            }
            Err((what, hint)) => refuse(node, at, report, what, hint),
        },
        (_, Kind::Map(_) | Kind::List(_)) => {
            let what = format!("must be {}", noun(shape));
            refuse(node, at, report, what, as_map(shape, node))
        }
    }
}

/// How a list is written as the map that it must be.
fn as_map(shape: &Shape, node: &Node) -> Option<String> {
    let is_list = matches!(node.kind, Kind::List(_));
    let hint = match shape {
        Shape::Map(inner) if matches!(**inner, Shape::Keys(_)) => {
            "write `name: {...}` for each, without `- `"
        }
        Shape::Keys(_) | Shape::Map(_) => "write `key: value` for each, without `- `",
        _ => return None,
    };
    is_list.then(|| hint.to_owned())
}

fn map<'s>(
    node: &Node,
    at: &KeyPath,
    report: &mut Report<'_>,
    out: &mut String,
    shape_of: impl Fn(&str) -> Option<&'s Shape>,
    known: &[KeyShape],
) {
    out.push('{');
    let mut first = true;
    for entry in node.entries() {
        let path = at.key(&entry.key);
        let Some(shape) = shape_of(&entry.key) else {
            unknown(node, entry, at, known, report);
            continue;
        };
        let mut json = String::new();
        if value(shape, &entry.value, &path, report, &mut json) {
            if !std::mem::take(&mut first) {
                out.push(',');
            }
            out.push_str(&quote(&entry.key));
            out.push(':');
            out.push_str(&json);
        }
    }
    out.push('}');
}

fn unknown(node: &Node, entry: &Entry, at: &KeyPath, known: &[KeyShape], report: &mut Report<'_>) {
    let path = at.key(&entry.key);
    if let Some(hint) = foreign::hint(&path) {
        let what = "this key is for an editor and does nothing here";
        report.warning(&path, what, hint);
        return;
    }
    let problem = Problem::error(&entry.place, &path, "unknown key");
    let other = foreign::instead(&path);
    let meant = suggest::nearest(&entry.key, known.iter().map(|known| known.name.as_str()));
    let hint = match meant {
        _ if entry.key == "<<" => {
            Some("merge keys are not supported; an alias can stand for a whole value".to_owned())
        }
        _ if other.is_some() => other.map(str::to_owned),
        Some(name) => Some(format!("did you mean `{name}`?")),
        None => None,
    };
    if other == Some(foreign::URL) {
        report.already_refused(&at.key("url"));
    }
    report.refuse(&path, Problem { hint, ..problem });
    // What is missing because its name is misspelt is not missing.
    if let Some(meant) = meant.filter(|meant| node.get(meant).is_none()) {
        report.already_refused(&at.key(meant));
    }
}

fn list(inner: &Shape, items: &[Node], at: &KeyPath, report: &mut Report<'_>, out: &mut String) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let path = at.index(index);
        if matches!(item.kind, Kind::Null) {
            let problem = Problem::error(&item.place, &path, "an item of a list may not be empty");
            report.refuse(&path, problem);
        }
        // A refused item keeps its position, so that the problems of later ones name theirs.
        if !value(inner, item, &path, report, out) {
            out.push_str(empty(inner));
            report.already_refused(&path);
        }
    }
    out.push(']');
}

/// A list or map given in an environment variable or flag, as YAML.
fn nested(
    shape: &Shape,
    node: &Node,
    scalar: &Scalar,
    at: &KeyPath,
    report: &mut Report<'_>,
    out: &mut String,
) -> bool {
    let parsed = yaml::parse(&node.place.source, &scalar.text);
    let fits = |node: &Node| match (shape, &node.kind) {
        (Shape::List(_), Kind::List(_)) => true,
        (_, Kind::Map(_)) => !matches!(shape, Shape::List(_)),
        _ => false,
    };
    match parsed {
        (Some(inner), problems) if problems.is_empty() && fits(&inner) => {
            value(shape, &outside(inner, node), at, report, out)
        }
        _ => {
            let hint = match shape {
                Shape::List(_) => "write `[a, b]`",
                _ => "write `{key: value}`",
            };
            refuse(
                node,
                at,
                report,
                format!("must be {}", noun(shape)),
                Some(hint.to_owned()),
            )
        }
    }
}

/// Marks everything as coming from outside: no lines to name, no value to show.
fn outside(node: Node, from: &Node) -> Node {
    let kind = match node.kind {
        Kind::Scalar(scalar) => Kind::Scalar(Scalar {
            style: Style::Outside,
            ..scalar
        }),
        Kind::List(items) => {
            Kind::List(items.into_iter().map(|item| outside(item, from)).collect())
        }
        Kind::Map(mut entries) => {
            for entry in &mut entries {
                entry.place = from.place.clone();
                let value = std::mem::replace(&mut entry.value, from.clone());
                entry.value = outside(value, from);
            }
            Kind::Map(entries)
        }
        other => other,
    };
    Node::new(from.place.clone(), kind)
}

type Misfit = (String, Option<String>);

fn leaf(shape: &Shape, scalar: &Scalar) -> Result<String, Misfit> {
    let text = scalar.text.as_str();
    let quoted = scalar.style == Style::Quoted && !scalar.expanded;
    let misfit = |hint: Option<String>| (format!("must be {}", noun(shape)), hint);
    match shape {
        Shape::Text { .. } | Shape::Duration | Shape::Millis | Shape::Size => Ok(quote(text)),
        Shape::Bool | Shape::Integer if quoted => {
            Err(misfit(Some("leave out the quotes".to_owned())))
        }
        Shape::Bool => match text {
            "true" | "false" => Ok(text.to_owned()),
            _ => Err(misfit(None)),
        },
        Shape::Integer => match text.parse::<u32>() {
            Ok(number) => Ok(number.to_string()),
            Err(_) => Err(misfit(None)),
        },
        Shape::Word(words) => {
            let names = || words.iter().map(|word| word.0.as_str());
            if names().any(|name| name == text) {
                return Ok(quote(text));
            }
            Err(misfit(
                suggest::nearest(text, names()).map(|name| format!("did you mean `{name}`?")),
            ))
        }
        Shape::List(_) => Err(misfit(Some(
            "write `[a, b]`, or one item a line after `- `".to_owned(),
        ))),
        Shape::Keys(_) | Shape::Map(_) | Shape::Any => Err(misfit(None)),
    }
}

/// A value of any type as JSON; `None` if some of it was refused.
fn any(node: &Node) -> Option<String> {
    match &node.kind {
        Kind::Null => Some("null".to_owned()),
        Kind::Refused => None,
        Kind::Scalar(scalar) => Some(typed(scalar)),
        Kind::List(items) => {
            let items: Option<Vec<_>> = items.iter().map(any).collect();
            Some(format!("[{}]", items?.join(",")))
        }
        Kind::Map(entries) => {
            let member = |entry: &Entry| {
                let value = any(&entry.value)?;
                Some(format!("{}:{value}", quote(&entry.key)))
            };
            let members: Option<Vec<_>> = entries.iter().map(member).collect();
            Some(format!("{{{}}}", members?.join(",")))
        }
    }
}

/// What a scalar says where no key gives it a type. A number keeps its spelling.
fn typed(scalar: &Scalar) -> String {
    let text = scalar.text.as_str();
    // A secret of digits only is no number.
    if scalar.style == Style::Quoted || scalar.expanded {
        return quote(text);
    }
    let is_number = || {
        text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
    };
    match text {
        "true" | "false" => text.to_owned(),
        _ if is_number() => text.trim().to_owned(),
        _ => quote(text),
    }
}

fn refuse(
    node: &Node,
    at: &KeyPath,
    report: &mut Report<'_>,
    what: String,
    hint: Option<String>,
) -> bool {
    let problem = Problem::error(&node.place, at, what);
    report.refuse(at, Problem { hint, ..problem });
    false
}

/// What must stand here, in words.
fn noun(shape: &Shape) -> String {
    match shape {
        Shape::Keys(_) | Shape::Map(_) => "a map".to_owned(),
        Shape::List(_) => "a list".to_owned(),
        Shape::Text { .. } => "a text".to_owned(),
        Shape::Bool => "`true` or `false`".to_owned(),
        Shape::Integer => "a whole number".to_owned(),
        Shape::Duration | Shape::Millis => "a duration".to_owned(),
        Shape::Size => "a size".to_owned(),
        Shape::Any => "a value".to_owned(),
        Shape::Word(words) => {
            let names: Vec<_> = words.iter().map(|word| format!("`{}`", word.0)).collect();
            format!("one of {}", names.join(", "))
        }
    }
}

/// What stands in for a refused item of a list.
fn empty(shape: &Shape) -> &'static str {
    match shape {
        Shape::Keys(_) | Shape::Map(_) => "{}",
        Shape::List(_) => "[]",
        Shape::Bool => "false",
        Shape::Integer => "0",
        Shape::Text { .. }
        | Shape::Word(_)
        | Shape::Duration
        | Shape::Millis
        | Shape::Size
        | Shape::Any => "\"\"",
    }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
