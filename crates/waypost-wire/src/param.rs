//! `x-mcp-header`: tool arguments that are repeated in `Mcp-Param-*` headers
//! (specification: transports, custom headers from tool parameters).

use std::collections::HashSet;

use crate::error::Malformed;
use crate::header::{self, PARAM_PREFIX};
use crate::object::Object;
use crate::raw::Raw;

const ANNOTATION: &str = "x-mcp-header";

/// How deep a schema is looked through; what is deeper is not annotated in any sane tool.
const MAX_DEPTH: usize = 32;

/// Arguments of one tool in headers. More headers no usual server takes, and each is looked up in
/// the arguments by itself.
const MOST: usize = 64;

/// One argument that a tool wants repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// The full header name in lower case.
    pub header: String,
    /// The property names that lead to the argument.
    pub path: Vec<String>,
}

/// Why a tool's annotations are broken; a client must not use such a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnnotation {
    /// The header's name is empty, no text, or has characters that no header name may have.
    #[error("`x-mcp-header` of `{at}` is not an HTTP token")]
    Name {
        /// The names that lead to the property, joined by dots; `the schema` for the whole.
        at: String,
    },
    /// Two arguments want one header; case makes no difference.
    #[error("`x-mcp-header` of `{at}` is used twice")]
    Repeated {
        /// The names that lead to the property, joined by dots; `the schema` for the whole.
        at: String,
    },
    /// Only primitives with one exact text travel in a header; `number` is not one.
    #[error("`x-mcp-header` of `{at}` is on something else than a string, integer or boolean")]
    Type {
        /// The names that lead to the property, joined by dots; `the schema` for the whole.
        at: String,
    },
    /// More arguments in headers than any request could have.
    #[error("`x-mcp-header` is used more than {MOST} times")]
    Many,
    /// It stands below `items`, `anyOf` or the like, or on the schema itself.
    #[error("`x-mcp-header` of `{at}` is not reachable through `properties` alone")]
    Unreachable {
        /// The names that lead to the property, joined by dots; `the schema` for the whole.
        at: String,
    },
}

/// A header that does not say what the arguments say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The client left the header out.
    #[error("header `{header}` is missing, but the argument `{argument}` is given")]
    Missing {
        /// The full header name in lower case.
        header: String,
        /// The names that lead to the argument, joined by dots.
        argument: String,
    },
    /// Another value, several headers, or one that cannot be decoded.
    #[error("header `{header}` does not equal the argument `{argument}`")]
    Differs {
        /// The full header name in lower case.
        header: String,
        /// The names that lead to the argument, joined by dots.
        argument: String,
    },
    /// The argument is absent or `null`; then there must be no header either.
    #[error("header `{header}` is given, but the argument `{argument}` is not")]
    Unexpected {
        /// The full header name in lower case.
        header: String,
        /// The names that lead to the argument, joined by dots.
        argument: String,
    },
    /// An object on the way to an argument is broken or repeats a key.
    #[error("the arguments cannot be read: {0}")]
    Arguments(Malformed),
}

/// The annotations of a tool's `inputSchema`, in schema order.
///
/// # Errors
/// [`BadAnnotation`] for the first one that breaks the rules.
pub fn declared(input_schema: &Raw) -> Result<Vec<ParamHeader>, BadAnnotation> {
    // Most schemas have none, and then nothing needs to be parsed.
    if memchr::memmem::find(input_schema.as_bytes(), b"x-mcp-header").is_none() {
        return Ok(Vec::new());
    }
    let mut walk = Walk {
        found: Vec::new(),
        names: HashSet::new(),
    };
    walk.schema(input_schema, &mut Vec::new(), true, 0)?;
    Ok(walk.found)
}

struct Walk {
    found: Vec<ParamHeader>,
    names: HashSet<String>,
}

impl Walk {
    fn schema(
        &mut self,
        schema: &Raw,
        path: &mut Vec<String>,
        reachable: bool,
        depth: usize,
    ) -> Result<(), BadAnnotation> {
        if depth > MAX_DEPTH {
            return Ok(());
        }
        if let Some(items) = schema.as_array() {
            return items
                .iter()
                .try_for_each(|item| self.schema(item, path, false, depth + 1));
        }
        let Ok(object) = schema.as_object() else {
            return Ok(());
        };
        if let Some(annotation) = object.get(ANNOTATION) {
            self.annotation(annotation, &object, path, reachable)?;
        }
        for (key, value) in object.iter() {
            match key {
                "properties" => self.properties(value, path, reachable, depth)?,
                // Data, not schemas: an annotation in there is somebody's text.
                ANNOTATION | "const" | "default" | "enum" | "examples" => {}
                _ => self.schema(value, path, false, depth + 1)?,
            }
        }
        Ok(())
    }

    fn properties(
        &mut self,
        properties: &Raw,
        path: &mut Vec<String>,
        reachable: bool,
        depth: usize,
    ) -> Result<(), BadAnnotation> {
        let Ok(properties) = properties.as_object() else {
            return Ok(());
        };
        for (name, schema) in properties.iter() {
            path.push(name.to_owned());
            self.schema(schema, path, reachable, depth + 1)?;
            path.pop();
        }
        Ok(())
    }

    fn annotation(
        &mut self,
        annotation: &Raw,
        schema: &Object,
        path: &[String],
        reachable: bool,
    ) -> Result<(), BadAnnotation> {
        let at = || {
            if path.is_empty() {
                "the schema".to_owned()
            } else {
                path.join(".")
            }
        };
        let name = annotation.as_string().filter(|name| is_token(name));
        let name = name.ok_or_else(|| BadAnnotation::Name { at: at() })?;
        if !reachable || path.is_empty() {
            return Err(BadAnnotation::Unreachable { at: at() });
        }
        let kind = schema.string("type");
        if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
            return Err(BadAnnotation::Type { at: at() });
        }
        let header = format!("{PARAM_PREFIX}{}", name.to_ascii_lowercase());
        if !self.names.insert(header.clone()) {
            return Err(BadAnnotation::Repeated { at: at() });
        }
        if self.found.len() == MOST {
            return Err(BadAnnotation::Many);
        }
        self.found.push(ParamHeader {
            header,
            path: path.to_vec(),
        });
        Ok(())
    }
}

/// The headers for these arguments: lower-case names and encoded values. An absent or `null`
/// argument has none.
///
/// # Errors
/// [`Malformed`] when an object on the way to an argument repeats a key.
pub fn headers(
    declared: &[ParamHeader],
    arguments: Option<&Raw>,
) -> Result<Vec<(String, String)>, Malformed> {
    let mut found = Vec::new();
    for param in declared {
        if let Some(text) = argument(arguments, &param.path)?.as_ref().and_then(text_of) {
            found.push((param.header.clone(), header::encode(&text).into_owned()));
        }
    }
    Ok(found)
}

/// Checks received `Mcp-Param-*` headers (`name` in lower case, value as received) against the
/// arguments. Headers that the tool does not declare are not looked at.
///
/// # Errors
/// The first [`Mismatch`].
pub fn check(
    declared: &[ParamHeader],
    arguments: Option<&Raw>,
    received: &[(String, String)],
) -> Result<(), Mismatch> {
    for param in declared {
        let value = argument(arguments, &param.path).map_err(Mismatch::Arguments)?;
        let wanted = value.as_ref().and_then(text_of);
        let given: Vec<&str> = received
            .iter()
            .filter(|(n, _)| *n == param.header)
            .map(|(_, v)| v.as_str())
            .collect();
        let header = || param.header.clone();
        let name = || param.path.join(".");
        match (wanted, given.as_slice()) {
            (None, []) => {}
            (Some(wanted), [given]) if same(&wanted, given, value.as_ref()) => {}
            (Some(_), []) => {
                return Err(Mismatch::Missing {
                    header: header(),
                    argument: name(),
                });
            }
            (Some(_), _) => {
                return Err(Mismatch::Differs {
                    header: header(),
                    argument: name(),
                });
            }
            (None, _) => {
                return Err(Mismatch::Unexpected {
                    header: header(),
                    argument: name(),
                });
            }
        }
    }
    Ok(())
}

fn argument(arguments: Option<&Raw>, path: &[String]) -> Result<Option<Raw>, Malformed> {
    let mut value = arguments.cloned();
    for name in path {
        let Some(raw) = value.filter(Raw::is_object) else {
            return Ok(None);
        };
        value = raw.as_object()?.get(name).cloned();
    }
    Ok(value.filter(|raw| !raw.is_null()))
}

/// The header text of a primitive; `None` for anything else.
fn text_of(value: &Raw) -> Option<String> {
    let text = value.text();
    match text.as_bytes().first()? {
        b'"' => value.as_string(),
        b't' | b'f' => Some(text.to_owned()),
        b'-' | b'0'..=b'9' => Some(whole(text).unwrap_or_else(|| text.to_owned())),
        _ => None,
    }
}

/// `42.0` and `4.2e1` as `42`, and `-0` as `0`; `None` for what is not a whole number.
fn whole(text: &str) -> Option<String> {
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        let text = if text == "-0" { "0" } else { text };
        return Some(text.to_owned());
    }
    let value: f64 = text.parse().ok()?;
    // The sum of both zeros is the one without a sign.
    (value.fract() == 0.0 && value.abs() < 1e15).then(|| format!("{:.0}", value + 0.0))
}

fn same(wanted: &str, given: &str, value: Option<&Raw>) -> bool {
    let Ok(given) = header::decode(given) else {
        return false;
    };
    if wanted == given {
        return true;
    }
    // Integers are compared as numbers: `42` and `42.0` are one.
    let number = value.is_some_and(|raw| !raw.is_string());
    number && whole(&given).is_some_and(|given| given == wanted)
}

fn is_token(name: &str) -> bool {
    let mark = |b: u8| b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || mark(b))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::parse(&Bytes::from(text.to_owned())).unwrap()
    }

    fn region() -> Vec<ParamHeader> {
        declared(&raw(
            r#"{"properties":{"r":{"type":"string","x-mcp-header":"Region"},
            "o":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}"#,
        ))
        .unwrap()
    }

    #[test]
    fn no_tool_has_more_header_parameters_than_a_request_has_headers() {
        let schema = |count: usize| {
            let one = |n: usize| format!(r#""p{n}":{{"type":"string","x-mcp-header":"P{n}"}}"#);
            let all: Vec<_> = (0..count).map(one).collect();
            raw(&format!(r#"{{"properties":{{{}}}}}"#, all.join(",")))
        };
        assert_eq!(declared(&schema(MOST)).unwrap().len(), MOST);
        assert_eq!(declared(&schema(MOST + 1)), Err(BadAnnotation::Many));
    }

    #[track_caller]
    fn broken(schema: &str, says: &str) {
        assert_eq!(declared(&raw(schema)).unwrap_err().to_string(), says);
    }

    #[track_caller]
    fn received(arguments: &str, headers: &[(&str, &str)], ok: bool) {
        let headers: Vec<_> = headers
            .iter()
            .map(|(n, v)| (format!("mcp-param-{n}"), (*v).to_owned()))
            .collect();
        let got = check(&region(), Some(&raw(arguments)), &headers);
        assert_eq!(got.is_ok(), ok, "{arguments} {headers:?}: {got:?}");
    }

    #[test]
    fn nested_properties_are_found() {
        let paths: Vec<_> = region()
            .into_iter()
            .map(|p| (p.header, p.path.join(".")))
            .collect();
        assert_eq!(
            paths,
            [
                ("mcp-param-region".to_owned(), "r".to_owned()),
                ("mcp-param-n".to_owned(), "o.n".to_owned()),
            ]
        );
    }

    #[test]
    fn annotations_that_break_the_rules_are_named() {
        let prop = |p: &str| format!(r#"{{"properties":{{{p}}}}}"#);
        for name in ["\"\"", "\"a b\"", "\"a:b\"", "\"a\\r\\nb\"", "\"é\"", "7"] {
            broken(
                &prop(&format!(r#""x":{{"type":"string","x-mcp-header":{name}}}"#)),
                "`x-mcp-header` of `x` is not an HTTP token",
            );
        }
        for kind in [
            "\"number\"",
            "\"object\"",
            "\"array\"",
            "\"null\"",
            "[\"string\",\"null\"]",
        ] {
            broken(
                &prop(&format!(r#""x":{{"type":{kind},"x-mcp-header":"X"}}"#)),
                "`x-mcp-header` of `x` is on something else than a string, integer or boolean",
            );
        }
        broken(
            &prop(
                r#""x":{"type":"string","x-mcp-header":"A"},"y":{"type":"string","x-mcp-header":"a"}"#,
            ),
            "`x-mcp-header` of `y` is used twice",
        );
        for under in [
            r#""x":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}"#,
            r#""x":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}"#,
        ] {
            broken(
                &prop(under),
                "`x-mcp-header` of `x` is not reachable through `properties` alone",
            );
        }
        broken(
            r#"{"$defs":{"d":{"properties":{"q":{"type":"string","x-mcp-header":"A"}}}}}"#,
            "`x-mcp-header` of `q` is not reachable through `properties` alone",
        );
    }

    #[test]
    fn text_that_only_looks_like_an_annotation_is_none() {
        let schema =
            r#"{"properties":{"x-mcp-header":{"type":"string","default":{"x-mcp-header":1}}}}"#;
        assert_eq!(declared(&raw(schema)), Ok(Vec::new()));
    }

    #[test]
    fn values_are_written_as_text() {
        let args = raw(r#"{"r":" ü ","o":{"n":42.0}}"#);
        let got = headers(&region(), Some(&args)).unwrap();
        assert_eq!(
            got,
            [
                (
                    "mcp-param-region".to_owned(),
                    "=?base64?IMO8IA==?=".to_owned()
                ),
                ("mcp-param-n".to_owned(), "42".to_owned()),
            ]
        );
        let none = raw(r#"{"r":null}"#);
        assert_eq!(headers(&region(), Some(&none)).unwrap(), []);
        assert_eq!(headers(&region(), None).unwrap(), []);
    }

    #[test]
    fn received_headers_must_say_what_the_arguments_say() {
        received(
            r#"{"r":"Hello"}"#,
            &[("region", "=?base64?SGVsbG8=?=")],
            true,
        );
        received(
            r#"{"r":"Hello"}"#,
            &[("region", "=?base64?SGVsbG8?=")],
            false,
        );
        received(r#"{"r":"Hello"}"#, &[], false);
        received(
            r#"{"r":"Hello"}"#,
            &[("region", "Hello"), ("region", "Hello")],
            false,
        );
        received(r#"{"o":{"n":42}}"#, &[("n", "42.0")], true);
        received(r#"{"o":{"n":42.0}}"#, &[("n", "42")], true);
        received(r#"{"o":{"n":42}}"#, &[("n", "43")], false);
        for (argument, header) in [("-0", "0"), ("0", "-0"), ("-0.0", "0"), ("0e5", "-0.0")] {
            let arguments = format!(r#"{{"o":{{"n":{argument}}}}}"#);
            received(&arguments, &[("n", header)], true);
            received(&arguments, &[("n", "1")], false);
        }
        received(r#"{"r":"-0"}"#, &[("region", "0")], false);
        received(r#"{"r":null}"#, &[("region", "x")], false);
        received(r#"{"other":1}"#, &[("unknown", "x")], true);
        received(r#"{"r":"42"}"#, &[("region", "42.0")], false);
    }

    #[test]
    fn an_object_that_repeats_a_mirrored_argument_is_refused() {
        received(r#"{"r":"a","r":"b"}"#, &[("region", "a")], false);
    }
}
