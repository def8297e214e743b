//! URI templates (RFC 6570), as far as it has to be known what they may stand for.

use std::sync::Arc;

/// What an upstream's templates and their texts among the patterns say of a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stance {
    /// Only a denied one stands for it. Of two that could stand for it the one that says more of its
    /// beginning counts.
    Denied,
    /// One that is allowed by its text stands for it.
    Allowed,
    /// It is left to the patterns.
    Unsaid,
}

/// What templates say of a URI: those that are shown, each with whether it is allowed by its text,
/// and those that are denied.
pub(super) fn stance<'a>(
    shown: impl Iterator<Item = (&'a Arc<str>, bool)> + Clone,
    denied: impl Iterator<Item = &'a Arc<str>>,
    uri: &str,
) -> Stance {
    let said = |text: &Arc<str>| may_be(text, uri).then(|| beginning(text).len());
    if let Some(denied) = denied.filter_map(said).max() {
        let shown = shown.clone().filter_map(|(text, _)| said(text)).max();
        if shown.is_none_or(|shown| shown <= denied) {
            return Stance::Denied;
        }
    }
    let mut allowed = shown.filter(|(_, by_text)| *by_text);
    if allowed.any(|(text, _)| stands_for(text, uri)) {
        return Stance::Allowed;
    }
    Stance::Unsaid
}

/// Whether a URI may be what a template stands for: each `{...}` is taken for any text, which is
/// more than it can be.
fn may_be(template: &str, uri: &str) -> bool {
    walk(template, uri, |_, _| true)
}

/// Whether a URI is what a template stands for. A plain `{name}` is some text within one segment.
pub(super) fn stands_for(template: &str, uri: &str) -> bool {
    let operators = ['+', '#', '.', '/', ';', '?', '&'];
    walk(template, uri, |expression, text| {
        expression.starts_with(operators) || !(text.is_empty() || text.contains(['/', '?', '#']))
    })
}

/// Whether a URI has the literal parts of a template, and what `fits` its expressions between.
fn walk(template: &str, uri: &str, fits: impl Fn(&str, &str) -> bool) -> bool {
    let (mut template, mut uri) = (template, uri);
    loop {
        let Some((literal, rest)) = template.split_once('{') else {
            return template == uri;
        };
        let Some(left) = uri.strip_prefix(literal) else {
            return false;
        };
        let (expression, rest) = rest.split_once('}').unwrap_or((rest, ""));
        let next = rest.split('{').next().unwrap_or_default();
        let is_last = next.len() == rest.len();
        let text = if is_last {
            left.strip_suffix(next)
        } else if next.is_empty() {
            left.split(['/', '?', '#']).next()
        } else {
            left.split_once(next).map(|(text, _)| text)
        };
        let Some(text) = text.filter(|text| fits(expression, text)) else {
            return false;
        };
        (template, uri) = (rest, left.get(text.len()..).unwrap_or_default());
    }
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

    #[track_caller]
    fn stands(template: &str, uri: &str, expected: bool) {
        assert_eq!(stands_for(template, uri), expected, "{template} {uri}");
        assert!(!expected || may_be(template, uri), "{template} {uri}");
    }

    #[test]
    fn a_plain_expression_is_some_text_within_one_segment() {
        stands("db://{table}/rows", "db://users/rows", true);
        stands("db://{table}/rows", "db:///rows", false);
        stands("db://{table}/rows", "db://a/b/rows", false);
        stands("db://{table}", "db://a?x", false);
        stands("db://{a}/{b}", "db://1/2", true);
        stands("db://{a}/{b}", "db://1/2/3", false);
        stands("db://{+path}", "db://a/b?c", true);
        stands("db://{id}{?q}", "db://x?q=1", true);
        stands("db://{id}{?q}", "db://?q=1", false);
        stands("db://x{?q}", "db://x", true);
        stands("db://x{?q}", "db://x?q=1", true);
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
