//! Settings for names that an upstream does not have: most often a typo.

use std::sync::Arc;

use globset::Glob;
use waypost_config::nearest;
use waypost_wire::text::{NAME, clip};

use super::build::Warning;
use super::entry::Kind;
use super::globs::spellings;
use crate::member::Member;
use crate::registry::Learned;

/// A warning for each setting of the upstream that is for none of what it lists of a kind. Those
/// for resources are looked at with the resources, and not where there are templates: then there
/// are more of them than any list says.
pub(super) fn unmatched(member: &Member, kind: Kind, learned: &Learned) -> Vec<Warning> {
    let key = match kind {
        Kind::Tool | Kind::Prompt => kind.list_member(),
        Kind::Resource if !is_open(member, learned) => kind.list_member(),
        Kind::Resource | Kind::Template => return Vec::new(),
    };
    let shaping = member.shaping();
    let filters = shaping.map(|shaping| shaping.globs(kind).patterns());
    let mut patterns: Vec<(&str, &str)> = filters.into_iter().flatten().collect();
    if kind == Kind::Tool {
        let timeouts = member.settings.tools.timeouts.iter();
        patterns.extend(timeouts.map(|(pattern, _)| ("timeouts", pattern.as_str())));
    }
    let named = shaping.map(|shaping| shaping.named(kind));
    let named: Vec<_> = named.into_iter().flatten().collect();
    if patterns.is_empty() && named.is_empty() {
        return Vec::new();
    }
    let names = names(kind, learned);
    let word = kind.word();
    // What is denied in another spelling is denied.
    let others = names.iter().flat_map(|name| spellings(kind, name));
    let others: Vec<String> = others.collect();
    let idle = patterns.iter().filter(|(rule, pattern)| {
        let is_spelt = || *rule == "deny" && matches_any(pattern, &others);
        !(matches_any(pattern, &names) || is_spelt())
    });
    let idle = idle.map(|(rule, pattern)| {
        let what = format!("pattern `{pattern}` of `{key}.{rule}` matches no {word}");
        what + &meant(pattern, names.iter().map(String::as_str))
    });
    let unknown = named
        .iter()
        .filter(|(_, name)| !names.iter().any(|known| known == name));
    let unknown = unknown.map(|(rule, name)| {
        let what = format!("`{key}.{rule}` is for `{name}`, and it has no such {word}");
        what + &meant(name, names.iter().map(String::as_str))
    });
    let warning = |text| Warning {
        upstream: Arc::clone(&member.name),
        text,
    };
    idle.chain(unknown).map(warning).collect()
}

/// Whether it has, or may have, more resources than its list says.
pub(super) fn is_open(member: &Member, learned: &Learned) -> bool {
    let templates = Kind::Template.listing(&learned.catalogue);
    templates.is_some_and(|list| !list.items.is_empty()) || member.is_unread(Kind::Template)
}

/// What was probably meant, as the end of a message.
pub(super) fn meant<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> String {
    match nearest(text, names) {
        Some(meant) => format!("; did you mean `{}`?", clip(meant, NAME)),
        None => String::new(),
    }
}

/// The configuration has checked every pattern.
fn matches_any(pattern: &str, names: &[String]) -> bool {
    Glob::new(pattern).is_ok_and(|glob| {
        let glob = glob.compile_matcher();
        names
            .iter()
            .any(|name| glob.is_match(name) || name == pattern)
    })
}

fn names(kind: Kind, learned: &Learned) -> Vec<String> {
    let listing = kind.listing(&learned.catalogue);
    let items = listing.map(|l| l.items.as_slice()).unwrap_or_default();
    let name = |raw: &waypost_wire::raw::Raw| raw.as_object().ok()?.string(kind.name_member());
    items.iter().filter_map(name).collect()
}
