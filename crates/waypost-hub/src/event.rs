//! What the hub logs and counts: one type per event.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Histogram};
use tracing::Span;
use waypost_wire::text::{NAME, clip};

use crate::catalog::entry::Kind;
use crate::pins::Pending;

/// What a line says of its request's id itself: nothing within the request's span, which has
/// it in each of its lines.
pub fn request_id_field(request_id: &str) -> Option<&str> {
    let said = Span::current().has_field("request_id");
    (!said).then_some(request_id)
}

/// Milliseconds for a line, not finer than microseconds.
pub fn took_ms(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

/// A server refused a subscription that its listeners were told would be kept.
#[derive(Debug)]
pub struct SubscriptionRefused<'a> {
    /// The upstream's name.
    pub upstream: &'a str,
    /// Of the resource, as the server names it.
    pub uri: &'a str,
    /// The code of the server's error, where it gave one.
    pub code: Option<i64>,
}

impl SubscriptionRefused<'_> {
    /// Writes the log line and the metric of this event; nothing else does.
    pub fn emit(&self) {
        let Self {
            upstream,
            uri,
            code,
        } = self;
        tracing::warn!(
            upstream,
            uri,
            code,
            "the server refused a subscription that was waited for; its changes are not told"
        );
        metrics::counter!(
            "waypost_upstream_refused_subscriptions_total", "upstream" => (*upstream).to_owned()
        )
        .increment(1);
    }
}

/// An answer to `resources/read` was looked for among those that are still good.
#[derive(Debug)]
pub struct ResourceLookedUp<'a> {
    /// The upstream's name.
    pub upstream: &'a str,
    /// Whether there was one.
    pub found: bool,
}

impl ResourceLookedUp<'_> {
    /// Counts this event; nothing else does.
    pub fn emit(&self) {
        let Self { upstream, found } = self;
        metrics::counter!(
            "waypost_resource_cache_total",
            "upstream" => (*upstream).to_owned(), "outcome" => if *found { "hit" } else { "miss" }
        )
        .increment(1);
    }
}

/// A list was looked at for what clients cannot be shown.
#[derive(Debug)]
pub struct DefinitionsRefused<'a> {
    /// The upstream's name.
    pub upstream: &'a str,
    /// What the list is of.
    pub kind: &'static str,
    /// How many of them are left out; each is logged by whoever makes the catalogue.
    pub count: u32,
}

impl DefinitionsRefused<'_> {
    /// Sets the metric of this event; nothing else does.
    pub fn emit(&self) {
        let Self {
            upstream,
            kind,
            count,
        } = self;
        metrics::gauge!(
            "waypost_upstream_refused_definitions",
            "upstream" => (*upstream).to_owned(), "kind" => *kind
        )
        .set(*count);
    }
}

/// An upstream is not there any more, and neither is what it listed.
pub(crate) fn definitions_gone(upstream: &str) {
    for kind in Kind::ALL {
        DefinitionsRefused {
            upstream,
            kind: kind.word(),
            count: 0,
        }
        .emit();
    }
}

/// A call left the gateway for an upstream and came back, or did not.
#[derive(Debug)]
pub struct CallFinished<'a> {
    /// [`crate::call::Call::request_id`]; a task's polls have that of the call they are for.
    pub request_id: &'a str,
    /// The upstream's name.
    pub upstream: &'a str,
    /// The method sent.
    pub method: &'a str,
    /// The original name at the upstream, once the catalogue knows it.
    pub target: Option<&'a str>,
    /// [`crate::reply::End::word`], [`crate::error::Kind::as_str`], or `cancelled` when dropped.
    pub outcome: &'static str,
    /// From sending to the end, the stream included.
    pub took: Duration,
}

impl CallFinished<'_> {
    /// Writes the log line and the metrics of this event; nothing else does.
    pub fn emit(&self) {
        let Self {
            request_id,
            upstream,
            method,
            target,
            outcome,
            took,
        } = self;
        tracing::debug!(
            request_id = request_id_field(request_id),
            upstream,
            method,
            target_name = target,
            outcome,
            took_ms = took_ms(*took),
            "call finished"
        );
        Counted::with(
            upstream,
            method,
            target.unwrap_or("-"),
            outcome,
            |counted| {
                counted.calls.increment(1);
                counted.seconds.record(took.as_secs_f64());
            },
        );
    }
}

/// The tools of an upstream were seen for the first time and are trusted from now on.
#[derive(Debug)]
pub struct ToolsTrusted<'a> {
    /// The upstream's name.
    pub upstream: &'a str,
    /// How many there are.
    pub tools: usize,
}

impl ToolsTrusted<'_> {
    /// Writes the log line of this event; nothing else does.
    pub fn emit(&self) {
        let Self { upstream, tools } = self;
        tracing::info!(upstream, tools, "its tools are pinned as they are now");
    }
}

/// A tool is new since the tools of its upstream were approved, or not what it was.
#[derive(Debug)]
pub struct ToolPending<'a> {
    /// The upstream's name.
    pub upstream: &'a str,
    /// What it has become.
    pub pending: &'a Pending,
}

impl ToolPending<'_> {
    /// Writes the log line and the metric of this event; nothing else does.
    pub fn emit(&self) {
        let Self { upstream, pending } = self;
        let change = pending.change();
        let (tool, digest, held) = (clip(&pending.tool, NAME), &pending.digest, pending.held);
        tracing::warn!(
            upstream,
            tool = &*tool,
            change,
            held,
            %digest,
            hint = "`waypost tools pending` shows it, `waypost tools approve` trusts it",
            "a pinned tool is not as it was"
        );
        let upstream = (*upstream).to_owned();
        metrics::counter!("waypost_tools_changed_total", "upstream" => upstream, "change" => change)
            .increment(1);
    }
}

/// Values of the label `target` for one upstream: a catalogue may change for ever.
const TARGETS: usize = 1_000;
/// The value for what comes after those.
const OTHER: &str = "other";

/// The values that there are, by upstream.
static LABELS: Mutex<BTreeMap<String, BTreeSet<String>>> = Mutex::new(BTreeMap::new());

/// How many upstreams were forgotten, so that each core knows when it keeps too much.
static FORGOTTEN: AtomicU64 = AtomicU64::new(0);

/// Nothing is to be kept any more of an upstream that is gone.
pub(crate) fn forget(upstream: &str) {
    let mut all = LABELS.lock().unwrap_or_else(PoisonError::into_inner);
    all.remove(upstream);
    FORGOTTEN.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
pub(crate) fn knows(upstream: &str) -> bool {
    let all = LABELS.lock().unwrap_or_else(PoisonError::into_inner);
    all.contains_key(upstream)
}

/// The value that stands for `target`.
fn label<'a>(upstream: &str, target: &'a str) -> &'a str {
    let mut all = LABELS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all.entry(upstream.to_owned()).or_default();
    if known.contains(target) {
        return target;
    }
    if known.len() >= TARGETS {
        return OTHER;
    }
    known.insert(target.to_owned());
    target
}

/// Handles of this event's metrics. Looking them up takes a lock that all cores share and a
/// dozen allocations, so each core keeps those it has used: no more than there are labels.
#[derive(Clone)]
struct Counted {
    calls: Counter,
    seconds: Histogram,
}

/// By upstream, method, target and outcome. So few are compared sooner than hashed.
type Kept = BTreeMap<String, BTreeMap<String, BTreeMap<String, BTreeMap<&'static str, Counted>>>>;

thread_local! {
    /// With how many upstreams were forgotten when it was begun.
    static KEPT: RefCell<(u64, Kept)> = RefCell::default();
}

impl Counted {
    fn with(
        upstream: &str,
        method: &str,
        target: &str,
        outcome: &'static str,
        count: impl FnOnce(&Self),
    ) {
        KEPT.with_borrow_mut(|(since, kept)| {
            let forgotten = FORGOTTEN.load(Ordering::Relaxed);
            if *since != forgotten {
                (*since, *kept) = (forgotten, Kept::new());
            }
            let find = |target| {
                let methods = kept.get(upstream)?;
                methods.get(method)?.get(target)?.get(outcome)
            };
            if let Some(counted) = find(target) {
                return count(counted);
            }
            let target = label(upstream, target);
            if let Some(counted) = find(target) {
                return count(counted);
            }
            let counted = Self::new(upstream, method, target, outcome);
            count(&counted);
            let methods = kept.entry(upstream.to_owned()).or_default();
            let targets = methods.entry(method.to_owned()).or_default();
            targets
                .entry(target.to_owned())
                .or_default()
                .insert(outcome, counted);
        });
    }

    fn new(upstream: &str, method: &str, target: &str, outcome: &'static str) -> Self {
        let calls = metrics::counter!(
            "waypost_upstream_calls_total",
            "upstream" => upstream.to_owned(),
            "method" => method.to_owned(),
            "target" => target.to_owned(),
            "outcome" => outcome,
        );
        let upstream = upstream.to_owned();
        let seconds = metrics::histogram!("waypost_upstream_call_seconds", "upstream" => upstream);
        Self { calls, seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalogue_that_changes_for_ever_makes_no_more_labels() {
        let names: Vec<_> = (0..=TARGETS).map(|number| number.to_string()).collect();
        let labels: Vec<_> = names.iter().map(|name| label("changing", name)).collect();
        let (last, first) = labels.split_last().unwrap();
        assert_eq!(first, &names[..TARGETS]);
        assert_eq!(*last, OTHER);
        assert_eq!(label("changing", "7"), "7");
        assert_eq!(label("another", &names[TARGETS]), names[TARGETS]);
    }

    #[test]
    fn nothing_is_kept_of_an_upstream_that_is_gone() {
        Counted::with("gone", "tools/call", "a", "ok", |_| {});
        let knows = || {
            let kept = KEPT.with_borrow(|(_, kept)| kept.contains_key("gone"));
            (LABELS.lock().unwrap().contains_key("gone"), kept)
        };
        assert_eq!(knows(), (true, true));
        forget("gone");
        Counted::with("there", "tools/call", "a", "ok", |_| {});
        assert_eq!(knows(), (false, false));
    }

    #[test]
    fn times_are_written_as_people_read_them() {
        for (nanos, expected) in [(45_880, "0.046"), (1_500_000, "1.5"), (0, "0")] {
            let text = took_ms(Duration::from_nanos(nanos)).to_string();
            assert_eq!(text, expected);
        }
    }
}
