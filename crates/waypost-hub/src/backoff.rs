//! Waits between tries that fail.

use std::time::Duration;

/// A wait is up to this part shorter than planned.
const JITTER: f64 = 0.1;

/// Waits that double from failure to failure.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits of `first` to `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            failures: 0,
        }
    }

    /// The wait after one more failure.
    pub fn failed(&mut self) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        jittered(self.first.saturating_mul(doubled).min(self.most))
    }

    /// How many tries failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Something worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A little less at random, so that many do not come back in step.
pub fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::random_range(1.0 - JITTER..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wait: Duration, planned_ms: u32) {
        let (wait, planned) = (wait.as_secs_f64() * 1e3, f64::from(planned_ms));
        assert!((planned * 0.899..=planned).contains(&wait), "{wait}");
    }

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_when_something_worked() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
        for planned in [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000] {
            check(backoff.failed(), planned);
        }
        (0..100).for_each(|_| check(backoff.failed(), 10_000));
        assert_eq!(backoff.failures(), 107);
        backoff.reset();
        check(backoff.failed(), 500);
    }
}
