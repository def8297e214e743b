//! What is counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt as _, stream};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use serde_json::json;
use waypost_hub::reply::Reply;

use crate::fake::{Front, Post};

/// Counters by name and labels, gauges by name.
#[derive(Default)]
struct Recorder {
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<String> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Counter::from_arc(Arc::clone(
            self.counters.lock().unwrap().entry(name).or_default(),
        ))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let name = key.name().to_owned();
        Gauge::from_arc(Arc::clone(
            self.gauges.lock().unwrap().entry(name).or_default(),
        ))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl Recorder {
    /// Runs `test` and gives all counters.
    fn watch(&self, test: impl Future<Output = ()>) -> BTreeMap<String, u64> {
        metrics::with_local_recorder(self, || {
            tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap()
                .block_on(test);
        });
        let counters = self.counters.lock().unwrap();
        let read = |(name, value): (&String, &Arc<AtomicU64>)| {
            (name.clone(), value.load(Ordering::Relaxed))
        };
        counters.iter().map(read).collect()
    }

    fn gauge(&self, name: &str) -> f64 {
        f64::from_bits(self.gauges.lock().unwrap()[name].load(Ordering::Relaxed))
    }
}

fn requests(method: &str, outcome: &str) -> (String, u64) {
    let name = format!("waypost_requests_total{{method={method},outcome={outcome}}}");
    (name, 1)
}

#[test]
fn each_request_is_counted_once_by_method_and_outcome() {
    let counted = Recorder::default().watch(async {
        let front = Front::complete();
        front.send(Post::call().build()).await;
        front.send(Post::new("x/y", &json!({})).build()).await;
        front.send(Post::call().without("mcp-name").build()).await;
        front.send(Post::call().path("/nowhere").build()).await;
    });
    let expected = [
        requests("other", "complete"),
        requests("other", "header_mismatch"),
        requests("other", "no_such_path"),
        requests("tools/call", "complete"),
    ];
    assert_eq!(counted, expected.into());
}

#[test]
fn a_stream_is_counted_while_it_is_open_and_as_cancelled_when_it_is_left() {
    let recorder = Recorder::default();
    let counted = recorder.watch(async {
        let progress = || {
            let method = "notifications/progress".to_owned();
            let params = Default::default();
            Ok(waypost_hub::reply::Event::Notification(
                waypost_wire::message::Notification { method, params },
            ))
        };
        let front = Front::new(move |_| {
            let events = stream::iter([progress()]).chain(stream::pending());
            Ok(Reply::Stream(events.boxed()))
        });
        let response = front.head(Post::call().build()).await;
        assert_eq!(recorder.gauge("waypost_open_streams"), 1.0);
        drop(response);
    });
    assert_eq!(recorder.gauge("waypost_open_streams"), 0.0);
    assert_eq!(counted, [requests("tools/call", "cancelled")].into());
}

#[test]
fn tasks_without_mcp_name_are_counted() {
    let counted = Recorder::default().watch(async {
        let post = Post::new("tasks/get", &json!({"taskId": "a"}));
        Front::complete()
            .send(post.without("mcp-name").build())
            .await;
    });
    let expected = [
        requests("tasks/get", "complete"),
        ("waypost_task_requests_without_name_total{}".to_owned(), 1),
    ];
    assert_eq!(counted, expected.into());
}
