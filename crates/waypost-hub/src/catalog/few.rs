//! Warnings of one sort, of which the first few are told.

use std::sync::Arc;

use super::build::Warning;
use crate::member::Member;

/// So many warnings of one sort are told one by one: how many there are is for others to decide.
const FEW: usize = 20;

/// Warnings of one sort about one upstream.
#[derive(Debug)]
pub(super) struct Few {
    upstream: Arc<str>,
    told: Vec<String>,
    pub(super) count: usize,
}

impl Few {
    pub(super) fn new(member: &Member) -> Self {
        Self {
            upstream: Arc::clone(&member.name),
            told: Vec::new(),
            count: 0,
        }
    }

    pub(super) fn is_about(&self, member: &Member) -> bool {
        self.upstream == member.name
    }

    pub(super) fn add(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.count <= FEW {
            self.told.push(text());
        }
    }

    /// The first few, and of the others how many there are.
    pub(super) fn told(self, others: impl FnOnce(usize) -> String) -> Vec<Warning> {
        let more = self.count - self.told.len();
        let more = (more > 0).then(|| others(more));
        let upstream = &self.upstream;
        let warning = |text| Warning {
            upstream: Arc::clone(upstream),
            text,
        };
        self.told.into_iter().chain(more).map(warning).collect()
    }
}
