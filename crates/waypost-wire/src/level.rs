//! Levels of log messages (specification: utilities, logging; RFC 5424).

use crate::raw::Raw;

/// Their names, the least grave first.
pub const NAMES: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// How grave a log message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(usize);

impl Level {
    /// The level of this name.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().position(|known| *known == name).map(Self)
    }

    /// Reads the name of one.
    pub fn read(raw: &Raw) -> Option<Self> {
        Self::named(&raw.as_string()?)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES.get(self.0).copied().unwrap_or("info")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_known_by_name() {
        let read = |name: &str| Level::read(&Raw::string(name));
        assert!(read("debug") < read("info") && read("error") < read("emergency"));
        assert_eq!(read("warning").unwrap().name(), "warning");
        assert_eq!(read("loud"), None);
    }
}
