//! `waypost serve`.

use std::path::Path;

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};
use waypost_config::{Config, Loaded, Problem, Sources};

use crate::daemon::{Daemon, Options};
use crate::exit::Fatal;
use crate::logging;
use crate::signal::{Signals, Told};

/// Runs until a signal, then drains. A second signal ends it at once. `sources` are where the
/// configuration came from.
pub(crate) fn run(loaded: Loaded, sources: Sources) -> Result<(), Fatal> {
    let _last = logging::start(&loaded.config.log)?;
    configured(&loaded, sources.file.as_deref());
    let runtime = runtime()?;
    let result = runtime.block_on(until_signalled(loaded.config, sources));
    runtime.shutdown_background();
    result
}

/// Logs what it is about to run with.
pub(crate) fn configured(loaded: &Loaded, file: Option<&Path>) {
    let file = file.map(|path| tracing::field::display(path.display()));
    tracing::info!(
        file,
        upstreams = loaded.config.upstreams.len(),
        "configured"
    );
    warn(&loaded.warnings);
    if loaded.config.upstreams.is_empty() {
        tracing::warn!("no upstreams are configured, clients will see nothing");
    }
}

/// A runtime for what commands do beside the daemon, such as waiting for signals.
pub(crate) fn runtime() -> Result<Runtime, Fatal> {
    let runtime = Builder::new_current_thread().enable_all().build();
    Ok(runtime.context("cannot start a runtime")?)
}

/// Problems that do not keep Waypost from running, as log lines.
fn warn(problems: &[Problem]) {
    for problem in problems {
        tracing::warn!("{problem}");
    }
}

async fn until_signalled(config: Config, sources: Sources) -> Result<(), Fatal> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let options = Options {
        sources: Some(sources),
        ..Options::of_program()
    };
    let daemon = tokio::select! {
        daemon = Daemon::start(config, options) => daemon?,
        _ = signals.end() => return Ok(()),
    };
    let signal = loop {
        match signals.told().await {
            Told::Reload => daemon.reload(),
            Told::End(signal) => break signal,
        }
    };
    tracing::info!(signal, "draining; a second signal ends it at once");
    drain(daemon, &mut signals).await;
    Ok(())
}

async fn drain(daemon: Daemon, signals: &mut Signals) {
    // Dropping the drain half-way ends everything.
    let clean = tokio::select! {
        clean = daemon.stop() => clean,
        _ = signals.end() => false,
    };
    if !clean {
        tracing::warn!("ended before everything in flight was over");
    }
}
