//! Tells listeners when their caller, or what they look at, is not let in any more.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::{Principal, View};

/// Who listens to what, and is told when that is over.
#[derive(Debug, Default)]
pub(crate) struct ShutOut(Arc<Mutex<Listeners>>);

#[derive(Debug, Default)]
struct Listeners {
    count: u64,
    all: HashMap<u64, Listener>,
    /// The latest last.
    past: VecDeque<Past>,
}

/// Who was shut out, and when.
#[derive(Debug)]
struct Past {
    at: Instant,
    principals: Vec<Principal>,
    views: Vec<View>,
}

/// A request that was let in and is not read yet is over by then, as is that of a session.
const READ_WITHIN: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
struct Listener {
    principal: Principal,
    view: View,
    told: CancellationToken,
}

/// Takes a listener out when it is dropped.
struct Listening(Arc<Mutex<Listeners>>, u64);

impl ShutOut {
    /// Nobody is yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Whoever listens as one of these, or to one of these, until now hears no more.
    pub(crate) fn add(&self, principals: &[Principal], views: &[View]) {
        if principals.is_empty() && views.is_empty() {
            return;
        }
        let mut listeners = lock(&self.0);
        let at = Instant::now();
        let past = &mut listeners.past;
        while past.front().is_some_and(|one| one.at + READ_WITHIN < at) {
            past.pop_front();
        }
        past.push_back(Past {
            at,
            principals: principals.to_vec(),
            views: views.to_vec(),
        });
        for listener in listeners.all.values() {
            if principals.contains(&listener.principal) || views.contains(&listener.view) {
                listener.told.cancel();
            }
        }
    }

    /// Resolves when this caller is shut out, or this view, after it was let in.
    pub(crate) fn told(
        &self,
        principal: &Principal,
        view: &View,
        since: Instant,
    ) -> impl Future<Output = ()> + Send + use<> {
        let told = CancellationToken::new();
        let mut listeners = lock(&self.0);
        let mut past = listeners.past.iter().filter(|past| past.at >= since);
        if past.any(|past| past.principals.contains(principal) || past.views.contains(view)) {
            told.cancel();
        }
        listeners.count += 1;
        let place = Listening(Arc::clone(&self.0), listeners.count);
        let listener = Listener {
            principal: principal.clone(),
            view: view.clone(),
            told: told.clone(),
        };
        listeners.all.insert(place.1, listener);
        async move {
            let _place = place;
            told.cancelled_owned().await;
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&self.0).all.remove(&self.1);
    }
}

fn lock(listeners: &Mutex<Listeners>) -> MutexGuard<'_, Listeners> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn only_who_was_there_before_is_told() {
        let shut_out = ShutOut::new();
        let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
        let start = Instant::now();
        let told = |who: &Principal| shut_out.told(who, &View::All, Instant::now());
        let mut early = [told(&ann), told(&bob)].map(Box::pin);
        shut_out.add(std::slice::from_ref(&ann), &[]);
        shut_out.add(&[], &[View::Upstream("gone".into())]);
        let mut late = Box::pin(told(&ann));
        let is_told = early.each_mut().map(|one| one.as_mut().now_or_never());
        assert_eq!(is_told, [Some(()), None]);
        assert_eq!(late.as_mut().now_or_never(), None);
        shut_out.add(&[], &[View::All]);
        assert_eq!(late.as_mut().now_or_never(), Some(()));
        // Let in before, and read only now.
        let slow = shut_out.told(&ann, &View::Endpoint("e".into()), start);
        assert_eq!(slow.now_or_never(), Some(()));
        let slow = shut_out.told(&bob, &View::Endpoint("e".into()), start);
        assert_eq!(slow.now_or_never(), None);
    }

    #[test]
    fn nothing_is_left_of_who_listens_no_more() {
        let shut_out = ShutOut::new();
        let told = |who: u32| {
            shut_out.told(
                &Principal::new(&who.to_string()),
                &View::All,
                Instant::now(),
            )
        };
        let mut last = Box::pin(told(0));
        for who in 1..1_000 {
            let mut told = Box::pin(told(who));
            assert_eq!(told.as_mut().now_or_never(), None);
            shut_out.add(&[Principal::new(&who.to_string())], &[]);
            assert_eq!(told.as_mut().now_or_never(), Some(()));
        }
        assert_eq!(lock(&shut_out.0).all.len(), 1);
        assert_eq!(last.as_mut().now_or_never(), None);
        drop(last);
        assert!(lock(&shut_out.0).all.is_empty());
    }
}
