//! Whose callers are asked, and where their calls go on when the names that they were made under
//! are gone by a reload.
//!
//! What was let in goes on. Its caller brings the state that its questions went out with, or, where
//! they have none, the arguments that they were asked about; both lead nowhere for whoever was not
//! asked.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use waypost_wire::object::Object;
use waypost_wire::param::ParamHeader;
use waypost_wire::raw::Raw;
use waypost_wire::result::{INPUT_RESPONSES, REQUEST_STATE};

use crate::call::{Call, Comeback, Principal, View};
use crate::catalog::arguments::Arguments;
use crate::catalog::entry::{Entry, Kind};
use crate::catalog::family::Choice;
use crate::member::Member;

/// Questions that are remembered. Of more those are forgotten that end first, of whoever has the
/// most.
const MOST: usize = 10_000;

/// The questions that are out.
#[derive(Debug, Default)]
pub(crate) struct Questions(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    asked: HashMap<Key, Asked>,
    /// The first to end first.
    ends: BTreeMap<Place, Key>,
    /// The same, for each caller that has any.
    own: HashMap<Principal, BTreeMap<Place, Key>>,
    last: u64,
}

/// When a question ends; by number, where several do.
type Place = (Instant, u64);

/// What a caller comes back with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    name: Name,
    token: [u8; 32],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    principal: Principal,
    view: View,
    kind: Kind,
    text: String,
}

/// Under which name, and by whom, a call was made.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    name: Name,
    /// As its caller gave them.
    arguments: Option<Raw>,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) member: Arc<Member>,
    pub(crate) original: Arc<str>,
    /// As in [`Entry`].
    pub(crate) params: Arc<[ParamHeader]>,
    /// As in [`Entry`].
    pub(crate) arguments: Option<Arc<Arguments>>,
    pub(crate) choice: Chosen,
}

/// Where a tool stands for those of several upstreams.
#[derive(Clone, Debug)]
pub(crate) enum Chosen {
    /// It stands for itself.
    Alone,
    /// The call has yet to say whose.
    Open(Arc<Choice>),
    /// This argument of the call has said whose, and is not for it.
    By(Arc<str>),
}

#[derive(Debug)]
struct Asked {
    choice: Chosen,
    asker: Asker,
    original: Arc<str>,
    params: Arc<[ParamHeader]>,
    arguments: Option<Arc<Arguments>>,
    place: Place,
}

#[derive(Debug)]
enum Asker {
    /// Waits for the answer, and is not left before it has it.
    Waits(Arc<Member>),
    /// Has it; the caller may not have heard of that.
    Answered(Weak<Member>),
}

// === impl Target ===

impl Target {
    /// An entry of the catalogue.
    pub(crate) fn of(entry: &Entry) -> Self {
        Self {
            member: Arc::clone(&entry.member),
            original: Arc::clone(&entry.original),
            params: Arc::clone(&entry.params),
            arguments: entry.arguments.clone(),
            choice: entry.choice.clone().map_or(Chosen::Alone, Chosen::Open),
        }
    }

    /// The one of those of several that an argument has chosen.
    pub(crate) fn chosen(entry: &Entry, by: &Arc<str>) -> Self {
        Self {
            choice: Chosen::By(Arc::clone(by)),
            ..Self::of(entry)
        }
    }

    /// The arguments that callers give and that travel in headers too.
    pub(crate) fn seen_params(&self) -> &[ParamHeader] {
        let own = self.arguments.as_ref();
        own.map_or(&*self.params, |own| &*own.params)
    }

    /// Whether `other` is the same of the same server.
    fn is(&self, other: &Self) -> bool {
        let server = |target: &Self| target.member.settings.fingerprint.clone();
        (&self.member.name, &self.original) == (&other.member.name, &other.original)
            && server(self) == server(other)
    }
}

// === impl Made ===

impl Made {
    /// A call as it came, with the name that it has in it.
    pub(crate) fn of(call: &Call, kind: Kind, name: &str) -> Self {
        Self {
            name: Name {
                principal: call.principal.clone(),
                view: call.view.clone(),
                kind,
                text: name.to_owned(),
            },
            arguments: call.params.get("arguments").cloned(),
        }
    }

    /// What it comes back with after these questions, or in this call.
    fn key(&self, with: &Object) -> Option<Key> {
        let mut hash = Sha256::new();
        if let Some(state) = with.get(REQUEST_STATE) {
            let state = state.as_string()?;
            hash.update(state.len().to_be_bytes());
            hash.update(state);
        }
        // A server may give all that it asks one state; the arguments come back too.
        if let Some(arguments) = &self.arguments {
            hash.update(b"arguments");
            hash.update(arguments.as_bytes());
        }
        Some(Key {
            name: self.name.clone(),
            token: hash.finalize().into(),
        })
    }
}

/// Whether a call comes back after it was asked.
pub(crate) fn comes_back(call: &Call) -> bool {
    call.params.contains(REQUEST_STATE) || call.params.contains(INPUT_RESPONSES)
}

// === impl Questions ===

impl Questions {
    /// Where a call goes on that comes back, if that is not what its name stands for now: `current`.
    pub(crate) fn elsewhere(
        &self,
        call: &Call,
        made: &Made,
        current: Option<&Target>,
    ) -> Option<Target> {
        let key = made.key(&call.params)?;
        let mut table = self.table();
        let asked = table.asked.get_mut(&key)?;
        let target = asked.target();
        if call.comeback != Comeback::Listens {
            asked.asker = match &asked.asker {
                // Nothing tells a second answer from another call.
                _ if !call.params.contains(REQUEST_STATE) => Asker::Answered(Weak::new()),
                Asker::Waits(member) => Asker::Answered(Arc::downgrade(member)),
                Asker::Answered(member) => Asker::Answered(Weak::clone(member)),
            };
        }
        drop(table);
        let target = target?;
        // Which of several is meant was said when they were asked, perhaps in words that are others now.
        let is_open = |current: &Target| matches!(current.choice, Chosen::Open(_));
        let same = current.is_some_and(|current| !is_open(current) && current.is(&target));
        (!same).then_some(target)
    }

    /// Whether a call comes back that was asked.
    pub(crate) fn know(&self, call: &Call, made: &Made) -> bool {
        if !comes_back(call) {
            return false;
        }
        let Some(key) = made.key(&call.params) else {
            return false;
        };
        let table = self.table();
        table
            .asked
            .get(&key)
            .is_some_and(|asked| asked.target().is_some())
    }

    /// Remembers for so long that the caller of `target` is asked with this result.
    pub(crate) fn note(&self, result: &Object, made: &Made, target: &Target, kept: Duration) {
        if let Some(key) = made.key(result) {
            self.add(key, target.clone(), Instant::now() + kept);
        }
    }

    fn add(&self, key: Key, target: Target, until: Instant) {
        let mut table = self.table();
        table.sweep(Instant::now());
        table.remove(&key);
        if table.asked.len() >= MOST {
            table.make_room();
        }
        table.last += 1;
        let asked = Asked {
            choice: target.choice,
            asker: Asker::Waits(target.member),
            original: target.original,
            params: target.params,
            arguments: target.arguments,
            place: (until, table.last),
        };
        table.insert(key, asked);
    }

    /// Forgets what nobody waits for any more.
    pub(crate) fn sweep(&self) {
        self.table().sweep(Instant::now());
    }

    /// Nothing goes on at this member and its connection any more.
    pub(crate) fn forget(&self, member: &Member) {
        let mut table = self.table();
        let is_its = |asked: &Asked| match &asked.asker {
            Asker::Waits(own) => own.shares(member),
            Asker::Answered(own) => own.upgrade().is_none_or(|own| own.shares(member)),
        };
        let its = table.asked.iter().filter(|(_, asked)| is_its(asked));
        let its: Vec<Key> = its.map(|(key, _)| key.clone()).collect();
        its.iter().for_each(|key| table.remove(key));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, key: Key, asked: Asked) {
        let place = asked.place;
        self.ends.insert(place, key.clone());
        let own = self.own.entry(key.name.principal.clone()).or_default();
        own.insert(place, key.clone());
        self.asked.insert(key, asked);
    }

    fn remove(&mut self, key: &Key) {
        let Some(asked) = self.asked.remove(key) else {
            return;
        };
        self.ends.remove(&asked.place);
        let principal = &key.name.principal;
        if let Some(own) = self.own.get_mut(principal) {
            own.remove(&asked.place);
            if own.is_empty() {
                self.own.remove(principal);
            }
        }
    }

    fn sweep(&mut self, now: Instant) {
        while let Some(((until, _), key)) = self.ends.first_key_value() {
            if *until > now {
                return;
            }
            let key = key.clone();
            self.remove(&key);
        }
    }

    /// Takes one from who has the most: nobody's questions are forgotten for another's flood.
    fn make_room(&mut self) {
        let most = self.own.values().max_by_key(|own| own.len());
        if let Some((_, key)) = most.and_then(BTreeMap::first_key_value) {
            let key = key.clone();
            self.remove(&key);
        }
    }
}

impl Asked {
    /// Who goes on with it; `None` if nobody can.
    fn target(&self) -> Option<Target> {
        let (until, _) = self.place;
        if until <= Instant::now() {
            return None;
        }
        let member = match &self.asker {
            Asker::Waits(member) => Arc::clone(member),
            Asker::Answered(member) => member.upgrade()?,
        };
        // Its connection may be another one by now, to the same server.
        let next = member
            .successor()
            .filter(|next| next.settings.fingerprint == member.settings.fingerprint);
        let member = next.unwrap_or(member);
        (!member.has_ended()).then(|| Target {
            member,
            original: Arc::clone(&self.original),
            params: Arc::clone(&self.params),
            arguments: self.arguments.clone(),
            choice: self.choice.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
