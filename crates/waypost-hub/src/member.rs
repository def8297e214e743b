//! One configured upstream and all that belongs to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use globset::{Glob, GlobMatcher};
use tokio::sync::Notify;
use waypost_config::config::Upstream as Settings;
use waypost_wire::capability::TASKS;
use waypost_wire::raw::Raw;

use crate::catalog::entry::Kind;
use crate::catalog::shaping::Shaping;
use crate::limit::Limit;
use crate::own;
use crate::pins::Pinned;
use crate::registry::Learned;
use crate::status::{State, Status};
use crate::upstream::Upstream;

/// One upstream as the hub sees it. Shared by all cores; nothing in it is locked.
#[derive(Debug)]
pub struct Member {
    /// Its identity: in ids, metrics, policy and handles.
    pub name: Arc<str>,
    /// What the file says of it.
    pub settings: Settings,
    /// The connection.
    pub upstream: Arc<dyn Upstream>,
    /// How it is doing, from what happened to its calls.
    pub status: Status,
    /// Asks the supervisor to look at the upstream now.
    pub wake: Notify,
    /// See [`own::signature`].
    signature: Raw,
    learned: ArcSwapOption<Learned>,
    /// Whether a subscription to its list changes stands.
    followed: AtomicBool,
    listed: AtomicBool,
    /// Somebody sees to it that what is known is stored after all.
    unsaved: AtomicBool,
    /// A bit for each kind of list: it is declared, but was never read.
    unread: AtomicU8,
    /// A bit for each kind of list about which the server answered, be it that it has none.
    answered: AtomicU8,
    permits: Arc<Limit>,
    /// What the file makes of its definitions; `None` is nothing.
    shaping: Option<Shaping>,
    /// What its tools were; `None` while that is not known.
    pinned: ArcSwapOption<Pinned>,
    timeouts: Vec<(GlobMatcher, Duration)>,
}

impl Member {
    /// Puts settings and connection together.
    pub fn new(settings: Settings, upstream: Arc<dyn Upstream>) -> Self {
        let state = if settings.disabled {
            State::Disabled
        } else {
            State::Starting
        };
        let rules = &settings.tools;
        let timeouts = rules.timeouts.iter();
        Self {
            name: settings.name.as_str().into(),
            upstream,
            status: Status::new(state),
            wake: Notify::new(),
            signature: own::signature(&settings.name),
            learned: ArcSwapOption::empty(),
            followed: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            unsaved: AtomicBool::new(false),
            unread: AtomicU8::new(0),
            answered: AtomicU8::new(0),
            permits: Limit::new(settings.max_in_flight),
            shaping: Shaping::of(&settings),
            pinned: ArcSwapOption::empty(),
            timeouts: timeouts
                .filter_map(|(p, t)| Some((matcher(p)?, *t)))
                .collect(),
            settings,
        }
    }

    /// Whether this is its name or one of its former names.
    pub fn is_called(&self, name: &str) -> bool {
        *self.name == *name || self.settings.aliases.iter().any(|alias| alias == name)
    }

    /// What is known of it; `None` before the first successful look.
    pub fn learned(&self) -> Option<Arc<Learned>> {
        self.learned.load_full()
    }

    /// Replaces what is known of it.
    pub fn learn(&self, learned: Learned) {
        self.learned.store(Some(Arc::new(learned)));
    }

    /// Makes what is known of it anew from what is known at that moment, and returns the latter;
    /// `None` changes nothing. Runs `change` again should somebody else be quicker.
    pub fn update(
        &self,
        change: impl Fn(Option<&Learned>) -> Option<Learned>,
    ) -> Option<Arc<Learned>> {
        self.learned.rcu(|known| match change(known.as_deref()) {
            Some(learned) => Some(Arc::new(learned)),
            None => known.clone(),
        })
    }

    /// Whether its tasks extension is known, or assumed by the file.
    pub fn has_tasks(&self) -> bool {
        let assumed = || self.settings.assume_extensions.iter().any(|e| e == TASKS);
        self.learned
            .load()
            .as_ref()
            .is_some_and(|learned| learned.has_tasks())
            || assumed()
    }

    /// What the file makes of its definitions; `None` leaves them as they are.
    pub(crate) fn shaping(&self) -> Option<&Shaping> {
        self.shaping.as_ref()
    }

    /// What its tools were when they were last approved; `None` while that is not known.
    pub(crate) fn pinned(&self) -> Option<Arc<Pinned>> {
        self.pinned.load_full()
    }

    pub(crate) fn set_pinned(&self, pinned: Option<Arc<Pinned>>) {
        self.pinned.store(pinned);
    }

    /// How long a call may go on without progress; `tool` is the original name.
    pub fn timeout(&self, tool: Option<&str>) -> Duration {
        let own = tool.and_then(|name| self.timeouts.iter().find(|(glob, _)| glob.is_match(name)));
        own.map_or(self.settings.timeout, |(_, timeout)| *timeout)
    }

    /// Whether the server says that it announces changes of its lists.
    pub fn announces(&self) -> bool {
        ["tools", "prompts", "resources"]
            .into_iter()
            .any(|list| self.announces_list(list))
    }

    /// Whether the server says that it announces changes of the list of this capability.
    pub fn announces_list(&self, capability: &str) -> bool {
        let learned = self.learned.load();
        let learned = learned.as_ref();
        learned.is_some_and(|learned| learned.facts.announces_list(capability))
    }

    /// Whether the server says that it tells of changes of single resources.
    pub(crate) fn subscribes(&self) -> bool {
        let learned = self.learned.load();
        let learned = learned.as_ref();
        learned.is_some_and(|learned| learned.facts.subscribes())
    }

    /// Whether changes of its lists are heard of.
    pub fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_followed(&self, followed: bool) {
        self.followed.store(followed, Ordering::Relaxed);
    }

    /// Whether the catalogue that clients see was made with what is known of it.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// Whether somebody saw to it before that what is known is stored after all.
    pub(crate) fn set_unsaved(&self, unsaved: bool) -> bool {
        self.unsaved.swap(unsaved, Ordering::AcqRel)
    }

    pub(crate) fn set_listed(&self) {
        self.listed.store(true, Ordering::Release);
    }

    /// Whether it declares a list of this kind that could never be read.
    pub fn is_unread(&self, kind: Kind) -> bool {
        self.unread.load(Ordering::Relaxed) & bit(kind) != 0
    }

    pub(crate) fn set_unread(&self, kind: Kind, unread: bool) {
        if unread {
            self.unread.fetch_or(bit(kind), Ordering::Relaxed);
        } else {
            self.unread.fetch_and(!bit(kind), Ordering::Relaxed);
        }
    }

    pub(crate) fn was_answered(&self, kind: Kind) -> bool {
        self.answered.load(Ordering::Relaxed) & bit(kind) != 0
    }

    pub(crate) fn set_answered(&self, kind: Kind) {
        self.answered.fetch_or(bit(kind), Ordering::Relaxed);
    }

    /// What its results are signed with.
    pub(crate) fn signature(&self) -> &Raw {
        &self.signature
    }

    /// Room for the calls in flight.
    pub(crate) fn permits(&self) -> &Arc<Limit> {
        &self.permits
    }
}

fn bit(kind: Kind) -> u8 {
    match kind {
        Kind::Tool => 1,
        Kind::Prompt => 2,
        Kind::Resource => 4,
        Kind::Template => 8,
    }
}

/// The configuration has checked every pattern, so none is lost here.
fn matcher(pattern: &str) -> Option<GlobMatcher> {
    Glob::new(pattern).ok().map(|glob| glob.compile_matcher())
}
