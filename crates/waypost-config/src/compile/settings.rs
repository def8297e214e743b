//! The settings that are about Waypost as a whole.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{Cache, Eras, ExposedExtension, Front, Limits, Log, Naming, State, TaskTimes};
use crate::path::KeyPath;
use crate::problem::Report;
use crate::raw::{
    EraName, RawCache, RawExtensions, RawFront, RawLimits, RawLog, RawNaming, RawState, RawTasks,
};
use crate::units::{self, DurationText, SizeText, Wrong};

/// A duration that may not be zero.
pub(super) fn duration(text: &DurationText, at: &KeyPath, report: &mut Report<'_>) -> Duration {
    let duration =
        parsed(units::duration(&text.0), &text.0, at, report).unwrap_or(Duration::from_secs(1));
    if duration.is_zero() {
        report.error_hint(at, "may not be 0", "leave it out for the default");
    }
    duration
}

/// A duration of which zero means none or off.
pub(super) fn duration_or_zero(
    text: &DurationText,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Duration {
    parsed(units::duration(&text.0), &text.0, at, report).unwrap_or_default()
}

/// The value, or its problem, shown with the text it is about.
pub(super) fn parsed<T>(
    result: Result<T, Wrong>,
    text: &str,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err((what, hint)) => {
            let shown = report.show(at, text);
            let hint = if report.hides(at) {
                "see the reference for its form".to_owned()
            } else {
                hint
            };
            report.error_hint(at, format!("{what}: {shown}"), hint);
            report.set_unsound(at);
            None
        }
    }
}

pub(super) fn front(raw: RawFront, at: &KeyPath, report: &mut Report<'_>) -> Front {
    let each = |list: Vec<String>, key: &str, report: &mut Report<'_>, check: Check| {
        let at = at.key(key);
        for (index, text) in list.iter().enumerate() {
            if let Err((what, hint)) = check(text) {
                let at = at.index(index);
                let what = format!("{what}: {}", report.show(&at, text));
                report.error_hint(&at, what, hint);
            }
        }
        list.into_iter()
            .map(|text| text.to_ascii_lowercase())
            .collect()
    };
    if raw.sse && !raw.eras.contains(&EraName::Legacy) {
        let hint = "add `legacy` to `front.eras`, or leave `sse` out";
        report.error_hint(
            &at.key("sse"),
            "its clients are of an era that is not served",
            hint,
        );
    }
    Front {
        allowed_hosts: each(raw.allowed_hosts, "allowed_hosts", report, host),
        allowed_origins: each(raw.allowed_origins, "allowed_origins", report, origin),
        strict_headers: raw.strict_headers,
        keep_alive: duration_or_zero(&raw.keep_alive, &at.key("keep_alive"), report),
        eras: eras(&raw.eras, &at.key("eras"), report),
        stateless: raw.stateless,
        sse: raw.sse,
        session_idle: duration(&raw.session_idle, &at.key("session_idle"), report),
        session_handshake: duration(&raw.session_handshake, &at.key("session_handshake"), report),
    }
}

fn eras(names: &[EraName], at: &KeyPath, report: &mut Report<'_>) -> Eras {
    if names.is_empty() {
        let hint = "write `[modern]`, `[legacy]`, or leave it out for both";
        report.error_hint(at, "no client could be served", hint);
    }
    Eras {
        modern: names.contains(&EraName::Modern),
        legacy: names.contains(&EraName::Legacy),
    }
}

type Check = fn(&str) -> Result<(), (&'static str, &'static str)>;

fn host(text: &str) -> Result<(), (&'static str, &'static str)> {
    let hint = "write a name or address without scheme and port, as in `mcp.example`";
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let address = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    match address {
        Some(address) if address.parse::<std::net::Ipv6Addr>().is_ok() => Ok(()),
        None if !text.is_empty() && text.bytes().all(is_name) => Ok(()),
        _ => Err(("not a host", hint)),
    }
}

fn origin(text: &str) -> Result<(), (&'static str, &'static str)> {
    let wrong = Err((
        "not an origin",
        "write scheme, host and port only, as in `https://app.example` or `http://localhost:*`",
    ));
    // Any number will do where the port is left open.
    let numbered = text.strip_suffix(":*").map(|text| format!("{text}:1"));
    let text = numbered.as_deref().unwrap_or(text);
    let Ok(uri) = text.parse::<http::Uri>() else {
        return wrong;
    };
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let whole = format!("{scheme}://{authority}");
    let is_plain = !scheme.is_empty() && !authority.is_empty() && !authority.contains('@');
    if is_plain && whole.eq_ignore_ascii_case(text) {
        Ok(())
    } else {
        wrong
    }
}

pub(super) fn limits(raw: &RawLimits, at: &KeyPath, report: &mut Report<'_>) -> Limits {
    Limits {
        request_body: size(&raw.request_body, &at.key("request_body"), report),
        response_body: size(&raw.response_body, &at.key("response_body"), report),
        json_depth: between(raw.json_depth, 8, 128, &at.key("json_depth"), report),
        in_flight: between(raw.in_flight, 1, 1_000_000, &at.key("in_flight"), report),
        listeners: between(raw.listeners, 1, 1_000_000, &at.key("listeners"), report),
        parked: between(raw.parked, 1, 1_000_000, &at.key("parked"), report),
        listener_queue: between(
            raw.listener_queue,
            1,
            1_000_000,
            &at.key("listener_queue"),
            report,
        ),
        connections: between(
            raw.connections,
            1,
            1_000_000,
            &at.key("connections"),
            report,
        ),
        sessions: between(raw.sessions, 1, 1_000_000, &at.key("sessions"), report),
    }
}

/// A number within bounds.
pub(super) fn between(
    number: usize,
    least: usize,
    most: usize,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> usize {
    if !(least..=most).contains(&number) {
        let what = format!(
            "must be between {least} and {most}: {}",
            report.show(at, &number.to_string())
        );
        report.error(at, what);
    }
    number
}

fn size(text: &SizeText, at: &KeyPath, report: &mut Report<'_>) -> usize {
    const LEAST: usize = 1024;
    let bytes = parsed(units::size(&text.0), &text.0, at, report).unwrap_or(LEAST);
    if bytes < LEAST {
        let what = format!("less than 1KiB: {}", report.show(at, &text.0));
        report.error_hint(at, what, "no MCP message would fit");
    }
    bytes
}

pub(super) fn naming(raw: &RawNaming, at: &KeyPath, report: &mut Report<'_>) -> Naming {
    let max_length = between(raw.max_length, 16, 64, &at.key("max_length"), report);
    Naming {
        max_length,
        on_collision: raw.on_collision,
    }
}

pub(super) fn tasks(raw: &RawTasks, at: &KeyPath, report: &mut Report<'_>) -> TaskTimes {
    let times = TaskTimes {
        poll_first: duration_or_zero(&raw.poll_first, &at.key("poll_first"), report),
        poll_least: duration(&raw.poll_least, &at.key("poll_least"), report),
        poll_most: duration(&raw.poll_most, &at.key("poll_most"), report),
        max_wait: duration(&raw.max_wait, &at.key("max_wait"), report),
        input_wait: duration(&raw.input_wait, &at.key("input_wait"), report),
    };
    let both = ["poll_least", "poll_most"]
        .iter()
        .all(|key| report.is_sound(&at.key(key)));
    if both && times.poll_least > times.poll_most {
        report.error_hint(
            &at.key("poll_least"),
            "longer than `tasks.poll_most`",
            "make one fit the other",
        );
    }
    times
}

pub(super) fn cache(raw: &RawCache, at: &KeyPath, report: &mut Report<'_>) -> Cache {
    let (text, resources) = (&raw.resources.0, at.key("resources"));
    let size = parsed(units::size(text), text, &resources, report);
    Cache {
        list_ttl: duration_or_zero(&raw.list_ttl, &at.key("list_ttl"), report),
        resources: size.unwrap_or_default(),
    }
}

pub(super) fn state(raw: RawState, folder: &Path, at: &KeyPath, report: &mut Report<'_>) -> State {
    const SHORTEST: usize = 32;
    if raw.path.is_empty() {
        report.error_hint(
            &at.key("path"),
            "may not be empty",
            "name a file, as in `./waypost.db`",
        );
    }
    for (index, key) in raw.keys.iter().enumerate() {
        let at = at.key("keys").index(index);
        if key.expose().len() < SHORTEST {
            let what = format!("shorter than {SHORTEST} characters");
            report.error_hint(&at, what, "make one with `openssl rand -base64 32`");
        } else if raw.keys.iter().take(index).any(|other| other == key) {
            report.error(&at, "the same key as an earlier one");
        }
    }
    State {
        path: beside(folder, &raw.path),
        keys: raw.keys,
    }
}

/// A path of the file, from the file's folder.
pub(super) fn beside(folder: &Path, path: &str) -> PathBuf {
    folder.join(path).components().collect()
}

pub(super) fn log(raw: RawLog, at: &KeyPath, report: &mut Report<'_>) -> Log {
    let is_level = |text: &str| {
        ["off", "error", "warn", "info", "debug", "trace"]
            .iter()
            .any(|level| level.eq_ignore_ascii_case(text))
    };
    let is_target = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_:-".contains(&b))
    };
    let is_directive = |text: &str| match text.trim().split_once('=') {
        Some((target, level)) => is_target(target) && is_level(level),
        None => is_level(text.trim()),
    };
    if !raw.level.split(',').all(is_directive) {
        let at = at.key("level");
        let what = format!("not a log level: {}", report.show(&at, &raw.level));
        report.error_hint(&at, what, "write `info`, or `info,waypost_upstream=debug`");
    }
    Log {
        level: raw.level,
        format: raw.format,
    }
}

pub(super) fn extensions(
    raw: RawExtensions,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Vec<ExposedExtension> {
    let mut exposed = Vec::new();
    for (id, methods) in raw.expose.0 {
        let at = at.key(&id);
        if !super::names::is_extension(&id) {
            report.error_hint(
                &at,
                "not an extension's identifier",
                "write it like `com.example/search`",
            );
        }
        for (index, method) in methods.iter().enumerate() {
            let at = at.index(index);
            if super::names::is_own_method(method) {
                let what = format!(
                    "Waypost handles this method itself: {}",
                    report.show(&at, method)
                );
                report.error_hint(&at, what, "name methods that only the extension has");
            } else if !super::names::is_method(method) {
                report.error_hint(&at, "not a method's name", "write it like `search/query`");
            }
        }
        exposed.push(ExposedExtension { id, methods });
    }
    exposed
}
