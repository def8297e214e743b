//! Reads an upstream's lists, all their pages.

use std::collections::HashSet;

use futures_util::future::{OptionFuture, join_all};
use tokio::time::{Instant, timeout_at};
use waypost_wire::code;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{CACHE_SCOPE, TTL_MS};

use crate::call::Call;
use crate::catalog::entry::Kind;
use crate::error::{CallError, Kind as ErrorKind};
use crate::member::Member;
use crate::registry::{Catalogue, Listing, Scope, now_ms};
use crate::reply::End;
use crate::upstream::Facts;

/// More pages than this are taken for an endless list.
const MAX_PAGES: usize = 1_000;

/// One list holds no more than this, whatever the pages: of all upstreams the lists stay in memory.
const MAX_ITEMS: usize = 100_000;
const MAX_BYTES: usize = 64 << 20;

/// Longest life that is believed: a day.
const MAX_TTL_MS: u64 = 24 * 60 * 60 * 1_000;

/// Where what a server says of itself comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Described {
    /// It has just said so.
    Now,
    /// It was another server, perhaps, that said so.
    Before,
}

/// What reading lists brought.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) catalogue: Catalogue,
    /// What could not be read.
    pub(crate) failed: Vec<(Kind, CallError)>,
    /// The server is to be asked anew what it is: nothing could be read, and that seems to be its
    /// state and not the lists', or it does not fit what it said of itself.
    pub(crate) outage: bool,
}

/// Reads the given kinds of lists that the server has, all within one budget. What could not be
/// read stays as it was in `before`: a list that fails is not an empty list.
pub(crate) async fn lists(
    member: &Member,
    (facts, described): (&Facts, Described),
    kinds: &[Kind],
    before: Catalogue,
) -> Lists {
    let mut lists = before;
    let (mut failed, mut read, mut outage, mut misfit) = (Vec::new(), false, false, false);
    let until = Instant::now() + member.settings.list_timeout;
    let reading = kinds.iter().map(|kind| async move {
        let capability = facts.capabilities.get(kind.capability());
        let has = capability.is_some_and(Raw::is_object);
        let list = has.then(|| list(member, *kind, until));
        (kind, OptionFuture::from(list).await)
    });
    for (kind, listed) in join_all(reading).await {
        match listed {
            None => *kind.slot(&mut lists) = None,
            // One that had it knows it no more: so does a server that has taken its place.
            Some(Ok(None)) if described == Described::Before && kind.slot(&mut lists).is_some() => {
                misfit = true;
                let text = format!("does not know `{}` any more", kind.list_method());
                let error = CallError::upstream(ErrorKind::BadUpstream, &member.name);
                failed.push((*kind, error.detail(text)));
            }
            Some(Ok(listing)) => {
                read = true;
                *kind.slot(&mut lists) = listing;
            }
            Some(Err(error)) => {
                outage |= error.is_outage();
                failed.push((*kind, error));
            }
        }
    }
    Lists {
        catalogue: lists,
        failed,
        outage: misfit || (outage && !read),
    }
}

/// One list; `None` when the server does not know the method.
async fn list(member: &Member, kind: Kind, until: Instant) -> Result<Option<Listing>, CallError> {
    let late = |_| {
        let text = format!(
            "`{}` took longer than {} s",
            kind.list_method(),
            member.settings.list_timeout.as_secs()
        );
        CallError::upstream(ErrorKind::Timeout, &member.name).detail(text)
    };
    timeout_at(until, walk(member, kind)).await.map_err(late)?
}

async fn walk(member: &Member, kind: Kind) -> Result<Option<Listing>, CallError> {
    let bad = |text: String| CallError::upstream(ErrorKind::BadUpstream, &member.name).detail(text);
    let mut listing = Listing {
        items: Vec::new(),
        ttl_ms: MAX_TTL_MS,
        scope: Scope::Public,
        fetched_at: now_ms(),
    };
    let mut cursors: HashSet<String> = HashSet::new();
    let mut params = Object::new();
    let mut bytes = 0_usize;
    for _ in 0..MAX_PAGES {
        let reply = member
            .upstream
            .call(Call::own(kind.list_method(), params))
            .await?;
        let page = match reply.into_end_of(&member.name).await? {
            End::Complete(page) => page,
            End::Error(error) if error.code() == code::METHOD_NOT_FOUND => return Ok(None),
            End::Error(error) => {
                let text = format!(
                    "answered `{}` with error {}",
                    kind.list_method(),
                    error.code()
                );
                return Err(bad(text));
            }
            End::InputRequired(_) | End::Task(_) => {
                return Err(bad(format!(
                    "answered `{}` with no list",
                    kind.list_method()
                )));
            }
        };
        let items = page.get(kind.list_member()).and_then(Raw::as_array);
        let items = items.ok_or_else(|| bad(format!("`{}` is missing", kind.list_member())))?;
        listing.items.extend(items);
        // Items are parts of their page, so the whole page stays.
        bytes = bytes.saturating_add(page.encoded_len());
        if is_too_much(listing.items.len(), bytes) {
            return Err(bad(format!(
                "`{}` has more than {MAX_ITEMS} items or {} MiB",
                kind.list_method(),
                MAX_BYTES >> 20
            )));
        }
        let ttl = page
            .get(TTL_MS)
            .and_then(Raw::as_i64)
            .and_then(|ms| u64::try_from(ms).ok());
        listing.ttl_ms = listing.ttl_ms.min(ttl.unwrap_or(0));
        if page.get(CACHE_SCOPE).map(Raw::text) != Some("\"public\"") {
            listing.scope = Scope::Private;
        }
        let Some(cursor) = page.get("nextCursor").filter(|c| !c.is_null()) else {
            return Ok(Some(listing));
        };
        if !cursors.insert(cursor.text().to_owned()) {
            return Err(bad(format!("`{}` repeats a cursor", kind.list_method())));
        }
        params = Object::new();
        params.set("cursor", cursor.clone());
    }
    Err(bad(format!(
        "`{}` has more than {MAX_PAGES} pages",
        kind.list_method()
    )))
}

fn is_too_much(items: usize, bytes: usize) -> bool {
    items > MAX_ITEMS || bytes > MAX_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_a_list_is_bounded_by_items_and_by_bytes() {
        assert!(!is_too_much(100_000, 64 << 20));
        assert!(is_too_much(100_001, 0));
        assert!(is_too_much(1, (64 << 20) + 1));
    }
}
