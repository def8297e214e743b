//! `waypost check`: is the configuration right, and what would clients see?

mod endpoints;
mod families;
mod missing;
mod shaping;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use waypost_config::{Config, Loaded};
use waypost_hub::catalog::entry::Kind;
use waypost_hub::hub::{Exposed, Hub};
use waypost_hub::keys::Keys;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::member::Member;
use waypost_hub::registry::Learned;
use waypost_hub::status::State;
use waypost_hub::store::{PinnedTool, Store, StoreError};
use waypost_hub::upstream::BoxFuture;
use waypost_wire::version;

use crate::assemble::Plan;
use crate::exit::Fatal;
use crate::output::{print, printable, say, table};
use crate::serve::runtime;

/// What an upstream gets beyond its `startup_timeout`: what it is has to be asked before that
/// begins, and its lists are read after it.
const BEYOND: Duration = Duration::from_secs(10);

/// Whoever looks at the terminal is told what takes longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Between two looks at who is still connecting.
const LOOK: Duration = Duration::from_millis(50);

/// What children get to leave by themselves.
const FAREWELL: Duration = Duration::from_secs(6);

/// Prints warnings, then what connecting shows. Nothing is written to the state, and nothing read of
/// it but what tools were that are pinned.
pub(crate) fn run(loaded: Loaded, offline: bool) -> Result<(), Fatal> {
    for warning in &loaded.warnings {
        print(&format!("{warning}\n"));
    }
    if offline {
        print("the configuration is valid");
        return Ok(());
    }
    let runtime = runtime()?;
    let result = runtime.block_on(connect(Arc::new(loaded.config)));
    runtime.shutdown_background();
    result
}

async fn connect(config: Arc<Config>) -> Result<(), Fatal> {
    let key = waypost_store::keys::generate();
    let keys = Keys::new(vec![key.into()]).map_err(anyhow::Error::from)?;
    let background = Tasks::on(Handle::current());
    let guard = std::env::current_exe().ok();
    let store = Forgetful {
        pins: pins(&config).await,
    };
    let plan = Plan::new(&config, 1, guard.as_deref(), &background);
    let hub = plan.hub(&config, Arc::new(store), keys);
    hub.start().await;
    decided(&hub, longest(&config)).await;
    print(&report(&hub));
    let missing = hub.readiness().missing;
    background.drain(FAREWELL).await;
    if missing.is_empty() {
        return Ok(());
    }
    let error = anyhow!(
        "required upstreams are not ready: `{}`",
        missing.join("`, `")
    );
    Err(Fatal::hint(error, "the table above says why"))
}

/// What tools were, where they are to be held against that.
async fn pins(config: &Config) -> Vec<PinnedTool> {
    if config.upstreams.iter().all(|one| one.pin.is_none()) {
        return Vec::new();
    }
    waypost_store::pins::read(&config.state.path)
        .await
        .unwrap_or_else(|error| {
            let why = anyhow::Error::from(error);
            print(&format!("warning: pins are not looked at: {why:#}\n"));
            Vec::new()
        })
}

/// The longest that an upstream may take to get ready.
fn longest(config: &Config) -> Duration {
    let live = config.upstreams.iter().filter(|one| !one.disabled);
    live.map(|one| one.startup_timeout)
        .max()
        .unwrap_or_default()
}

/// Waits until of each upstream it is known whether it answers.
async fn decided(hub: &Hub, longest: Duration) {
    let begun = Instant::now();
    let mut told = !std::io::stderr().is_terminal();
    loop {
        let starting = hub.readiness().starting;
        if starting.is_empty() || begun.elapsed() >= longest + BEYOND {
            return;
        }
        if !told && begun.elapsed() >= PATIENCE {
            told = true;
            say(&format!(
                "waiting for `{}`, up to {} s",
                starting.join("`, `"),
                longest.as_secs()
            ));
        }
        sleep(LOOK).await;
    }
}

fn report(hub: &Hub) -> String {
    let members = hub.members();
    if members.is_empty() {
        return "the configuration is valid, and has no upstreams".to_owned();
    }
    let headings = [
        "upstream",
        "state",
        "era",
        "versions",
        "tasks",
        "last error",
    ];
    let rows: Vec<_> = members.iter().map(|member| upstream(member)).collect();
    let mut text = table(headings, &rows);
    let exposed = hub.table();
    if !exposed.is_empty() {
        let headings = ["kind", "exposed", "length", "upstream", "original"];
        let rows: Vec<_> = exposed.iter().map(name).collect();
        text.push_str("\n\n");
        text.push_str(&table(headings, &rows));
    }
    families::report(hub, &mut text);
    shaping::report(hub, &mut text);
    for warning in &hub.catalog().warnings {
        let line = format!("warning: upstream `{}`: {}", warning.upstream, warning.text);
        text.push_str("\n\n");
        text.push_str(&printable(&line));
    }
    endpoints::report(&hub.catalog(), &mut text);
    for hint in missing::hints(&members) {
        text.push_str("\n\n");
        text.push_str(&printable(&hint));
    }
    text
}

fn upstream(member: &Member) -> [String; 6] {
    let report = member.status.report();
    let learned = member.learned();
    let dash = || "-".to_owned();
    let (era, versions, tasks) = learned.map_or_else(
        || (dash(), dash(), dash()),
        |learned| {
            let versions = match learned.facts.versions.join(", ") {
                none if none.is_empty() => dash(),
                some => some,
            };
            let tasks = if member.has_tasks() { "yes" } else { "no" };
            (
                version::era(&learned.facts.protocol).to_owned(),
                versions,
                tasks.to_owned(),
            )
        },
    );
    [
        member.name.to_string(),
        report.state.as_str().to_owned(),
        era,
        versions,
        tasks,
        match (report.last_error, report.last_cause) {
            // Where it was looked for would be most of the table; the hint below has it.
            (Some(error), Some(_)) if missing::is_missing(member) => error,
            (Some(error), Some(cause)) => format!("{error}: {cause}"),
            (None, _) if report.state == State::Starting => "did not answer in time".to_owned(),
            (error, _) => error.unwrap_or_default(),
        },
    ]
    .map(|cell| printable(&cell))
}

fn name(exposed: &Exposed) -> [String; 5] {
    [
        kind(exposed.kind).to_owned(),
        exposed.name.to_string(),
        exposed.name.chars().count().to_string(),
        exposed.upstream.to_string(),
        exposed.original.to_string(),
    ]
    .map(|cell| printable(&cell))
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "tool",
        Kind::Prompt => "prompt",
        Kind::Resource => "resource",
        Kind::Template => "template",
    }
}

/// A store that learns nothing.
#[derive(Debug)]
struct Forgetful {
    pins: Vec<PinnedTool>,
}

impl Store for Forgetful {
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn save(&self, _: Learned) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn forget(&self, _: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn pins(&self) -> BoxFuture<'_, Result<Vec<PinnedTool>, StoreError>> {
        Box::pin(async { Ok(self.pins.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_upstream_that_is_not_left_out_gets_its_time() {
        let yaml = "upstreams:\n  a: { command: x }\n  b: { url: 'http://h', startup_timeout: 90s }\n  \
             c: { command: x, startup_timeout: 10m, disabled: true }\n";
        let config = waypost_config::parse_str(yaml).unwrap().config;
        assert_eq!(longest(&config), Duration::from_secs(90));
    }

    #[test]
    fn a_name_of_an_upstream_cannot_steer_the_terminal() {
        let exposed = Exposed {
            kind: Kind::Tool,
            name: "u_\u{1b}[2J".into(),
            upstream: "u".into(),
            original: "\u{1b}[2J\n".into(),
        };
        let expected = ["tool", r"u_\u{1b}[2J", "6", "u", r"\u{1b}[2J\n"];
        assert_eq!(name(&exposed), expected);
    }
}
