//! Programs of local servers that are not there, and how one gets them.

use std::collections::BTreeSet;
use std::sync::Arc;

use waypost_config::Reach;
use waypost_hub::member::Member;

/// Starters of servers, each with what brings it.
const KNOWN: &[(&str, &str)] = &[
    ("docker", "Docker (https://docs.docker.com/get-docker)"),
    ("node", "Node.js (https://nodejs.org)"),
    ("npx", "Node.js (https://nodejs.org)"),
    ("uv", "uv (https://docs.astral.sh/uv)"),
    ("uvx", "uv (https://docs.astral.sh/uv)"),
];

/// Whether its program was looked for in vain.
pub(super) fn is_missing(member: &Member) -> bool {
    missing(member).is_some()
}

/// A line for each program that is missing.
pub(super) fn hints(members: &[Arc<Member>]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut hints = Vec::new();
    for member in members {
        let Some(command) = missing(member) else {
            continue;
        };
        if !seen.insert(command) {
            continue;
        }
        let known = KNOWN.iter().find(|(name, _)| *name == command);
        hints.push(match (known, member.status.report().last_cause) {
            (Some((name, source)), _) => format!("hint: `{name}` comes with {source}"),
            (None, Some(cause)) => {
                format!("hint: install `{command}`, or give its whole path as `command`; {cause}")
            }
            (None, None) => {
                format!("hint: install `{command}`, or give its whole path as `command`")
            }
        });
    }
    hints
}

fn missing(member: &Member) -> Option<&str> {
    let Reach::Stdio { command, .. } = &member.settings.reach else {
        return None;
    };
    let text = format!("command `{command}` was not found");
    let last = member.status.report().last_error?;
    last.contains(&text).then_some(command)
}
