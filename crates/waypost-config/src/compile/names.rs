//! Which texts can be names of what.

/// Names that mean something of Waypost's own.
const RESERVED: [&str; 2] = ["waypost", "workflow"];

/// Prefixes of methods that the gateway routes by its own rules.
const OWN_METHODS: &[&str] = &[
    "initialize",
    "ping",
    "server/",
    "tools/",
    "prompts/",
    "resources/",
    "completion/",
    "logging/",
    "subscriptions/",
    "tasks/",
    "notifications/",
    "sampling/",
    "elicitation/",
    "roots/",
];

/// Why a text is no name for an upstream.
pub(super) fn upstream(name: &str) -> Result<(), &'static str> {
    if RESERVED.contains(&name) {
        return Err("this name is Waypost's own");
    }
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if starts && name.len() <= 32 && name.bytes().all(fits) {
        return Ok(());
    }
    Err("not a name: a lower-case letter, then at most 31 lower-case letters, digits and `-`")
}

/// What may stand before a tool's name.
pub(super) fn is_prefix(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

/// `vendor.example/name`.
pub(super) fn is_extension(text: &str) -> bool {
    let fits = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    text.split_once('/')
        .is_some_and(|(vendor, name)| fits(vendor) && fits(name))
}

pub(super) fn is_method(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./$".contains(&b))
}

pub(super) fn is_own_method(text: &str) -> bool {
    OWN_METHODS
        .iter()
        .any(|own| text == *own || (own.ends_with('/') && text.starts_with(own)))
}

/// A name for an environment variable of a child.
pub(super) fn is_variable(text: &str) -> bool {
    !text.is_empty() && !text.contains(['=', '\0'])
}
