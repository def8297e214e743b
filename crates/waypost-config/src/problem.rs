//! What is wrong with a configuration, where, and what to do about it.

use std::fmt;

use crate::node::{Node, Place};
use crate::path::{KeyPath, Step};
use crate::secret::Secret;

/// One thing wrong with the configuration.
///
/// Never holds a value that came from the environment, a file or a flag, unless it is of a key
/// that has no secrets, named by its own variable or flag. `Display` prints one line, and a second
/// one with the hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether Waypost can run all the same.
    pub severity: Severity,
    /// The key concerned, as in `upstreams.builds.url`; empty when it is the file as a whole.
    pub at: String,
    /// The file, environment variable or flag the key came from, if it came from any.
    pub file: Option<String>,
    /// The line in the file, from 1.
    pub line: Option<usize>,
    /// The column in the line, from 1, in characters.
    pub column: Option<usize>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Waypost does not start.
    Error,
    /// Waypost starts, but probably not as meant.
    Warning,
}

/// Keys that are no secrets, nor anything below them: a value that a flag or variable of their own
/// gives them may be shown.
const OPEN: &[&[&str]] = &[
    &["admin", "listen"],
    &["drain_grace"],
    &["front"],
    &["limits"],
    &["listen"],
    &["log"],
];

/// Gathers problems, and knows where each key was written.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    root: &'a Node,
    problems: Vec<Problem>,
    /// What was already refused, so that nothing is said about its absence.
    refused: Vec<KeyPath>,
    /// What is there but has no usable value, so that nothing is concluded from it.
    unsound: Vec<KeyPath>,
}

// === impl Problem ===

impl Problem {
    pub(crate) fn new(severity: Severity, place: Option<&Place>, at: &KeyPath, what: &str) -> Self {
        Self {
            severity,
            at: at.to_string(),
            file: place.map(|place| place.source.to_string()),
            line: place.and_then(|place| place.line),
            column: place.and_then(|place| place.column),
            what: what.to_owned(),
            hint: None,
        }
    }

    pub(crate) fn error(place: &Place, at: &KeyPath, what: impl AsRef<str>) -> Self {
        Self::new(Severity::Error, Some(place), at, what.as_ref())
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            f.write_str(file)?;
            for number in [self.line, self.column].into_iter().flatten() {
                write!(f, ":{number}")?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{}: ", self.severity)?;
        if !self.at.is_empty() {
            write!(f, "`{}`: ", self.at)?;
        }
        f.write_str(&self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

// === impl Report ===

impl<'a> Report<'a> {
    pub(crate) fn new(root: &'a Node) -> Self {
        Self {
            root,
            problems: Vec::new(),
            refused: Vec::new(),
            unsound: Vec::new(),
        }
    }

    pub(crate) fn error(&mut self, at: &KeyPath, what: impl AsRef<str>) {
        self.push(Severity::Error, at, what.as_ref(), None);
    }

    pub(crate) fn error_hint(
        &mut self,
        at: &KeyPath,
        what: impl AsRef<str>,
        hint: impl Into<String>,
    ) {
        self.push(Severity::Error, at, what.as_ref(), Some(hint.into()));
    }

    /// Says what is wrong with a map, unless that may be because one of these keys of it was
    /// refused.
    pub(crate) fn error_without(
        &mut self,
        at: &KeyPath,
        keys: &[&str],
        what: impl AsRef<str>,
        hint: impl Into<String>,
    ) {
        if !keys.iter().any(|key| self.refused.contains(&at.key(key))) {
            self.error_hint(at, what, hint);
        }
    }

    pub(crate) fn warning(&mut self, at: &KeyPath, what: impl AsRef<str>, hint: impl Into<String>) {
        self.push(Severity::Warning, at, what.as_ref(), Some(hint.into()));
    }

    /// Records a problem of which the place is known already, and that its key has no value now.
    pub(crate) fn refuse(&mut self, at: &KeyPath, problem: Problem) {
        self.problems.push(problem);
        self.refused.push(at.clone());
    }

    /// Says that a key has no value because of a problem recorded elsewhere.
    pub(crate) fn already_refused(&mut self, at: &KeyPath) {
        self.refused.push(at.clone());
    }

    /// A value as messages may show it: not if it came from outside the file.
    pub(crate) fn show(&self, at: &KeyPath, text: &str) -> String {
        if self.hides(at) {
            "`***`".to_owned()
        } else {
            format!("`{text}`")
        }
    }

    /// Whether a value came from outside the file and may be secret, so that neither message nor
    /// hint repeats it.
    pub(crate) fn hides(&self, at: &KeyPath) -> bool {
        let Some((_, node)) = self.root.find(at) else {
            return false;
        };
        // What was put in by `${...}` may be any variable or file, whatever the key.
        node.is_expanded() || (node.is_outside() && !OPEN.iter().any(|open| at.starts_with(open)))
    }

    /// What interpolation put into a value and all below it, where it may be secret.
    pub(crate) fn inserted(&self, at: &KeyPath) -> Vec<Secret> {
        let found = self.root.find(at);
        found.map_or_else(Vec::new, |(_, node)| node.inserted())
    }

    /// Whether the key has the value that was written, or its default: nothing was wrong with it.
    pub(crate) fn is_sound(&self, at: &KeyPath) -> bool {
        !self.refused.contains(at) && !self.unsound.contains(at)
    }

    /// Says that a key's value stands for nothing.
    pub(crate) fn set_unsound(&mut self, at: &KeyPath) {
        self.unsound.push(at.clone());
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.problems
            .iter()
            .any(|problem| problem.severity == Severity::Error)
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// A problem about a key that was refused, or about a list one of whose items was, is dropped:
    /// it would only be a consequence.
    fn push(&mut self, severity: Severity, at: &KeyPath, what: &str, hint: Option<String>) {
        let is_item = |path: &KeyPath| {
            let is_index = matches!(path.steps().last(), Some(Step::Index(_)));
            is_index && path.parent().as_ref() == Some(at)
        };
        if self.refused.iter().any(|path| path == at || is_item(path)) {
            return;
        }
        let place = self.place(at);
        self.problems.push(Problem {
            hint,
            ..Problem::new(severity, place, at, what)
        });
    }

    /// Where the key was written, or else the nearest map around it.
    fn place(&self, at: &KeyPath) -> Option<&'a Place> {
        let mut path = at.clone();
        loop {
            if let Some((place, _)) = self.root.find(&path) {
                return Some(place);
            }
            path = path.parent()?;
        }
    }
}
