//! Progress notifications made from what happens to a task.

use bytes::Bytes;
use waypost_wire::message::Notification;
use waypost_wire::meta::PROGRESS_TOKEN;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::task::{Status, Task};

/// What the caller of one call was told of its progress.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// The caller's own; without one it wants no progress.
    token: Option<Raw>,
    last: f64,
    said: Option<(Status, Option<String>)>,
}

impl Progress {
    /// Nothing told yet.
    pub(crate) fn new(token: Option<Raw>) -> Self {
        Self {
            token,
            last: 0.0,
            said: None,
        }
    }

    /// Goes on with what was told, under another token.
    pub(crate) fn under(&self, token: Option<Raw>) -> Self {
        Self {
            token,
            ..self.clone()
        }
    }

    /// Takes note of the upstream's own progress, which ours must not fall behind.
    pub(crate) fn passed(&mut self, notification: &Notification) {
        if notification.method != method::PROGRESS {
            return;
        }
        let progress: Option<f64> = notification.params.get("progress").and_then(Raw::decode);
        self.last = progress.map_or(self.last, |progress| self.last.max(progress));
    }

    /// The notification for what changed since the last one, if anything did. Without a message
    /// of the upstream the status itself is told.
    pub(crate) fn change(&mut self, task: &Task) -> Option<Notification> {
        let token = self.token.clone()?;
        let now = (task.status, task.status_message.clone());
        if self.said.as_ref() == Some(&now) {
            return None;
        }
        self.said = Some(now);
        self.last = self.last.floor() + 1.0;
        // Whole numbers without a fraction, as people write them.
        let progress = Raw::parse(&Bytes::from(format!("{:.0}", self.last))).ok()?;
        let message = task.status_message.as_deref();
        let message = message.unwrap_or_else(|| task.status.as_str());
        let members = [
            (PROGRESS_TOKEN, token),
            ("progress", progress),
            ("message", Raw::string(message)),
        ];
        Some(Notification {
            method: method::PROGRESS.to_owned(),
            params: Object::from_iter(members),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task(status: &str, message: Option<&str>) -> Task {
        let value = json!({ "taskId": "1", "status": status, "statusMessage": message });
        Task::read(Raw::from(&value).as_object().unwrap()).unwrap()
    }

    fn text(notification: Option<Notification>) -> Option<String> {
        notification.map(|n| Raw::from(n.params).to_string())
    }

    #[test]
    fn each_change_is_told_once_under_the_callers_token() {
        let mut progress = Progress::new(Some(Raw::string("t")));
        let first = text(progress.change(&task("working", Some("half"))));
        let expected = r#"{"progressToken":"t","progress":1,"message":"half"}"#;
        assert_eq!(first.as_deref(), Some(expected));
        assert_eq!(progress.change(&task("working", Some("half"))), None);
        let next = text(progress.change(&task("completed", None)));
        let expected = r#"{"progressToken":"t","progress":2,"message":"completed"}"#;
        assert_eq!(next.as_deref(), Some(expected));
    }

    #[test]
    fn ours_goes_on_above_the_upstreams() {
        let mut progress = Progress::new(Some(Raw::from_serialize(&7)));
        let params = json!({ "progressToken": 7, "progress": 41.5, "total": 100 });
        progress.passed(&Notification {
            method: method::PROGRESS.to_owned(),
            params: Raw::from(&params).as_object().unwrap(),
        });
        let next = text(progress.change(&task("working", None)));
        let expected = r#"{"progressToken":7,"progress":42,"message":"working"}"#;
        assert_eq!(next.as_deref(), Some(expected));
    }

    #[test]
    fn who_sent_no_token_gets_no_progress() {
        assert_eq!(Progress::new(None).change(&task("working", None)), None);
    }
}
