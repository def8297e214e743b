//! Progress over several rounds of one request.
//!
//! Each round is a call of its own, whose progress begins anew. Its client sees one request,
//! and there progress only rises (2025-11-25: progress).

use serde_json::Number;
use waypost_wire::message::Notification;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

/// What a client was told so far.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    last: Option<f64>,
    offset: f64,
    first_of_round: bool,
}

impl Progress {
    /// Another round begins.
    pub(crate) fn round(&mut self) {
        self.first_of_round = true;
    }

    /// Moves a notification behind those of earlier rounds, where it would fall back.
    pub(crate) fn pass(&mut self, notification: &mut Notification) {
        if notification.method != method::PROGRESS {
            return;
        }
        let params = &mut notification.params;
        let Some(progress) = number(params, "progress") else {
            return;
        };
        if std::mem::take(&mut self.first_of_round) {
            let last = self.last.filter(|last| progress <= *last);
            self.offset = last.unwrap_or_default();
        }
        // Untouched in the first round, every digit of it.
        if self.offset > 0.0 {
            for member in ["progress", "total"] {
                let moved = number(params, member).map(|value| value + self.offset);
                if let Some(moved) = moved.and_then(Number::from_f64) {
                    params.set(member, Raw::from_serialize(&moved));
                }
            }
        }
        self.last = Some(progress + self.offset);
    }
}

fn number(params: &Object, member: &str) -> Option<f64> {
    params.get(member)?.decode()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn pass(progress: &mut Progress, given: &serde_json::Value, expected: &serde_json::Value) {
        let mut notification = Notification {
            method: method::PROGRESS.to_owned(),
            params: Raw::from(given).as_object().unwrap(),
        };
        progress.pass(&mut notification);
        let got: serde_json::Value = Raw::from(notification.params).decode().unwrap();
        assert_eq!(got, *expected);
    }

    #[test]
    fn r24_progress_rises_over_rounds() {
        let mut progress = Progress::default();
        progress.round();
        pass(
            &mut progress,
            &json!({ "progress": 1 }),
            &json!({ "progress": 1 }),
        );
        let second = json!({ "progress": 2, "total": 4, "message": "m" });
        pass(&mut progress, &second, &second);
        progress.round();
        pass(
            &mut progress,
            &json!({ "progress": 1, "total": 2 }),
            &json!({ "progress": 3.0, "total": 4.0 }),
        );
        pass(
            &mut progress,
            &json!({ "progress": 2 }),
            &json!({ "progress": 4.0 }),
        );
        progress.round();
        // A server that counts on is left alone.
        pass(
            &mut progress,
            &json!({ "progress": 5 }),
            &json!({ "progress": 5 }),
        );
    }
}
