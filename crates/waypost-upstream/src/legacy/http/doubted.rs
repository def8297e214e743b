//! Finds out whether a session is gone where the words of a refusal do not say so.
//!
//! To the specification any 404 to a request of a session means that it is gone (2025-11-25:
//! transports, session management), but servers also give one to calls, and say the loss of a
//! session with other statuses and in words of their own. A ping tells: what refuses that in the
//! same way refuses the session.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::{Instant, timeout};
use waypost_wire::code;
use waypost_wire::message::{Message, Outcome};
use waypost_wire::sse::Item;

use super::hearing;
use super::lost::CODES;
use super::streamable::Session;
use crate::fault::Fault;
use crate::http::answer::{self, BodyKind};
use crate::http::frames::Frames;

/// The id is that of no call, and no other request waits for the answer.
const PING: Bytes =
    Bytes::from_static(br#"{"jsonrpc":"2.0","id":"session-check","method":"ping"}"#);

/// How long the answer to the ping may take; what is at work says nothing about its session.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks at a session that calls of it failed in, unless it was a 404.
const LEAST: Duration = Duration::from_secs(5);

/// How a request was refused, whichever it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    error: Option<(i64, String)>,
}

/// What came of looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The server knows the session, as far as can be told.
    Alive,
    /// It does not; what was refused was refused for that alone, in the very words.
    Refused,
    /// It does not; a call that was refused otherwise may have run.
    Gone,
}

/// The last look.
#[derive(Debug, Default)]
pub(super) struct Looked {
    at: Option<Instant>,
    dead: Option<Refusal>,
}

impl Refusal {
    /// What a response with this status and body says; `None` for one with a result.
    pub(super) fn of(status: StatusCode, body: &Bytes) -> Option<Self> {
        let error = match Message::parse(body) {
            Ok(Message::Response(_, Outcome::Error(error))) => {
                Some((error.code(), error.message()))
            }
            _ if status.is_success() => return None,
            _ => None,
        };
        Some(Self { status, error })
    }

    /// The same of an answer at HTTP 200.
    pub(super) fn of_outcome(outcome: &Outcome) -> Option<Self> {
        let Outcome::Error(error) = outcome else {
            return None;
        };
        Some(Self {
            status: StatusCode::OK,
            error: Some((error.code(), error.message())),
        })
    }

    /// Whether the session may be the reason. Errors with a code that says what is wrong are
    /// about the call.
    pub(super) fn is_suspicious(&self) -> bool {
        let code = self.error.as_ref().map(|(code, _)| *code);
        match self.status.as_u16() {
            404 | 405 => true,
            400 => !matches!(code, Some(code::METHOD_NOT_FOUND | code::INVALID_PARAMS)),
            200..=299 => code.is_some_and(|code| CODES.contains(&code)),
            _ => false,
        }
    }

    /// Whether a ping that is refused so tells that the session is gone where `other` was refused
    /// in it. A server without pings says what it says of any method.
    fn tells_of_loss(&self, other: &Self) -> bool {
        !self.is_about_method() && (self.status == StatusCode::NOT_FOUND || self == other)
    }

    /// Whether it is worth a look whatever the last one brought.
    fn is_urgent(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && !self.is_about_method()
    }

    fn is_about_method(&self) -> bool {
        let code = self.error.as_ref().map(|(code, _)| *code);
        code == Some(code::METHOD_NOT_FOUND)
    }
}

impl Session {
    /// Looks whether the server still knows the session in which `refusal` came. When it does
    /// not, nothing more is sent in it. Whoever comes while another looks takes what that one saw.
    pub(super) async fn look(&self, refusal: &Refusal) -> Found {
        let mut looked = self.looked.lock().await;
        if self.is_over() {
            return match &looked.dead {
                Some(dead) if dead == refusal => Found::Refused,
                _ => Found::Gone,
            };
        }
        let recent = looked.at.is_some_and(|at| at.elapsed() < LEAST);
        if recent && !refusal.is_urgent() {
            return Found::Alive;
        }
        let Ok(Ok(Some(pinged))) = timeout(PATIENCE, self.ping()).await else {
            looked.at = Some(Instant::now());
            return Found::Alive;
        };
        looked.at = Some(Instant::now());
        if !pinged.tells_of_loss(refusal) {
            return Found::Alive;
        }
        self.lose();
        let same = pinged == *refusal;
        looked.dead = Some(pinged);
        if same { Found::Refused } else { Found::Gone }
    }

    /// How a ping is refused; `None` when it is answered.
    async fn ping(&self) -> Result<Option<Refusal>, Fault> {
        let mut request = self.wire.post(PING);
        self.sign(&mut request);
        let (head, body) = self.wire.send(request).await?.into_parts();
        let (status, headers) = (head.status, &head.headers);
        if !status.is_success() {
            let body = self.refusal(body, status, headers).await;
            return Ok(Refusal::of(status, &body));
        }
        if BodyKind::of(headers) != BodyKind::Events {
            let body = answer::whole(body, self.wire.limit, status, headers).await?;
            return Ok(Refusal::of(status, &body));
        }
        let mut frames = Frames::new(body, self.wire.limit);
        while let Some(item) = frames.next_item(|_| false).await? {
            let Item::Event(event) = item else { continue };
            for message in hearing::carried(&event) {
                if let Ok(Message::Response(..)) = Message::parse(&message) {
                    return Ok(Refusal::of(status, &message));
                }
            }
        }
        Err(Fault::NoEnd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, error: Option<(i64, &str)>) -> Refusal {
        Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            error: error.map(|(code, message)| (code, message.to_owned())),
        }
    }

    #[test]
    fn only_what_can_be_about_the_session_is_suspicious() {
        let check = |status, code: Option<i64>, expected| {
            let refusal = refusal(status, code.map(|code| (code, "m")));
            assert_eq!(refusal.is_suspicious(), expected, "{refusal:?}");
        };
        check(404, None, true);
        check(404, Some(-32601), true);
        check(405, None, true);
        check(400, Some(-32000), true);
        check(400, Some(-32602), false);
        check(200, Some(-32600), true);
        check(200, Some(-32602), false);
        check(200, Some(7), false);
        check(500, Some(-32000), false);
        check(401, None, false);
    }

    #[test]
    fn a_ping_tells_of_loss_when_it_is_refused_as_the_call_was() {
        let check = |pinged: Refusal, call: Refusal, expected| {
            assert_eq!(pinged.tells_of_loss(&call), expected, "{pinged:?} {call:?}");
        };
        let gone = || refusal(200, Some((-32600, "Session abc not found")));
        check(gone(), gone(), true);
        check(gone(), refusal(200, Some((-32600, "no such tab"))), false);
        check(refusal(405, None), refusal(405, None), true);
        check(refusal(405, None), refusal(400, None), false);
        // The specification's word, however the call was refused.
        check(refusal(404, None), refusal(400, None), true);
        let unknown = || refusal(404, Some((-32601, "ping")));
        check(unknown(), refusal(404, Some((-32601, "x/y"))), false);
        check(unknown(), unknown(), false);
    }
}
