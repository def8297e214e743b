//! What the host was asked in results of stateless calls and has not answered yet.
//!
//! Between such a result and the retry that answers it no request is open, but the call goes on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::result::{INPUT_RESPONSES, REQUEST_STATE};

/// Questions that are waited for; hosts may leave any number of them.
const MOST: usize = 1_024;

/// What the host has, and since when; the oldest of those that are told alike first.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(Mutex<HashMap<Retry, VecDeque<Instant>>>);

/// A call of the host's on its way.
#[derive(Debug)]
pub(super) struct Begun {
    /// Tells its retry, should it ask and give no state.
    retry: Retry,
    /// What it answers, and since when that was waited for.
    answers: Option<(Retry, Instant)>,
}

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
    pub(super) fn begins(&self, method: &str, params: &Object) -> Begun {
        let retry = Retry::to(method, params);
        let of = match params.string(REQUEST_STATE) {
            Some(state) => Some(Retry::Of(state)),
            None if params.contains(INPUT_RESPONSES) => Some(retry.clone()),
            None => None,
        };
        let mut all = self.all();
        let answers = of.and_then(|of| {
            let since = take(&mut all, &of)?;
            Some((of, since))
        });
        Begun { retry, answers }
    }

    /// The call that began so ended with this result, which asks.
    pub(super) fn asked(&self, begun: Begun, result: &Object) {
        let retry = result.string(REQUEST_STATE);
        self.add(retry.map_or(begun.retry, Retry::Of), Instant::now());
    }

    /// The call that began so failed, and can be sent once more as it was: the host has yet to get
    /// its answer through.
    pub(super) fn failed(&self, begun: Begun) {
        if let Some((retry, since)) = begun.answers {
            self.add(retry, since);
        }
    }

    fn add(&self, retry: Retry, since: Instant) {
        let mut all = self.all();
        if all.values().map(VecDeque::len).sum::<usize>() >= MOST {
            let oldest = all.iter().min_by_key(|(_, since)| since.front().copied());
            if let Some(oldest) = oldest.map(|(retry, _)| retry.clone()) {
                take(&mut all, &oldest);
            }
        }
        let alike = all.entry(retry).or_default();
        let at = alike.partition_point(|other| *other <= since);
        alike.insert(at, since);
    }

    /// Whether the host has answered all that it was asked within `patience`: what is older nobody
    /// waits for any more.
    pub(super) fn is_empty(&self, patience: Duration) -> bool {
        let mut all = self.all();
        all.retain(|_, alike| {
            alike.retain(|since| since.elapsed() < patience);
            !alike.is_empty()
        });
        all.is_empty()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Retry, VecDeque<Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes out the oldest of these.
fn take(all: &mut HashMap<Retry, VecDeque<Instant>>, retry: &Retry) -> Option<Instant> {
    let alike = all.get_mut(retry)?;
    let since = alike.pop_front();
    if alike.is_empty() {
        all.remove(retry);
    }
    since
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

    fn call(unanswered: &Unanswered, params: &Value) -> Begun {
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

    #[test]
    fn an_answer_that_does_not_get_through_is_still_waited_for() {
        let unanswered = Unanswered::default();
        for retry in [
            json!({ "name": "a", "requestState": "s" }),
            json!({ "name": "a", "inputResponses": {} }),
        ] {
            let state = if retry.get("requestState").is_some() {
                json!({ "requestState": "s" })
            } else {
                json!({})
            };
            let first = call(&unanswered, &json!({ "name": "a" }));
            unanswered.failed(first);
            assert!(unanswered.is_empty(PATIENCE), "it answered nothing");
            let first = call(&unanswered, &json!({ "name": "a" }));
            unanswered.asked(first, &object(&state));
            for _ in 0..2 {
                let fails = call(&unanswered, &retry);
                assert!(unanswered.is_empty(PATIENCE));
                unanswered.failed(fails);
                assert!(!unanswered.is_empty(PATIENCE));
            }
            call(&unanswered, &retry);
            assert!(unanswered.is_empty(PATIENCE));
        }
    }

    #[test]
    fn calls_that_are_told_alike_are_waited_for_one_by_one() {
        let unanswered = Unanswered::default();
        for _ in 0..2 {
            let first = call(&unanswered, &json!({ "name": "a" }));
            unanswered.asked(first, &Object::new());
        }
        call(&unanswered, &json!({ "name": "a", "inputResponses": {} }));
        assert!(!unanswered.is_empty(PATIENCE));
        call(&unanswered, &json!({ "name": "a", "inputResponses": {} }));
        assert!(unanswered.is_empty(PATIENCE));
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
