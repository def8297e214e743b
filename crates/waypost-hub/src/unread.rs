//! The lists of one upstream that could not be read, until they are.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::catalog::entry::Kind;
use crate::error::CallError;
use crate::member::Member;
use crate::refresh::Lists;

/// A list that failed is tried again after so long; the wait doubles from failure to failure.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// A server that asks to be left alone is believed so far.
const RETRY_AFTER_MOST: Duration = Duration::from_secs(300);

/// What could not be read, and when it is tried again.
#[derive(Debug)]
pub(crate) struct Unread {
    failing: Vec<(Kind, CallError)>,
    backoff: Backoff,
    at: Option<Instant>,
}

impl Unread {
    /// Nothing failed yet.
    pub(crate) fn new() -> Self {
        Self {
            failing: Vec::new(),
            backoff: Backoff::new(RETRY_FIRST, RETRY_MOST),
            at: None,
        }
    }

    /// Lists of these kinds were read, or could not be. Tells the status, and readiness.
    pub(crate) fn note(&mut self, member: &Member, kinds: &[Kind], read: &mut Lists) {
        for (kind, error) in &read.failed {
            self.log(member, *kind, error);
        }
        let failed = !read.failed.is_empty();
        self.failing.retain(|(kind, _)| !kinds.contains(kind));
        self.failing.append(&mut read.failed);
        for kind in kinds {
            let fails = self.failing.iter().any(|(failing, _)| failing == kind);
            let is_known = kind.listing(&read.catalogue).is_some();
            // Templates have no capability of their own: who has none may answer anything.
            let is_declared = *kind != Kind::Template;
            let is_unread = fails && is_declared && !is_known && !member.was_answered(*kind);
            member.set_unread(*kind, is_unread);
            if !fails {
                member.set_answered(*kind);
            }
        }
        member.status.lists(self.error());
        if self.failing.is_empty() {
            self.backoff.reset();
            self.at = None;
        } else if failed || self.at.is_none() {
            let asked = self.failing.iter().filter_map(|(_, e)| e.retry_after).max();
            let wait = self.backoff.failed();
            let wait = asked.unwrap_or(wait).clamp(wait, RETRY_AFTER_MOST);
            self.at = Some(Instant::now() + wait);
        }
    }

    /// Why the first of them could not be read.
    pub(crate) fn error(&self) -> Option<&CallError> {
        self.failing.first().map(|(_, error)| error)
    }

    /// Whether another list could be read when it was last asked for.
    pub(crate) fn is_partial(&self, member: &Member) -> bool {
        let fails = |kind| self.failing.iter().any(|(failing, _)| *failing == kind);
        member.learned().is_some_and(|learned| {
            let mut known = Kind::ALL.into_iter();
            known.any(|kind| kind.listing(&learned.catalogue).is_some() && !fails(kind))
        })
    }

    /// The lists to be tried again now; never, while all were read.
    pub(crate) async fn ripe(&mut self) -> Vec<Kind> {
        let Some(at) = self.at else {
            return std::future::pending().await;
        };
        sleep_until(at).await;
        // Reading them says when next.
        self.at = None;
        self.failing.iter().map(|(kind, _)| *kind).collect()
    }

    /// The first failure is news, the hundredth is not.
    fn log(&self, member: &Member, kind: Kind, error: &CallError) {
        let (upstream, method) = (&*member.name, kind.list_method());
        let source = error.source.as_deref().map(tracing::field::display);
        if self.failing.iter().any(|(failing, _)| *failing == kind) {
            let failures = self.backoff.failures();
            tracing::debug!(
                upstream,
                method,
                %error,
                source,
                failures,
                "a list still cannot be read"
            );
        } else {
            tracing::warn!(
                upstream,
                method,
                %error,
                source,
                "a list could not be read, the last one is kept, trying again"
            );
        }
    }
}
