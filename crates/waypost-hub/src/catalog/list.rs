//! Answers list requests from memory.

use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{CACHE_SCOPE, RESULT_TYPE, TTL_MS};

use super::Catalog;
use super::entry::Kind;
use crate::call::{Call, View};
use crate::registry::{Scope, now_ms};
use crate::reply::Reply;

/// The whole list in one page: many clients never ask for a second.
pub fn answer(catalog: &Catalog, kind: Kind, call: &Call) -> Reply {
    if call
        .params
        .get("cursor")
        .is_some_and(|cursor| !cursor.is_null())
    {
        let message = "unknown `cursor`: lists have one page";
        return Reply::error(ErrorObject::new(code::INVALID_PARAMS, message));
    }
    let freshness = freshness(catalog, kind, &call.view);
    let result: Object = [
        (kind.list_member(), catalog.table(kind).rendered(&call.view)),
        (RESULT_TYPE, Raw::string("complete")),
        (TTL_MS, Raw::from_serialize(&freshness.ttl_ms)),
        (CACHE_SCOPE, Raw::string(freshness.scope)),
    ]
    .into_iter()
    .collect();
    Reply::complete(result)
}

struct Freshness {
    ttl_ms: u64,
    scope: &'static str,
}

/// What remains of the shortest life among the lists in it; shared only if all may be.
fn freshness(catalog: &Catalog, kind: Kind, view: &View) -> Freshness {
    let now = now_ms();
    let mut shortest: Option<u64> = None;
    let mut public = true;
    for member in catalog.shown(view) {
        let Some(learned) = member.learned() else {
            continue;
        };
        let Some(listing) = kind.listing(&learned.catalogue) else {
            continue;
        };
        let left = (listing.fetched_at + listing.ttl_ms).saturating_sub(now);
        shortest = Some(shortest.map_or(left, |s| s.min(left)));
        public &= listing.scope == Scope::Public;
    }
    let scope = if public && shortest.is_some() {
        "public"
    } else {
        "private"
    };
    Freshness {
        ttl_ms: shortest.unwrap_or(0),
        scope,
    }
}
