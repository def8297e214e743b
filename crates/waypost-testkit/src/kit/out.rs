//! What a handler may say before its answer.

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::request::Request;

const QUEUE: usize = 32;
pub(crate) const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// The notifications of one request, in order. A client that does not read slows the handler.
#[derive(Clone, Debug)]
pub struct Out {
    queue: mpsc::Sender<Value>,
}

impl Out {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Value>) {
        let (queue, read) = mpsc::channel(QUEUE);
        (Self { queue }, read)
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        // The reader goes away only together with the request: nobody is left to tell.
        drop(self.queue.send(message).await);
    }

    /// Sends progress, if the caller gave a token.
    pub async fn progress(&self, request: &Request, progress: f64, total: f64, message: &str) {
        let Some(token) = request.progress_token() else {
            return;
        };
        let mut params = Map::new();
        params.insert("progressToken".into(), token.clone());
        params.insert("progress".into(), number(progress));
        params.insert("total".into(), number(total));
        params.insert("message".into(), message.into());
        self.notify("notifications/progress", Value::Object(params))
            .await;
    }

    /// Sends a log message, if the caller asked for this level or a lower one.
    pub async fn log(&self, request: &Request, level: &str, data: &str) {
        let rank = |name: &str| LEVELS.iter().position(|level| *level == name);
        let Some(wanted) = request.log_level().and_then(rank) else {
            return;
        };
        if rank(level).is_some_and(|rank| rank >= wanted) {
            let params = json!({ "level": level, "logger": "demo", "data": data });
            self.notify("notifications/message", params).await;
        }
    }
}

/// Whole numbers are written without a fraction.
#[expect(
    clippy::cast_possible_truncation,
    reason = "only exact values are converted"
)]
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e9 {
        json!(value as i64)
    } else {
        json!(value)
    }
}
