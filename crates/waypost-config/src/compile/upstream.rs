//! The upstreams: each by itself, then all together.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::{family, names, reach, settings, shaping};
use crate::config::{Reach, Upstream, UpstreamEra};
use crate::path::KeyPath;
use crate::problem::Report;
use crate::raw::{Ordered, RawMcpServer, RawServer, RawUpstream};
use crate::suggest;
use crate::units::{self, DurationText, MillisText};

pub(super) fn all(
    own: Ordered<RawUpstream>,
    foreign: Ordered<RawMcpServer>,
    folder: &Path,
    report: &mut Report<'_>,
) -> Vec<Upstream> {
    let mut found: Vec<(KeyPath, Upstream)> = Vec::new();
    for (name, raw) in own.0 {
        let at = KeyPath::default().key("upstreams").key(&name);
        let timeout = settings::duration(&raw.timeout, &at.key("timeout"), report);
        found.extend(
            one(&name, raw.server, timeout, folder, report, &at).map(|upstream| (at, upstream)),
        );
    }
    for (name, mut raw) in foreign.0 {
        let at = KeyPath::default().key("mcpServers").key(&name);
        transport(&raw, &at, report);
        if raw.server.era == UpstreamEra::Auto && is_sse(&raw) {
            raw.server.era = UpstreamEra::Sse;
        }
        let timeout = foreign_timeout(raw.timeout.as_ref(), &at.key("timeout"), report);
        found.extend(
            one(&name, raw.server, timeout, folder, report, &at).map(|upstream| (at, upstream)),
        );
    }
    together(&found, report);
    found.into_iter().map(|(_, upstream)| upstream).collect()
}

/// One upstream, or nothing when it cannot be reached as written.
fn one(
    name: &str,
    mut raw: RawServer,
    timeout: Duration,
    folder: &Path,
    report: &mut Report<'_>,
    at: &KeyPath,
) -> Option<Upstream> {
    let prefix = named(name, raw.prefix.as_deref(), report, at);
    let timeout_ceiling =
        settings::duration(&raw.timeout_ceiling, &at.key("timeout_ceiling"), report);
    if report.is_sound(&at.key("timeout_ceiling")) && timeout > timeout_ceiling {
        let hint = "raise `timeout_ceiling` as well";
        report.error_hint(&at.key("timeout"), "longer than `timeout_ceiling`", hint);
    }
    let startup = raw.startup_timeout.clone();
    let connect_timeout =
        settings::duration(&raw.connect_timeout, &at.key("connect_timeout"), report);
    let list_timeout = settings::duration(&raw.list_timeout, &at.key("list_timeout"), report);
    let max_in_flight = settings::between(
        raw.max_in_flight,
        1,
        1_000_000,
        &at.key("max_in_flight"),
        report,
    );
    extensions(&raw.assume_extensions, &at.key("assume_extensions"), report);
    let (tools, prompts, resources) = shaping::all(&mut raw, timeout_ceiling, at, report);
    let pin = raw.pin;
    let family = raw.family.take();
    let family = family.and_then(|raw| family::one(raw, name, &at.key("family"), report));
    let (tasks, required, disabled) = (raw.tasks, raw.required, raw.disabled);
    let stateless = raw.stateless;
    let (era, isolation, declare) = (raw.era, raw.isolation, raw.declare.clone());
    if era == UpstreamEra::Sse && raw.command.is_some() {
        let hint = "leave `era` out, or write `legacy`";
        report.error_hint(&at.key("era"), "`sse` is for servers with a `url`", hint);
    }
    let idle_timeout = settings::duration(&raw.idle_timeout, &at.key("idle_timeout"), report);
    let most = &at.key("max_sessions");
    let max_sessions = settings::between(raw.max_sessions, 1, 1_000_000, most, report);
    let (assume_extensions, aliases) = (raw.assume_extensions.clone(), raw.aliases.clone());
    let reach = reach::reach(raw, folder, at, report)?;
    let default_startup = match reach {
        Reach::Http { .. } => "10s",
        Reach::Stdio { .. } => "60s",
    };
    let startup = startup.unwrap_or_else(|| DurationText(default_startup.to_owned()));
    Some(Upstream {
        fingerprint: reach::fingerprint(&reach),
        name: name.to_owned(),
        reach,
        prefix,
        tasks,
        timeout,
        timeout_ceiling,
        startup_timeout: settings::duration(&startup, &at.key("startup_timeout"), report),
        connect_timeout,
        list_timeout,
        required,
        disabled,
        assume_extensions,
        max_in_flight,
        aliases,
        tools,
        prompts,
        resources,
        family,
        pin,
        stateless,
        era,
        isolation,
        declare,
        idle_timeout,
        max_sessions,
        secrets: report.inserted(at),
    })
}

/// What stands before its names, given what the file says of it.
fn named(name: &str, prefix: Option<&str>, report: &mut Report<'_>, at: &KeyPath) -> String {
    if let Err(what) = names::upstream(name) {
        let hint = format!("call it `{}`", suggest::upstream_name(name));
        report.error_hint(at, what, hint);
    }
    self::prefix(prefix, &at.key("prefix"), report);
    prefix.map_or_else(|| format!("{name}_"), str::to_owned)
}

/// What is to stand before names.
pub(super) fn prefix(text: Option<&str>, at: &KeyPath, report: &mut Report<'_>) {
    if text.is_some_and(|text| !names::is_prefix(text)) {
        let hint = "use letters, digits, `_` and `-`, or `\"\"` for none";
        report.error_hint(at, "has characters that clients refuse in names", hint);
    }
}

fn extensions(ids: &[String], at: &KeyPath, report: &mut Report<'_>) {
    for (index, id) in ids.iter().enumerate() {
        if !names::is_extension(id) {
            let hint = "write it like `io.modelcontextprotocol/tasks`";
            report.error_hint(&at.index(index), "not an extension's identifier", hint);
        }
    }
}

/// `type` and `transport` only repeat what `url` and `command` say; they must not contradict.
fn transport(raw: &RawMcpServer, at: &KeyPath, report: &mut Report<'_>) {
    for (key, value) in [("type", &raw.kind), ("transport", &raw.transport)] {
        let Some(value) = value else { continue };
        let (at, parent) = (at.key(key), at);
        let (wanted, present) = match value.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
            "stdio" => ("command", raw.server.command.is_some()),
            "http" | "streamablehttp" => ("url", raw.server.url.is_some()),
            "sse" => ("url", raw.server.url.is_some()),
            _ => {
                let what = format!("not a transport: {}", report.show(&at, value));
                report.error_hint(&at, what, "write `stdio`, `http` or `sse`");
                continue;
            }
        };
        if !present && report.is_sound(&parent.key(wanted)) {
            let what = format!("needs `{wanted}`: {}", report.show(&at, value));
            report.error_hint(&at, what, format!("give `{wanted}`, or leave out `{key}`"));
        }
    }
}

fn is_sse(raw: &RawMcpServer) -> bool {
    let said = [&raw.kind, &raw.transport];
    said.into_iter()
        .flatten()
        .any(|text| text.eq_ignore_ascii_case("sse"))
}

/// The `timeout` of a client's file: milliseconds.
fn foreign_timeout(text: Option<&MillisText>, at: &KeyPath, report: &mut Report<'_>) -> Duration {
    let Some(MillisText(text)) = text else {
        return settings::duration(&RawUpstream::default().timeout, at, report);
    };
    let timeout =
        settings::parsed(units::millis(text), text, at, report).unwrap_or(Duration::from_secs(1));
    if timeout.is_zero() {
        report.error_hint(at, "may not be 0", "leave it out for the default");
    }
    timeout
}

/// What can be wrong with upstreams only beside each other.
fn together(all: &[(KeyPath, Upstream)], report: &mut Report<'_>) {
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for (at, upstream) in all {
        if let Some(first) = names.insert(&upstream.name, at.to_string()) {
            let what = format!("`{first}` has this name too");
            report.error_hint(at, what, "rename one of the two");
        }
    }
    for (at, upstream) in all {
        for (index, alias) in upstream.aliases.iter().enumerate() {
            let at = at.key("aliases").index(index);
            if let Err(what) = names::upstream(alias) {
                report.error(&at, what);
            } else if let Some(first) = names.insert(alias, at.to_string()) {
                let what = format!("`{first}` has this name too");
                report.error_hint(&at, what, "an old name can lead to one upstream only");
            }
        }
    }
    family::together(all, report);
    prefixes(all, report);
}

const COLLIDE: &str = "names may collide; give one of them another `prefix`";

/// Two prefixes of which one begins with the other can give two tools one name.
fn prefixes(all: &[(KeyPath, Upstream)], report: &mut Report<'_>) {
    let live: Vec<_> = all
        .iter()
        .filter(|(_, upstream)| !upstream.disabled)
        .collect();
    let (bare, named): (Vec<_>, Vec<_>) = live
        .into_iter()
        .partition(|(_, upstream)| upstream.prefix.is_empty());
    without_prefix(&bare, &named, report);
    for (index, (at, upstream)) in named.iter().enumerate() {
        let before = || named.iter().take(index).map(|(at, other)| (at, other));
        let before = || before().filter(|(_, other)| other.name != upstream.name);
        let equal = before().find(|(_, other)| other.prefix == upstream.prefix);
        let overlaps = |other: &Upstream| {
            other.prefix.starts_with(&upstream.prefix) || upstream.prefix.starts_with(&other.prefix)
        };
        let other = equal.or_else(|| before().find(|(_, other)| overlaps(other)));
        if let Some((other_at, other)) = other {
            let at = at.key("prefix");
            let what = format!(
                "the prefix {} overlaps with {} of `{}`",
                report.show(&at, &upstream.prefix),
                report.show(&other_at.key("prefix"), &other.prefix),
                other.name
            );
            report.warning(&at, what, COLLIDE);
        }
    }
}

/// An empty prefix overlaps with every other, which is said once.
fn without_prefix(
    bare: &[&(KeyPath, Upstream)],
    named: &[&(KeyPath, Upstream)],
    report: &mut Report<'_>,
) {
    match (bare, named) {
        ([(at, _), others @ ..], _) if !others.is_empty() => {
            let names: Vec<_> = others
                .iter()
                .map(|(_, other)| other.name.as_str())
                .collect();
            let verb = if names.len() == 1 { "has" } else { "have" };
            let what = format!(
                "the prefix is empty, and `{}` {verb} none too",
                names.join("`, `")
            );
            report.warning(&at.key("prefix"), what, COLLIDE);
        }
        ([(at, _)], [(other_at, other), ..]) => {
            let what = format!(
                "the empty prefix overlaps with every other, as with {} of `{}`",
                report.show(&other_at.key("prefix"), &other.prefix),
                other.name
            );
            report.warning(&at.key("prefix"), what, COLLIDE);
        }
        _ => {}
    }
}
