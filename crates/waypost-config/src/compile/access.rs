//! Who can reach Waypost, and who may call.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::config::{Key, KeyHash};
use crate::path::KeyPath;
use crate::problem::Report;
use crate::raw::{Raw, RawKey};
use crate::secret::Secret;

/// Stands in for an address that was refused.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Shorter tokens can be guessed.
const TOKEN_LENGTH: usize = 16;

pub(super) fn address(text: &str, at: &KeyPath, report: &mut Report<'_>) -> SocketAddr {
    let numeric = text
        .strip_prefix("localhost:")
        .map(|port| format!("127.0.0.1:{port}"));
    if let Ok(address) = numeric.as_deref().unwrap_or(text).parse() {
        return address;
    }
    let port = text.strip_prefix(':').unwrap_or(text);
    let hint = if port.parse::<u16>().is_ok() && !report.hides(at) {
        format!("write `127.0.0.1:{port}` for this machine only, `0.0.0.0:{port}` for all")
    } else {
        "write an IP address and a port, as in `127.0.0.1:7400` or `[::1]:7400`".to_owned()
    };
    let what = format!("not an address to listen on: {}", report.show(at, text));
    report.error_hint(at, what, hint);
    NOWHERE
}

/// Refuses what would let strangers in without the operator having said so.
pub(super) fn exposure(raw: &Raw, listen: SocketAddr, admin: SocketAddr, report: &mut Report<'_>) {
    let top = KeyPath::default();
    let (at, auth) = (top.key("listen"), top.key("auth"));
    let open =
        raw.auth.keys.is_empty() && report.is_sound(&auth) && report.is_sound(&auth.key("keys"));
    if !listen.ip().is_loopback() && open && !raw.insecure {
        let what = format!(
            "{} can be reached from other machines, and there are no `auth.keys`",
            report.show(&at, &listen.to_string())
        );
        let hint =
            "add a key with `waypost auth add-key`, listen on `127.0.0.1`, or set `insecure: true`";
        report.error_hint(&at, what, hint);
    }
    if listen == admin && listen.port() != 0 {
        let at = top.key("admin").key("listen");
        report.error_hint(
            &at,
            "the same address as `listen`",
            "give the admin listener its own port",
        );
    }
}

pub(super) fn admin_token(token: Option<Secret>, report: &mut Report<'_>) -> Option<Secret> {
    let token = token?;
    let at = KeyPath::default().key("admin").key("token");
    if token.expose().len() < TOKEN_LENGTH {
        let what = format!("shorter than {TOKEN_LENGTH} characters");
        report.error_hint(&at, what, "make one with `openssl rand -hex 32`");
    } else if !token.expose().bytes().all(|b| b.is_ascii_graphic()) {
        let hint = "use letters, digits and punctuation only";
        report.error_hint(&at, "has characters that no header can carry", hint);
    }
    Some(token)
}

pub(super) fn keys(raw: &[RawKey], at: &KeyPath, report: &mut Report<'_>) -> Vec<Key> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut hashes: BTreeMap<[u8; 32], usize> = BTreeMap::new();
    let mut keys = Vec::new();
    for (index, key) in raw.iter().enumerate() {
        let at = at.index(index);
        key_name(&key.name, &at, report);
        if let Some(first) = names
            .insert(&key.name, index)
            .filter(|_| !key.name.is_empty())
        {
            let what = format!("`auth.keys[{first}]` has this name too");
            report.error_hint(&at.key("name"), what, "give each key a name of its own");
        }
        let Some(hash) = key
            .hash
            .as_ref()
            .and_then(|hash| KeyHash::parse(hash.expose()))
        else {
            unhashed(key, &at, report);
            continue;
        };
        if let Some(first) = hashes.insert(*hash.bytes(), index) {
            let what = format!("`auth.keys[{first}]` has the same key");
            report.error_hint(
                &at.key("hash"),
                what,
                "one key can stand for one caller only",
            );
        }
        keys.push(Key {
            name: key.name.clone(),
            hash,
            endpoint: key.endpoint.clone(),
        });
    }
    keys
}

fn unhashed(key: &RawKey, at: &KeyPath, report: &mut Report<'_>) {
    if key.hash.is_none() {
        report.error_without(
            at,
            &["hash"],
            "needs `hash`",
            "`waypost auth add-key` makes a key and its entry",
        );
    } else {
        let what = "must be `sha256:` and 64 hex digits, never the key itself";
        report.error_hint(
            &at.key("hash"),
            what,
            "`waypost auth add-key` makes a key and its entry",
        );
    }
}

fn key_name(name: &str, at: &KeyPath, report: &mut Report<'_>) {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.@".contains(&b);
    if name.is_empty() {
        report.error_without(
            at,
            &["name"],
            "needs `name`",
            "the name of whoever uses the key, as in `ci`",
        );
    } else if name.len() > 64 || !name.bytes().all(fits) {
        let what = "not a name: at most 64 letters, digits, `-`, `_`, `.` and `@`";
        report.error(&at.key("name"), what);
    } else if name == "anonymous" {
        let what = "`anonymous` stands for callers without a key";
        report.error_hint(&at.key("name"), what, "choose another name");
    } else if name == "waypost" {
        // In logs its calls could not be told from the gateway's own.
        let what = "`waypost` stands for the gateway itself";
        report.error_hint(&at.key("name"), what, "choose another name");
    }
}
