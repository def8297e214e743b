//! What a server remembers of each session.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::kit::request::Request;

/// Counters by name and session; requests without a session share one.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    counts: Mutex<HashMap<(String, String), u64>>,
}

impl Counts {
    /// Counts one more: how many there are now.
    pub(crate) fn next(&self, name: &str, request: &Request) -> u64 {
        let session = request.session().unwrap_or_default();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry((name.to_owned(), session.to_owned()));
        let count = count.or_default();
        *count += 1;
        *count
    }
}
