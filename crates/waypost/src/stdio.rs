//! `waypost stdio`: for hosts that only launch commands. Standard output carries messages and
//! nothing else.

pub(crate) mod connect;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{stdin, stdout};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waypost_config::{Config, Loaded, Sources};
use waypost_front::stdio::{Host, Pipe};
use waypost_hub::call::{Principal, View};

use crate::admin::{self, Admin};
use crate::assemble::{Assembled, assemble};
use crate::daemon::{LOOK, Options, address, listen, operators};
use crate::exit::Fatal;
use crate::logging;
use crate::reload::{Reach, Reloader};
use crate::runtime::Door;
use crate::serve::{configured, runtime};
use crate::signal::Signals;
use crate::stack;

/// Serves the host from a configuration, in this process; `with_admin` is whether operators are
/// served too, `sources` where the configuration came from. Ends with the host's input, or by a signal.
pub(crate) fn run(loaded: Loaded, sources: Sources, with_admin: bool) -> Result<(), Fatal> {
    let _last = logging::start(&loaded.config.log)?;
    configured(&loaded, sources.file.as_deref());
    let runtime = runtime()?;
    let result = runtime.block_on(until_over(Arc::new(loaded.config), sources, with_admin));
    // Whoever still reads standard input is not waited for.
    runtime.shutdown_background();
    result
}

async fn until_over(config: Arc<Config>, sources: Sources, with_admin: bool) -> Result<(), Fatal> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    // Before the state is touched: a second one with the same address is the usual mistake.
    let listeners = match with_admin {
        true => listen(config.admin, 1, "admin")?,
        false => Vec::new(),
    };
    let served = Served::start(&config, sources, listeners).await?;
    Box::pin(served.until_over(&mut signals)).await;
    Ok(())
}

/// Everything that runs for one host.
struct Served {
    assembled: Assembled,
    reloader: Arc<Reloader>,
    operators: Option<Door>,
    draining: CancellationToken,
    pipe: Pipe,
}

impl Served {
    async fn start(
        config: &Arc<Config>,
        sources: Sources,
        admin: Vec<TcpListener>,
    ) -> Result<Self, Fatal> {
        let metrics = (!admin.is_empty()).then(admin::metrics::start);
        let guard = Options::of_program().guard;
        let assembled = assemble(config, 1, guard.as_deref()).await?;
        assembled.hub.start().await;
        let draining = CancellationToken::new();
        let guard = admin::guard(config);
        let reach = Reach {
            plan: Arc::clone(&assembled.plan),
            hub: Arc::clone(&assembled.hub),
            sessions: assembled.sessions.clone(),
            stack: None,
            admin: Arc::clone(&guard),
        };
        let reloader = Reloader::new(reach, Some(sources), Arc::clone(config));
        let reloader = reloader.start(&assembled.background, &draining);
        let operators = match metrics {
            Some(metrics) => {
                let at = address(&admin)?;
                let facts = Admin {
                    hub: Arc::clone(&assembled.hub),
                    metrics,
                    reloads: reloader.status(),
                    draining: draining.clone(),
                };
                tracing::info!(admin = %at, "listening");
                Some(operators(guard, facts, admin, &assembled.background))
            }
            None => None,
        };
        let host = Host {
            parts: stack::parts(config, &assembled.hub, assembled.sessions.as_ref()),
            tasks: assembled.background.clone(),
            principal: Principal::anonymous(),
            view: View::All,
        };
        Ok(Self {
            pipe: Pipe::new(host, stdout()),
            assembled,
            reloader,
            operators,
            draining,
        })
    }

    async fn until_over(self, signals: &mut Signals) {
        let Self {
            assembled,
            reloader,
            operators,
            draining,
            mut pipe,
        } = self;
        let open = pipe.open();
        let reload = || reloader.ask();
        let mut read = Box::pin(pipe.read(stdin()));
        let mut over = signals.until_or(reload, &mut read).await.is_some();
        draining.cancel();
        let grace = reloader.running().drain_grace;
        let last = assembled.begin_drain(grace);
        let until = Instant::now() + grace;
        if !over {
            let patience = reloader.running().tasks.input_wait;
            let is_idle = || open.is_idle(patience) && assembled.hub.is_idle();
            over = read_on(signals, &mut read, until, is_idle).await;
        }
        drop(read);
        // A host that loses patience while calls finish cuts them off, but children get their time.
        let left = until.saturating_duration_since(Instant::now());
        let left = if over { left } else { Duration::ZERO };
        let finished = signals.until(pipe.finish(left)).await;
        let hurry = CancellationToken::new();
        let ended = signals.until(assembled.end(last, &hurry)).await;
        if let Some(operators) = operators {
            operators.drain(Duration::ZERO).await;
        }
        let clean = finished == Some(true) && ended == Some(true);
        tracing::info!(clean, "ended");
    }
}

/// Reads on after a signal until nothing is open any more, or until the time is over: calls that
/// wait for an answer of the host need it to get in, and what it begins now is to be refused.
/// `false` when another signal came.
async fn read_on(
    signals: &mut Signals,
    read: impl Future<Output = ()>,
    until: Instant,
    is_idle: impl Fn() -> bool,
) -> bool {
    let idle = async {
        loop {
            tokio::time::sleep(LOOK).await;
            if is_idle() {
                break;
            }
        }
    };
    let either = async {
        tokio::select! {
            () = read => {}
            () = idle => {}
        }
    };
    let either = tokio::time::timeout_at(until, either);
    signals.until(either).await.is_some()
}
