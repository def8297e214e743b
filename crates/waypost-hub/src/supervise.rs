//! Keeps one upstream known: connects, reads its lists, follows its changes, comes back after
//! failures.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use waypost_wire::depth;
use waypost_wire::raw::Raw;

use crate::backoff::Backoff;
use crate::catalog::DEPTH;
use crate::catalog::entry::Kind;
use crate::error::{CallError, Kind as ErrorKind};
use crate::event;
use crate::follow::{Follower, Heard};
use crate::hub::Hub;
use crate::member::Member;
use crate::refresh::{self, Described};
use crate::registry::{Catalogue, Learned, now_ms};
use crate::status::State;
use crate::unread::Unread;
use crate::upstream::Facts;

const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MOST: Duration = Duration::from_secs(10);

/// Up for so long, an upstream has proven itself: the next failure starts a new backoff.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);

/// Lists are read again after their life, but not more often than this, and at least this often.
const REFRESH_LEAST: Duration = Duration::from_secs(30);
const REFRESH_MOST: Duration = Duration::from_secs(600);

/// Between two looks that failing calls asked for.
const WAKE_LEAST: Duration = Duration::from_secs(1);

/// A server that asks to be left alone is believed so far.
const RETRY_AFTER_MOST: Duration = Duration::from_secs(300);

/// Lists are read once the subscription to their changes stands, unless that takes longer: then
/// they are read at once and again later.
const FOLLOWED_WITHIN: Duration = Duration::from_millis(300);

/// Changes that come within this are read as one.
const GATHER: Duration = Duration::from_millis(50);

/// From one reading of changed lists to the next. Clients are to hear of a change within 1 s.
const CHANGED_LEAST: Duration = Duration::from_millis(500);

/// Between two looks at whether a member that left is let go.
const LOOK: Duration = Duration::from_millis(20);

/// Calls that are not over so long after their member's end are not waited for.
const COUNTED_WITHIN: Duration = Duration::from_secs(5);

/// Runs until the stop signal, or until the member has left and calls at it are over.
pub(crate) async fn run(hub: Arc<Hub>, member: Arc<Member>, stop: CancellationToken) {
    let mut supervisor = Supervisor {
        hub: Arc::clone(&hub),
        member: Arc::clone(&member),
        backoff: Backoff::new(BACKOFF_FIRST, BACKOFF_MOST),
        unread: Unread::new(),
        told: false,
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = member.left() => {}
        () = supervisor.stay() => {}
    }
    drop(supervisor);
    if !stop.is_cancelled() {
        if member.is_handed_on() {
            return;
        }
        stop.run_until_cancelled(drain(&hub, &member)).await;
    }
    member.end();
    hub.questions.forget(&member);
    let hub = {
        let later = Arc::downgrade(&hub);
        drop(hub);
        later
    };
    member.upstream.close().await;
    stop.run_until_cancelled(forget_labels(&hub, &member)).await;
}

/// Calls that its end ends count themselves a moment later. What they were counted under is kept
/// for as long as one of its name is there.
async fn forget_labels(hub: &Weak<Hub>, member: &Arc<Member>) {
    let until = Instant::now() + COUNTED_WITHIN;
    while Arc::strong_count(member) > 1 && Instant::now() < until {
        sleep(LOOK).await;
    }
    let hub = hub.upgrade();
    if hub.is_some_and(|hub| !hub.members().iter().any(|m| m.name == member.name)) {
        event::forget(&member.name);
    }
}

/// Waits until no call is at a member that left, within the grace.
async fn drain(hub: &Hub, member: &Arc<Member>) {
    let until = Instant::now() + hub.makeup().grace;
    loop {
        // One that nobody has answered in time is not waited for.
        hub.questions.sweep();
        if member.is_let_go() {
            break;
        }
        if Instant::now() >= until {
            tracing::warn!(
                upstream = &*member.name,
                "left before everything at it was over"
            );
            return;
        }
        sleep(LOOK).await;
    }
    tracing::info!(upstream = &*member.name, "left");
}

struct Supervisor {
    hub: Arc<Hub>,
    member: Arc<Member>,
    backoff: Backoff,
    unread: Unread,
    /// The log says that it cannot be connected to.
    told: bool,
}

impl Supervisor {
    /// Goes on whatever happens: nobody else would ever look at this upstream again.
    async fn stay(&mut self) {
        loop {
            drop(AssertUnwindSafe(self.keep()).catch_unwind().await);
            tracing::error!(upstream = &*self.member.name, "failed to look after it");
            self.member.status.set(State::Down, Some("internal error"));
            self.hub.progressed();
            sleep(self.backoff.failed()).await;
        }
    }

    async fn keep(&mut self) {
        loop {
            let since = Instant::now();
            match self.connect().await {
                Ok(follower) => {
                    self.attend(follower).await;
                    if since.elapsed() >= HEALTHY_AFTER {
                        self.backoff.reset();
                    }
                }
                Err(error) => {
                    self.report(&error);
                    let wait = self.backoff.failed();
                    let asked = error.retry_after.unwrap_or(wait);
                    // However many calls want it: under load one that cannot start would be
                    // started all the time.
                    sleep(asked.clamp(wait, RETRY_AFTER_MOST)).await;
                }
            }
        }
    }

    /// Asks the server what it is and reads its lists. Calls may work although no list can be
    /// read, so failing lists do not end the connection: `unread` tries them again.
    async fn connect(&mut self) -> Result<Follower, CallError> {
        let member = Arc::clone(&self.member);
        let budget = member.settings.startup_timeout;
        let late = |_| {
            CallError::upstream(ErrorKind::Timeout, &member.name).detail(format!(
                "did not say what it is within {} s",
                budget.as_secs()
            ))
        };
        let known = member.learned();
        let known = known.as_ref().map(|learned| &*learned.facts.protocol);
        let facts = timeout(budget, member.upstream.discover(known))
            .await
            .map_err(late)??;
        // Clients are told of them in one answer with what others can.
        let can = Some(Raw::from(&facts.capabilities));
        let mut said = can.iter().chain(&facts.server_info);
        let readable = said.try_for_each(|raw| depth::check(raw.as_bytes(), DEPTH));
        readable.map_err(|error| {
            CallError::upstream(ErrorKind::BadUpstream, &member.name)
                .detail(format!("what it says of itself is {error}"))
        })?;
        // It may be another server than before, or another process of it.
        member.reads().forget_all();
        let mut follower = Follower::new(&member, &facts);
        follower.settle(FOLLOWED_WITHIN).await;
        // This is the look that was asked for until now.
        let _asked = member.wake.notified().now_or_never();
        self.learn_lists((facts, Described::Now), &Kind::ALL).await;
        self.hub.seat(&member);
        // Whoever waits for the state finds the names there; it does not wait for the store.
        self.hub.rebuild();
        member.status.set(State::Up, None);
        self.told = false;
        self.hub.progressed();
        self.hub.save(&member).await;
        tracing::info!(upstream = &*member.name, "connected");
        Ok(follower)
    }

    /// `false` when nothing could be read because the server seems to be gone, or is another.
    async fn learn_lists(
        &mut self,
        (facts, described): (Facts, Described),
        kinds: &[Kind],
    ) -> bool {
        let before = self
            .member
            .learned()
            .map(|l| l.catalogue.clone())
            .unwrap_or_default();
        let mut read = refresh::lists(&self.member, (&facts, described), kinds, before).await;
        self.unread.note(&self.member, kinds, &mut read);
        let failed = self.unread.error().map(ToString::to_string);
        self.learn(&facts, &read.catalogue, failed.as_deref());
        !read.outage
    }

    fn learn(&self, facts: &Facts, catalogue: &Catalogue, last_error: Option<&str>) {
        self.member.update(|known| {
            Some(Learned {
                upstream: self.member.name.to_string(),
                fingerprint: self.member.settings.fingerprint.clone(),
                facts: facts.clone(),
                catalogue: catalogue.clone(),
                // Calls learn these meanwhile.
                task_only: known.map(|l| l.task_only.clone()).unwrap_or_default(),
                claims: known.map(|l| l.claims.clone()).unwrap_or_default(),
                learned_at: now_ms(),
                last_error: last_error.map(str::to_owned),
            })
        });
    }

    /// Follows an upstream that is up, until it needs a new look. One that needs it soon after the
    /// last has to wait for it, longer each time.
    async fn attend(&mut self, mut follower: Follower) {
        let member = Arc::clone(&self.member);
        let born = Instant::now();
        let mut refresh_at = born + self.refresh_after();
        let mut changed = Changed::default();
        loop {
            let works = tokio::select! {
                () = member.upstream.lost() => {
                    member.status.set(State::Down, Some("the connection was lost"));
                    false
                }
                () = member.wake.notified() => {
                    sleep_until(born + WAKE_LEAST).await;
                    false
                }
                heard = follower.next() => {
                    match heard {
                        Heard::Changed(kinds) => changed.add(&kinds),
                        Heard::Live => {
                            self.hub.progressed();
                            // Something may have changed while nobody listened.
                            changed.add(&Kind::ALL);
                        }
                    }
                    true
                }
                kinds = changed.ripe() => self.refresh(&kinds).await,
                kinds = self.unread.ripe() => {
                    // One list that is always late says nothing about the server.
                    self.refresh(&kinds).await || self.unread.is_partial(&member)
                }
                () = sleep_until(refresh_at) => {
                    let works = self.refresh(&Kind::ALL).await;
                    refresh_at = Instant::now() + self.refresh_after();
                    works
                }
            };
            if !works {
                break;
            }
        }
        if born.elapsed() < HEALTHY_AFTER {
            sleep(self.backoff.failed()).await;
        }
    }

    /// `false` when the server seems to be gone.
    async fn refresh(&mut self, kinds: &[Kind]) -> bool {
        let Some(learned) = self.member.learned() else {
            return true;
        };
        let works = self
            .learn_lists((learned.facts.clone(), Described::Before), kinds)
            .await;
        let now = self.member.learned();
        if now.is_some_and(|now| !now.catalogue.same(&learned.catalogue)) {
            self.hub.rebuild();
            self.hub.save(&self.member).await;
        }
        // Readiness may have waited for a list.
        self.hub.progressed();
        works
    }

    /// When the first list ends its life.
    fn refresh_after(&self) -> Duration {
        let Some(learned) = self.member.learned() else {
            return REFRESH_MOST;
        };
        let lives = Kind::ALL
            .iter()
            .filter_map(|kind| kind.listing(&learned.catalogue));
        let shortest = lives
            .map(|listing| Duration::from_millis(listing.ttl_ms))
            .min();
        shortest
            .unwrap_or(REFRESH_MOST)
            .clamp(REFRESH_LEAST, REFRESH_MOST)
    }

    fn report(&mut self, error: &CallError) {
        let source = error.source.as_deref().map(tracing::field::display);
        let (upstream, failures) = (&*self.member.name, self.backoff.failures());
        // The first failure is news, the hundredth is not.
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(upstream, %error, source, "cannot connect, trying again");
        } else {
            tracing::debug!(upstream, %error, source, failures, "still cannot connect");
        }
        let state = match error.http_status {
            Some(401 | 403) => State::AuthRequired,
            _ => State::Down,
        };
        self.member.status.set(state, Some(&error.to_string()));
        self.member.status.explain(error);
        if self.hub.seat(&self.member) {
            self.hub.rebuild();
        }
        self.hub.progressed();
    }
}

/// Lists that are said to have changed, until it is time to read them.
#[derive(Debug, Default)]
struct Changed {
    kinds: Vec<Kind>,
    /// When the first of them is to be read.
    at: Option<Instant>,
    read: Option<Instant>,
}

impl Changed {
    fn add(&mut self, kinds: &[Kind]) {
        let now = Instant::now();
        let earliest = self.read.map_or(now, |read| read + CHANGED_LEAST);
        self.at.get_or_insert(earliest.max(now + GATHER));
        for kind in kinds {
            if !self.kinds.contains(kind) {
                self.kinds.push(*kind);
            }
        }
    }

    /// The lists to be read now; never, while nothing has changed.
    async fn ripe(&mut self) -> Vec<Kind> {
        let Some(at) = self.at else {
            return std::future::pending().await;
        };
        sleep_until(at).await;
        self.at = None;
        self.read = Some(Instant::now());
        std::mem::take(&mut self.kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CallFinished;
    use crate::sample;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_outlives_the_grace_leaves_no_labels_behind() {
        let hub = sample::hub("upstreams: { leaver: { url: 'http://127.0.0.1:9' } }");
        hub.start().await;
        let at = hub.members().remove(0);
        let gone = sample::config("{ drain_grace: 1s, upstreams: {} }");
        hub.reload(&gone, |_| Arc::clone(&at));
        at.ended().await;
        let finished = CallFinished {
            request_id: "1",
            upstream: "leaver",
            method: "tools/call",
            target: None,
            outcome: "cancelled",
            took: Duration::ZERO,
        };
        finished.emit();
        assert!(event::knows("leaver"));
        drop(at);
        sleep(COUNTED_WITHIN).await;
        assert!(!event::knows("leaver"));
    }
}
