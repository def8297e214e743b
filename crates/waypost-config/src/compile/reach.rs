//! How an upstream is reached.

use std::path::Path;

use http::header::{HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::{names, settings};
use crate::config::{Reach, UpstreamEra};
use crate::path::KeyPath;
use crate::problem::Report;
use crate::raw::{Ordered, RawServer};
use crate::secret::{Secret, Url};

/// Headers that belong to a connection or that Waypost sets from the message.
const OWN_HEADERS: &[&str] = &[
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "last-event-id",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn reach(
    raw: RawServer,
    folder: &Path,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Option<Reach> {
    match (raw.url.clone(), raw.command.clone()) {
        (Some(url), None) => remote(&url, raw, at, report),
        (None, Some(command)) => local(command, raw, folder, at, report),
        (url, _) => {
            let hint = "give `url` for a remote server, `command` for a local one";
            let what = "needs exactly one of `url` and `command`";
            report.error_without(at, &["url", "command"], what, hint);
            // Whichever of the two stays has to be right.
            if let Some(url) = url {
                address(&url, at, report);
            }
            headers(raw.headers, &at.key("headers"), report);
            variables(&raw.env, &raw.inherit_env, at, report);
            None
        }
    }
}

fn address(url: &Secret, at: &KeyPath, report: &mut Report<'_>) -> Option<Url> {
    match Url::parse(url.expose()) {
        Ok(url) => Some(url),
        Err((what, hint)) => {
            report.error_hint(&at.key("url"), what, hint);
            None
        }
    }
}

fn remote(url: &Secret, raw: RawServer, at: &KeyPath, report: &mut Report<'_>) -> Option<Reach> {
    let local_only = [
        ("args", !raw.args.is_empty()),
        ("env", !raw.env.0.is_empty()),
        ("inherit_env", !raw.inherit_env.is_empty()),
        ("cwd", raw.cwd.is_some()),
    ];
    refuse_present(
        &local_only,
        "is for a local server, and this one has `url`",
        at,
        report,
    );
    let headers = headers(raw.headers, &at.key("headers"), report);
    let at_message = at.key("message_url");
    if raw.message_url.is_some() && raw.era == UpstreamEra::Modern {
        let hint = "leave out `message_url`, or `era`";
        report.error_hint(&at_message, "is for servers of HTTP+SSE", hint);
    }
    let url = address(url, at, report)?;
    let message_url = raw
        .message_url
        .and_then(|written| match url.beside(written.expose()) {
            Ok(url) => Some(url),
            Err((what, hint)) => {
                report.error_hint(&at_message, what, hint);
                None
            }
        });
    Some(Reach::Http {
        url,
        headers,
        message_url,
    })
}

fn local(
    command: String,
    raw: RawServer,
    folder: &Path,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Option<Reach> {
    let remote_only = [
        ("headers", !raw.headers.0.is_empty()),
        ("message_url", raw.message_url.is_some()),
    ];
    refuse_present(
        &remote_only,
        "is for a remote server, and this one has `command`",
        at,
        report,
    );
    let mut words = command.split_whitespace();
    if command.is_empty() || command.contains('\0') {
        report.error_hint(
            &at.key("command"),
            "names no program",
            "write a program's name or path",
        );
        return None;
    }
    let is_path = command.starts_with(['/', '.', '~']);
    if let (Some(program), Some(_), false) = (
        words.next(),
        words.clone().next(),
        is_path || !raw.args.is_empty(),
    ) {
        let args: Vec<_> = words.collect();
        let hint = if report.hides(&at.key("command")) {
            "put the program into `command` and the rest into `args`".to_owned()
        } else {
            format!(
                "write `command: {program}` and `args: [{}]`",
                args.join(", ")
            )
        };
        report.error_hint(
            &at.key("command"),
            "holds arguments, and no shell takes them apart",
            hint,
        );
    }
    for (index, arg) in raw.args.iter().enumerate() {
        if arg.contains('\0') {
            report.error(&at.key("args").index(index), "has a NUL character");
        }
    }
    variables(&raw.env, &raw.inherit_env, at, report);
    Some(Reach::Stdio {
        command,
        args: raw.args.into_iter().map(Secret::new).collect(),
        env: raw.env.0,
        inherit_env: raw.inherit_env,
        cwd: raw.cwd.map(|cwd| settings::beside(folder, &cwd)),
    })
}

fn variables(env: &Ordered<Secret>, inherit: &[String], at: &KeyPath, report: &mut Report<'_>) {
    for (name, value) in &env.0 {
        let at = at.key("env").key(name);
        if !names::is_variable(name) {
            report.error(&at, "not a variable's name");
        } else if value.expose().contains('\0') {
            report.error(&at, "has a NUL character");
        }
    }
    for (index, name) in inherit.iter().enumerate() {
        if !names::is_variable(name) {
            report.error(&at.key("inherit_env").index(index), "not a variable's name");
        }
    }
}

fn refuse_present(keys: &[(&str, bool)], what: &str, at: &KeyPath, report: &mut Report<'_>) {
    for (key, _) in keys.iter().filter(|(_, present)| *present) {
        report.error(&at.key(key), what);
    }
}

fn headers(raw: Ordered<Secret>, at: &KeyPath, report: &mut Report<'_>) -> Vec<(String, Secret)> {
    let mut headers: Vec<(String, Secret)> = Vec::new();
    for (name, value) in raw.0 {
        let at = at.key(&name);
        let lower = name.to_ascii_lowercase();
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            report.error_hint(&at, "not a header's name", "write it like `Authorization`");
        } else if OWN_HEADERS.contains(&lower.as_str()) || lower.starts_with("mcp-") {
            report.error_hint(&at, "Waypost sets this header itself", "leave it out");
        } else if headers.iter().any(|(other, _)| *other == lower) {
            report.error_hint(
                &at,
                "this header is given twice",
                "case does not matter in a header's name",
            );
        } else if HeaderValue::from_str(value.expose()).is_err() {
            let hint = "headers carry visible ASCII; look for line breaks, as at the end of a secret's file";
            report.error_hint(&at, "has characters that no header can carry", hint);
        }
        headers.push((lower, value));
    }
    headers
}

/// See [`crate::Upstream::fingerprint`] for what enters, and what does not.
pub(super) fn fingerprint(reach: &Reach) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut group = |name: &str, mut values: Vec<String>, sorted: bool| {
        if sorted {
            values.sort();
        }
        parts.push(format!("{name} {}", values.len()));
        parts.extend(values);
    };
    let names = |pairs: &[(String, Secret)]| pairs.iter().map(|(name, _)| name.clone()).collect();
    match reach {
        // Where its messages go is how the same server is reached.
        Reach::Http {
            url,
            headers,
            message_url: _,
        } => {
            group("http", vec![url.to_string()], false);
            let query = url.uri().query().unwrap_or_default();
            let keys = query
                .split('&')
                .map(|pair| pair.split('=').next().unwrap_or_default().to_owned());
            group("query", keys.collect(), true);
            group("headers", names(headers), true);
        }
        Reach::Stdio {
            command,
            args,
            env,
            inherit_env,
            cwd,
        } => {
            group("stdio", vec![command.clone()], false);
            let args = args.iter().map(|arg| arg.expose().to_owned());
            group("args", args.collect(), false);
            group("env", names(env), true);
            group("inherit", inherit_env.clone(), true);
            group(
                "cwd",
                cwd.iter().map(|cwd| cwd.display().to_string()).collect(),
                false,
            );
        }
    }
    let mut hash = Sha256::new();
    for part in parts {
        // Lengths keep two lists apart whose texts only together are the same.
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize()
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
