//! Words that mean the same where tools are described.
//!
//! Who looks for a tool says `folder` where its author wrote `directory`. The list goes through
//! what tools do and the fields they serve, one by one; no product is in it, nor anything that is
//! so in a single tool only: that is for the tool's description to say.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::words::stem;

/// What a word counts that was not said itself.
pub(super) const SHARE: f32 = 0.6;

static SAME: LazyLock<HashMap<String, Vec<String>>> =
    LazyLock::new(|| read(include_str!("synonyms.txt")));

/// The stems of the other words for a stem.
pub(super) fn of(stem: &str) -> &'static [String] {
    SAME.get(stem).map_or(&[], Vec::as_slice)
}

/// Reads groups of words, one a line; `#` begins a comment.
fn read(text: &str) -> HashMap<String, Vec<String>> {
    let mut same: HashMap<String, Vec<String>> = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let group: Vec<String> = line.split_whitespace().filter_map(stem).collect();
        for word in &group {
            let others = same.entry(word.clone()).or_default();
            for other in &group {
                if other != word && !others.contains(other) {
                    others.push(other.clone());
                }
            }
        }
    }
    same
}
