//! `${...}` in scalars: `${env:X}`, `${env:X:-default}`, `${X}`, `${X:-default}`, `${file:path}`;
//! `$$` is a dollar sign.
//!
//! Only scalars that were parsed are expanded, never the text of the file, so a value cannot
//! bring in keys. What is put in is not looked at again. Messages name key and variable, never
//! a value.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::inputs::Inputs;
use crate::load;
use crate::node::{Kind, Node};
use crate::path::KeyPath;
use crate::problem::Problem;
use crate::secret::Secret;

/// Variables whose values are no secrets and are part of much that is said aloud.
const PLAIN: &[&str] = &[
    "HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER",
];

/// A text with everything put in.
#[derive(Debug)]
struct Expanded {
    text: String,
    /// Something was put in.
    expanded: bool,
    /// Of what was put in, that which may be secret.
    inserted: Vec<Secret>,
}

/// Where values come from.
#[derive(Debug)]
pub(crate) struct Values<'a> {
    pub(crate) env: &'a BTreeMap<String, String>,
    /// What `${file:...}` is relative to.
    pub(crate) folder: &'a Path,
    /// Variables that were asked for.
    pub(crate) used: BTreeSet<String>,
    /// Notes the files that were asked for.
    pub(crate) inputs: Inputs,
}

impl Values<'_> {
    /// Expands every scalar of a tree. One that cannot be is refused.
    pub(crate) fn expand(&mut self, node: &mut Node, at: &KeyPath, problems: &mut Vec<Problem>) {
        match &mut node.kind {
            Kind::Null | Kind::Refused => {}
            Kind::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.expand(item, &at.index(index), problems);
                }
            }
            Kind::Map(entries) => {
                for entry in entries {
                    self.expand(&mut entry.value, &at.key(&entry.key), problems);
                }
            }
            Kind::Scalar(scalar) => match self.text(&scalar.text) {
                Ok(None) => {}
                Ok(Some(found)) => {
                    scalar.text = found.text;
                    scalar.expanded |= found.expanded;
                    scalar.inserted.extend(found.inserted);
                }
                Err((what, hint)) => {
                    problems.push(Problem::error(&node.place, at, what).with_hint(hint));
                    node.kind = Kind::Refused;
                }
            },
        }
    }

    /// The text with everything put in; `None` if it is as it was.
    fn text(&mut self, text: &str) -> Result<Option<Expanded>, (String, String)> {
        if !text.contains('$') {
            return Ok(None);
        }
        let (mut out, mut rest, mut expanded) = (String::new(), text, false);
        let mut inserted = Vec::new();
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some(after) = after.strip_prefix('{') {
                let Some((inside, after)) = after.split_once('}') else {
                    let hint = "close it with `}`, or write `$$` for a dollar sign";
                    return Err(("`${` without an end".to_owned(), hint.to_owned()));
                };
                let (value, secret) = self.one(inside)?;
                out.push_str(&value);
                if secret {
                    inserted.push(Secret::new(value));
                }
                expanded = true;
                rest = after;
            } else {
                out.push('$');
                rest = after;
            }
        }
        out.push_str(rest);
        Ok(Some(Expanded {
            text: out,
            expanded,
            inserted,
        }))
    }

    /// The value of one `${...}`, and whether it may be secret.
    fn one(&mut self, inside: &str) -> Result<(String, bool), (String, String)> {
        if let Some(path) = inside.strip_prefix("file:") {
            return self.file(path).map(|text| (text, true));
        }
        if inside.starts_with("input:") {
            let what = "`${input:...}` asks a person, and a daemon has none to ask";
            return Err((
                what.to_owned(),
                "use `${env:NAME}` or `${file:path}`".to_owned(),
            ));
        }
        let inside = inside.strip_prefix("env:").unwrap_or(inside);
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_name(name) {
            let what = "`${...}` holds something that is no variable's name";
            let hint = "write `${env:NAME}`, `${env:NAME:-default}` or `${file:path}`; `$$` is a dollar sign";
            return Err((what.to_owned(), hint.to_owned()));
        }
        self.used.insert(name.to_owned());
        match (self.env.get(name), default) {
            (Some(value), None) => Ok((value.clone(), !PLAIN.contains(&name))),
            (Some(value), Some(_)) if !value.is_empty() => {
                Ok((value.clone(), !PLAIN.contains(&name)))
            }
            // It stands in the configuration for everybody to read.
            (_, Some(default)) => Ok((default.to_owned(), false)),
            (None, None) => Err((
                format!("the environment variable `{name}` is not set"),
                format!("set it, or give a default: `${{env:{name}:-...}}`"),
            )),
        }
    }

    fn file(&mut self, path: &str) -> Result<String, (String, String)> {
        let whole = self.folder.join(path);
        self.inputs.file(&whole);
        let mut text = load::text_of(&whole).map_err(|reason| {
            let hint = if Path::new(path).is_absolute() {
                "make it readable for the user that Waypost runs as, or correct the path"
            } else {
                "the path is relative to the configuration file"
            };
            (
                format!("cannot read the file `{path}`: {reason}"),
                hint.to_owned(),
            )
        })?;
        if text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        Ok(text)
    }
}

/// An I/O error in a few words that are the same on every system.
pub(crate) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "no permission".to_owned(),
        std::io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        _ => error.to_string().to_lowercase(),
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "s3cret$A\n\n").unwrap();
        std::fs::write(folder.path().join("dos"), "x\r\n").unwrap();
        let env = [("A", "alpha"), ("EMPTY", ""), ("TRICKY", "${A}$$")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env = BTreeMap::from(env);
        let mut values = Values {
            env: &env,
            folder: folder.path(),
            used: BTreeSet::new(),
            inputs: Inputs::default(),
        };
        let found = values
            .text(text)
            .map(|changed| changed.map_or(text.to_owned(), |changed| changed.text));
        let found = found.as_deref().map_err(|(what, _)| what.as_str());
        assert_eq!(found, expected);
    }

    #[test]
    fn r39_every_documented_form_is_expanded_and_nothing_else() {
        check("plain", Ok("plain"));
        check("Bearer ${env:A}", Ok("Bearer alpha"));
        check("${A}-${A}", Ok("alpha-alpha"));
        check("${NONE:-x}", Ok("x"));
        check("${env:NONE:-}", Ok(""));
        check("${A:-x}", Ok("alpha"));
        check("${EMPTY:-x}", Ok("x"));
        check("${EMPTY}", Ok(""));
        check("$$A $${A} $A 5$", Ok("$A ${A} $A 5$"));
        check("${NONE:-${A}}", Ok("${A}"));
    }

    #[test]
    fn r39_what_is_put_in_is_not_expanded_again() {
        check("${TRICKY}", Ok("${A}$$"));
        check("${file:secret}", Ok("s3cret$A\n"));
        check("${file:dos}", Ok("x"));
    }

    #[test]
    fn r39_what_cannot_be_expanded_is_a_problem() {
        check(
            "${MISSING}",
            Err("the environment variable `MISSING` is not set"),
        );
        check(
            "${file:none}",
            Err("cannot read the file `none`: there is no such file"),
        );
        check(
            "${input:token}",
            Err("`${input:...}` asks a person, and a daemon has none to ask"),
        );
        check("${A", Err("`${` without an end"));
        check(
            "${file:/no/such/file}",
            Err("cannot read the file `/no/such/file`: there is no such file"),
        );
        check(
            "${cmd:date}",
            Err("`${...}` holds something that is no variable's name"),
        );
        check(
            "${}",
            Err("`${...}` holds something that is no variable's name"),
        );
    }
}
