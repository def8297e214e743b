//! Answers list requests from memory.

use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{CACHE_SCOPE, RESULT_TYPE, TTL_MS};

use super::Catalog;
use super::cursor::Cursors;
use super::entry::Kind;
use crate::call::{Call, View};
use crate::member::Member;
use crate::registry::{Scope, now_ms};
use crate::reply::Reply;

/// What a list is answered with besides the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Desk<'a> {
    /// Makes the cursors.
    pub cursors: &'a Cursors,
    /// Whether what an endpoint shows depends on who calls, so that no answer can be shared.
    pub by_caller: bool,
    /// Longest life of a list, in milliseconds, whatever the upstreams say.
    pub ttl_most: u64,
}

/// The whole list in one page, as many clients never ask for a second; in several where the file
/// says how long one is.
pub fn answer(catalog: &Catalog, kind: Kind, call: &Call, desk: Desk<'_>) -> Reply {
    let listed = catalog.list(kind, &call.view);
    let start = match call.params.get("cursor").filter(|cursor| !cursor.is_null()) {
        None => 0,
        Some(cursor) => match start(catalog, kind, call, cursor, desk.cursors) {
            Some(start) => start,
            None => {
                let message = "unknown `cursor`: hint: ask for the list from its beginning";
                return Reply::error(ErrorObject::new(code::INVALID_PARAMS, message));
            }
        },
    };
    if kind == Kind::Tool && catalog.searches(&call.view) {
        // A handful, so they are one page whatever the file says.
        let items = catalog.meta_tools(&call.view);
        return Reply::complete(page(catalog, kind, &call.view, items, desk));
    }
    let length = listed.len();
    let end = match catalog.page_size(&call.view) {
        0 => length,
        size => start.saturating_add(size).min(length),
    };
    let (items, last) = listed.part(&(start..end));
    let mut result = page(catalog, kind, &call.view, items, desk);
    if end < length
        && let Some(last) = last
    {
        let cursor = desk.cursors.seal(kind, &call.view, last);
        result.set("nextCursor", Raw::string(&cursor));
    }
    Reply::complete(result)
}

/// The result with these items and how long it stays good.
fn page(catalog: &Catalog, kind: Kind, view: &View, items: Raw, desk: Desk<'_>) -> Object {
    let freshness = freshness(catalog, kind, view);
    let scope = if desk.by_caller {
        "private"
    } else {
        freshness.scope
    };
    [
        (kind.list_member(), items),
        (RESULT_TYPE, Raw::string("complete")),
        (
            TTL_MS,
            Raw::from_serialize(&freshness.ttl_ms.min(desk.ttl_most)),
        ),
        (CACHE_SCOPE, Raw::string(scope)),
    ]
    .into_iter()
    .collect()
}

/// How many were shown before; `None` for a cursor that nobody was given for this list, or of an
/// upstream that the file does not have any more.
fn start(
    catalog: &Catalog,
    kind: Kind,
    call: &Call,
    cursor: &Raw,
    cursors: &Cursors,
) -> Option<usize> {
    let last = cursors.open(&cursor.as_str()?, kind, &call.view)?;
    let named = |name: &str| catalog.members.iter().position(|m| *m.name == *name);
    let at = named(&last.upstream)?;
    let before = |member: &Member| named(&member.name).is_some_and(|position| position < at);
    let listed = catalog.list(kind, &call.view);
    Some(listed.after(&last.upstream, &last.original, before))
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
            // What it has comes at any moment, or when it can be reached.
            shortest = Some(0);
            continue;
        };
        let Some(listing) = kind.listing(&learned.catalogue) else {
            if member.is_unread(kind) {
                shortest = Some(0);
            }
            continue;
        };
        // A clock that is set back makes nothing younger than it was.
        let age = now.saturating_sub(listing.fetched_at);
        let left = listing.ttl_ms.saturating_sub(age);
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
