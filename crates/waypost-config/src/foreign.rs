//! Keys of `mcpServers` that only an editor understands: entries are pasted as editors write them.

use crate::path::{KeyPath, Step};

/// Each with what to do about it.
const EDITOR_KEYS: &[(&str, &str)] = &[
    ("alwaysAllow", ASKED),
    ("autoApprove", ASKED),
    ("description", UNSEEN),
    (
        "disabledTools",
        "leave it out; `tools: {deny: [...]}` hides tools",
    ),
    ("displayName", UNSEEN),
    ("gallery", UNSEEN),
    ("icon", UNSEEN),
];

const ASKED: &str = "leave it out; each client decides itself which calls it asks about";
const UNSEEN: &str = "leave it out";

/// What to do about a key that an editor wrote; `None` for every other.
pub(crate) fn hint(at: &KeyPath) -> Option<&'static str> {
    let [Step::Key(top), Step::Key(_), Step::Key(key)] = at.steps() else {
        return None;
    };
    let known = EDITOR_KEYS.iter().find(|(name, _)| name == key);
    known.filter(|_| top == "mcpServers").map(|(_, hint)| *hint)
}
