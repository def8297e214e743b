//! Levels of log messages (2025-11-25: logging).

use waypost_wire::raw::Raw;

const NAMES: [&str; 8] = [
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
pub(crate) struct Level(usize);

impl Level {
    /// Reads its name.
    pub(crate) fn read(raw: &Raw) -> Option<Self> {
        let name = raw.as_string()?;
        NAMES.iter().position(|known| *known == name).map(Self)
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
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
