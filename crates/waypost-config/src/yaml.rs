//! YAML (and so JSON) text to a tree of [`Node`]s.
//!
//! Positions, the order of keys and repeated keys survive, which the usual serde route loses.
//! Aliases are followed, but the tree they unfold to is bounded.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use crate::node::{Entry, Kind, Node, Place, Scalar, Style};
use crate::path::KeyPath;
use crate::problem::Problem;

/// How deep lists and maps may nest.
const MAX_DEPTH: usize = 32;
/// How many values a file may unfold to, aliases followed.
const MAX_NODES: usize = 20_000;

/// Parses one document. An empty text is an empty map.
///
/// Gives everything wrong with it too, as far as one can read on. A document of which a part is
/// wrong is still there without it; one that is no YAML from some place on is not.
pub(crate) fn parse(source: &str, text: &str) -> (Option<Node>, Vec<Problem>) {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        source: source.into(),
        text,
        anchors: HashMap::new(),
        left: MAX_NODES,
        problems: Vec::new(),
    };
    match reader.document() {
        Ok(node) => (Some(node), reader.problems),
        Err(problem) => {
            reader.problems.push(*problem);
            (None, reader.problems)
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    source: Arc<str>,
    text: &'a str,
    anchors: HashMap<usize, Node>,
    left: usize,
    problems: Vec<Problem>,
}

/// Boxed because it is the rare case.
type Stop = Box<Problem>;

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Node, Stop> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(_) if root.is_none() => {}
                Event::DocumentStart(_) => {
                    let what = "a second document starts here";
                    return Err(Box::new(self.problem(span, &KeyPath::default(), what)));
                }
                event => root = Some(self.node(event, span, &KeyPath::default(), 0)?),
            }
        }
        let place = Place {
            source: Arc::clone(&self.source),
            line: Some(1),
            column: Some(1),
        };
        Ok(match root {
            Some(Node {
                kind: Kind::Null, ..
            })
            | None => Node::empty(place),
            Some(root) => root,
        })
    }

    fn node(
        &mut self,
        event: Event<'a>,
        span: Span,
        at: &KeyPath,
        depth: usize,
    ) -> Result<Node, Stop> {
        let place = self.place(span);
        self.budget(1, span, at)?;
        if depth > MAX_DEPTH {
            let what = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(Box::new(self.problem(span, at, &what)));
        }
        let (kind, anchor) = match event {
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id).cloned() else {
                    let what = "an alias may not stand inside what it names";
                    return Err(Box::new(self.problem(span, at, what)));
                };
                self.budget(size(&node), span, at)?;
                (node.kind, 0)
            }
            Event::Scalar(text, style, anchor, tag) => {
                (self.scalar(&text, style, tag.as_deref(), span, at), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.untagged(tag.as_deref(), span, at);
                (self.list(at, depth)?, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                self.untagged(tag.as_deref(), span, at);
                (self.map(at, depth)?, anchor)
            }
            _ => {
                return Err(Box::new(self.problem(
                    span,
                    at,
                    "a value was expected here",
                )));
            }
        };
        let node = Node::new(place, kind);
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, at: &KeyPath, depth: usize) -> Result<Kind, Stop> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Kind::List(items)),
                (event, span) => {
                    items.push(self.node(event, span, &at.index(items.len()), depth + 1)?);
                }
            }
        }
    }

    fn map(&mut self, at: &KeyPath, depth: usize) -> Result<Kind, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let (event, span) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(Kind::Map(entries)),
                Event::Scalar(text, ..) => text.into_owned(),
                _ => {
                    return Err(Box::new(self.problem(
                        span,
                        at,
                        "a key must be a plain text",
                    )));
                }
            };
            let path = at.key(&key);
            let (event, value_span) = self.next()?;
            let value = self.node(event, value_span, &path, depth + 1)?;
            if seen.insert(key.clone()) {
                entries.push(Entry {
                    key,
                    place: self.place(span),
                    value,
                });
            } else {
                let problem = self.problem(span, &path, "this key is given twice");
                self.problems.push(problem.with_hint("keep one of the two"));
            }
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        span: Span,
        at: &KeyPath,
    ) -> Kind {
        let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
        if !is_text {
            self.untagged(tag, span, at);
        }
        let style = match style {
            ScalarStyle::Plain if !is_text => Style::Plain,
            _ => Style::Quoted,
        };
        if style == Style::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
            return Kind::Null;
        }
        Kind::Scalar(Scalar {
            text: text.to_owned(),
            style,
            expanded: false,
            inserted: Vec::new(),
        })
    }

    fn untagged(&mut self, tag: Option<&Tag>, span: Span, at: &KeyPath) {
        if let Some(tag) = tag {
            let problem = self.problem(span, at, &format!("the tag `{tag}` has no meaning here"));
            self.problems.push(problem);
        }
    }

    fn budget(&mut self, nodes: usize, span: Span, at: &KeyPath) -> Result<(), Stop> {
        match self.left.checked_sub(nodes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let what = format!("more than {MAX_NODES} values, aliases followed");
                Err(Box::new(self.problem(span, at, &what)))
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Stop> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(Box::new(self.unreadable(&error))),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn unreadable(&self, error: &ScanError) -> Problem {
        let span = Span::empty(*error.marker());
        let problem = self.problem(
            span,
            &KeyPath::default(),
            &format!("not YAML: {}", error.info()),
        );
        let line = self
            .text
            .lines()
            .nth(error.marker().line().saturating_sub(1))
            .unwrap_or_default();
        if line.contains('\t') {
            return problem.with_hint("indent with spaces, not tabs");
        }
        if let Some(sign) = unquoted_sign(line) {
            return problem.with_hint(format!(
                "put quotes around the value that begins with {sign}"
            ));
        }
        if line.contains("${") {
            return problem.with_hint("put quotes around a value that has `${...}` in it");
        }
        problem
    }

    fn problem(&self, span: Span, at: &KeyPath, what: &str) -> Problem {
        Problem::error(&self.place(span), at, what)
    }

    fn place(&self, span: Span) -> Place {
        Place {
            source: Arc::clone(&self.source),
            line: Some(span.start.line()),
            column: Some(span.start.col() + 1),
        }
    }
}

/// A sign that YAML lets no bare value begin with, where one does.
fn unquoted_sign(line: &str) -> Option<&'static str> {
    let mut quote = None;
    let mut begins = true;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) => quote = (c != open).then_some(open),
            (None, '@') if begins => return Some("`@`"),
            (None, '%') if begins => return Some("`%`"),
            (None, '`') if begins => return Some("a backtick"),
            (None, '\'' | '"') if begins => quote = Some(c),
            (None, _) => {}
        }
        begins = matches!(c, '[' | '{' | ',' | ':' | '-') || (begins && c.is_whitespace());
    }
    None
}

fn size(node: &Node) -> usize {
    match &node.kind {
        Kind::Null | Kind::Scalar(_) | Kind::Refused => 1,
        Kind::List(items) => items.iter().map(size).sum::<usize>() + 1,
        Kind::Map(entries) => {
            entries
                .iter()
                .map(|entry| size(&entry.value))
                .sum::<usize>()
                + 1
        }
    }
}

#[cfg(test)]
mod tests;
