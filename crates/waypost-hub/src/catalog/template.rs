//! URI templates (RFC 6570), as far as it has to be known what they may stand for.

use std::sync::Arc;

/// Whether a URI may be what a template stands for: each `{...}` is taken for any text, which is
/// more than it can be.
fn may_be(template: &str, uri: &str) -> bool {
    let mut rest = template;
    let mut literals = Vec::new();
    while let Some((literal, after)) = rest.split_once('{') {
        literals.push(literal);
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    let Some((first, inner)) = literals.split_first() else {
        return template == uri;
    };
    let begun = uri.strip_prefix(first);
    let Some(mut left) = begun.and_then(|left| left.strip_suffix(rest)) else {
        return false;
    };
    for literal in inner {
        let Some((_, after)) = left.split_once(literal) else {
            return false;
        };
        left = after;
    }
    true
}

/// Whether a URI is none that only one of the `denied` templates stands for. Of two that could
/// stand for it the one that says more of its beginning counts.
pub(super) fn opens<'a>(
    shown: impl Iterator<Item = &'a Arc<str>>,
    denied: impl Iterator<Item = &'a Arc<str>>,
    uri: &str,
) -> bool {
    let said = |text: &Arc<str>| may_be(text, uri).then(|| beginning(text).len());
    let Some(denied) = denied.filter_map(said).max() else {
        return true;
    };
    shown
        .filter_map(said)
        .max()
        .is_some_and(|shown| shown > denied)
}

/// What every URI that a template stands for begins with.
pub(super) fn beginning(template: &str) -> &str {
    template.split('{').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, uri: &str, expected: bool) {
        assert_eq!(may_be(template, uri), expected, "{template} {uri}");
    }

    #[test]
    fn a_template_stands_for_what_has_its_literal_parts_in_order() {
        check("db://{table}/rows", "db://users/rows", true);
        check("db://{table}/rows", "db://users/columns", false);
        check("db://{table}/rows", "dc://users/rows", false);
        check("a://{x}/b/{y}{?q}", "a://1/b/2?q=3", true);
        check("a://{x}/b/{y}", "a://1/c/2", false);
        check("{+uri}", "anything", true);
        check("a://b", "a://b", true);
        check("a://b", "a://b/c", false);
        check("a://{x", "a://b", true);
        check("aa{x}aa", "aaa", false);
    }
}
