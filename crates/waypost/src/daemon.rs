//! Waypost as one value: started from a configuration, stopped by draining.
//!
//! The program holds one; tests hold several. Start and stop are the same code for both.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waypost_config::{Config, Sources};
use waypost_hub::hub::Hub;
use waypost_hub::lifecycle::Tasks;
use waypost_policy::in_flight::InFlightLayer;

use crate::admin::guard::Guard;
use crate::admin::{self, Admin};
use crate::assemble::{Assembled, assemble};
use crate::ending::within;
use crate::exit::Fatal;
use crate::reload::{Reach, Reloader};
use crate::runtime::{Core, Door, bind};
use crate::stack::Stack;

pub use crate::runtime::Shares;

/// Connections of probes, scrapers and an operator.
const ADMIN_CONNECTIONS: usize = 64;

/// What saying goodbye to callers whose calls outlived the grace may take.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Longest wait for the threads of the cores, which have nothing left to do: one that is stuck in
/// what does not yield must not hold up the rest of the way down.
const CORES: Duration = Duration::from_millis(500);

/// What the configuration does not say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Data cores; as many as the machine, or its container, has if not given.
    pub cores: Option<NonZeroUsize>,
    /// How cores come by connections; what suits the system if not given.
    pub shares: Option<Shares>,
    /// The program whose command `guard` ends children should this process die: Waypost itself.
    /// Without it they may outlive a crash.
    pub guard: Option<PathBuf>,
    /// Where the configuration came from: it is read again when it changes there. Without, it
    /// stays as it is.
    pub sources: Option<Sources>,
}

impl Options {
    /// What the program itself uses.
    pub(crate) fn of_program() -> Self {
        Self {
            guard: std::env::current_exe().ok(),
            ..Self::default()
        }
    }
}

/// A running Waypost. Dropping it ends everything at once; [`Daemon::stop`] drains.
#[derive(Debug)]
pub struct Daemon {
    /// Where the MCP endpoint listens.
    pub mcp: SocketAddr,
    /// Where the admin listener listens.
    pub admin: SocketAddr,
    hub: Arc<Hub>,
    reload: Arc<Notify>,
    stop: CancellationToken,
    hurry: CancellationToken,
    ended: Option<oneshot::Receiver<bool>>,
}

/// Between two looks at whether upstreams are there, or calls are over.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// The two addresses that were bound.
type Addresses = (SocketAddr, SocketAddr);

/// What the control thread reports once it is up, or why it is not.
type Started = Result<(Addresses, Arc<Hub>, Arc<Notify>), Fatal>;

impl Daemon {
    /// Starts on threads of its own and returns when both listeners accept. Upstreams connect
    /// behind that; an unreachable one is no error.
    ///
    /// # Errors
    /// [`Fatal`] when an address cannot be bound or the state cannot be used.
    pub fn start(
        config: Config,
        options: Options,
    ) -> impl Future<Output = Result<Self, Fatal>> + Send {
        // A configuration is large; the future need not be.
        Self::run(Arc::new(config), options)
    }

    async fn run(config: Arc<Config>, options: Options) -> Result<Self, Fatal> {
        let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
        let (started, start) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let control = Control {
            config,
            options,
            stop: stop.clone(),
            hurry: hurry.clone(),
        };
        thread::Builder::new()
            .name("waypost-control".to_owned())
            .spawn(move || control.run(started, end))
            .context("cannot start a thread")?;
        let ((mcp, admin), hub, reload) = start
            .await
            .map_err(|_| anyhow!("the control thread ended before it was up"))??;
        Ok(Self {
            mcp,
            admin,
            hub,
            reload,
            stop,
            hurry,
            ended: Some(ended),
        })
    }

    /// The MCP endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.mcp)
    }

    /// Waits until it is ready as `/readyz` says: all first connect attempts over, every required
    /// upstream there. `false` when that takes longer than `within`.
    pub async fn ready(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        while !self.hub.readiness().ready {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    /// Reads the configuration again soon, and applies what is different. Nothing happens without
    /// [`Options::sources`], or once it is told to stop.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    /// Drains: readiness is gone at once, nothing new begins, what is in flight may finish
    /// within the grace, streams and children end. `false` when something had to be cut off.
    pub async fn stop(mut self) -> bool {
        self.stop.cancel();
        match self.ended.take() {
            Some(ended) => ended.await.unwrap_or(false),
            None => false,
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // After an ordinary stop nobody listens any more.
        self.hurry.cancel();
        self.stop.cancel();
    }
}

/// What the control thread works with.
struct Control {
    config: Arc<Config>,
    options: Options,
    stop: CancellationToken,
    hurry: CancellationToken,
}

impl Control {
    fn run(self, started: oneshot::Sender<Started>, end: oneshot::Sender<bool>) {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let error = anyhow::Error::from(error).context("cannot start the control runtime");
                drop(started.send(Err(error.into())));
                return;
            }
        };
        let clean = runtime.block_on(async {
            match Running::start(&self.config, &self.options).await {
                Ok(running) => {
                    let hub = Arc::clone(&running.assembled.hub);
                    let reload = running.reloader.asked();
                    drop(started.send(Ok((running.addresses, hub, reload))));
                    self.stop.cancelled().await;
                    let grace = running.reloader.running().drain_grace;
                    running.end(grace, &self.hurry).await
                }
                Err(fatal) => {
                    drop(started.send(Err(fatal)));
                    true
                }
            }
        });
        // Whatever is still at it had its chance.
        runtime.shutdown_background();
        // A daemon that was dropped does not wait for this.
        end.send(clean).ok();
    }
}

/// Everything that runs, seen from the control runtime.
struct Running {
    addresses: Addresses,
    assembled: Assembled,
    reloader: Arc<Reloader>,
    clients: Door,
    in_flight: InFlightLayer,
    operators: Door,
    draining: CancellationToken,
    cores: Vec<Core>,
    cores_end: CancellationToken,
}

impl Running {
    async fn start(config: &Arc<Config>, options: &Options) -> Result<Self, Fatal> {
        let shares = options.shares.unwrap_or(Shares::natural());
        let count = options
            .cores
            .or_else(|| thread::available_parallelism().ok())
            .map_or(1, NonZeroUsize::get);
        let sockets = if shares == Shares::Own { count } else { 1 };
        // Before anything else is touched: the usual mistake is a second Waypost.
        let mcp = listen(config.listen, sockets, "listen")?;
        let admin = listen(config.admin, 1, "admin")?;
        let addresses = (address(&mcp)?, address(&admin)?);

        let metrics = admin::metrics::start();
        let assembled = assemble(config, count, options.guard.as_deref()).await?;
        let hub = &assembled.hub;
        hub.start().await;
        let draining = CancellationToken::new();
        let clients = Door::new(config.limits.connections);
        let cores_end = CancellationToken::new();
        let stack = Stack::new(config, addresses.0, hub, assembled.sessions.as_ref());
        let stack = Arc::new(stack);
        let guard = admin::guard(config);
        let reach = Reach {
            plan: Arc::clone(&assembled.plan),
            hub: Arc::clone(hub),
            sessions: assembled.sessions.clone(),
            stack: Some(Arc::clone(&stack)),
            admin: Arc::clone(&guard),
        };
        let reloader = Reloader::new(reach, options.sources.clone(), Arc::clone(config));
        let reloader = reloader.start(&assembled.background, &draining);
        let facts = Admin {
            hub: Arc::clone(hub),
            metrics,
            reloads: reloader.status(),
            draining: draining.clone(),
        };
        let operators = operators(guard, facts, admin, &assembled.background);
        let make = || clients.to(stack.http());
        let cores = match (shares, mcp) {
            (Shares::Own, listeners) => Core::own(listeners, make, &cores_end),
            (Shares::Dealt, listeners) => listeners
                .into_iter()
                .next()
                .ok_or_else(|| io::Error::other("no socket"))
                .and_then(|one| Core::dealt(one, count, make, &cores_end)),
        };
        let cores = cores.context("cannot start a core")?;
        tracing::info!(mcp = %addresses.0, admin = %addresses.1, cores = count, "listening");
        Ok(Self {
            addresses,
            assembled,
            reloader,
            clients,
            in_flight: stack.in_flight().clone(),
            operators,
            draining,
            cores,
            cores_end,
        })
    }

    /// The one way down. Whether everything ended by itself.
    async fn end(self, grace: Duration, hurry: &CancellationToken) -> bool {
        let Self {
            assembled,
            clients,
            in_flight,
            operators,
            draining,
            cores,
            cores_end,
            ..
        } = self;
        draining.cancel();
        // Whatever becomes of the waits below, nothing new begins.
        in_flight.begin_drain();
        let last = assembled.begin_drain(grace);
        let until = Instant::now() + grace;
        // Calls that wait for an answer of their client need it to get in, be they on a stream or
        // parked until their client comes back.
        let hub = &assembled.hub;
        let idle = async {
            while !in_flight.is_idle() || !hub.is_idle() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let idle = tokio::time::timeout_at(until, idle);
        hurry.run_until_cancelled(idle).await;
        // Whatever becomes of the waits below, nobody is let in any more.
        clients.stop_signal().cancel();
        let left = until.saturating_duration_since(Instant::now());
        let drained = hurry.run_until_cancelled(clients.clone().drain(left)).await;
        if drained == Some(false) {
            assembled.give_up_calls();
            within(LAST_WORDS, hurry, clients.last_words(LAST_WORDS)).await;
        }
        // Drops the calls that are left.
        cores_end.cancel();
        let join = || cores.into_iter().for_each(Core::join);
        let joined = within(CORES, hurry, aside(join)).await;
        let ended = assembled.end(last, hurry).await;
        operators.drain(Duration::ZERO).await;
        let clean = drained == Some(true) && joined && ended;
        tracing::info!(clean, "ended");
        clean
    }
}

/// Does what blocks on a thread of its own: this one has children to end.
async fn aside(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = oneshot::channel();
    let work = move || {
        work();
        // Perhaps nobody waits any more.
        done.send(()).ok();
    };
    let helper = thread::Builder::new().name("waypost-end".to_owned());
    match helper.spawn(work) {
        Ok(_) => drop(is_done.await),
        Err(error) => tracing::error!(%error, "cannot start a thread"),
    }
}

/// Serves operators.
pub(crate) fn operators(
    guard: Arc<Guard>,
    facts: Admin,
    listeners: Vec<TcpListener>,
    background: &Tasks,
) -> Door {
    let operators = Door::new(ADMIN_CONNECTIONS);
    let metrics = facts.metrics.clone();
    let routes = admin::routes(facts, guard);
    for listener in listeners {
        let connections = operators.to(routes.clone());
        operators.spawn_here(|_| connections.accept(listener));
    }
    background.spawn(|stop| admin::metrics::upkeep(metrics, stop));
    operators
}

pub(crate) fn listen(
    at: SocketAddr,
    count: usize,
    setting: &str,
) -> Result<Vec<TcpListener>, Fatal> {
    bind(at, count).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another program listens there, perhaps another Waypost; stop it or give \
                 another address with `--{setting}`"
            ),
            io::ErrorKind::PermissionDenied => {
                format!("take a port above 1023 with `--{setting}`")
            }
            _ => format!("give an address of this machine with `--{setting}`"),
        };
        let error = anyhow::Error::from(error).context(format!("cannot listen on `{at}`"));
        Fatal::hint(error, hint)
    })
}

pub(crate) fn address(listeners: &[TcpListener]) -> Result<SocketAddr, Fatal> {
    let first = listeners.first().map(TcpListener::local_addr);
    let first = first.unwrap_or_else(|| Err(io::Error::other("no socket")));
    Ok(first.context("cannot read the address of a listener")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn r42_a_core_that_is_stuck_does_not_hold_up_the_end() {
        let hurry = CancellationToken::new();
        let minute = Duration::from_secs(60);
        assert!(within(minute, &hurry, aside(|| ())).await);
        let (release, stuck) = std::sync::mpsc::channel::<()>();
        let work = aside(move || assert!(stuck.recv().is_err()));
        let before = std::time::Instant::now();
        assert!(!within(Duration::from_millis(20), &hurry, work).await);
        assert!(before.elapsed() < minute);
        drop(release);
    }
}
