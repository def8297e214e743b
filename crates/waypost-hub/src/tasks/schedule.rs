//! When a task is looked at next.

use std::time::Duration;

use tokio::time::Instant;
use waypost_config::config::TaskTimes;

use crate::backoff::{self, jittered};

/// Up to here the time between polls doubles for an upstream that gives no `pollIntervalMs`.
const UNHINTED: Duration = Duration::from_secs(5);
/// The wait after the first failure; it doubles from failure to failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// The longest wait after a failure.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// So many tries in a row may fail before the upstream is given up: about a minute.
const FAILURES: u32 = 10;

/// The times between the polls of one task.
#[derive(Debug)]
pub(crate) struct Schedule {
    least: Duration,
    most: Duration,
    next: Duration,
    backoff: Backoff,
    /// There was a poll.
    looked: bool,
}

/// The times between tries that fail.
#[derive(Debug)]
pub(crate) struct Backoff(backoff::Backoff);

// === impl Backoff ===

impl Backoff {
    /// The wait after a try that failed; `None` when it was one too many.
    pub(crate) fn failed(&mut self) -> Option<Duration> {
        let wait = self.0.failed();
        (self.0.failures() <= FAILURES).then_some(wait)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self(backoff::Backoff::new(FIRST_BACKOFF, LONGEST_BACKOFF))
    }
}

// === impl Schedule ===

impl Schedule {
    /// Begins with the first wait.
    pub(crate) fn new(times: &TaskTimes) -> Self {
        Self {
            least: times.poll_least,
            most: times.poll_most.max(times.poll_least),
            next: times.poll_first,
            backoff: Backoff::default(),
            looked: false,
        }
    }

    /// The wait before the next poll, given what the upstream asks for.
    pub(crate) fn wait(&mut self, hint: Option<Duration>) -> Duration {
        let top = self.clamp(hint.unwrap_or(UNHINTED));
        let wait = self.next.min(top);
        // A first wait of nothing would double to nothing.
        self.next = wait.max(self.least).saturating_mul(2);
        self.clamp(jittered(wait))
    }

    /// The wait before the next poll where nobody is in a hurry: as long as the upstream asks for.
    /// Without a hint it doubles, as in [`Schedule::wait`].
    pub(crate) fn pace(&mut self, hint: Option<Duration>) -> Duration {
        match hint {
            Some(hint) => self.clamp(jittered(self.clamp(hint))),
            None => self.wait(None),
        }
    }

    /// The wait after a poll that failed; `None` when it was one too many.
    pub(crate) fn failed(&mut self) -> Option<Duration> {
        self.looked = true;
        Some(self.backoff.failed()?.max(self.least))
    }

    /// A poll was answered.
    pub(crate) fn answered(&mut self) {
        self.looked = true;
        self.backoff = Backoff::default();
    }

    /// How many polls failed in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.backoff.0.failures()
    }

    /// When to poll after `wait`. Where that would be past the deadline, there is one last look
    /// shortly before it: the task may be over by then, and its end would be lost. However soon
    /// the deadline is, there is a look before it; at once, when it is over already.
    pub(crate) fn instant(&self, now: Instant, wait: Duration, deadline: Instant) -> Instant {
        let regular = now + wait;
        if regular < deadline {
            return regular;
        }
        match deadline.checked_sub(self.least) {
            Some(last) if last > now => last,
            _ if self.looked => deadline,
            _ => now + deadline.saturating_duration_since(now) / 2,
        }
    }

    fn clamp(&self, wait: Duration) -> Duration {
        wait.clamp(self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn times() -> TaskTimes {
        TaskTimes {
            poll_first: ms(250),
            poll_least: ms(250),
            poll_most: ms(60_000),
            max_wait: ms(1_800_000),
            input_wait: ms(600_000),
        }
    }

    /// Each wait lies within the jitter around the expected one.
    #[track_caller]
    fn check(hint: Option<Duration>, expected: &[u64]) {
        let mut schedule = Schedule::new(&times());
        for &around in expected {
            let wait = schedule.wait(hint).as_secs_f64() * 1e3;
            let around = ms(around).as_secs_f64() * 1e3;
            let low = (around * 0.899).max(250.0);
            let high = (around * 1.101).min(60_000.0);
            assert!((low..=high).contains(&wait), "{wait} is not about {around}");
        }
    }

    #[test]
    fn r82_polls_double_up_to_what_the_upstream_asks_for_within_bounds() {
        check(Some(ms(1000)), &[250, 500, 1000, 1000, 1000]);
        check(Some(ms(0)), &[250, 250, 250]);
        check(None, &[250, 500, 1000, 2000, 4000, 5000, 5000]);
        let hour = [
            250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000,
        ];
        check(Some(ms(3_600_000)), &hour);
    }

    #[test]
    fn r58_a_first_poll_without_a_wait_is_only_the_first() {
        let first = TaskTimes {
            poll_first: Duration::ZERO,
            ..times()
        };
        let mut schedule = Schedule::new(&first);
        let waits: Vec<_> = (0..4).map(|_| schedule.wait(None)).collect();
        assert_eq!(waits.first(), Some(&ms(250)), "never below the least");
        assert!(waits.last() >= Some(&ms(1_700)), "{waits:?}");
    }

    #[test]
    fn failures_back_off_and_end() {
        let mut schedule = Schedule::new(&times());
        let waits: Vec<_> = std::iter::from_fn(|| schedule.failed()).collect();
        assert_eq!(waits.len(), 10);
        let total: Duration = waits.iter().sum();
        assert!((ms(55_000)..ms(75_000)).contains(&total), "{total:?}");
        schedule.answered();
        assert!(schedule.failed().is_some_and(|wait| wait < ms(600)));
    }

    #[test]
    fn the_last_look_is_just_before_the_deadline() {
        let mut schedule = Schedule::new(&times());
        schedule.answered();
        let now = Instant::now();
        let deadline = now + ms(1000);
        assert_eq!(schedule.instant(now, ms(400), deadline), now + ms(400));
        assert_eq!(schedule.instant(now, ms(5000), deadline), now + ms(750));
        let late = now + ms(800);
        assert_eq!(schedule.instant(late, ms(5000), deadline), deadline);
    }

    #[test]
    fn there_is_a_first_look_however_soon_the_deadline_is() {
        let mut schedule = Schedule::new(&times());
        let now = Instant::now();
        let deadline = now + ms(100);
        assert_eq!(schedule.instant(now, ms(250), deadline), now + ms(50));
        assert_eq!(schedule.instant(now, ms(250), now), now);
        schedule.failed();
        assert_eq!(schedule.instant(now, ms(250), deadline), deadline);
    }
}
