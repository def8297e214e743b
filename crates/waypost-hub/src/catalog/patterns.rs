//! Patterns over tools' names that match none: most often a typo.

use std::sync::Arc;

use globset::Glob;
use waypost_config::nearest;
use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, clip};

use super::build::Warning;
use super::entry::Kind;
use crate::member::Member;

/// A warning for each pattern of the upstream that matches none of these, its tools.
pub(super) fn unmatched(member: &Member, tools: &[Raw]) -> Vec<Warning> {
    let rules = &member.settings.tools;
    let timeouts = rules.timeouts.iter().map(|(pattern, _)| pattern);
    let all = rules.allow.iter().map(|pattern| ("allow", pattern));
    let all = all.chain(rules.deny.iter().map(|pattern| ("deny", pattern)));
    let mut all = all
        .chain(timeouts.map(|pattern| ("timeouts", pattern)))
        .peekable();
    if all.peek().is_none() {
        return Vec::new();
    }
    let names: Vec<_> = tools.iter().filter_map(name).collect();
    let unmatched = all.filter(|(_, pattern)| !matches_any(pattern, &names));
    let warning = |(rule, pattern): (&str, &String)| Warning {
        upstream: Arc::clone(&member.name),
        text: text(rule, pattern, &names),
    };
    unmatched.map(warning).collect()
}

fn text(rule: &str, pattern: &str, names: &[String]) -> String {
    let what = format!("pattern `{pattern}` of `tools.{rule}` matches no tool");
    match nearest(pattern, names.iter().map(String::as_str)) {
        Some(meant) => format!("{what}; did you mean `{}`?", clip(meant, NAME)),
        None => what,
    }
}

/// The configuration has checked every pattern.
fn matches_any(pattern: &str, names: &[String]) -> bool {
    Glob::new(pattern).is_ok_and(|glob| {
        let glob = glob.compile_matcher();
        names.iter().any(|name| glob.is_match(name))
    })
}

fn name(tool: &Raw) -> Option<String> {
    tool.as_object().ok()?.string(Kind::Tool.name_member())
}
