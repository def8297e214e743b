//! The named endpoints, and who is bound to one.

use super::{names, settings, shaping, upstream};
use crate::config::{Discovery, Endpoint, Upstream};
use crate::path::KeyPath;
use crate::problem::Report;
use crate::raw::{Ordered, RawEndpoint, RawKey};
use crate::suggest;

/// Pages beyond this are no pages.
const LARGEST_PAGE: usize = 1_000_000;

/// The names that the file has, and what could be read of what stands under them.
type Upstreams<'a> = (&'a [String], &'a [Upstream]);

/// What the top level says for those that say nothing: their `page_size` and `discovery`.
type Above = (usize, Discovery);

pub(super) fn page_size(size: usize, at: &KeyPath, report: &mut Report<'_>) -> usize {
    settings::between(size, 0, LARGEST_PAGE, at, report)
}

pub(super) fn all(
    raw: Ordered<RawEndpoint>,
    upstreams: Upstreams<'_>,
    above: Above,
    report: &mut Report<'_>,
) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for (name, raw) in raw.0 {
        let at = KeyPath::default().key("endpoints").key(&name);
        named(&name, upstreams, &at, report);
        endpoints.push(one(name, raw, (upstreams, above), &at, report));
    }
    endpoints
}

fn one(
    name: String,
    raw: RawEndpoint,
    (upstreams, (page_size, discovery)): (Upstreams<'_>, Above),
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Endpoint {
    for (index, wanted) in raw.upstreams.iter().enumerate() {
        known(wanted, upstreams, &at.key("upstreams").index(index), report);
    }
    upstream::prefix(raw.prefix.as_deref(), &at.key("prefix"), report);
    let own_size = raw
        .page_size
        .map(|size| self::page_size(size, &at.key("page_size"), report));
    Endpoint {
        name,
        upstreams: raw.upstreams,
        tools: shaping::filter(raw.tools, &at.key("tools"), report),
        prompts: shaping::filter(raw.prompts, &at.key("prompts"), report),
        resources: shaping::filter(raw.resources, &at.key("resources"), report),
        prefix: raw.prefix,
        page_size: own_size.unwrap_or(page_size),
        discovery: raw.discovery.unwrap_or(discovery),
        stateless: raw.stateless,
    }
}

/// Its name stands in paths beside those of upstreams.
fn named(name: &str, (declared, upstreams): Upstreams<'_>, at: &KeyPath, report: &mut Report<'_>) {
    if let Err(what) = names::upstream(name) {
        let hint = format!("call it `{}`", suggest::upstream_name(name));
        report.error_hint(at, what, hint);
        return;
    }
    let hint = "`/mcp/<name>` can lead to one of the two only; choose another name";
    if declared.iter().any(|declared| declared == name) {
        report.error_hint(at, "an upstream has this name", hint);
    }
    for upstream in upstreams {
        if upstream.aliases.iter().any(|alias| alias == name) {
            let what = format!("the upstream `{}` had this name", upstream.name);
            report.error_hint(at, what, hint);
        }
    }
}

fn known(name: &str, (declared, upstreams): Upstreams<'_>, at: &KeyPath, report: &mut Report<'_>) {
    if declared.iter().any(|declared| declared == name) {
        return;
    }
    let what = format!("no upstream has this name: {}", report.show(at, name));
    let renamed = upstreams
        .iter()
        .find(|upstream| upstream.aliases.iter().any(|alias| alias == name));
    let now = || suggest::nearest(name, declared.iter().map(String::as_str));
    match (renamed, now()) {
        (Some(now), _) => report.error_hint(at, what, format!("it is `{}` now", now.name)),
        (None, Some(near)) => report.error_hint(at, what, format!("did you mean `{near}`?")),
        (None, None) => report.error_hint(at, what, "name one of `upstreams`"),
    }
}

/// Whom a key is bound to must be there.
pub(super) fn bound(
    keys: &[RawKey],
    endpoints: &[Endpoint],
    at: &KeyPath,
    report: &mut Report<'_>,
) {
    let names = || endpoints.iter().map(|endpoint| endpoint.name.as_str());
    for (index, key) in keys.iter().enumerate() {
        let Some(wanted) = &key.endpoint else {
            continue;
        };
        if names().any(|name| name == wanted) {
            continue;
        }
        let at = at.index(index).key("endpoint");
        let what = format!("no endpoint has this name: {}", report.show(&at, wanted));
        match suggest::nearest(wanted, names()) {
            Some(near) => report.error_hint(&at, what, format!("did you mean `{near}`?")),
            None => report.error_hint(&at, what, "name one of `endpoints`"),
        }
    }
}
