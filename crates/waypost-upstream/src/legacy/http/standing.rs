//! The stream on which a server speaks unasked (2025-11-25: transports, listening for messages).

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

use super::hearing;
use super::place::Place;
use super::streamable::Session;
use crate::fault::Fault;

/// Between two attempts, whatever shorter time the server asks for.
const LEAST: Duration = Duration::from_millis(500);

/// Before the next attempt when one failed inside.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A stream that lived so long did not fail to open.
const LONG: Duration = Duration::from_secs(30);

/// What a GET that got no stream means.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The server has no such stream, or not for us.
    NotOffered,
    /// There was one, and now the server does not know the session.
    Lost,
    /// Later, perhaps.
    Later,
    /// Later, but from the beginning: it does not know the place where we were.
    Anew,
}

impl Session {
    /// As [`Session::stand`], again when that fails inside: one bad message must leave nobody
    /// waiting for others.
    pub(super) async fn keep_standing(&self) {
        while AssertUnwindSafe(self.stand()).catch_unwind().await.is_err() {
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }

    /// Keeps the server's own stream open as long as it has one.
    async fn stand(&self) {
        let mut place = Place::default();
        let mut offered = false;
        loop {
            let (request, named) = self.get(&place);
            let opened = self.wire.events(request).await;
            self.settled.send_replace(true);
            let failed = opened.is_err();
            match opened {
                Ok(mut frames) => {
                    offered = true;
                    let begun = Instant::now();
                    hearing::hear_out(&*self.ear, &self.wire, &mut frames, &mut place).await;
                    if begun.elapsed() > LONG {
                        place.proven();
                    }
                }
                Err(fault) => match verdict(&fault, offered.then_some(named), &place) {
                    Verdict::NotOffered => return,
                    Verdict::Lost => return self.mourn().await,
                    Verdict::Later => {}
                    Verdict::Anew => place.forget(),
                },
            }
            tokio::time::sleep(place.wait(LEAST, failed)).await;
        }
    }

    /// Says that the session is gone, when nothing is in flight that may still be answered.
    async fn mourn(&self) {
        self.ear.idle().await;
        let fault = self.lose();
        self.ear.gone(&fault);
    }
}

/// `before` is, where the stream has been there, whether the request named a session.
fn verdict(fault: &Fault, before: Option<bool>, place: &Place) -> Verdict {
    match (fault, before) {
        (Fault::Status { status: 404, .. }, Some(true)) => Verdict::Lost,
        // Nothing but a proxy without a route: there is no session to be lost.
        (Fault::Status { status: 404, .. }, Some(false)) => Verdict::Later,
        (Fault::Status { status: 400, .. }, _) if place.can_resume() => Verdict::Anew,
        (fault, _) if transient(fault) => Verdict::Later,
        _ => Verdict::NotOffered,
    }
}

/// Whether the same request may succeed later.
pub(super) fn transient(fault: &Fault) -> bool {
    match fault {
        Fault::Connect(_) | Fault::Closed => true,
        Fault::Status { status, .. } => match status {
            408 | 425 | 429 => true,
            status => *status >= 500 && *status != 501,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::ConnectFault;

    #[test]
    fn r58_only_what_may_change_is_tried_again() {
        let status = |status| Fault::Status {
            status,
            retry_after: None,
        };
        let nowhere = Place::default();
        let mut somewhere = Place::default();
        somewhere.note(&waypost_wire::sse::Event {
            id: Some("a".to_owned()),
            ..Default::default()
        });
        for gone in [404, 405, 501, 400, 401, 403, 406] {
            let got = verdict(&status(gone), None, &nowhere);
            assert_eq!(got, Verdict::NotOffered, "{gone}");
        }
        let html = Fault::ContentType(Some("text/html".to_owned()));
        assert_eq!(verdict(&html, Some(true), &somewhere), Verdict::NotOffered);
        for later in [408, 429, 500, 502, 503, 504] {
            let got = verdict(&status(later), Some(true), &somewhere);
            assert_eq!(got, Verdict::Later, "{later}");
        }
        let refused = Fault::Connect(ConnectFault::Refused);
        assert_eq!(verdict(&refused, None, &nowhere), Verdict::Later);
        assert_eq!(verdict(&status(404), Some(true), &nowhere), Verdict::Lost);
        assert_eq!(verdict(&status(404), Some(false), &nowhere), Verdict::Later);
        assert_eq!(verdict(&status(400), Some(true), &somewhere), Verdict::Anew);
    }
}
