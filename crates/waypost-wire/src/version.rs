//! Protocol versions.

use std::borrow::Cow;

/// The stateless protocol, the one dialect spoken inside.
pub const MODERN: &str = "2026-07-28";

/// Every version of the modern era that Waypost speaks, newest first.
pub const MODERN_VERSIONS: &[&str] = &[MODERN];

/// Every version of the session era, newest first.
pub const LEGACY_VERSIONS: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// What 2024-11-05 was called before it was done; some servers still say so.
const FORMER: &str = "2024-10-07";

/// Whether `version` is one of the modern era that Waypost speaks.
pub fn is_modern(version: &str) -> bool {
    MODERN_VERSIONS.contains(&version)
}

/// Whether `version` is a known one of the session era.
pub fn is_legacy(version: &str) -> bool {
    LEGACY_VERSIONS.contains(&version) || version == FORMER
}

/// The word for the era of a version: `modern` or `legacy`; a later version is modern.
pub fn era(version: &str) -> &'static str {
    if is_legacy(version) {
        "legacy"
    } else {
        "modern"
    }
}

/// The version, without an allocation for a known one.
pub fn interned(version: &str) -> Cow<'static, str> {
    let mut known = MODERN_VERSIONS.iter().chain(LEGACY_VERSIONS);
    match known.find(|known| **known == version) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(version.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_from_before_the_first_is_of_the_session_era() {
        assert_eq!(era("2024-10-07"), "legacy");
        assert!(!is_modern("2024-10-07"));
        assert!(!is_legacy("2024-10-08"));
    }
}
