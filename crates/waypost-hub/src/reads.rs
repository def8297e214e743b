//! Answers to `resources/read` that are still good (specification: caching).
//!
//! An answer is kept as long as its server said and no longer. One that is for everybody is given to
//! everybody who may read the resource; any other only to whom it was given before. What a server
//! says has changed is forgotten, and so is an answer that was on its way meanwhile.
//!
//! What several ask for at once is asked for once: the others wait for the first one's answer, and
//! ask themselves where it is not to be kept. Should the first one leave, the next takes its place.

mod flight;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use moka::Expiry;
use moka::sync::Cache;
use tokio::time::{Instant, timeout_at};
use url::Url;
use waypost_config::config::Isolation;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{CACHE_SCOPE, TTL_MS};
use waypost_wire::uri;

use crate::call::{Call, Comeback, Principal};
use crate::event::ResourceLookedUp;
use crate::member::Member;
use flight::{Flights, Joined};

pub(crate) use flight::Lead;

/// Longest life that is believed: a day.
const TTL_MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// What an entry takes beside its text, about.
const OVERHEAD: usize = 256;

/// So often a caller waits for another's answer before it asks itself,
const WAITS: usize = 3;
/// and no longer than this: who asked first may be slow to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Members of `_meta` that say nothing of what is wanted.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// The answers of all upstreams.
#[derive(Clone)]
pub(crate) struct Reads {
    /// `None` keeps nothing.
    kept: Option<Cache<Key, Kept>>,
    flights: Flights<Key>,
}

/// One upstream's part of them.
pub(crate) struct OwnReads {
    id: u64,
    all: OnceLock<Reads>,
    /// How often something was forgotten.
    changes: AtomicU64,
    /// Whether its last answer could be kept, so that the next one is worth waiting for.
    keeps: AtomicBool,
}

/// Under what an answer is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Of the member: another in its place has another.
    member: u64,
    who: Who,
    /// As the upstream knows it.
    uri: Arc<str>,
}

/// Whom an answer is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Everybody,
    /// Whoever calls as this principal and, where the server may tell sessions apart, in this one.
    Only(Principal, Option<Arc<str>>),
}

#[derive(Clone)]
struct Kept {
    result: Object,
    size: u32,
    until: Instant,
    /// Of the URI, however it is spelled.
    place: Arc<str>,
}

/// A read that was not found, and may be kept once it is answered.
#[derive(Debug)]
pub(crate) struct Missed {
    reads: Reads,
    member: Arc<Member>,
    uri: Arc<str>,
    who: Who,
    /// Changes until it was sent.
    changes: u64,
    /// Others wait for it.
    lead: Option<Lead<Key>>,
}

/// What was found.
#[derive(Debug)]
pub(crate) enum Found {
    /// An answer, with what is left of its life.
    Answer(Object),
    /// None yet.
    Missed(Missed),
    /// It is a call whose answer is its own.
    Nothing,
}

struct Lives;

// === impl Reads ===

impl Reads {
    /// Room for so many bytes; zero keeps nothing.
    pub(crate) fn new(bytes: usize) -> Self {
        let cache = (bytes > 0).then(|| {
            Cache::builder()
                .max_capacity(bytes as u64)
                .weigher(|_, kept: &Kept| kept.size)
                .expire_after(Lives)
                .support_invalidation_closures()
                .build()
        });
        Self {
            kept: cache,
            flights: Flights::default(),
        }
    }

    /// Looks for the answer to a call of a member, whose URI is the member's own; waits for it where
    /// the same caller has just asked for it.
    pub(crate) async fn find(&self, member: &Arc<Member>, call: &Call, uri: &str) -> Found {
        if self.kept.is_none() || !is_plain(call) {
            return Found::Nothing;
        }
        let own = member.reads();
        drop(own.all.set(self.clone()));
        let (who, uri) = (Who::of(member, call), Arc::from(uri));
        let changes = || own.changes.load(Ordering::Acquire);
        let missed = |who, changes, lead| Missed {
            reads: self.clone(),
            member: Arc::clone(member),
            uri: Arc::clone(&uri),
            who,
            changes,
            lead,
        };
        let mut seen = changes();
        let mut found = self.kept_for(own.id, &who, &uri);
        let mut lead = None;
        if found.is_none() && own.keeps.load(Ordering::Relaxed) {
            let key = Key::new(own.id, who.clone(), &uri);
            let patience = Instant::now() + PATIENCE;
            for _ in 0..WAITS {
                match self.flights.join(&key) {
                    Joined::First(first) => lead = Some(first),
                    Joined::Behind(flight) => {
                        let ended = timeout_at(patience, flight.ended()).await;
                        let is_over = ended.unwrap_or(true);
                        seen = changes();
                        found = self.kept_for(own.id, &who, &uri);
                        if found.is_none() && !is_over {
                            continue;
                        }
                    }
                }
                break;
            }
        }
        ResourceLookedUp {
            upstream: &member.name,
            found: found.is_some(),
        }
        .emit();
        found.map_or_else(|| Found::Missed(missed(who, seen, lead)), Found::Answer)
    }

    /// What is kept for a caller, or for everybody, with what is left of its life.
    fn kept_for(&self, member: u64, who: &Who, uri: &Arc<str>) -> Option<Object> {
        let cache = self.kept.as_ref()?;
        let now = Instant::now();
        let find = |who| {
            let kept = cache.get(&Key::new(member, who, uri));
            kept.filter(|kept| kept.until > now)
        };
        let found = find(Who::Everybody).or_else(|| find(who.clone()));
        let Kept {
            mut result, until, ..
        } = found?;
        let left = (until - now).as_millis();
        result.set(TTL_MS, Raw::from_serialize(&left));
        Some(result)
    }
}

impl Key {
    fn new(member: u64, who: Who, uri: &Arc<str>) -> Self {
        let uri = Arc::clone(uri);
        Self { member, who, uri }
    }
}

/// Whether the answer depends on nothing but who asks for what.
fn is_plain(call: &Call) -> bool {
    call.params.len() == 1
        && call.comeback == Comeback::Answers
        && call.meta.rest.iter().all(|(key, _)| TRACE.contains(&key))
}

impl Missed {
    /// Keeps an answer, if its server says for how long, and lets those have it who wait for it.
    pub(crate) fn keep(&self, result: &Object) {
        let is_kept = self.put(result);
        self.member.reads().keeps.store(is_kept, Ordering::Relaxed);
        self.end();
    }

    /// There is an answer, so those who wait for it are not to wait for another.
    pub(crate) fn end(&self) {
        if let Some(lead) = &self.lead {
            lead.end();
        }
    }

    /// What says later that there is no answer, should it be so.
    pub(crate) fn lead(&self) -> Option<Lead<Key>> {
        self.lead.clone()
    }

    /// Whether its server said for how long it is good.
    fn put(&self, result: &Object) -> bool {
        let Some(cache) = &self.reads.kept else {
            return false;
        };
        let ttl = result.get(TTL_MS).and_then(Raw::as_i64);
        let ttl = Duration::from_millis(ttl.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0));
        if ttl.is_zero() {
            return false;
        }
        // A part of a message would keep all of it.
        let Ok(result) = Raw::from(result).as_object() else {
            return false;
        };
        let public = result.get(CACHE_SCOPE).map(Raw::text) == Some("\"public\"");
        let own = self.member.reads();
        let who = if public {
            Who::Everybody
        } else {
            self.who.clone()
        };
        let key = Key::new(own.id, who, &self.uri);
        let place: Arc<str> = place(&self.uri).into();
        let size = result.encoded_len() + self.uri.len() + place.len() + OVERHEAD;
        let kept = Kept {
            result,
            size: u32::try_from(size).unwrap_or(u32::MAX),
            until: Instant::now() + ttl.min(TTL_MOST),
            place,
        };
        if own.changes.load(Ordering::Acquire) == self.changes {
            cache.insert(key.clone(), kept);
            // What is too much goes now: until many more came it would be in memory.
            cache.run_pending_tasks();
            // It may have changed this very moment.
            if own.changes.load(Ordering::Acquire) != self.changes {
                cache.invalidate(&key);
            }
        }
        true
    }
}

/// The address of a resource, for whoever compares: one for all spellings that a server may take
/// for the same, and perhaps for some that it does not.
fn place(uri: &str) -> String {
    let parsed = Url::parse(uri).map_or_else(|_| uri.to_owned(), Into::into);
    uri::bare(&uri::decoded(&parsed)).to_lowercase()
}

impl Who {
    fn of(member: &Member, call: &Call) -> Self {
        let by_session = match member.settings.isolation {
            Some(Isolation::Shared | Isolation::Principal) => false,
            Some(Isolation::Session) | None => true,
        };
        let session = call.session.as_ref().filter(|_| by_session);
        let session = session.map(|session| Arc::clone(session.id()));
        Self::Only(call.principal.clone(), session)
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.kept.is_some() {
            "Reads(on)"
        } else {
            "Reads(off)"
        })
    }
}

// === impl OwnReads ===

impl OwnReads {
    /// Nothing is kept yet.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            all: OnceLock::new(),
            changes: AtomicU64::new(0),
            keeps: AtomicBool::new(true),
        }
    }

    /// A resource has changed, and with it what it is a part of, and what is a part of it.
    pub(crate) fn forget(&self, changed: &str) {
        let changed = place(changed);
        self.forget_if(move |kept| uri::is_part(kept, &changed) || uri::is_part(&changed, kept));
    }

    /// Anything may have changed.
    pub(crate) fn forget_all(&self) {
        self.forget_if(|_| true);
    }

    fn forget_if(&self, is_stale: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let cache = self.all.get().and_then(|reads| reads.kept.as_ref());
        let Some(cache) = cache else { return };
        let id = self.id;
        // Fails only where a cache was made without this.
        let is_stale = move |key: &Key, kept: &Kept| key.member == id && is_stale(&kept.place);
        drop(cache.invalidate_entries_if(is_stale));
    }
}

impl fmt::Debug for OwnReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnReads({})", self.id)
    }
}

// === impl Lives ===

impl Expiry<Key, Kept> for Lives {
    fn expire_after_create(&self, _: &Key, kept: &Kept, _: std::time::Instant) -> Option<Duration> {
        Some(kept.until.saturating_duration_since(Instant::now()))
    }

    fn expire_after_update(
        &self,
        key: &Key,
        kept: &Kept,
        at: std::time::Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_create(key, kept, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_that_may_be_one_resource_have_one_place() {
        for uri in [
            "X://a/b",
            "x://A/%62",
            "x://a/b?q",
            "x://u@a/./b/",
            "x://a/c/../b#f",
        ] {
            assert_eq!(place(uri), "x://a/b", "{uri}");
        }
        assert_ne!(place("x://a/b"), place("x://a/bc"));
        assert_eq!(place("no uri"), "no uri");
    }
}
