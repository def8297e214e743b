//! Reads the configuration again while Waypost runs, and applies what became different.
//!
//! One task does it, so that there is one reload at a time and the order of triggers is kept. A
//! configuration with an error changes nothing. What counts only after a restart is in one table,
//! [`settings`].

mod event;
mod settings;
mod status;
mod watch;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use waypost_config::{Auth, Config, Inputs, Loaded, Problem, Reload, Sources, read};
use waypost_front::legacy::Sessions;
use waypost_hub::call::Principal;
use waypost_hub::hub::Hub;
use waypost_hub::lifecycle::Tasks;

use crate::admin::guard::Guard;
use crate::assemble::{Plan, stateless};
use crate::logging;
use crate::stack::Stack;
use event::Trigger;
pub(crate) use status::Status;
use watch::{How, QUIET, Watch};

/// Looks at one configuration until what it is read from stays the same.
const LOOKS: usize = 4;

/// Everything that a configuration reaches while Waypost runs.
#[derive(Debug)]
pub(crate) struct Reach {
    pub(crate) plan: Arc<Plan>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) sessions: Option<Sessions>,
    /// What clients pass that come over HTTP; without, the one there is may do everything.
    pub(crate) stack: Option<Arc<Stack>>,
    pub(crate) admin: Arc<Guard>,
}

/// Applies configurations.
#[derive(Debug)]
pub(crate) struct Reloader {
    reach: Reach,
    sources: Option<Sources>,
    running: ArcSwap<Config>,
    asked: Arc<Notify>,
    status: Arc<Status>,
}

/// What reading the configuration gave.
type Read = (Result<Loaded, Vec<Problem>>, Inputs);

impl Reloader {
    /// Goes on from `running`, which was read from `sources`; without any there is nothing to read
    /// again.
    pub(crate) fn new(reach: Reach, sources: Option<Sources>, running: Arc<Config>) -> Self {
        Self {
            reach,
            sources,
            running: ArcSwap::new(running),
            asked: Arc::default(),
            status: Arc::default(),
        }
    }

    /// Lets it work in the background until `stop`.
    pub(crate) fn start(self, background: &Tasks, stop: &CancellationToken) -> Arc<Self> {
        let (reloader, stop) = (Arc::new(self), stop.clone());
        let work = Arc::clone(&reloader);
        background.spawn(|_| async move { work.run(stop).await });
        reloader
    }

    /// Asks for a reload, whether or not anything is watched.
    pub(crate) fn ask(&self) {
        self.asked.notify_one();
    }

    /// What a reload is asked for with.
    pub(crate) fn asked(&self) -> Arc<Notify> {
        Arc::clone(&self.asked)
    }

    /// How the last reloads went.
    pub(crate) fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }

    /// The configuration that counts now.
    pub(crate) fn running(&self) -> Arc<Config> {
        self.running.load_full()
    }

    /// Reads again whenever it is asked to or a file changes, until `stop`.
    async fn run(&self, stop: CancellationToken) {
        let Some(sources) = &self.sources else { return };
        event::begin();
        let mut watch = Watch::default();
        let work = async {
            // Before anybody looked a file may have changed already.
            self.try_look(sources, &mut watch, Trigger::File).await;
            loop {
                let trigger = tokio::select! {
                    () = self.asked.notified() => Trigger::Signal,
                    () = watch.changed() => Trigger::File,
                };
                self.try_look(sources, &mut watch, trigger).await;
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// Goes on whatever happens: nobody else would ever read it again.
    async fn try_look(&self, sources: &Sources, watch: &mut Watch, trigger: Trigger) {
        let look = AssertUnwindSafe(self.look(sources, watch, trigger));
        if look.catch_unwind().await.is_err() {
            tracing::error!("a reload met a bug in Waypost");
        }
    }

    async fn look(&self, sources: &Sources, watch: &mut Watch, trigger: Trigger) {
        let mut trigger = trigger;
        watch.renew().await;
        for _ in 0..LOOKS {
            let (loaded, inputs) = self.read(sources, watch).await;
            self.take(loaded, trigger);
            let inputs = match self.running().reload {
                Reload::Watch => inputs,
                Reload::Signal => Inputs::default(),
            };
            // What changed before it was watched is found by reading once more.
            if !watch.look_at(inputs).await {
                break;
            }
            trigger = Trigger::File;
        }
        self.status.set_watching(watch.how());
    }

    async fn read(&self, sources: &Sources, watch: &Watch) -> Read {
        let read = async || {
            let sources = sources.clone();
            aside(move || read(&sources)).await
        };
        let mut now = read().await;
        // Nobody says when a file was written to its end.
        while watch.how() == How::Polling && self.is_other(&now.0) {
            sleep(QUIET).await;
            let again = read().await;
            let same = is_same(&now.0, &again.0);
            now = again;
            if same {
                break;
            }
        }
        now
    }

    fn is_other(&self, loaded: &Result<Loaded, Vec<Problem>>) -> bool {
        match loaded {
            Ok(loaded) => loaded.config != *self.running(),
            Err(problems) => !self.status.is_last_error(problems),
        }
    }

    fn take(&self, loaded: Result<Loaded, Vec<Problem>>, trigger: Trigger) {
        match loaded {
            Ok(loaded) => self.apply(loaded, trigger),
            Err(problems) => {
                // A file that is as wrong as before is no news, unless somebody asks.
                let is_known = self.status.is_last_error(&problems);
                if trigger == Trigger::Signal || !is_known {
                    event::Invalid {
                        trigger,
                        problems: &problems,
                    }
                    .emit();
                    self.status.failed(trigger, problems);
                }
            }
        }
    }

    fn apply(&self, loaded: Loaded, trigger: Trigger) {
        let Loaded {
            mut config,
            warnings,
        } = loaded;
        let running = self.running();
        let waiting = settings::keep(&mut config, &running);
        let same = config == *running;
        if same && trigger == Trigger::File && !self.status.is_news(&waiting) {
            return;
        }
        if same {
            event::Unchanged {
                trigger,
                waiting: &waiting,
            }
            .emit();
            return self.status.went_well(trigger, "unchanged", waiting);
        }
        let difference = self.switch(&running, Arc::new(config));
        event::Applied {
            trigger,
            difference: &difference,
            waiting: &waiting,
            warnings: &warnings,
        }
        .emit();
        self.status.went_well(trigger, "applied", waiting);
    }

    fn switch(&self, before: &Config, after: Arc<Config>) -> waypost_hub::reload::Difference {
        let Reach {
            plan,
            hub,
            sessions,
            stack,
            admin,
        } = &self.reach;
        plan.apply(&after);
        let difference = hub.reload(&after, |settings| plan.member(settings));
        if let Some(sessions) = sessions {
            sessions.set_stateless(stateless(&after));
        }
        if let Some(stack) = stack {
            stack.apply(&after);
        }
        admin.set_token(after.admin_token.clone());
        if before.log.level != after.log.level {
            logging::set_level(&after.log.level);
        }
        // After the door: whoever is shut out does not come back in.
        let out = match stack {
            Some(_) => shut_out(&before.auth, &after.auth),
            None => Vec::new(),
        };
        hub.shut_out(&out, &[]);
        if let Some(sessions) = sessions {
            sessions.shut_out(&out, &difference.gone);
            if !after.front.sse {
                sessions.end_streams(after.drain_grace);
            }
        }
        self.running.store(after);
        difference
    }
}

/// Does what looks at files on a thread of its own: a disk may hang, and upstreams, probes and
/// signals are looked after on this one. A panic in it is the caller's.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work)
        .await
        .map_err(JoinError::try_into_panic)
    {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime is ending, and this with it.
        Err(Err(_)) => std::future::pending().await,
    }
}

fn is_same(one: &Result<Loaded, Vec<Problem>>, other: &Result<Loaded, Vec<Problem>>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.config == other.config,
        (Err(one), Err(other)) => one == other,
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

/// Who has a key no more, or another one, or one for something else.
fn shut_out(before: &Auth, after: &Auth) -> Vec<Principal> {
    if before.keys.is_empty() && !after.keys.is_empty() {
        return vec![Principal::anonymous()];
    }
    let lost = before.keys.iter().filter(|key| !after.keys.contains(key));
    let names: HashSet<&str> = lost.map(|key| key.name.as_str()).collect();
    names.into_iter().map(Principal::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &[(&str, &str)], after: &[(&str, &str)], expected: &[&str]) {
        let auth = |keys: &[(&str, &str)]| Auth {
            keys: keys
                .iter()
                .map(|(name, key)| waypost_config::Key {
                    name: (*name).to_owned(),
                    hash: waypost_config::KeyHash::of(key),
                    endpoint: None,
                })
                .collect(),
        };
        let mut out = shut_out(&auth(before), &auth(after));
        out.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        let out: Vec<_> = out.iter().map(Principal::as_str).collect();
        assert_eq!(out, expected);
    }

    #[test]
    fn whoever_loses_a_key_is_shut_out_and_nobody_else() {
        check(&[("a", "1"), ("b", "2")], &[("b", "2")], &["a"]);
        check(&[("a", "1"), ("b", "2")], &[("a", "3"), ("b", "2")], &["a"]);
        check(&[("a", "1")], &[("a", "1"), ("c", "3")], &[]);
        check(&[], &[("a", "1")], &["anonymous"]);
        check(&[("a", "1")], &[], &["a"]);
        check(&[], &[], &[]);
    }

    #[tokio::test]
    async fn what_may_block_is_done_elsewhere_and_its_panic_is_ours() {
        let here = std::thread::current().id();
        let there = aside(|| std::thread::current().id()).await;
        assert_ne!(here, there);
        let panics = AssertUnwindSafe(aside(|| -> () { panic!("a bug") }));
        let panic = panics.catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a bug"));
    }
}
