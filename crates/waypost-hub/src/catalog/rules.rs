//! What a named endpoint shows, as the file says it.

use std::collections::HashSet;
use std::sync::Arc;

use waypost_config::config::{Discovery, Endpoint};

use super::entry::Kind;
use super::globs::Globs;

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
        self.globs(kind).shows(kind, original)
    }

    /// The patterns of a kind, each with the key that it stands under.
    pub(super) fn patterns(&self, kind: Kind) -> impl Iterator<Item = (&'static str, &str)> {
        self.globs(kind).patterns()
    }

    pub(super) fn globs(&self, kind: Kind) -> &Globs {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Resource | Kind::Template => &self.resources,
        }
    }
}

#[cfg(test)]
mod tests {
    use waypost_config::config::Filter;

    use super::super::globs::Hits;
    use super::super::template::Stance;
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
        assert_eq!(
            rules
                .globs(Kind::Template)
                .look(Kind::Template, name, &mut hits),
            expected
        );
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
        check(&[], &["db://{table}/rows"], "db://{table}/rows", false);
        check(&["db://{table}/rows"], &[], "db://{table}/rows", true);
        check(&[], &["db://{table}/rows"], "db://{other}/rows", true);
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
        let opens = |rules: &Rules, uri: &str| {
            let globs = rules.globs(Kind::Resource);
            globs.allows_uri(uri, |_| Stance::Unsaid)
        };
        let docs = rules(&["file:///docs/*"], &[]);
        assert!(opens(&docs, "file:///docs/a%20b"));
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
            assert!(!opens(&docs, uri), "{uri}");
        }
        let no_etc = rules(&[], &["file:///etc/*"]);
        assert!(opens(&no_etc, "file:///docs/x"));
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
            assert!(!opens(&no_etc, uri), "{uri}");
        }
        let no_secret = rules(&[], &["*.env", "mail://secret/*", "http://secret/*"]);
        assert!(opens(&no_secret, "http://open/a?x#y"));
        for uri in [
            "file:///a/.env?",
            "file:///a/.env#",
            "file:///a/.env?x",
            "file:///a/.env#x",
            "file:///a/.env/",
            "file:///a/%2eenv%3fx",
            "http://u:p@secret/a",
            "http://secret./a",
            "mail://SECRET/1",
            "mail://u@secret/1",
        ] {
            assert!(!opens(&no_secret, uri), "{uri}");
        }
        let searches = rules(&["db://rows?q=*"], &[]);
        assert!(opens(&searches, "db://rows?q=a"), "only denials look at it");
        assert!(
            opens(&rules(&[], &[]), "file:///a/../b"),
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
        assert!(rules.globs(Kind::Tool).look(Kind::Tool, "a", &mut one));
        assert!(!rules.globs(Kind::Tool).look(Kind::Tool, "az", &mut two));
        one.add(&two);
        let found: Vec<bool> = (0..5).map(|at| one.has(at)).collect();
        assert_eq!(found, [true, false, false, true, false]);
        let patterns: Vec<_> = rules.patterns(Kind::Tool).collect();
        assert_eq!(patterns[2], ("deny", "c*"));
    }
}
