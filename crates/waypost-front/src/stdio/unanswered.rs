//! What the host was asked in results of stateless calls and has not answered yet.
//!
//! Between such a result and the retry that answers it no request is open, but the call goes on.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::result::{INPUT_RESPONSES, REQUEST_STATE};

/// Questions that are waited for; hosts may leave any number of them.
const MOST: usize = 1_024;

/// What the host has, and since when.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(Mutex<HashMap<Retry, Instant>>);

/// What tells the retry of a call that asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Retry {
    /// The state that it brings.
    Of(String),
    /// Answers, and the method and the name that it is about: some servers give no state.
    To(String, Option<String>),
}

impl Retry {
    fn to(method: &str, params: &Object) -> Self {
        let name = method::name_member(method).and_then(|member| params.string(member));
        Self::To(method.to_owned(), name)
    }
}

impl Unanswered {
    /// The host sends this, perhaps to come back; gives what is to be said should it ask.
    pub(super) fn begins(&self, method: &str, params: &Object) -> Retry {
        let retry = Retry::to(method, params);
        if let Some(state) = params.string(REQUEST_STATE) {
            self.all().remove(&Retry::Of(state));
        } else if params.contains(INPUT_RESPONSES) {
            self.all().remove(&retry);
        }
        retry
    }

    /// The call that began so ended with this result, which asks.
    pub(super) fn asked(&self, retry: Retry, result: &Object) {
        let retry = result.string(REQUEST_STATE).map_or(retry, Retry::Of);
        let mut all = self.all();
        if all.len() >= MOST {
            let oldest = all.iter().min_by_key(|(_, since)| **since);
            if let Some(oldest) = oldest.map(|(retry, _)| retry.clone()) {
                all.remove(&oldest);
            }
        }
        all.insert(retry, Instant::now());
    }

    /// Whether the host has answered all that it was asked within `patience`: what is older nobody
    /// waits for any more.
    pub(super) fn is_empty(&self, patience: Duration) -> bool {
        let mut all = self.all();
        all.retain(|_, since| since.elapsed() < patience);
        all.is_empty()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Retry, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use waypost_wire::raw::Raw;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(600);

    fn object(value: &Value) -> Object {
        Raw::from(value).as_object().unwrap()
    }

    fn call(unanswered: &Unanswered, params: &Value) -> Retry {
        unanswered.begins("tools/call", &object(params))
    }

    #[test]
    fn questions_are_answered_by_their_state_or_without_one_by_their_call() {
        let unanswered = Unanswered::default();
        let is_open = || !unanswered.is_empty(PATIENCE);
        let first = call(&unanswered, &json!({ "name": "a" }));
        unanswered.asked(first, &object(&json!({ "requestState": "s" })));
        call(&unanswered, &json!({ "name": "a", "inputResponses": {} }));
        assert!(is_open(), "the state is another's to bring");
        call(&unanswered, &json!({ "name": "a", "requestState": "s" }));
        assert!(!is_open());

        let first = call(&unanswered, &json!({ "name": "a" }));
        unanswered.asked(first, &Object::new());
        call(&unanswered, &json!({ "name": "b", "inputResponses": {} }));
        call(&unanswered, &json!({ "name": "a" }));
        assert!(is_open(), "neither has answered");
        let again = call(&unanswered, &json!({ "name": "a", "inputResponses": {} }));
        assert!(!is_open());
        unanswered.asked(again, &Object::new());
        assert!(is_open(), "it asks once more");
    }

    #[tokio::test(start_paused = true)]
    async fn old_questions_and_too_many_are_not_waited_for() {
        let unanswered = Unanswered::default();
        for n in 0..=MOST {
            let first = call(&unanswered, &json!({ "name": "a" }));
            let state = object(&json!({ "requestState": n.to_string() }));
            unanswered.asked(first, &state);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(unanswered.all().len(), MOST);
        assert!(!unanswered.all().contains_key(&Retry::Of("0".to_owned())));
        tokio::time::advance(PATIENCE).await;
        assert!(unanswered.is_empty(PATIENCE));
    }
}
