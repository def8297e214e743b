//! Names of tools and prompts towards clients.
//!
//! A name depends on its upstream's own prefix and original name alone, never on which other
//! upstreams there are or when they answer. Routing goes through a table; nothing ever splits
//! a name.

use sha2::{Digest as _, Sha256};

/// Letters of the hash that keeps altered names apart.
const HASH_LEN: usize = 8;

/// The exposed name of `original` at `upstream`.
///
/// Characters outside `[A-Za-z0-9_-]` become `_`. A name that was altered, or is longer than
/// `max_length`, ends in a hash of upstream and original name, so that two names that would
/// become equal stay apart and stay the same over restarts.
pub(crate) fn exposed(upstream: &str, prefix: &str, original: &str, max_length: usize) -> String {
    let clean = !original.is_empty() && original.chars().all(fits);
    let length = prefix.len() + original.chars().count();
    if clean && length <= max_length {
        return format!("{prefix}{original}");
    }
    hashed(upstream, prefix, original, max_length)
}

fn hashed(upstream: &str, prefix: &str, original: &str, max_length: usize) -> String {
    let room = max_length.saturating_sub(HASH_LEN + 1);
    let body = original.chars().map(|c| if fits(c) { c } else { '_' });
    let head: String = prefix.chars().chain(body).take(room).collect();
    format!("{head}_{}", hash(upstream, original))
}

fn fits(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// The name an upstream gets when its own is taken: its name in front.
pub(crate) fn qualified(upstream: &str, original: &str, max_length: usize) -> String {
    exposed(upstream, &format!("{upstream}_"), original, max_length)
}

/// The name an upstream gets when that is taken too: with a hash, as if it had been altered.
pub(crate) fn distinct(upstream: &str, original: &str, max_length: usize) -> String {
    hashed(upstream, &format!("{upstream}_"), original, max_length)
}

/// The URI under which a resource is shown whose plain URI another upstream owns.
pub(crate) fn qualified_uri(upstream: &str, uri: &str) -> String {
    match uri.strip_prefix("ui://") {
        Some(rest) => format!("ui://{upstream}+{rest}"),
        None => format!("{upstream}+{uri}"),
    }
}

/// Takes a qualified URI apart: the upstream's name and the plain URI. Whether there is such an
/// upstream is the caller's to know.
pub(crate) fn split_uri(uri: &str) -> Option<(&str, String)> {
    if let Some(rest) = uri.strip_prefix("ui://") {
        let (upstream, rest) = rest.split_once('+')?;
        return Some((upstream, format!("ui://{rest}")));
    }
    let (upstream, plain) = uri.split_once('+')?;
    Some((upstream, plain.to_owned()))
}

/// What a URI may stand for that looks like the qualified form of another one, of each before it.
pub(crate) fn unqualified(uri: &str) -> Vec<String> {
    let is_name = |name: &str| name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    let plain = |uri: &String| {
        let (upstream, plain) = split_uri(uri)?;
        is_name(upstream).then_some(plain)
    };
    std::iter::successors(plain(&uri.to_owned()), plain).collect()
}

fn hash(upstream: &str, original: &str) -> String {
    // The upstream's name cannot hold a NUL, so the pair is unambiguous.
    let digest = Sha256::digest(format!("{upstream}\0{original}"));
    digest
        .iter()
        .take(HASH_LEN / 2)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn r07_odd_characters_are_replaced_and_names_stay_apart() {
        let names = ["calendar.read", "a b", "a.b", "a_b", "Get-It"];
        let exposed: Vec<_> = names.iter().map(|n| exposed("g", "g_", n, 45)).collect();
        assert_eq!(exposed.iter().collect::<HashSet<_>>().len(), names.len());
        assert_eq!(exposed[3], "g_a_b");
        assert_eq!(exposed[4], "g_Get-It");
        assert!(exposed[1].starts_with("g_a_b_"), "{}", exposed[1]);
    }

    #[test]
    fn r03_long_names_are_shortened_the_same_way_each_time() {
        let long = "x".repeat(40);
        let name = exposed("billing", "billing-cost-management_", &long, 45);
        assert_eq!(name.len(), 45);
        assert_eq!(
            name,
            exposed("billing", "billing-cost-management_", &long, 45)
        );
        let sibling = exposed(
            "billing",
            "billing-cost-management_",
            &format!("{long}y"),
            45,
        );
        assert_ne!(name, sibling);
    }

    #[test]
    fn qualified_uris_come_apart_again() {
        for uri in ["file:///x", "ui://app/view", "db://a+b/c", "a"] {
            let qualified = qualified_uri("one", uri);
            assert_eq!(
                split_uri(&qualified),
                Some(("one", uri.to_owned())),
                "{qualified}"
            );
        }
    }

    #[test]
    fn a_uri_may_be_qualified_more_than_once() {
        for (uri, inner) in [
            ("a+b+mail://x+y", ["b+mail://x+y", "mail://x+y"].as_slice()),
            ("ui://a+b+page", &["ui://b+page", "ui://page"]),
            ("mail://a+b", &[]),
            ("mail:a", &[]),
        ] {
            assert_eq!(unqualified(uri), inner, "{uri}");
        }
    }

    proptest! {
        #[test]
        fn every_name_fits(original in "\\PC{0,80}", prefix in "[a-z_]{0,20}", max in 16_usize..=64) {
            let name = exposed("u", &prefix, &original, max);
            prop_assert!(name.len() <= max && !name.is_empty());
            prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'));
        }
    }
}
