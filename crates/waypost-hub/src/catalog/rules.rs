//! What a named endpoint shows, as the file says it.

use std::collections::HashSet;
use std::sync::Arc;

use globset::{Glob, GlobSet};
use url::Url;
use waypost_config::config::{Discovery, Endpoint, Filter};
use waypost_wire::uri;

use super::entry::Kind;

/// The settings of one endpoint, ready for use.
#[derive(Debug)]
pub struct Rules {
    /// Its name: the last part of its path.
    pub name: Arc<str>,
    /// What stands before names here; `None` leaves them as they are at `/mcp`.
    pub prefix: Option<String>,
    /// Items on one page of a list; zero is all on one.
    pub page_size: usize,
    /// How its clients come to know tools.
    pub discovery: Discovery,
    /// Empty: all.
    upstreams: HashSet<String>,
    tools: Globs,
    prompts: Globs,
    resources: Globs,
}

/// The patterns of one kind.
#[derive(Debug)]
struct Globs {
    patterns: Filter,
    allow: GlobSet,
    deny: GlobSet,
}

/// Which patterns have matched something: those of `allow`, then those of `deny`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hits(Vec<bool>);

// === impl Rules ===

impl Rules {
    /// Reads the settings.
    pub fn new(settings: &Endpoint) -> Self {
        Self {
            name: settings.name.as_str().into(),
            prefix: settings.prefix.clone(),
            page_size: settings.page_size,
            discovery: settings.discovery,
            upstreams: settings.upstreams.iter().cloned().collect(),
            tools: Globs::new(&settings.tools),
            prompts: Globs::new(&settings.prompts),
            resources: Globs::new(&settings.resources),
        }
    }

    /// Whether it shows anything of this upstream.
    pub fn shows(&self, upstream: &str) -> bool {
        self.upstreams.is_empty() || self.upstreams.contains(upstream)
    }

    /// Whether it shows what the upstream itself calls `original`; of resources the URI, of
    /// templates their text.
    pub fn allows(&self, kind: Kind, original: &str) -> bool {
        self.globs(kind).allows(original)
    }

    /// Whether it lets a URI be read that is in no list. Servers take different spellings of one
    /// address for the same, so each of them must be allowed; and a spelling that has no other use
    /// than to be read as something else is not.
    pub fn allows_uri(&self, original: &str) -> bool {
        if self.patterns(Kind::Resource).next().is_none() {
            return true;
        }
        let fine = |uri: &str| {
            let plain = uri::decoded(uri);
            let allows = |uri: &str| self.allows(Kind::Resource, uri);
            allows(uri) && allows(&plain) && !uri::is_evasive(&plain)
        };
        // Many a server parses it as browsers do, to which `file:/a/./b` is `file:///a/b`.
        let parsed = Url::parse(original).ok();
        fine(original) && parsed.is_none_or(|parsed| fine(parsed.as_str()))
    }

    /// As [`Rules::allows`], and notes which patterns match.
    pub(super) fn look(&self, kind: Kind, original: &str, hits: &mut Hits) -> bool {
        self.globs(kind).look(original, hits)
    }

    /// The patterns of a kind, each with the key that it stands under.
    pub(super) fn patterns(&self, kind: Kind) -> impl Iterator<Item = (&'static str, &str)> {
        let Filter { allow, deny } = &self.globs(kind).patterns;
        let allow = allow.iter().map(|pattern| ("allow", pattern.as_str()));
        allow.chain(deny.iter().map(|pattern| ("deny", pattern.as_str())))
    }

    fn globs(&self, kind: Kind) -> &Globs {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Resource | Kind::Template => &self.resources,
        }
    }
}

// === impl Globs ===

impl Globs {
    fn new(filter: &Filter) -> Self {
        Self {
            patterns: filter.clone(),
            allow: set(&filter.allow).unwrap_or_else(GlobSet::empty),
            deny: set(&filter.deny).unwrap_or_else(everything),
        }
    }

    fn allows(&self, name: &str) -> bool {
        let allowed = self.patterns.allow.is_empty() || self.allow.is_match(name);
        allowed && !self.deny.is_match(name)
    }

    fn look(&self, name: &str, hits: &mut Hits) -> bool {
        let (allow, deny) = (self.allow.matches(name), self.deny.matches(name));
        let allowed = self.patterns.allow.is_empty() || !allow.is_empty();
        let first = self.patterns.allow.len();
        hits.0.resize(first + self.patterns.deny.len(), false);
        let denied = !deny.is_empty();
        for at in allow
            .into_iter()
            .chain(deny.into_iter().map(|at| first + at))
        {
            if let Some(hit) = hits.0.get_mut(at) {
                *hit = true;
            }
        }
        allowed && !denied
    }
}

/// The configuration has checked every pattern; should they be too much together all the same,
/// nothing may become visible by that.
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
    pub(super) fn add(&mut self, other: &Self) {
        let length = self.0.len().max(other.0.len());
        self.0.resize(length, false);
        for (hit, other) in self.0.iter_mut().zip(&other.0) {
            *hit |= other;
        }
    }

    pub(super) fn has(&self, at: usize) -> bool {
        self.0.get(at).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(allow: &[&str], deny: &[&str], name: &str, expected: bool) {
        let list = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect();
        let filter = Filter {
            allow: list(allow),
            deny: list(deny),
        };
        let rules = Rules::new(&Endpoint {
            resources: filter,
            ..Endpoint::default()
        });
        assert_eq!(rules.allows(Kind::Resource, name), expected, "{name}");
        let mut hits = Hits::default();
        assert_eq!(rules.look(Kind::Template, name, &mut hits), expected);
        assert!(rules.allows(Kind::Tool, name) && rules.shows(name));
    }

    #[test]
    fn r05_deny_wins_over_allow_and_nothing_said_is_everything() {
        check(&[], &[], "read", true);
        check(&["read_*"], &[], "read_a", true);
        check(&["read_*"], &[], "write", false);
        check(&["*"], &["*_all"], "read_all", false);
        check(&[], &["w*"], "read", true);
        check(&["file:///docs/*"], &[], "file:///docs/a/b.md", true);
        check(&["file:///docs/*"], &[], "file:///etc/docs/", false);
        check(&["*.md"], &["file:///x/{a,b}*"], "file:///x/a/c.md", false);
    }

    #[test]
    fn r05_no_spelling_of_a_uri_leads_around_the_patterns() {
        let rules = |allow: &[&str], deny: &[&str]| {
            let list = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect();
            Rules::new(&Endpoint {
                resources: Filter {
                    allow: list(allow),
                    deny: list(deny),
                },
                ..Endpoint::default()
            })
        };
        let docs = rules(&["file:///docs/*"], &[]);
        assert!(docs.allows_uri("file:///docs/a%20b"));
        for uri in [
            "file:///docs/../etc/x",
            "file:///docs/%2e%2e/etc/x",
            "file:///docs/.\t./etc/x",
            "file:///docs/\n../etc/x",
            "file:///docs/%2e\t%2e/etc/x",
            "file:///docs/.%09./etc/x",
            "file:///docs\\..\\etc/x",
            "file:///etc/x",
        ] {
            assert!(!docs.allows_uri(uri), "{uri}");
        }
        let no_etc = rules(&[], &["file:///etc/*"]);
        assert!(no_etc.allows_uri("file:///docs/x"));
        for uri in [
            "FILE:///etc/x",
            "file:///%65tc/x",
            "file:///a/../etc/x",
            "file:///./etc/x",
            "file:///%2e/etc/x",
            "file:///e\ttc/x",
            "file:///etc\\x",
            "file:\\\\\\etc\\x",
            "file:////etc/x",
            "file:/etc/x",
            "file:etc/x",
            "file://localhost/etc/x",
            " file:///etc/x",
        ] {
            assert!(!no_etc.allows_uri(uri), "{uri}");
        }
        assert!(
            rules(&[], &[]).allows_uri("file:///a/../b"),
            "nothing to protect"
        );
    }

    #[test]
    fn it_is_known_which_patterns_match() {
        let list = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect();
        let rules = Rules::new(&Endpoint {
            tools: Filter {
                allow: list(&["a*", "b*"]),
                deny: list(&["c*", "*z"]),
            },
            ..Endpoint::default()
        });
        let (mut one, mut two) = (Hits::default(), Hits::default());
        assert!(rules.look(Kind::Tool, "a", &mut one));
        assert!(!rules.look(Kind::Tool, "az", &mut two));
        one.add(&two);
        let found: Vec<bool> = (0..5).map(|at| one.has(at)).collect();
        assert_eq!(found, [true, false, false, true, false]);
        let patterns: Vec<_> = rules.patterns(Kind::Tool).collect();
        assert_eq!(patterns[2], ("deny", "c*"));
    }
}
