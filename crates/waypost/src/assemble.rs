//! From the configuration to everything that answers requests.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use waypost_config::{Config, Reach, Upstream as Settings, environment};
use waypost_front::legacy::{SessionParts, Sessions};
use waypost_hub::call::{Call, View};
use waypost_hub::error::{CallError, Kind};
use waypost_hub::hub::{Hub, Parts};
use waypost_hub::keys::Keys;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::member::Member;
use waypost_hub::store::Store;
use waypost_hub::upstream::{BoxFuture, CallFuture, Facts, Upstream};
use waypost_store::{Database, keys};
use waypost_upstream::Fault;
use waypost_upstream::guard::Guard;

use crate::exit::Fatal;

/// The hub and what it stands on.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) hub: Arc<Hub>,
    /// The sessions of clients, unless that era is switched off.
    pub(crate) sessions: Option<Sessions>,
    /// Makes members, at the start and later.
    pub(crate) plan: Arc<Plan>,
    /// All work that belongs to no connection.
    pub(crate) background: Tasks,
    pub(crate) database: Database,
}

/// Opens the state and puts everything together on the runtime of the caller; nothing runs yet.
pub(crate) async fn assemble(
    config: &Arc<Config>,
    cores: usize,
    guard: Option<&Path>,
) -> Result<Assembled, Fatal> {
    let keys = keys::load(&config.state).map_err(|error| {
        let hint = error.hint();
        Fatal::hint(error, hint)
    })?;
    let database = Database::open(&config.state.path).await.map_err(|error| {
        let hint = error.hint();
        Fatal::hint(error, hint)
    })?;
    let background = Tasks::on(Handle::current());
    let store: Arc<dyn Store> = Arc::new(database.clone());
    let tidied = database.clone();
    background.spawn(|stop| daily(stop, move || tidy(tidied.clone())));
    let sessions = sessions(config, Arc::clone(&store), &keys, &background);
    let plan = Arc::new(Plan::new(config, cores, guard, &background));
    let hub = plan.hub(config, store, keys);
    Ok(Assembled {
        hub,
        sessions,
        plan,
        background,
        database,
    })
}

/// Between looks at what the store need not keep any more.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn daily<F: Future<Output = ()>>(stop: CancellationToken, work: impl Fn() -> F) {
    loop {
        tokio::select! {
            () = sleep(DAY) => work().await,
            () = stop.cancelled() => return,
        }
    }
}

async fn tidy(database: Database) {
    if let Err(error) = database.tidy().await {
        let error: &dyn std::error::Error = &error;
        tracing::warn!(
            error,
            "old sessions and request states stay in the store for another day"
        );
    }
}

fn sessions(
    config: &Config,
    store: Arc<dyn Store>,
    keys: &Keys,
    background: &Tasks,
) -> Option<Sessions> {
    config.front.eras.legacy.then(|| {
        Sessions::new(SessionParts {
            keys: keys.clone(),
            store,
            tasks: background.clone(),
            idle: config.front.session_idle,
            handshake: config.front.session_handshake,
            limit: config.limits.sessions,
            stateless: stateless(config),
            answer_within: config.tasks.input_wait,
        })
    })
}

/// The endpoints whose clients get no session ids.
pub(crate) fn stateless(config: &Config) -> HashSet<View> {
    let all = config.front.stateless.then_some(View::All);
    let each = config.upstreams.iter().filter_map(|upstream| {
        let stateless = upstream.stateless.unwrap_or(config.front.stateless);
        stateless.then(|| View::Upstream(upstream.name.as_str().into()))
    });
    let endpoints = config.endpoints.iter().filter_map(|endpoint| {
        let stateless = endpoint.stateless.unwrap_or(config.front.stateless);
        stateless.then(|| View::Endpoint(endpoint.name.as_str().into()))
    });
    all.into_iter().chain(each).chain(endpoints).collect()
}

/// A question that nobody answers ends at the client first.
const MARGIN: Duration = Duration::from_secs(30);

/// How upstreams become members: the same at the start and when the configuration is read again.
#[derive(Debug)]
pub(crate) struct Plan {
    parts: waypost_upstream::Parts,
    /// Ends children should Waypost die.
    guard: Mutex<Option<Guard>>,
    /// The program that does it.
    program: Option<PathBuf>,
}

impl Plan {
    /// What the connections to upstreams are given; `guard` is the program that ends children.
    pub(crate) fn new(
        config: &Config,
        cores: usize,
        guard: Option<&Path>,
        background: &Tasks,
    ) -> Self {
        let plan = Self {
            parts: waypost_upstream::Parts {
                tasks: background.clone(),
                cores,
                response_limit: config.limits.response_body,
                env: Arc::new(environment()),
                tls: waypost_upstream::parts::Tls::default(),
                tell_callers: Arc::default(),
                parked: Arc::new(Semaphore::new(config.limits.parked)),
                answer_within: config.tasks.input_wait + MARGIN,
                places: waypost_upstream::Places::of_process(),
                guard: None,
            },
            guard: Mutex::default(),
            program: guard.map(Path::to_owned),
        };
        plan.apply(config);
        plan
    }

    /// What is for all upstreams goes by this configuration from now on.
    pub(crate) fn apply(&self, config: &Config) {
        let tell = is_ours_alone(config);
        self.parts.tell_callers.store(tell, Ordering::Relaxed);
        let is_child = |one: &Settings| !one.disabled && matches!(one.reach, Reach::Stdio { .. });
        // Without children there is nothing to guard.
        if let Some(program) = &self.program
            && config.upstreams.iter().any(is_child)
        {
            let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
            let arguments = || vec!["guard".to_owned()];
            guard.get_or_insert_with(|| {
                Guard::start(program.clone(), arguments(), &self.parts.tasks)
            });
        }
    }

    /// A member with a connection of its own; nothing is opened yet.
    pub(crate) fn member(&self, settings: &Settings) -> Arc<Member> {
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = waypost_upstream::Parts {
            guard: guard.clone(),
            ..self.parts.clone()
        };
        Arc::new(Member::new(settings.clone(), upstream(settings, &parts)))
    }

    /// The hub over its upstreams.
    pub(crate) fn hub(&self, config: &Arc<Config>, store: Arc<dyn Store>, keys: Keys) -> Arc<Hub> {
        let members = config.upstreams.iter().map(|one| self.member(one));
        Hub::new(Parts {
            members: members.collect(),
            config: Arc::clone(config),
            store,
            keys,
            background: self.parts.tasks.clone(),
        })
    }
}

/// Whether nobody calls but who runs Waypost, so that there is nobody to keep anything from.
/// `insecure` opens a listener to the network without making its callers one.
fn is_ours_alone(config: &Config) -> bool {
    config.auth.keys.is_empty() && config.listen.ip().is_loopback()
}

/// One that cannot work is still there, and says so: it must not take the others down.
fn upstream(settings: &Settings, parts: &waypost_upstream::Parts) -> Arc<dyn Upstream> {
    waypost_upstream::connect(settings, parts).unwrap_or_else(|fault| {
        let name = settings.name.as_str().into();
        let fault = Arc::new(fault);
        Arc::new(Unusable { name, fault })
    })
}

/// An upstream whose settings cannot work on this machine.
#[derive(Debug)]
struct Unusable {
    name: Arc<str>,
    fault: Arc<Fault>,
}

impl Unusable {
    fn error(&self) -> CallError {
        let error = CallError::upstream(Kind::Unavailable, &self.name);
        error.detail(self.fault.to_string()).retryable()
    }
}

impl Upstream for Unusable {
    fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
        Box::pin(std::future::ready(Err(self.error())))
    }

    fn call(&self, _: Call) -> CallFuture<'_> {
        Box::pin(std::future::ready(Err(self.error())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[track_caller]
    fn check(yaml: &str, expected: bool) {
        let config = waypost_config::parse_str(yaml).unwrap().config;
        assert_eq!(is_ours_alone(&config), expected, "{yaml}");
    }

    #[test]
    fn an_upstream_or_endpoint_says_whether_clients_get_session_ids() {
        #[track_caller]
        fn check(front: bool, expected: &[&str]) {
            let yaml = format!(
                "front: {{stateless: {front}}}\nupstreams: {{a: {{url: 'http://h'}}, \
                 b: {{url: 'http://h', stateless: true}}, c: {{url: 'http://h', stateless: false}}}}\n\
                 endpoints: {{d: {{}}, e: {{stateless: true}}, f: {{stateless: false}}}}"
            );
            let config = waypost_config::parse_str(&yaml).unwrap().config;
            let path = |view: &View| match view.name() {
                None => "/mcp".to_owned(),
                Some(name) => format!("/mcp/{name}"),
            };
            let mut paths: Vec<_> = stateless(&config).iter().map(path).collect();
            paths.sort();
            assert_eq!(paths, expected);
        }
        check(false, &["/mcp/b", "/mcp/e"]);
        check(true, &["/mcp", "/mcp/a", "/mcp/b", "/mcp/d", "/mcp/e"]);
    }

    #[test]
    fn only_on_loopback_and_without_keys_callers_hear_what_a_child_said() {
        check("", true);
        check("listen: '[::1]:7400'", true);
        check("{listen: '0.0.0.0:7400', insecure: true}", false);
        check("{listen: '127.0.0.1:7400', insecure: true}", true);
        let hash = "0".repeat(64);
        let keys = format!("auth: {{keys: [{{name: ci, hash: 'sha256:{hash}'}}]}}");
        check(&keys, false);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_done_daily_is_done_each_day_until_the_stop() {
        let (done, tasks) = (Arc::new(AtomicUsize::new(0)), Tasks::default());
        let counted = Arc::clone(&done);
        let work = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(())
        };
        tasks.spawn(|stop| daily(stop, work));
        sleep(DAY * 2 + Duration::from_secs(1)).await;
        assert_eq!(done.load(Ordering::SeqCst), 2);
        assert!(tasks.drain(Duration::from_secs(1)).await);
    }
}
