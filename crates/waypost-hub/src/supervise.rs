//! Keeps one upstream known: connects, reads its lists, follows its changes, comes back after
//! failures.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt as _;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::catalog::entry::Kind;
use crate::error::{CallError, Kind as ErrorKind};
use crate::follow::{Follower, Heard};
use crate::hub::Hub;
use crate::member::Member;
use crate::refresh;
use crate::registry::{Catalogue, Era, Learned, now_ms};
use crate::status::State;
use crate::upstream::{Discovery, Facts};

const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MOST: Duration = Duration::from_secs(10);

/// An upstream that speaks only the old protocol is asked again this often; somebody may
/// upgrade it.
const LEGACY_AGAIN: Duration = Duration::from_secs(60);

/// Up for so long, an upstream has proven itself: the next failure starts a new backoff.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);

/// Lists are read again after their life, but not more often than this, and at least this often.
const REFRESH_LEAST: Duration = Duration::from_secs(30);
const REFRESH_MOST: Duration = Duration::from_secs(600);

/// Between two looks that failing calls asked for.
const WAKE_LEAST: Duration = Duration::from_secs(1);

/// Runs until the stop signal.
pub(crate) async fn run(hub: Arc<Hub>, member: Arc<Member>, stop: CancellationToken) {
    let mut supervisor = Supervisor {
        hub,
        member,
        failures: 0,
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = supervisor.keep() => {}
    }
    supervisor.member.upstream.close().await;
}

struct Supervisor {
    hub: Arc<Hub>,
    member: Arc<Member>,
    failures: u32,
}

impl Supervisor {
    async fn keep(&mut self) {
        loop {
            let since = Instant::now();
            match self.connect().await {
                Ok(Era::Modern) => {
                    self.attend().await;
                    if since.elapsed() >= HEALTHY_AFTER {
                        self.failures = 0;
                    }
                }
                Ok(Era::Legacy) => {
                    self.failures = 0;
                    self.pause(LEGACY_AGAIN).await;
                }
                Err(error) => {
                    self.report(&error);
                    let wait = self.backoff();
                    self.pause(wait).await;
                }
            }
        }
    }

    /// Asks the server what it is and reads its lists.
    async fn connect(&mut self) -> Result<Era, CallError> {
        let member = Arc::clone(&self.member);
        let budget = member.settings.startup_timeout;
        let late = |_| {
            CallError::upstream(ErrorKind::Timeout, &member.name).detail(format!(
                "did not answer `server/discover` within {} s",
                budget.as_secs()
            ))
        };
        let discovery = timeout(budget, member.upstream.discover())
            .await
            .map_err(late)??;
        let (era, state, error) = match discovery {
            Discovery::Modern(facts) => {
                self.learn_modern(facts, &Kind::ALL).await;
                (Era::Modern, State::Up, None)
            }
            Discovery::Legacy => {
                let text = "speaks only protocol versions before 2026-07-28";
                self.learn(Era::Legacy, Facts::default(), Catalogue::default(), None);
                (Era::Legacy, State::Legacy, Some(text))
            }
        };
        // Whoever waits for the state finds the names there.
        self.hub.rebuild();
        member.status.set(state, error);
        self.hub.progressed();
        tracing::info!(upstream = &*member.name, era = era.as_str(), "connected");
        self.hub.save(&member).await;
        Ok(era)
    }

    async fn learn_modern(&self, facts: Facts, kinds: &[Kind]) {
        let before = self
            .member
            .learned()
            .map(|l| l.catalogue.clone())
            .unwrap_or_default();
        let (catalogue, failed) = refresh::lists(&self.member, &facts, kinds, before).await;
        self.learn(Era::Modern, facts, catalogue, failed.map(|e| e.to_string()));
    }

    fn learn(&self, era: Era, facts: Facts, catalogue: Catalogue, last_error: Option<String>) {
        let task_only = self
            .member
            .learned()
            .map(|l| l.task_only.clone())
            .unwrap_or_default();
        self.member.learn(Learned {
            upstream: self.member.name.to_string(),
            fingerprint: self.member.settings.fingerprint.clone(),
            era,
            facts,
            catalogue,
            task_only,
            learned_at: now_ms(),
            last_error,
        });
    }

    /// Follows an upstream that is up, until it needs a new look.
    async fn attend(&mut self) {
        let mut follower = Follower::new(&self.member);
        let born = Instant::now();
        loop {
            let refresh_at = Instant::now() + self.refresh_after();
            tokio::select! {
                () = self.member.upstream.lost() => {
                    self.member.status.set(State::Down, Some("the connection was lost"));
                    if born.elapsed() < HEALTHY_AFTER {
                        let wait = self.backoff();
                        sleep(wait).await;
                    }
                    return;
                }
                () = self.member.wake.notified() => {
                    sleep_until(born + WAKE_LEAST).await;
                    return;
                }
                heard = follower.next() => match heard {
                    Heard::Changed(kinds) => self.refresh(&kinds).await,
                    Heard::Live => {
                        self.hub.progressed();
                        // What changed between reading the lists and the subscription.
                        self.refresh(&Kind::ALL).await;
                    }
                },
                () = sleep_until(refresh_at) => self.refresh(&Kind::ALL).await,
            }
        }
    }

    async fn refresh(&self, kinds: &[Kind]) {
        let Some(learned) = self.member.learned() else {
            return;
        };
        self.learn_modern(learned.facts.clone(), kinds).await;
        if self
            .member
            .learned()
            .is_some_and(|now| now.catalogue != learned.catalogue)
        {
            self.hub.rebuild();
            self.hub.save(&self.member).await;
        }
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

    fn report(&self, error: &CallError) {
        let source = error.source.as_deref().map(tracing::field::display);
        let (upstream, failures) = (&*self.member.name, self.failures);
        // The first failure is news, the hundredth is not.
        if failures == 0 {
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
        self.hub.progressed();
    }

    fn backoff(&mut self) -> Duration {
        let doubled = BACKOFF_FIRST.saturating_mul(1 << self.failures.min(5));
        self.failures = self.failures.saturating_add(1);
        // Up to a fifth less, so that many upstreams of one host do not come back in step.
        doubled
            .min(BACKOFF_MOST)
            .mul_f64(rand::rng().random_range(0.8..=1.0))
    }

    /// Waits, but not longer than until a call wants the upstream.
    async fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait;
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.member.wake.notified() => {
                sleep_until(until.min(Instant::now() + WAKE_LEAST)).await;
            }
        }
    }
}
