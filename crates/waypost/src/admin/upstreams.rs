//! `/api/v1/upstreams`: how each upstream is doing and what it said of itself.

use std::sync::Arc;

use waypost_config::Reach;
use waypost_hub::catalog::build::Warning;
use waypost_hub::member::Member;
use waypost_hub::registry::{Catalogue, Learned, Listing};
use waypost_hub::status::Report;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::version;

use super::time::iso;

/// `{"upstreams": [...]}` in the file's order. What servers said is passed on as they said it;
/// addresses, headers and variables, where secrets live, are not shown.
pub(super) fn list(members: &[Arc<Member>], warnings: &[Warning]) -> Raw {
    let one = |member: &Arc<Member>| Raw::from(one(member, warnings));
    let all: Vec<Raw> = members.iter().map(one).collect();
    Object::from_iter([("upstreams", Raw::array(&all))]).into()
}

fn one(member: &Member, warnings: &[Warning]) -> Object {
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
        ("parked", Raw::from_serialize(&member.upstream.parked())),
        ("lastError", last_error(&report)),
    ]);
    let warnings = warnings.iter().filter(|w| w.upstream == member.name);
    let warnings: Vec<&str> = warnings.map(|w| w.text.as_str()).collect();
    object.set("warnings", Raw::from_serialize(&warnings));
    if let Some(learned) = learned {
        add_learned(&mut object, &learned);
    }
    object
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
