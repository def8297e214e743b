//! Waypost's own request states: `wp1.` and an AEAD box.
//!
//! Whoever holds one learns nothing from it and cannot change it, and it opens only for the
//! principal, method and name that it was made for (specification: multi round-trip requests).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use waypost_wire::method;
use waypost_wire::raw::Raw;
use waypost_wire::result::{OWN_STATE, REQUEST_STATE};

use crate::call::Call;
use crate::error::CallError;
use crate::keys::{Keys, Purpose};
use crate::member::Member;
use crate::registry::now_ms;
use crate::reply::{End, Reply};
use crate::sealed::{self, Sealer};
use crate::tasks::Desk;

/// How long a wrapped state is good; the upstream's own limit is usually shorter.
const WRAPPED_MS: u64 = 24 * 60 * 60 * 1000;

/// Seals and opens states.
#[derive(Debug)]
pub(crate) struct States(Sealer);

/// The contents of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The upstream's name.
    #[serde(rename = "u")]
    pub(crate) upstream: String,
    /// Milliseconds since the epoch.
    #[serde(rename = "e")]
    pub(crate) expires_ms: u64,
    #[serde(rename = "k")]
    pub(crate) kind: Kind,
}

/// What a state is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A collapsed task asks its caller.
    #[serde(rename = "t")]
    Round(Round),
    /// A state of the upstream's that looks like one of ours: its JSON text.
    #[serde(rename = "s")]
    Wrapped(String),
}

/// One question of a collapsed task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Tells this round from all others, everywhere.
    #[serde(rename = "r")]
    pub(crate) id: RoundId,
    /// The process that made it.
    #[serde(rename = "p")]
    pub(crate) issuer: u64,
    /// The upstream's task id.
    #[serde(rename = "t")]
    pub(crate) task: String,
    /// The upstream's process or session, where its tasks die with one.
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<String>,
    /// When the task was made; milliseconds since the epoch.
    #[serde(rename = "b")]
    pub(crate) born_ms: u64,
    /// What its caller has answered in earlier rounds.
    #[serde(rename = "h", default, skip_serializing_if = "History::is_empty")]
    pub(crate) history: History,
    /// The keys of what it asks, in short; as many as one may ask.
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) asked: Vec<u64>,
}

/// What the caller of a collapsed task has answered before a round, as far as is known to the state
/// that carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    /// The first round of the call; `None` stands for the one that this belongs to.
    #[serde(rename = "f")]
    first: Option<RoundId>,
    /// The keys of the questions, in short, and how often each was answered; the newest last.
    #[serde(rename = "k")]
    keys: Vec<(u64, u64)>,
    /// No key that is not among them was answered more often.
    #[serde(rename = "m", default)]
    most: u64,
}

/// The name of a round.
pub(crate) type RoundId = u128;

/// Keys of answered questions that are remembered of one call.
const REMEMBERED: usize = 64;

impl Round {
    /// The name of one of its questions: the same in every state that asks it. One that is asked
    /// again under its key after it was answered is another.
    pub(crate) fn question(&self, key: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(self.history.first.unwrap_or(self.id).to_be_bytes());
        hash.update(self.history.times(digest(key)).to_be_bytes());
        hash.update(key);
        let hash = hash.finalize();
        let name = hash
            .iter()
            .take(16)
            .fold(0, |sum, byte| (sum << 8) | u128::from(*byte));
        format!("q{name:032x}")
    }

    /// The same round with these questions.
    pub(crate) fn asking(self, keys: &[String]) -> Self {
        let asked = keys.iter().map(|key| digest(key)).collect();
        Self { asked, ..self }
    }

    /// Whether the state that carries it asks this, whoever reads it.
    pub(crate) fn asks(&self, key: &str) -> bool {
        self.asked.contains(&digest(key))
    }

    /// The history of the round after this one, before that is answered itself.
    pub(crate) fn history(&self) -> History {
        History {
            first: self.history.first.or(Some(self.id)),
            ..self.history.clone()
        }
    }
}

impl History {
    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// These were answered too.
    pub(crate) fn add(&mut self, keys: &[String]) {
        for key in keys {
            let key = digest(key);
            let times = self.times(key).saturating_add(1);
            self.keys.retain(|(known, _)| *known != key);
            self.keys.push((key, times));
            // At once: a caller says how many there are.
            let old = self.keys.len().saturating_sub(REMEMBERED);
            for (_, times) in self.keys.drain(..old) {
                self.most = self.most.max(times);
            }
        }
    }

    /// How often a key was answered, or more: never less, for that would be the name of a question
    /// that was answered.
    fn times(&self, key: u64) -> u64 {
        let known = self.keys.iter().find(|(known, _)| *known == key);
        known.map_or(self.most, |(_, times)| *times)
    }
}

fn digest(key: &str) -> u64 {
    let hash = Sha256::digest(key);
    hash.iter()
        .take(8)
        .fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

/// What a state is tied to without being in it.
#[derive(Clone, Debug)]
pub(crate) struct Binding(sealed::Binding);

/// The one answer to every state that cannot be used.
pub(crate) fn unknown_state() -> CallError {
    CallError::unknown("unknown or expired request state")
}

/// Whether a `requestState` has the form of Waypost's own, whoever made it.
fn looks_ours(state: &Raw) -> bool {
    state
        .as_string()
        .is_some_and(|text| text.starts_with(OWN_STATE))
}

/// Looks at the state in a call's params. One of our own for a round is given back, with its
/// expiry; a wrapped one of the upstream's is put in its place; any other stays.
///
/// # Errors
/// [`unknown_state`] for one that begins like ours and does not open here.
pub(crate) fn take(
    states: &States,
    member: &Member,
    call: &mut Call,
) -> Result<Option<(Round, u64)>, CallError> {
    let text = call.params.string(REQUEST_STATE);
    let Some(text) = text.filter(|text| text.starts_with(OWN_STATE)) else {
        return Ok(None);
    };
    let state = states
        .open(&text, &Binding::of(call))
        .ok_or_else(unknown_state)?;
    if !member.is_called(&state.upstream) {
        return Err(unknown_state());
    }
    match state.kind {
        Kind::Round(round) => Ok(Some((round, state.expires_ms))),
        Kind::Wrapped(_) if state.expires_ms < now_ms() => Err(unknown_state()),
        Kind::Wrapped(json) => {
            let raw = Raw::parse(&json.into()).map_err(|_| unknown_state())?;
            call.params.set(REQUEST_STATE, raw);
            Ok(None)
        }
    }
}

/// Wraps an upstream's state that begins like one of ours: unwrapped it would be refused as
/// forged when it comes back.
pub(crate) fn wrap_end(states: &States, member: &Member, binding: &Binding, mut end: End) -> End {
    let End::InputRequired(result) = &mut end else {
        return end;
    };
    let Some(theirs) = result.get(REQUEST_STATE).filter(|raw| looks_ours(raw)) else {
        return end;
    };
    let state = State {
        upstream: member.name.to_string(),
        expires_ms: now_ms().saturating_add(WRAPPED_MS),
        kind: Kind::Wrapped(theirs.text().to_owned()),
    };
    if let Some(text) = states.seal(&state, binding) {
        result.set(REQUEST_STATE, Raw::string(&text));
    }
    end
}

/// [`wrap_end`] for the end of a reply, wherever it comes.
pub(crate) fn wrap_reply(
    desk: &Arc<Desk>,
    member: &Arc<Member>,
    binding: Binding,
    reply: Reply,
) -> Result<Reply, CallError> {
    let (desk, member) = (Arc::clone(desk), Arc::clone(member));
    reply.map_end(move |end| Ok(wrap_end(&desk.states, &member, &binding, end)))
}

// === impl Binding ===

impl Binding {
    /// Principal, method and the name that the call is about.
    pub(crate) fn of(call: &Call) -> Self {
        let name = method::name_member(&call.method).and_then(|member| call.params.string(member));
        let parts = [
            call.principal.as_str(),
            &call.method,
            &name.unwrap_or_default(),
        ];
        Self(sealed::Binding::new(OWN_STATE, &parts))
    }
}

// === impl States ===

impl States {
    /// Seals with the first of the keys, opens with all.
    pub(crate) fn new(keys: &Keys) -> Self {
        Self(Sealer::new(keys, Purpose::State))
    }

    /// The text of a state; `None` only when sealing fails, which no input does.
    pub(crate) fn seal(&self, state: &State, binding: &Binding) -> Option<String> {
        let plain = serde_json::to_vec(state).ok()?;
        let sealed = self.0.seal(&plain, &binding.0)?;
        Some(format!("{OWN_STATE}{sealed}"))
    }

    /// The contents of a state, whether expired or not; `None` for everything that was not made
    /// with one of the keys for this very binding.
    pub(crate) fn open(&self, text: &str, binding: &Binding) -> Option<State> {
        let plain = self.0.open(text.strip_prefix(OWN_STATE)?, &binding.0)?;
        serde_json::from_slice(&plain).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use waypost_wire::object::Object;

    use super::*;
    use crate::call::Principal;

    #[test]
    fn no_question_gets_the_name_of_one_that_was_answered() {
        for keys in [1, 2, REMEMBERED, REMEMBERED + 2, 300] {
            let mut round = Round {
                id: 1,
                issuer: 2,
                task: "t".to_owned(),
                instance: None,
                born_ms: 3,
                history: History::default(),
                asked: Vec::new(),
            };
            let mut names = HashSet::new();
            for asked in 0..1_000 {
                let key = format!("k{}", asked % keys);
                assert!(names.insert(round.question(&key)), "{keys} {asked}");
                round.history = round.history();
                round.history.add(&[key]);
                round.id += 1;
            }
            assert!(round.history.keys.len() <= REMEMBERED);
        }
    }

    fn states(bytes: &[u8]) -> States {
        States::new(&Keys::new(bytes.iter().map(|b| vec![*b; 32]).collect()).unwrap())
    }

    fn binding(principal: &str, method: &str, name: &str) -> Binding {
        let member = method::name_member(method).unwrap();
        let params = Object::from_iter([(member, Raw::string(name))]);
        let mut call = Call::own(method, params);
        call.principal = Principal::new(principal);
        Binding::of(&call)
    }

    fn state() -> State {
        State {
            upstream: "ci".to_owned(),
            expires_ms: 7,
            kind: Kind::Round(Round {
                id: u128::MAX,
                issuer: u64::MAX,
                task: "täsk~1".to_owned(),
                instance: Some("child".to_owned()),
                born_ms: 3,
                history: History::default(),
                asked: vec![u64::MAX],
            }),
        }
    }

    #[test]
    fn a_state_opens_only_for_what_it_was_made_for() {
        let states = states(&[1]);
        let mine = binding("ann", "tools/call", "build");
        let text = states.seal(&state(), &mine).unwrap();
        assert!(text.starts_with("wp1."));
        assert_eq!(states.open(&text, &mine), Some(state()));
        for other in [
            binding("bob", "tools/call", "build"),
            binding("ann", "prompts/get", "build"),
            binding("ann", "tools/call", "deploy"),
            binding("anntools/call", "tools/call", "build"),
        ] {
            assert_eq!(states.open(&text, &other), None);
        }
    }

    #[test]
    fn two_states_of_the_same_never_look_alike() {
        let states = states(&[1]);
        let mine = binding("ann", "tools/call", "build");
        assert_ne!(states.seal(&state(), &mine), states.seal(&state(), &mine));
    }

    #[test]
    fn the_first_key_seals_states_and_all_open() {
        let mine = binding("ann", "tools/call", "build");
        let text = states(&[1]).seal(&state(), &mine).unwrap();
        assert_eq!(states(&[2, 1]).open(&text, &mine), Some(state()));
        assert_eq!(states(&[2]).open(&text, &mine), None);
    }

    proptest! {
        #[test]
        fn no_character_of_a_state_can_be_changed(at in any::<prop::sample::Index>(), to in "[ -~é]") {
            let states = states(&[1]);
            let mine = binding("ann", "tools/call", "build");
            let text = states.seal(&state(), &mine).unwrap();
            let mut chars: Vec<_> = text.chars().collect();
            let at = at.index(chars.len());
            let to = to.chars().next().unwrap();
            prop_assume!(chars[at] != to);
            chars[at] = to;
            let changed: String = chars.into_iter().collect();
            prop_assert_eq!(states.open(&changed, &mine), None);
        }

        #[test]
        fn text_that_is_no_state_does_not_open(text in "(wp1\\.)?[A-Za-z0-9_-]{0,100}") {
            let mine = binding("ann", "tools/call", "build");
            prop_assert_eq!(states(&[1]).open(&text, &mine), None);
        }
    }
}
