//! Where in an event stream we are, and when to come back after it was cut.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::Full;
use waypost_wire::sse::Event;

use super::wire::LAST_EVENT_ID;

const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MOST: Duration = Duration::from_secs(10);
const JITTER: f64 = 0.2;

/// The longest that a server can make us stay away.
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Where in an event stream we are (2025-11-25: transports, resumability).
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The last event id; servers without any cannot resume.
    last: Option<HeaderValue>,
    /// What the server last asked for.
    retry: Option<Duration>,
    /// How often in a row the stream was cut with no message on it.
    fruitless: u32,
}

impl Place {
    /// Takes over what an event says of the stream.
    pub(super) fn note(&mut self, event: &Event) {
        if let Some(id) = &event.id {
            // An empty one takes the last back (HTML standard: event stream interpretation).
            self.last = match id.is_empty() {
                true => None,
                false => HeaderValue::from_bytes(id.as_bytes()).ok(),
            };
        }
        if let Some(retry) = event.retry {
            self.retry = Some(Duration::from_millis(retry));
        }
        if !event.data.is_empty() {
            self.fruitless = 0;
        }
    }

    /// Whether the server can go on from here.
    pub(super) fn can_resume(&self) -> bool {
        self.last.is_some()
    }

    /// The stream has lived long: its end is no failure to open.
    pub(super) fn proven(&mut self) {
        self.fruitless = 0;
    }

    /// Forgets where we were: what the server would send again cannot be read.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Asks to go on from here.
    pub(super) fn mark(&self, request: &mut Request<Full<Bytes>>) {
        if let Some(last) = &self.last {
            request.headers_mut().insert(LAST_EVENT_ID, last.clone());
        }
    }

    /// How long to stay away now: what the server asked for but no shorter than `least`, or a
    /// backoff where it asked for nothing or has `failed` instead of ending a stream.
    pub(super) fn wait(&mut self, least: Duration, failed: bool) -> Duration {
        let doubled = BACKOFF_FIRST.saturating_mul(1 << self.fruitless.min(5));
        let backoff = doubled.min(BACKOFF_MOST);
        self.fruitless = self.fruitless.saturating_add(1);
        match self.retry.map(|retry| retry.clamp(least, RETRY_MOST)) {
            Some(retry) if failed => retry.max(backoff),
            Some(retry) => retry,
            None => backoff.mul_f64(rand::random_range(1.0 - JITTER..=1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: Option<&str>, retry: Option<u64>, data: &'static str) -> Event {
        Event {
            kind: None,
            id: id.map(str::to_owned),
            retry,
            data: Bytes::from_static(data.as_bytes()),
        }
    }

    const LEAST: Duration = Duration::from_millis(100);

    #[test]
    fn the_last_id_stays_until_another_or_an_empty_one_comes() {
        let mut place = Place::default();
        let last = |place: &Place| {
            let mut request = Request::new(Full::new(Bytes::new()));
            place.mark(&mut request);
            let value = request.headers().get(LAST_EVENT_ID).cloned();
            value.map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap())
        };
        assert_eq!(last(&place), None);
        place.note(&event(Some("a"), None, ""));
        place.note(&event(None, None, "{}"));
        assert_eq!(last(&place).as_deref(), Some("a"));
        place.note(&event(Some("日"), None, ""));
        assert_eq!(last(&place).as_deref(), Some("日"));
        place.note(&event(Some(""), None, ""));
        assert!(!place.can_resume());
    }

    #[test]
    fn r58_a_server_that_asks_for_nothing_is_left_alone_for_longer_each_time() {
        let mut place = Place::default();
        let waits: Vec<_> = (0..8).map(|_| place.wait(LEAST, false)).collect();
        assert!(waits[0] >= BACKOFF_FIRST.mul_f64(1.0 - JITTER) && waits[0] <= BACKOFF_FIRST);
        assert!(waits[7] > Duration::from_secs(7) && waits[7] <= BACKOFF_MOST);
        place.note(&event(None, None, "{}"));
        assert!(place.wait(LEAST, false) <= BACKOFF_FIRST);
    }

    #[test]
    fn what_the_server_asks_for_is_kept_to_within_bounds() {
        let mut place = Place::default();
        let mut wait = |retry, failed| {
            place.note(&event(None, Some(retry), "{}"));
            place.wait(LEAST, failed).as_millis()
        };
        assert_eq!(wait(700, false), 700);
        assert_eq!(wait(0, false), 100);
        assert_eq!(wait(u64::MAX, false), 60_000);
        assert_eq!(wait(100, true), 500);
    }
}
