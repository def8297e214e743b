//! Answers to `resources/read` that are still good (specification: caching).
//!
//! An answer is kept as long as its server said and no longer. One that is for everybody is given to
//! everybody who may read the resource; any other only to whom it was given before. What a server
//! says has changed is forgotten, and so is an answer that was on its way meanwhile.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use moka::Expiry;
use moka::sync::Cache;
use tokio::time::Instant;
use waypost_config::config::Isolation;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{CACHE_SCOPE, TTL_MS};
use waypost_wire::uri;

use crate::call::{Call, Comeback, Principal};
use crate::event::ResourceLookedUp;
use crate::member::Member;

/// Longest life that is believed: a day.
const TTL_MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// What an entry takes beside its text, about.
const OVERHEAD: usize = 256;

/// Members of `_meta` that say nothing of what is wanted.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// The answers of all upstreams.
#[derive(Clone)]
pub(crate) struct Reads(Option<Cache<Key, Kept>>);

/// One upstream's part of them.
pub(crate) struct OwnReads {
    id: u64,
    all: OnceLock<Reads>,
    /// How often something was forgotten.
    changes: AtomicU64,
}

/// Under what an answer is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
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
        Self(cache)
    }

    /// Looks for the answer to a call of a member, whose URI is the member's own.
    pub(crate) fn find(&self, member: &Arc<Member>, call: &Call, uri: &str) -> Found {
        let Some(cache) = self.0.as_ref().filter(|_| is_plain(call)) else {
            return Found::Nothing;
        };
        let own = member.reads();
        drop(own.all.set(self.clone()));
        let changes = own.changes.load(Ordering::Acquire);
        let uri: Arc<str> = uri.into();
        let key = |who| Key {
            member: own.id,
            who,
            uri: Arc::clone(&uri),
        };
        let now = Instant::now();
        let find = |who| cache.get(&key(who)).filter(|kept| kept.until > now);
        let who = Who::of(member, call);
        let found = find(Who::Everybody).or_else(|| find(who.clone()));
        ResourceLookedUp {
            upstream: &member.name,
            found: found.is_some(),
        }
        .emit();
        if let Some(Kept {
            mut result, until, ..
        }) = found
        {
            let left = (until - now).as_millis();
            result.set(TTL_MS, Raw::from_serialize(&left));
            return Found::Answer(result);
        }
        Found::Missed(Missed {
            reads: self.clone(),
            member: Arc::clone(member),
            uri,
            who,
            changes,
        })
    }
}

/// Whether the answer depends on nothing but who asks for what.
fn is_plain(call: &Call) -> bool {
    call.params.len() == 1
        && call.comeback == Comeback::Answers
        && call.meta.rest.iter().all(|(key, _)| TRACE.contains(&key))
}

impl Missed {
    /// Keeps an answer, if its server says for how long.
    pub(crate) fn keep(&self, result: &Object) {
        let Some(cache) = &self.reads.0 else { return };
        let ttl = result.get(TTL_MS).and_then(Raw::as_i64);
        let ttl = Duration::from_millis(ttl.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0));
        if ttl.is_zero() {
            return;
        }
        // A part of a message would keep all of it.
        let Ok(result) = Raw::from(result).as_object() else {
            return;
        };
        let public = result.get(CACHE_SCOPE).map(Raw::text) == Some("\"public\"");
        let own = self.member.reads();
        let key = Key {
            member: own.id,
            who: if public {
                Who::Everybody
            } else {
                self.who.clone()
            },
            uri: Arc::clone(&self.uri),
        };
        let size = result.encoded_len() + self.uri.len() + OVERHEAD;
        let kept = Kept {
            result,
            size: u32::try_from(size).unwrap_or(u32::MAX),
            until: Instant::now() + ttl.min(TTL_MOST),
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
    }
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
        f.write_str(if self.0.is_some() {
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
        }
    }

    /// A resource has changed, and with it what it is a part of, and what is a part of it.
    pub(crate) fn forget(&self, changed: &str) {
        let changed = changed.to_owned();
        self.forget_if(move |kept| uri::is_part(kept, &changed) || uri::is_part(&changed, kept));
    }

    /// Anything may have changed.
    pub(crate) fn forget_all(&self) {
        self.forget_if(|_| true);
    }

    fn forget_if(&self, is_stale: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let cache = self.all.get().and_then(|reads| reads.0.as_ref());
        let Some(cache) = cache else { return };
        let id = self.id;
        // Fails only where a cache was made without this.
        drop(cache.invalidate_entries_if(move |key, _| key.member == id && is_stale(&key.uri)));
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
