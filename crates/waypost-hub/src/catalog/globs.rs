//! Patterns over original names and URIs: what an upstream or an endpoint shows.

use globset::{Glob, GlobSet};
use url::Url;
use waypost_config::config::Filter;
use waypost_wire::uri;

use super::entry::Kind;
use super::template::{self, Stance};
use crate::naming;

/// The patterns of one kind.
#[derive(Debug)]
pub(crate) struct Globs {
    allow: Side,
    deny: Side,
}

/// Patterns of which one is enough.
#[derive(Debug)]
struct Side {
    patterns: Vec<String>,
    set: GlobSet,
    /// Some of them could be the texts of URI templates.
    braces: bool,
}

/// Which patterns have matched something: those of `allow`, then those of `deny`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hits(Vec<bool>);

// === impl Globs ===

impl Globs {
    pub(crate) fn new(filter: &Filter) -> Self {
        Self {
            allow: Side::new(&filter.allow, GlobSet::empty),
            deny: Side::new(&filter.deny, everything),
        }
    }

    /// Whether it has no patterns, and so shows all.
    pub(crate) fn is_empty(&self) -> bool {
        self.allow.patterns.is_empty() && self.deny.patterns.is_empty()
    }

    pub(crate) fn allows(&self, name: &str) -> bool {
        let allowed = self.allow.patterns.is_empty() || self.allow.has(name);
        allowed && !self.denies(name)
    }

    pub(crate) fn denies(&self, name: &str) -> bool {
        self.deny.has(name)
    }

    /// Whether it shows what an upstream lists as `name`. Of a resource no other spelling may be
    /// denied either.
    pub(crate) fn shows(&self, kind: Kind, name: &str) -> bool {
        let is_denied = |name: &String| self.denies(name);
        self.allows(name)
            && (self.deny.patterns.is_empty() || !spellings(kind, name).iter().any(is_denied))
    }

    /// Where a template is that is shown.
    pub(super) fn side(&self, template: &str) -> template::Side {
        match self.allow.is_one(template) {
            true => template::Side::Named,
            false => template::Side::Shown,
        }
    }

    /// Whether it lets a URI be read that is in no list; `templates` says what they do to it. Servers
    /// take different spellings of one address for the same, so each of them must be allowed, and
    /// the address alone may not be denied; a spelling that has no other use than to be read as
    /// something else is not allowed.
    pub(crate) fn allows_uri(&self, original: &str, templates: impl Fn(&str) -> Stance) -> bool {
        if self.is_empty() {
            return true;
        }
        let fine = |uri: &str| {
            let plain = uri::decoded(uri);
            let allows = |uri: &str| match templates(uri) {
                Stance::Denied => false,
                Stance::Allowed => !self.denies(uri),
                Stance::Unsaid => self.allows(uri),
            };
            let bare = uri::bare(&plain);
            let denied = self.denies(&bare) || matches!(templates(&bare), Stance::Denied);
            allows(uri) && allows(&plain) && !uri::is_evasive(&plain) && !denied
        };
        // The server may be a gateway too, to which this is the qualified form of a URI.
        let inner = naming::unqualified(original);
        let is_inner_denied = |uri: &str| self.denies(uri) || templates(uri) == Stance::Denied;
        if inner.iter().any(|uri| is_inner_denied(uri)) {
            return false;
        }
        // Many a server parses it as browsers do, to which `file:/a/./b` is `file:///a/b`.
        let parsed = Url::parse(original).ok();
        fine(original) && parsed.is_none_or(|parsed| fine(parsed.as_str()))
    }

    /// As [`Globs::shows`], and notes which patterns match.
    pub(crate) fn look(&self, kind: Kind, name: &str, hits: &mut Hits) -> bool {
        let (allow, mut deny) = (self.allow.matches(name), self.deny.matches(name));
        if !self.deny.patterns.is_empty() {
            let others = spellings(kind, name);
            deny.extend(others.iter().flat_map(|name| self.deny.matches(name)));
        }
        let allowed = self.allow.patterns.is_empty() || !allow.is_empty();
        let first = self.allow.patterns.len();
        hits.0.resize(first + self.deny.patterns.len(), false);
        let denied = !deny.is_empty();
        let deny = deny.into_iter().map(|at| first + at);
        for at in allow.into_iter().chain(deny) {
            if let Some(hit) = hits.0.get_mut(at) {
                *hit = true;
            }
        }
        allowed && !denied
    }

    /// The patterns, each with the key that it stands under.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let allow = self.allow.patterns.iter().map(|p| ("allow", p.as_str()));
        allow.chain(self.deny.patterns.iter().map(|p| ("deny", p.as_str())))
    }
}

// === impl Side ===

impl Side {
    /// The configuration has checked every pattern; should they be too much together all the same,
    /// `otherwise` counts, by which nothing may become visible.
    fn new(patterns: &[String], otherwise: fn() -> GlobSet) -> Self {
        Self {
            patterns: patterns.to_vec(),
            set: set(patterns).unwrap_or_else(otherwise),
            braces: patterns.iter().any(|pattern| pattern.contains('{')),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.set.is_match(name) || self.is_one(name)
    }

    /// A template is also what its own text says, of which a glob would make something else.
    fn is_one(&self, name: &str) -> bool {
        self.braces && self.patterns.iter().any(|pattern| pattern == name)
    }

    fn matches(&self, name: &str) -> Vec<usize> {
        let mut found = self.set.matches(name);
        if self.is_one(name) {
            let all = self.patterns.iter().enumerate();
            let own = all.filter(|(_, pattern)| *pattern == name);
            found.extend(own.map(|(at, _)| at));
        }
        found
    }
}

/// Under which other names somebody may reach what an upstream lists as `name`: as
/// [`Globs::allows_uri`] has it of resources that are not listed.
pub(super) fn spellings(kind: Kind, name: &str) -> Vec<String> {
    if kind != Kind::Resource {
        return Vec::new();
    }
    let parsed = Url::parse(name).ok().map(String::from);
    let mut all: Vec<String> = [Some(name.to_owned()), parsed]
        .into_iter()
        .flatten()
        .flat_map(|uri| {
            let plain = uri::decoded(&uri);
            [uri::bare(&plain), plain, uri]
        })
        .collect();
    all.retain(|other| other != name);
    all
}

fn set(patterns: &[String]) -> Option<GlobSet> {
    let mut builder = GlobSet::builder();
    for pattern in patterns {
        builder.add(Glob::new(pattern).ok()?);
    }
    builder.build().ok()
}

fn everything() -> GlobSet {
    set(&["*".to_owned()]).unwrap_or_else(GlobSet::empty)
}

// === impl Hits ===

impl Hits {
    pub(crate) fn add(&mut self, other: &Self) {
        let length = self.0.len().max(other.0.len());
        self.0.resize(length, false);
        for (hit, other) in self.0.iter_mut().zip(&other.0) {
            *hit |= other;
        }
    }

    pub(crate) fn has(&self, at: usize) -> bool {
        self.0.get(at).copied().unwrap_or_default()
    }
}
