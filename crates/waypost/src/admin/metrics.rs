//! The process's metrics, in the format of Prometheus.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;
use waypost_hub::catalog::Catalog;
use waypost_hub::member::Member;
use waypost_hub::status::State;

/// From an answer out of memory to a slow tool.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// How often recorded values are gathered, should nobody scrape.
const UPKEEP: Duration = Duration::from_secs(5);

/// One per process, whatever number of daemons it holds.
static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Starts recording, or joins the recorder that runs.
pub(crate) fn start() -> PrometheusHandle {
    let handle = RECORDER.get_or_init(|| {
        let suffix = Matcher::Suffix("_seconds".to_owned());
        let builder = PrometheusBuilder::new();
        let recorder = match builder.set_buckets_for_metric(suffix, SECONDS) {
            Ok(builder) => builder.build_recorder(),
            // Only an empty list of buckets is refused.
            Err(_) => PrometheusBuilder::new().build_recorder(),
        };
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder runs in this process, ours stays empty");
        }
        describe();
        handle
    });
    handle.clone()
}

/// Keeps recorded values from piling up while nobody scrapes.
pub(crate) async fn upkeep(handle: PrometheusHandle, stop: CancellationToken) {
    let mut every = tokio::time::interval(UPKEEP);
    while stop.run_until_cancelled(every.tick()).await.is_some() {
        handle.run_upkeep();
    }
}

/// Takes what is a state and not an event, at the moment somebody asks.
pub(super) fn sample(members: &[Arc<Member>], catalog: &Catalog) {
    for member in members {
        let state = member.status.state();
        let up = matches!(state, State::Up | State::Degraded);
        let name = member.name.to_string();
        gauge!("waypost_upstream_up", "upstream" => name.clone()).set(f64::from(u8::from(up)));
        let learned = member.learned();
        let tools =
            learned.and_then(|learned| learned.catalogue.tools.as_ref().map(|l| l.items.len()));
        let tools = u32::try_from(tools.unwrap_or(0)).unwrap_or(u32::MAX);
        gauge!("waypost_upstream_tools", "upstream" => name.clone()).set(f64::from(tools));
        if member.settings.pin.is_some() {
            let pending = u32::try_from(catalog.pending(&member.name).len()).unwrap_or(u32::MAX);
            gauge!("waypost_upstream_tools_pending", "upstream" => name.clone())
                .set(f64::from(pending));
        }
        let parked = u32::try_from(member.upstream.parked()).unwrap_or(u32::MAX);
        gauge!("waypost_upstream_parked_calls", "upstream" => name).set(f64::from(parked));
    }
}

/// Nothing of an upstream is pinned any more.
pub(crate) fn unpinned(upstream: &str) {
    gauge!("waypost_upstream_tools_pending", "upstream" => upstream.to_owned()).set(0.0);
}

/// An upstream is not there any more.
pub(crate) fn removed(upstream: &str) {
    for gauge in [
        "waypost_upstream_up",
        "waypost_upstream_tools",
        "waypost_upstream_parked_calls",
    ] {
        gauge!(gauge, "upstream" => upstream.to_owned()).set(0.0);
    }
}

fn describe() {
    gauge!("waypost_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    counter!("waypost_connections_refused_total").absolute(0);
    describe_gauge!(
        "waypost_build_info",
        "Always 1; the label says which version runs."
    );
    for (name, what) in GAUGES {
        describe_gauge!(*name, *what);
    }
    for (name, what) in COUNTERS {
        describe_counter!(*name, *what);
    }
    for (name, what) in HISTOGRAMS {
        describe_histogram!(*name, *what);
    }
}

const GAUGES: &[(&str, &str)] = &[
    ("waypost_upstream_up", "1 while the upstream can be called."),
    ("waypost_upstream_tools", "Tools that the upstream lists."),
    (
        "waypost_upstream_tools_pending",
        "Pinned tools that are new or changed and not approved.",
    ),
    (
        "waypost_upstream_parked_calls",
        "Calls open at the upstream that wait for an answer of their caller.",
    ),
    (
        "waypost_config_last_reload_successful",
        "0 while the configuration that was read last is not valid.",
    ),
    (
        "waypost_config_last_reload_success_timestamp_seconds",
        "When a valid configuration was read last.",
    ),
    ("waypost_open_streams", "Event streams open to clients."),
    (
        "waypost_client_sessions",
        "Client sessions that hold something.",
    ),
];

const COUNTERS: &[(&str, &str)] = &[
    (
        "waypost_config_reloads_total",
        "Readings of the configuration while running, by outcome.",
    ),
    ("waypost_requests_total", "Requests of clients, by outcome."),
    (
        "waypost_refused_total",
        "Requests refused before they were read, by reason.",
    ),
    (
        "waypost_connections_refused_total",
        "Client connections over `limits.connections`.",
    ),
    (
        "waypost_upstream_calls_total",
        "Calls that left for an upstream, by outcome.",
    ),
    (
        "waypost_upstream_ignored_messages_total",
        "Messages of upstreams that fit nowhere, by reason.",
    ),
    (
        "waypost_upstream_abandoned_tasks_total",
        "Tasks of children cancelled because they were made after their callers had gone.",
    ),
    (
        "waypost_upstream_refused_subscriptions_total",
        "Subscriptions to resources that a server refused after listeners had been promised them.",
    ),
    (
        "waypost_upstream_stray_lines_total",
        "Lines of children that are no messages.",
    ),
    ("waypost_upstream_child_exits_total", "Children that ended."),
    (
        "waypost_log_lines_dropped_total",
        "Log lines dropped because standard error was not read.",
    ),
    (
        "waypost_tools_changed_total",
        "Pinned tools that became new or changed, by upstream and change.",
    ),
    ("waypost_tasks_passed_total", "Tasks handed to clients."),
    (
        "waypost_tasks_collapsed_total",
        "Tasks that Waypost follows itself.",
    ),
    (
        "waypost_task_waits_total",
        "Tasks followed to an end, by outcome.",
    ),
    (
        "waypost_task_poll_failures_total",
        "Looks at a task that got no answer.",
    ),
    (
        "waypost_tasks_cancelled_total",
        "Tasks cancelled at the upstream, by reason.",
    ),
    (
        "waypost_task_handles_refused_total",
        "Task ids that were no handle of the caller.",
    ),
    (
        "waypost_task_requests_without_name_total",
        "Task requests without `Mcp-Name`.",
    ),
];

const HISTOGRAMS: &[(&str, &str)] = &[
    (
        "waypost_request_seconds",
        "How long requests of clients took.",
    ),
    (
        "waypost_upstream_call_seconds",
        "How long upstreams took to answer.",
    ),
];
