//! A call that takes its time, and what became of such calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kit::out::Out;
use crate::kit::schema;
use crate::kit::server::ToolCall;

const BEAT: Duration = Duration::from_millis(50);
const MOST_SECONDS: f64 = 3600.0;

/// The slow calls of one server, counted.
#[derive(Debug, Default)]
pub(crate) struct Slow {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    started: AtomicU64,
    finished: AtomicU64,
    cancelled: AtomicU64,
}

/// Dropped before it is finished, a call was cancelled.
struct Call {
    counts: Arc<Counts>,
    finished: bool,
}

impl Drop for Call {
    fn drop(&mut self) {
        let counter = if self.finished {
            &self.counts.finished
        } else {
            &self.counts.cancelled
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

impl Slow {
    /// Reports progress for `seconds`, then answers.
    pub(crate) async fn run(&self, call: &ToolCall<'_>, out: &Out) -> Value {
        let seconds = call.arguments.get("seconds").and_then(Value::as_f64);
        let seconds = seconds.unwrap_or(1.0).clamp(0.0, MOST_SECONDS);
        let mut guard = Call {
            counts: Arc::clone(&self.counts),
            finished: false,
        };
        self.counts.started.fetch_add(1, Ordering::SeqCst);
        let started = Instant::now();
        loop {
            let passed = started.elapsed().as_secs_f64().min(seconds);
            out.progress(call.request, passed, seconds, "still here")
                .await;
            if passed >= seconds {
                break;
            }
            let left = Duration::try_from_secs_f64(seconds - passed).unwrap_or(BEAT);
            tokio::time::sleep(BEAT.min(left)).await;
        }
        guard.finished = true;
        schema::text(format!("finished after {seconds} s"))
    }

    /// How many slow calls were started, finished and cancelled so far, as JSON text.
    pub(crate) fn report(&self) -> Value {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let counts = json!({
            "started": count(&self.counts.started),
            "finished": count(&self.counts.finished),
            "cancelled": count(&self.counts.cancelled),
        });
        schema::text(counts.to_string())
    }
}
