//! Upstreams of one kind, whose tools are shown as one.

use std::collections::BTreeMap;

use super::names;
use crate::config::{Family, Upstream};
use crate::path::KeyPath;
use crate::problem::Report;
use crate::raw::RawFamily;
use crate::suggest;

/// Longest value of the argument, in bytes: each is in the definition of each tool.
const LONGEST: usize = 64;

/// What an upstream says of its family, if all is there.
pub(super) fn one(
    raw: RawFamily,
    upstream: &str,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Option<Family> {
    let value = raw.value.unwrap_or_else(|| upstream.to_owned());
    let fits = (1..=LONGEST).contains(&value.len()) && !value.contains(char::is_control);
    if !fits {
        let hint = format!("write 1 to {LONGEST} characters that can be seen");
        report.error_hint(&at.key("value"), "no value for an argument", hint);
    }
    if let Some(argument) = &raw.argument
        && (argument.is_empty() || argument.len() > LONGEST || !names::is_prefix(argument))
    {
        let hint = format!("use letters, digits, `_` and `-`, at most {LONGEST}");
        report.error_hint(&at.key("argument"), "no name for an argument", hint);
    }
    if let Some(Err(what)) = raw.name.as_deref().map(names::upstream) {
        let name = suggest::upstream_name(raw.name.as_deref().unwrap_or_default());
        report.error_hint(&at.key("name"), what, format!("call it `{name}`"));
    }
    for (key, there) in [
        ("name", raw.name.is_some()),
        ("argument", raw.argument.is_some()),
    ] {
        if !there && report.is_sound(&at.key(key)) {
            let hint = "write `family: { name: ..., argument: ... }`";
            report.error_hint(at, format!("needs `{key}`"), hint);
        }
    }
    Some(Family {
        name: raw.name?,
        argument: raw.argument?,
        value,
    })
}

/// What can be wrong with families only beside each other and all upstreams.
pub(super) fn together(all: &[(KeyPath, Upstream)], report: &mut Report<'_>) {
    let mut first: BTreeMap<&str, (&Upstream, &Family)> = BTreeMap::new();
    let mut values: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (at, upstream) in all {
        let Some(family) = &upstream.family else {
            continue;
        };
        let at = at.key("family");
        let (other, theirs) = first.entry(&family.name).or_insert((upstream, family));
        if theirs.argument != family.argument {
            let what = format!("`{}` of the same family has another", other.name);
            let hint = "all of a family have the same argument";
            report.error_hint(&at.key("argument"), what, hint);
        }
        let value = (family.name.as_str(), family.value.as_str());
        if let Some(other) = values.insert(value, &upstream.name)
            && other != upstream.name
        {
            let shown = report.show(&at.key("value"), &family.value);
            let what = format!("`{other}` has the value {shown} too");
            report.error_hint(&at, what, "give one of them another `value`");
        }
        taken(all, family, &at.key("name"), report);
    }
}

/// The tools of an upstream of that name would be called as those of the family.
fn taken(all: &[(KeyPath, Upstream)], family: &Family, at: &KeyPath, report: &mut Report<'_>) {
    let has = |upstream: &Upstream| {
        upstream.name == family.name || upstream.aliases.contains(&family.name)
    };
    if all.iter().any(|(_, upstream)| has(upstream)) {
        let what = "an upstream has or had this name";
        return report.error_hint(at, what, "choose another for the family");
    }
    let prefix = format!("{}_", family.name);
    let overlaps = |upstream: &&Upstream| {
        let own = upstream.family.as_ref();
        !upstream.disabled
            && own.is_none_or(|own| own.name != family.name)
            && (prefix.starts_with(&upstream.prefix) || upstream.prefix.starts_with(&prefix))
            && !upstream.prefix.is_empty()
    };
    if let Some((_, other)) = all.iter().find(|(_, upstream)| overlaps(&upstream)) {
        let what = format!("its tools may be called as those of `{}`", other.name);
        report.warning(
            at,
            what,
            "give the family another name, or `prefix` to the other",
        );
    }
}
