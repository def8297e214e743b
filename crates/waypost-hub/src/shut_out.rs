//! Tells listeners when their caller, or what they look at, is not let in any more.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;

use crate::call::{Principal, View};

/// Who and what was shut out, and when.
#[derive(Debug)]
pub(crate) struct ShutOut(watch::Sender<Arc<Table>>);

#[derive(Clone, Debug, Default)]
struct Table {
    count: u64,
    principals: HashMap<Principal, u64>,
    views: HashMap<View, u64>,
}

impl ShutOut {
    /// Nobody is yet.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::default())
    }

    /// Whoever listens as one of these, or to one of these, until now hears no more.
    pub(crate) fn add(&self, principals: &[Principal], views: &[View]) {
        if principals.is_empty() && views.is_empty() {
            return;
        }
        self.0.send_modify(|table| {
            let mut next = Table::clone(table);
            next.count += 1;
            let at = next.count;
            let principals = principals.iter().map(|principal| (principal.clone(), at));
            next.principals.extend(principals);
            next.views
                .extend(views.iter().map(|view| (view.clone(), at)));
            *table = Arc::new(next);
        });
    }

    /// Resolves when this caller is shut out, or this view, after now.
    pub(crate) fn told(
        &self,
        principal: &Principal,
        view: &View,
    ) -> impl Future<Output = ()> + Send + use<> {
        let mut tables = self.0.subscribe();
        let since = tables.borrow_and_update().count;
        let (principal, view) = (principal.clone(), view.clone());
        async move {
            loop {
                // The sender lives as long as the hub.
                if tables.changed().await.is_err() {
                    return std::future::pending().await;
                }
                let table = Arc::clone(&tables.borrow_and_update());
                let later = |at: Option<&u64>| at.is_some_and(|at| *at > since);
                if later(table.principals.get(&principal)) || later(table.views.get(&view)) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn only_who_was_there_before_is_told() {
        let shut_out = ShutOut::new();
        let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
        let told = |who: &Principal| shut_out.told(who, &View::All);
        let mut early = [told(&ann), told(&bob)].map(Box::pin);
        shut_out.add(std::slice::from_ref(&ann), &[]);
        shut_out.add(&[], &[View::Upstream("gone".into())]);
        let mut late = Box::pin(told(&ann));
        let is_told = early.each_mut().map(|one| one.as_mut().now_or_never());
        assert_eq!(is_told, [Some(()), None]);
        assert_eq!(late.as_mut().now_or_never(), None);
        shut_out.add(&[], &[View::All]);
        assert_eq!(late.as_mut().now_or_never(), Some(()));
    }
}
