//! What the host was asked in results of stateless calls and has not answered yet.
//!
//! Between such a result and the retry that answers it no request is open, but the call goes on.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use waypost_wire::message::Outcome;
use waypost_wire::object::Object;
use waypost_wire::result::{REQUEST_STATE, ResultType};

/// Questions that are waited for; hosts may leave any number of them.
const MOST: usize = 1_024;

/// After this nobody answers any more. By default the daemon waits as long.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// The states that the host has, and since when.
#[derive(Debug, Default)]
pub(super) struct Unanswered(Mutex<HashMap<String, Instant>>);

impl Unanswered {
    /// Takes note of how a call ended.
    pub(super) fn note(&self, outcome: &Outcome) {
        let Outcome::Result(result) = outcome else {
            return;
        };
        let result = result.as_object().unwrap_or_default();
        if ResultType::of(&result) != ResultType::InputRequired {
            return;
        }
        // Without a state nothing tells the retry from another call.
        if let Some(state) = result.string(REQUEST_STATE) {
            let mut states = self.recent();
            if states.len() < MOST {
                states.insert(state, Instant::now());
            }
        }
    }

    /// The host comes back with these params.
    pub(super) fn answered(&self, params: &Object) {
        if let Some(state) = params.string(REQUEST_STATE) {
            self.recent().remove(&state);
        }
    }

    /// Whether the host has answered everything.
    pub(super) fn is_empty(&self) -> bool {
        self.recent().is_empty()
    }

    fn recent(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|_, since| since.elapsed() < PATIENCE);
        states
    }
}
