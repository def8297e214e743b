//! URI templates (RFC 6570), as far as it has to be known what they may stand for.

use std::collections::{BTreeSet, HashMap};
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

/// Things with the text of a template each, found by what every URI that one stands for begins
/// with. Servers have thousands of templates, and answers thousands of URIs.
#[derive(Clone, Debug)]
pub(super) struct Index<T> {
    by_beginning: HashMap<Box<str>, Vec<T>>,
    /// In bytes, of all beginnings.
    lengths: BTreeSet<usize>,
}

impl<T> Index<T> {
    pub(super) fn new<'t>(all: impl IntoIterator<Item = (&'t str, T)>) -> Self {
        let mut by_beginning: HashMap<Box<str>, Vec<T>> = HashMap::new();
        for (text, thing) in all {
            let beginning = beginning(text).into();
            by_beginning.entry(beginning).or_default().push(thing);
        }
        Self {
            lengths: by_beginning.keys().map(|text| text.len()).collect(),
            by_beginning,
        }
    }

    /// Those whose templates begin like this URI, the shortest beginning first.
    pub(super) fn begin<'i>(&'i self, uri: &'i str) -> impl Iterator<Item = &'i T> + Clone {
        self.groups(uri).flatten()
    }

    /// How much it is to look at those.
    pub(super) fn cost(&self, uri: &str) -> usize {
        let looks = self.lengths.range(..=uri.len()).count();
        let found: usize = self.groups(uri).map(Vec::len).sum();
        (looks + found) * (1 + uri.len() / 1024)
    }

    fn groups<'i>(&'i self, uri: &'i str) -> impl Iterator<Item = &'i Vec<T>> + Clone {
        let lengths = self.lengths.range(..=uri.len());
        lengths.filter_map(|length| self.by_beginning.get(uri.get(..*length)?))
    }
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self::new([])
    }
}

/// The templates of one upstream where some of them may not be seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Sides(Index<(Arc<str>, Side)>);

/// Where a template is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Shown,
    /// Shown because its text is one of the patterns.
    Named,
    Denied,
}

impl Sides {
    pub(super) fn new(all: impl IntoIterator<Item = (Arc<str>, Side)>) -> Self {
        let all: Vec<_> = all.into_iter().collect();
        Self(Index::new(all.iter().map(|one| (&*one.0, one.clone()))))
    }

    /// What they say of a URI.
    pub(super) fn stance(&self, uri: &str) -> Stance {
        let like = self.0.begin(uri);
        let last = |is: fn(Side) -> bool| {
            let may_be = like
                .clone()
                .filter(|(text, side)| is(*side) && may_be(text, uri));
            may_be.map(|(text, _)| beginning(text).len()).max()
        };
        if let Some(denied) = last(|side| side == Side::Denied)
            && last(|side| side != Side::Denied).is_none_or(|shown| shown <= denied)
        {
            return Stance::Denied;
        }
        let mut named = like.filter(|(_, side)| *side == Side::Named);
        match named.any(|(text, _)| stands_for(text, uri)) {
            true => Stance::Allowed,
            false => Stance::Unsaid,
        }
    }

    /// How much it is to say what they say of a URI.
    pub(super) fn cost(&self, uri: &str) -> usize {
        self.0.cost(uri)
    }
}

/// Whether a URI may be what a template stands for: each `{...}` is taken for any text, which is
/// more than it can be.
fn may_be(template: &str, uri: &str) -> bool {
    let (first, rest) = template.split_once('{').unwrap_or((template, ""));
    if first.len() == template.len() {
        return template == uri;
    }
    // Any text, with the literal parts in order in it: the first place of each is as good as any.
    let Some(mut left) = uri.strip_prefix(first) else {
        return false;
    };
    let after = |part: &'_ str| {
        part.split_once('}')
            .map_or("", |(_, literal)| literal)
            .len()
    };
    let mut parts = rest
        .split('{')
        .map(|part| part.get(part.len() - after(part)..));
    let last = parts.next_back().flatten().unwrap_or_default();
    for literal in parts.flatten() {
        let Some((_, rest)) = left.split_once(literal) else {
            return false;
        };
        left = rest;
    }
    left.ends_with(last)
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

    #[test]
    fn expressions_beside_each_other_are_any_text_together() {
        check("x://{a}{b}-{c}", "x://1-2", true);
        check("x://{a}{b}-{c}", "x://1/2-3", true);
        check("x://{a}{b}-{c}", "x://12", false);
        check("x://{a}{b}{c}", "x://", true);
        check("x://{a}-{b}{c}/y", "x://1-2-3/y", true);
        let texts = ["x://{a}{b}-{c}", "x://{d}"].map(Arc::from);
        let [denied, shown] = texts;
        let sides = Sides::new([(denied, Side::Denied), (shown, Side::Shown)]);
        assert_eq!(sides.stance("x://1-2"), Stance::Denied);
        assert_eq!(sides.stance("x://1"), Stance::Unsaid);
    }

    #[test]
    fn only_templates_that_begin_like_a_uri_are_looked_at() {
        let texts = [
            "a://{x}",
            "a://b/{x}",
            "a://c/{x}",
            "{+x}",
            "a://b/é{x}",
            "a://b",
        ];
        let index = Index::new(texts.map(|text| (text, text)));
        let found = |uri| index.begin(uri).copied().collect::<Vec<_>>();
        assert_eq!(found("a://b/1"), ["{+x}", "a://{x}", "a://b", "a://b/{x}"]);
        assert_eq!(found("a://b/ê"), ["{+x}", "a://{x}", "a://b", "a://b/{x}"]);
        assert_eq!(found("b"), ["{+x}"]);
        let many = (0..1_000).map(|n| (format!("a://{n}/{{x}}"), n));
        let many: Vec<_> = many.collect();
        let many = Index::new(many.iter().map(|(text, n)| (text.as_str(), n)));
        assert!(many.cost("a://7/x") < 10);
    }
}
