//! Takes over another file while calls go on: the difference by upstream.
//!
//! Whoever did not change keeps everything. Of who changed, the settings that are the hub's own
//! count at once; where the connection is another one too, that is made beside the old one and
//! takes its place once it is known what is there. Who is left is drained by its supervisor.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use waypost_config::config::{Config, Upstream as Settings};

use crate::call::{Principal, View};
use crate::event;
use crate::hub::Hub;
use crate::makeup::{Makeup, Seat};
use crate::member::Member;
use crate::registry::Learned;
use crate::supervise;

/// What another file changed, by upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Those that were not there before.
    pub added: Vec<Arc<str>>,
    /// Those with other settings.
    pub changed: Vec<Arc<str>>,
    /// Those that are not there any more.
    pub removed: Vec<Arc<str>>,
    /// How many are as they were.
    pub kept: usize,
    /// Views that are not there any more.
    pub gone: Vec<View>,
}

/// What becomes of the seats, and of those who leave them.
struct Plan {
    at: Instant,
    seats: Vec<Seat>,
    difference: Difference,
    /// Each with who takes its place.
    left: Vec<(Arc<Member>, Option<Arc<Member>>)>,
    /// Those to be looked after from now on.
    new: Vec<Arc<Member>>,
}

impl Hub {
    /// Takes over another file. `make` makes a member for settings, with a connection of its own.
    /// What [`crate::hub::Parts`] say is read once stays as it was.
    pub fn reload(
        self: &Arc<Self>,
        config: &Config,
        make: impl Fn(&Settings) -> Arc<Member>,
    ) -> Difference {
        let shaping = self.shaping.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.makeup();
        let mut plan = Plan {
            at: Instant::now(),
            seats: Vec::new(),
            difference: Difference::default(),
            left: Vec::new(),
            new: Vec::new(),
        };
        for settings in &config.upstreams {
            let seat = before
                .seats
                .iter()
                .find(|s| *s.member.name == *settings.name);
            plan.add(settings, seat, &make);
        }
        plan.remove(&before, config);
        let after = Makeup::new(config, plan.seats, Some(&before));
        self.listeners.set(config.limits.listeners);
        self.desk.set_times(config.tasks.clone());
        plan.difference.gone = gone_views(&before, &after);
        self.makeup.store(Arc::new(after));
        let catalog = self.catalog();
        for (member, next) in plan.left {
            let shares = next.as_ref().is_some_and(|next| next.shares(&member));
            member.leave(next, shares);
            self.desk.leaves(&catalog, &member);
        }
        drop(catalog);
        self.rebuild();
        for member in plan.new {
            self.look_after(member);
        }
        for name in &plan.difference.removed {
            event::forget(name);
            self.forget_later(name);
            event::definitions_gone(name);
        }
        drop(shaping);
        self.shut_out(&[], &plan.difference.gone);
        plan.difference
    }

    /// Listeners of these callers and of these views hear no more.
    pub fn shut_out(&self, principals: &[Principal], views: &[View]) {
        self.shut_out.add(principals, views);
    }

    /// Gives a member that waited for it its seat; `false` if there is none. To be called once it
    /// is known what the member has, or that it cannot be reached.
    pub(crate) fn seat(&self, member: &Arc<Member>) -> bool {
        let _shaping = self.shaping.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((makeup, old)) = self.makeup().with_seated(member) else {
            return false;
        };
        self.makeup.store(Arc::new(makeup));
        old.leave(Some(Arc::clone(member)), false);
        self.desk.leaves(&self.catalog(), &old);
        tracing::info!(upstream = &*member.name, "replaced");
        true
    }

    /// Looks after a member in the background, until it is left or all has to end.
    pub(crate) fn look_after(self: &Arc<Self>, member: Arc<Member>) {
        if !member.settings.disabled {
            let hub = Arc::clone(self);
            self.background
                .spawn(|stop| supervise::run(hub, member, stop));
        }
    }

    fn forget_later(self: &Arc<Self>, upstream: &Arc<str>) {
        let (hub, upstream) = (Arc::clone(self), Arc::clone(upstream));
        self.background.spawn(|_| async move {
            // It may be back by then.
            if !hub.members().iter().any(|m| m.name == upstream) {
                hub.forget(&upstream).await;
            }
        });
    }
}

impl Plan {
    fn add(
        &mut self,
        settings: &Settings,
        seat: Option<&Seat>,
        make: impl Fn(&Settings) -> Arc<Member>,
    ) {
        let name: Arc<str> = settings.name.as_str().into();
        let Some(seat) = seat else {
            let member = make(settings);
            member.came(self.at);
            self.new.push(Arc::clone(&member));
            self.seats.push(Seat::of(member));
            return self.difference.added.push(name);
        };
        let (old, waiting) = (&seat.member, seat.next.as_ref());
        if waiting.unwrap_or(old).settings == *settings {
            self.difference.kept += 1;
            return self.seats.push(seat.clone());
        }
        self.difference.changed.push(name);
        if old.settings.disabled || settings.disabled {
            let member = make(settings);
            member.came(self.at);
            self.replace(old, &member);
            self.left.extend(waiting.cloned().map(|next| (next, None)));
            return self.seats.push(Seat::of(member));
        }
        let own = with_rules(&old.settings, settings);
        let same = own == *settings;
        let member = match own == old.settings {
            true => Arc::clone(old),
            // What is the hub's own counts at once.
            false => {
                let member = Arc::new(Member::over(own, old));
                self.replace(old, &member);
                member
            }
        };
        let next = (!same).then(|| self.next(settings, (old, waiting), make));
        match (&next, waiting) {
            (Some(next), _) => next.follows(&member),
            // It never came to sit.
            (None, waiting) => self.left.extend(waiting.cloned().map(|next| (next, None))),
        }
        self.seats.push(Seat { member, next });
    }

    /// Who is to take a seat once it can; `waiting` waited for it before.
    fn next(
        &mut self,
        settings: &Settings,
        (old, waiting): (&Member, Option<&Arc<Member>>),
        make: impl Fn(&Settings) -> Arc<Member>,
    ) -> Arc<Member> {
        if let Some(waiting) = waiting
            && with_rules(&waiting.settings, settings) == *settings
        {
            let next = Arc::new(Member::over(settings.clone(), waiting));
            self.replace(waiting, &next);
            return next;
        }
        self.left.extend(waiting.cloned().map(|next| (next, None)));
        let next = make(settings);
        next.succeeds(old);
        if let Some(learned) = old
            .learned()
            .filter(|l| l.fingerprint == settings.fingerprint)
        {
            next.learn(Learned::clone(&learned));
        }
        self.new.push(Arc::clone(&next));
        next
    }

    fn replace(&mut self, old: &Arc<Member>, new: &Arc<Member>) {
        self.left.push((Arc::clone(old), Some(Arc::clone(new))));
        self.new.push(Arc::clone(new));
    }

    fn remove(&mut self, before: &Makeup, config: &Config) {
        for seat in &before.seats {
            let name = &seat.member.name;
            if config
                .upstreams
                .iter()
                .any(|upstream| *upstream.name == **name)
            {
                continue;
            }
            self.difference.removed.push(Arc::clone(name));
            self.left.push((Arc::clone(&seat.member), None));
            self.left.extend(seat.next.clone().map(|next| (next, None)));
        }
    }
}

/// The settings of `connected`, with those of `new` that are the hub's own. Every other one belongs
/// to the connection, what is added to the settings later included.
fn with_rules(connected: &Settings, new: &Settings) -> Settings {
    Settings {
        prefix: new.prefix.clone(),
        tasks: new.tasks,
        timeout: new.timeout,
        timeout_ceiling: new.timeout_ceiling,
        list_timeout: new.list_timeout,
        required: new.required,
        assume_extensions: new.assume_extensions.clone(),
        aliases: new.aliases.clone(),
        tools: new.tools.clone(),
        prompts: new.prompts.clone(),
        resources: new.resources.clone(),
        family: new.family.clone(),
        pin: new.pin,
        stateless: new.stateless,
        ..connected.clone()
    }
}

/// The views that nobody can look at any more.
fn gone_views(before: &Makeup, after: &Makeup) -> Vec<View> {
    let views = |makeup: &Makeup| -> Vec<View> {
        let members = makeup.members.iter().filter(|m| !m.settings.disabled);
        let upstreams = members.map(|m| View::Upstream(Arc::clone(&m.name)));
        let endpoints = makeup.rules.iter();
        let endpoints = endpoints.map(|rules| View::Endpoint(Arc::clone(&rules.name)));
        upstreams.chain(endpoints).collect()
    };
    let after = views(after);
    let mut gone = views(before);
    gone.retain(|view| !after.contains(view));
    gone
}
