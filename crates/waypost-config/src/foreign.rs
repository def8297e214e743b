//! Keys of other programs' files: entries are pasted as editors write them.

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
    ("trust", ASKED),
];

/// Keys that mean something which is written otherwise here, or cannot be had.
const OTHER_KEYS: &[(&str, &str)] = &[
    (
        "envFile",
        "not supported; name the variables in `env`, as `KEY: \"${env:KEY}\"`",
    ),
    (
        "headersHelper",
        "not supported; give `headers`, secrets as `${env:NAME}` or `${file:path}`",
    ),
    ("httpUrl", URL),
    (
        "oauth",
        "not supported; give a token in `headers`, as `Authorization: \"Bearer ${env:TOKEN}\"`",
    ),
    ("serverUrl", URL),
];

/// Instead of other names of `url`.
pub(crate) const URL: &str = "write `url`";
const ASKED: &str = "leave it out; each client decides itself which calls it asks about";
const UNSEEN: &str = "leave it out";

/// What to do instead of a key that another program would understand; it is a mistake here.
pub(crate) fn instead(at: &KeyPath) -> Option<&'static str> {
    match at.steps() {
        [Step::Key(top)] if top == "servers" => {
            Some("write `mcpServers` for entries of another program, `upstreams` for Waypost's own")
        }
        [Step::Key(top), Step::Key(_), Step::Key(key)]
            if top == "mcpServers" || top == "upstreams" =>
        {
            let known = OTHER_KEYS.iter().find(|(name, _)| name == key);
            known.map(|(_, hint)| *hint)
        }
        _ => None,
    }
}

/// What to do about a key that an editor wrote; `None` for every other.
pub(crate) fn hint(at: &KeyPath) -> Option<&'static str> {
    let [Step::Key(top), Step::Key(_), Step::Key(key)] = at.steps() else {
        return None;
    };
    let known = EDITOR_KEYS.iter().find(|(name, _)| name == key);
    known.filter(|_| top == "mcpServers").map(|(_, hint)| *hint)
}
