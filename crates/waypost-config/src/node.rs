//! The configuration as a tree that knows where each of its parts was written.

use std::fmt;
use std::sync::Arc;

use crate::path::{KeyPath, Step};
use crate::secret::Secret;

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file's path, or the name of the environment variable or flag.
    pub(crate) source: Arc<str>,
    pub(crate) line: Option<usize>,
    pub(crate) column: Option<usize>,
}

/// A value and where it starts.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

#[derive(Clone)]
pub(crate) enum Kind {
    /// `~`, `null` or nothing: as if the key were not there.
    Null,
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// A value about which a problem has been reported.
    Refused,
}

/// A text that gets its type from the key it is for.
#[derive(Clone)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    pub(crate) style: Style,
    /// Part of it came from the environment or a file, so no message shows it.
    pub(crate) expanded: bool,
    /// What came from there, where it may be secret.
    pub(crate) inserted: Vec<Secret>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Bare in the file: may be a number or a boolean.
    Plain,
    /// In quotes or a block: a string.
    Quoted,
    /// From an environment variable or a flag: whatever is needed, lists and maps in YAML too.
    Outside,
}

/// One key of a map.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) place: Place,
    pub(crate) value: Node,
}

impl Place {
    /// Something that has a name but no lines.
    pub(crate) fn of(source: &str) -> Self {
        Self {
            source: source.into(),
            line: None,
            column: None,
        }
    }
}

impl Node {
    pub(crate) fn new(place: Place, kind: Kind) -> Self {
        Self { place, kind }
    }

    /// An empty map.
    pub(crate) fn empty(place: Place) -> Self {
        Self::new(place, Kind::Map(Vec::new()))
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            Kind::Null | Kind::Scalar(_) | Kind::List(_) | Kind::Refused => &[],
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The value at a path and the place to name for it: where a scalar stands, or the key of a
    /// list or map.
    pub(crate) fn find(&self, path: &KeyPath) -> Option<(&Place, &Self)> {
        let (mut place, mut node) = (&self.place, self);
        for step in path.steps() {
            match (step, &node.kind) {
                (Step::Key(key), Kind::Map(_)) => {
                    let entry = node.get(key)?;
                    node = &entry.value;
                    place = if node.is_scalar() {
                        &node.place
                    } else {
                        &entry.place
                    };
                }
                (Step::Index(index), Kind::List(items)) => {
                    node = items.get(*index)?;
                    place = &node.place;
                }
                _ => return None,
            }
        }
        Some((place, node))
    }

    /// Whether `${...}` put something into this value.
    pub(crate) fn is_expanded(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if scalar.expanded)
    }

    /// Whether a variable or flag gave this value.
    pub(crate) fn is_outside(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if scalar.style == Style::Outside)
    }

    /// What interpolation put into the scalars of this tree, where it may be secret.
    pub(crate) fn inserted(&self) -> Vec<Secret> {
        match &self.kind {
            Kind::Null | Kind::Refused => Vec::new(),
            Kind::Scalar(scalar) => scalar.inserted.clone(),
            Kind::List(items) => items.iter().flat_map(Self::inserted).collect(),
            Kind::Map(entries) => {
                let values = entries.iter().map(|entry| &entry.value);
                values.flat_map(Self::inserted).collect()
            }
        }
    }

    fn is_scalar(&self) -> bool {
        matches!(self.kind, Kind::Scalar(_))
    }
}

impl fmt::Debug for Node {
    /// Prints the shape only: scalars may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Null => f.write_str("null"),
            Kind::Scalar(_) => f.write_str("***"),
            Kind::Refused => f.write_str("refused"),
            Kind::List(items) => f.debug_list().entries(items).finish(),
            Kind::Map(entries) => f
                .debug_map()
                .entries(entries.iter().map(|entry| (&entry.key, &entry.value)))
                .finish(),
        }
    }
}
