//! What of an upstream, or of an endpoint, is shown, and how.

use std::collections::BTreeMap;
use std::time::Duration;

use globset::Glob;

use super::{names, settings};
use crate::config::{Filter, PromptRules, ToolRules};
use crate::path::KeyPath;
use crate::problem::Report;
use crate::raw::{Given, Ordered, RawFilter, RawPrompts, RawServer, RawTools};
use crate::secret::Secret;

/// What is said of all that an upstream has; `raw` is left without it.
pub(super) fn all(
    raw: &mut RawServer,
    ceiling: Duration,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> (ToolRules, PromptRules, Filter) {
    let tools = std::mem::take(&mut raw.tools);
    let prompts = std::mem::take(&mut raw.prompts);
    let resources = std::mem::take(&mut raw.resources);
    (
        self::tools(tools, ceiling, &at.key("tools"), report),
        self::prompts(prompts, &at.key("prompts"), report),
        filter(resources, &at.key("resources"), report),
    )
}

fn tools(raw: RawTools, ceiling: Duration, at: &KeyPath, report: &mut Report<'_>) -> ToolRules {
    let (allow, deny) = (raw.allow, raw.deny);
    let mut timeouts = Vec::new();
    for (pattern, text) in raw.timeouts.0 {
        let at = at.key("timeouts").key(&pattern);
        glob(&pattern, &at, report);
        let timeout = settings::duration(&text, &at, report);
        if timeout > ceiling {
            let hint = "raise `timeout_ceiling` as well";
            report.error_hint(&at, "longer than `timeout_ceiling`", hint);
        }
        timeouts.push((pattern, timeout));
    }
    let plain = |given: Given| given.0.expose().to_owned();
    ToolRules {
        filter: filter(RawFilter { allow, deny }, at, report),
        timeouts,
        rename: rename(raw.rename, &at.key("rename"), report),
        describe: raw.describe.0,
        hide_params: raw.hide_params.0,
        set_params: members(raw.set_params, |given| -> Secret { given.0 }),
        annotations: members(raw.annotations, plain),
    }
}

fn prompts(raw: RawPrompts, at: &KeyPath, report: &mut Report<'_>) -> PromptRules {
    let (allow, deny) = (raw.allow, raw.deny);
    PromptRules {
        filter: filter(RawFilter { allow, deny }, at, report),
        rename: rename(raw.rename, &at.key("rename"), report),
        describe: raw.describe.0,
    }
}

pub(super) fn filter(raw: RawFilter, at: &KeyPath, report: &mut Report<'_>) -> Filter {
    for (key, patterns) in [("allow", &raw.allow), ("deny", &raw.deny)] {
        let at = at.key(key);
        for (index, pattern) in patterns.iter().enumerate() {
            glob(pattern, &at.index(index), report);
        }
    }
    Filter {
        allow: raw.allow,
        deny: raw.deny,
    }
}

fn members<T>(
    raw: Ordered<Ordered<Given>>,
    of: impl Fn(Given) -> T,
) -> Vec<(String, Vec<(String, T)>)> {
    let tools = raw.0.into_iter();
    let members = |members: Ordered<Given>| {
        let members = members.0.into_iter();
        members.map(|(name, value)| (name, of(value))).collect()
    };
    tools.map(|(tool, own)| (tool, members(own))).collect()
}

/// Two things of one upstream cannot have one name.
fn rename(raw: Ordered<String>, at: &KeyPath, report: &mut Report<'_>) -> Vec<(String, String)> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (original, name) in &raw.0 {
        let at = at.key(original);
        if name.is_empty() || !names::is_prefix(name) {
            let what = format!("not a name: {}", report.show(&at, name));
            report.error_hint(&at, what, "use letters, digits, `_` and `-`");
        } else if let Some(first) = names.insert(name, original) {
            let what = format!("`{first}` gets this name too");
            report.error_hint(&at, what, "choose another name");
        }
    }
    raw.0
}

fn glob(pattern: &str, at: &KeyPath, report: &mut Report<'_>) {
    if pattern.is_empty() {
        report.error_hint(
            at,
            "an empty pattern matches nothing",
            "`*` matches everything",
        );
    } else if Glob::new(pattern).is_err() {
        let what = format!("not a pattern: {}", report.show(at, pattern));
        report.error_hint(at, what, "use `*`, `?`, `[ab]` and `{a,b}`");
    }
}
