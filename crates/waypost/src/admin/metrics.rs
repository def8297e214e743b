//! The process's metrics, in the format of Prometheus.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;
use waypost_hub::catalog::Catalog;
use waypost_hub::member::Member;
use waypost_hub::status::State as Health;

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

/// What is a state of upstreams and not an event, as it is now. Nothing of it is recorded, so that
/// an upstream that is not there any more, or is switched off, has none: nobody is to be woken for it.
pub(super) fn states(members: &[Arc<Member>], catalog: &Catalog) -> String {
    let mut text = String::new();
    for (name, what, value) in STATES {
        // Writing into memory does not fail.
        write!(text, "# HELP {name} {what}\n# TYPE {name} gauge\n").ok();
        for member in members.iter().filter(|member| !member.settings.disabled) {
            if let Some(value) = value(member, catalog) {
                let of = &member.name;
                writeln!(text, "{name}{{upstream=\"{of}\"}} {value}").ok();
            }
        }
        text.push('\n');
    }
    text
}

/// What it is of an upstream, where that has it. No name of an upstream needs an escape.
type State = (
    &'static str,
    &'static str,
    fn(&Member, &Catalog) -> Option<usize>,
);

const STATES: &[State] = &[
    (
        "waypost_upstream_up",
        "1 while the upstream can be called.",
        |member, _| {
            let up = matches!(member.status.state(), Health::Up | Health::Degraded);
            Some(usize::from(up))
        },
    ),
    (
        "waypost_upstream_tools",
        "Tools that the upstream lists.",
        |member, _| {
            let learned = member.learned();
            let tools =
                learned.and_then(|learned| Some(learned.catalogue.tools.as_ref()?.items.len()));
            Some(tools.unwrap_or(0))
        },
    ),
    (
        "waypost_upstream_tools_pending",
        "Pinned tools that are new or changed and not approved.",
        |member, catalog| {
            let pinned = member.settings.pin.is_some();
            pinned.then(|| catalog.pending(&member.name).len())
        },
    ),
    (
        "waypost_upstream_parked_calls",
        "Calls to the upstream that wait for an answer of their caller.",
        |member, _| Some(member.parked()),
    ),
];

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
    (
        "waypost_upstream_refused_definitions",
        "Definitions that the upstream lists and clients cannot be shown, by kind.",
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
        "waypost_resource_cache_total",
        "Looks for the kept answer of a resource, by outcome.",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::hub;

    /// The upstreams that a metric has a value of.
    #[track_caller]
    fn check(text: &str, metric: &str, expected: &[&str]) {
        let lines = text.lines();
        let of = lines.filter_map(|line| {
            let rest = line.strip_prefix(metric)?.strip_prefix("{upstream=\"")?;
            Some(rest.split('"').next().unwrap())
        });
        assert_eq!(of.collect::<Vec<_>>(), expected, "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn upstreams_that_are_gone_or_switched_off_have_no_state() {
        let (_, hub) = hub(
            "upstreams: { a: { command: s, pin: warn }, b: { command: s }, \
            off: { command: s, disabled: true, pin: warn } }",
        )
        .await;
        let text = states(&hub.members(), &hub.catalog());
        check(&text, "waypost_upstream_up", &["a", "b"]);
        check(&text, "waypost_upstream_tools_pending", &["a"]);
        assert!(
            text.contains("# TYPE waypost_upstream_up gauge\n"),
            "{text}"
        );
        let yaml = "upstreams: { b: { command: s } }";
        let config = waypost_config::parse_str(yaml).unwrap().config;
        hub.reload(&Arc::new(config), |_| unreachable!("nothing is new"));
        let text = states(&hub.members(), &hub.catalog());
        check(&text, "waypost_upstream_up", &["b"]);
        check(&text, "waypost_upstream_tools_pending", &[]);
    }

    #[test]
    fn every_metric_is_described_once() {
        let names = [GAUGES, COUNTERS, HISTOGRAMS]
            .into_iter()
            .flatten()
            .map(|(name, _)| *name);
        let mut names: Vec<&str> = names.chain(STATES.iter().map(|(name, ..)| *name)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
