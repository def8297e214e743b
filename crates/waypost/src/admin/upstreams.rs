//! `/api/v1/upstreams`: how each upstream is doing and what it said of itself.

use std::sync::Arc;

use waypost_config::Reach;
use waypost_hub::catalog::Catalog;
use waypost_hub::catalog::entry::Kind;
use waypost_hub::member::Member;
use waypost_hub::registry::{Catalogue, Learned, Listing};
use waypost_hub::status::Report;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::version;

use super::time::iso;

/// `{"upstreams": [...]}` in the file's order; `next` are those that are to take a place among them
/// (`replacement`). What servers said is passed on as they said it;
/// addresses, headers and variables, where secrets live, are not shown.
pub(super) fn list(members: &[Arc<Member>], next: &[Arc<Member>], catalog: &Catalog) -> Raw {
    let one = |member: &Arc<Member>| {
        let mut object = one(member, catalog);
        let next = next.iter().find(|next| next.name == member.name);
        let next = next.map_or_else(Raw::null, |next| replacement(next));
        object.set("replacement", next);
        Raw::from(object)
    };
    let all: Vec<Raw> = members.iter().map(one).collect();
    Object::from_iter([("upstreams", Raw::array(&all))]).into()
}

/// Who serves once it is known what it has.
fn replacement(next: &Member) -> Raw {
    let report = next.status.report();
    let object = Object::from_iter([
        ("state", Raw::string(report.state.as_str())),
        ("since", Raw::string(&iso(report.since_ms))),
        ("lastError", last_error(&report)),
    ]);
    object.into()
}

fn one(member: &Member, catalog: &Catalog) -> Object {
    let report = member.status.report();
    let learned = member.learned();
    let settings = &member.settings;
    let transport = match settings.reach {
        Reach::Http { .. } => "http",
        Reach::Stdio { .. } => "stdio",
    };
    let mut object = Object::from_iter([
        ("name", Raw::string(&member.name)),
        ("transport", Raw::string(transport)),
        ("required", Raw::bool(settings.required)),
        ("state", Raw::string(report.state.as_str())),
        ("since", Raw::string(&iso(report.since_ms))),
        ("calls", Raw::from_serialize(&member.status.calls())),
        ("parked", Raw::from_serialize(&member.parked())),
        ("lastError", last_error(&report)),
    ]);
    let warnings = catalog
        .warnings
        .iter()
        .filter(|w| w.upstream == member.name);
    let warnings: Vec<&str> = warnings.map(|w| w.text.as_str()).collect();
    object.set("warnings", Raw::from_serialize(&warnings));
    add_shaping(&mut object, member, catalog);
    if let Some(learned) = learned {
        add_learned(&mut object, &learned);
    }
    object
}

/// What clients do not see of it, and pinned tools that are not as they were.
fn add_shaping(object: &mut Object, member: &Member, catalog: &Catalog) {
    let hidden = Kind::ALL.into_iter().map(|kind| {
        let count = catalog.hidden(kind, &member.name).len();
        (kind.list_member(), Raw::from_serialize(&count))
    });
    object.set("hidden", hidden.collect::<Object>().into());
    object.set("pin", Raw::from_serialize(&member.settings.pin));
    let pending = catalog.pending(&member.name).iter().map(|pending| {
        Raw::from(Object::from_iter([
            ("tool", Raw::string(&pending.tool)),
            ("change", Raw::string(pending.change())),
            ("held", Raw::bool(pending.held)),
        ]))
    });
    let pending: Vec<Raw> = pending.collect();
    object.set("pending", Raw::array(&pending));
}

fn last_error(report: &Report) -> Raw {
    let Some(text) = &report.last_error else {
        return Raw::null();
    };
    let at = Raw::string(&iso(report.last_error_ms));
    let mut error = Object::from_iter([("at", at), ("message", Raw::string(text))]);
    if let Some(cause) = &report.last_cause {
        error.set("cause", Raw::string(cause));
    }
    error.into()
}

fn add_learned(object: &mut Object, learned: &Learned) {
    let facts = &learned.facts;
    object.set("protocol", Raw::string(&facts.protocol));
    object.set("era", Raw::string(version::era(&facts.protocol)));
    object.set("versions", Raw::from_serialize(&facts.versions));
    object.set("capabilities", Raw::from(&facts.capabilities));
    object.set("extensions", Raw::from(&learned.extensions()));
    object.set(
        "serverInfo",
        facts.server_info.clone().unwrap_or_else(Raw::null),
    );
    object.set("learnedAt", Raw::string(&iso(learned.learned_at)));
    let Catalogue {
        tools,
        prompts,
        resources,
        templates,
    } = &learned.catalogue;
    // No number is a list that the server does not have; zero is an empty one.
    for (key, listing) in [
        ("tools", tools),
        ("prompts", prompts),
        ("resources", resources),
        ("resourceTemplates", templates),
    ] {
        let count = |listing: &Listing| Raw::from_serialize(&listing.items.len());
        object.set(key, listing.as_ref().map_or_else(Raw::null, count));
    }
}

#[cfg(test)]
mod tests;
