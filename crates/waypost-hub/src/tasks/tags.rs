//! The tools of a catalogue by the tags that handles name them with.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

use crate::catalog::Catalog;
use crate::member::Member;
use crate::tasks::handle::Tag;

/// Finds a tool by its tag without computing one. What is known belongs to one snapshot of the
/// catalogue; with the next one only the tags of tools that are new are computed.
pub(crate) struct ToolTags {
    known: ArcSwapOption<Known>,
    tags_of: Box<TagsOf>,
}

/// The tags of a tool's original name, one for each key.
type TagsOf = dyn Fn(&str) -> Vec<Tag> + Send + Sync;

/// What is known of one snapshot.
pub(crate) struct Known {
    /// Kept, if weakly, so that no other snapshot can come to lie in its place.
    catalog: Weak<Catalog>,
    /// By original name.
    tags: HashMap<Arc<str>, Vec<Tag>>,
    /// Original names, whichever upstream has them: a tag says nothing of that.
    names: HashMap<Tag, Vec<Arc<str>>>,
}

impl ToolTags {
    /// Nothing is known yet.
    pub(crate) fn new(tags_of: impl Fn(&str) -> Vec<Tag> + Send + Sync + 'static) -> Self {
        Self {
            known: ArcSwapOption::empty(),
            tags_of: Box::new(tags_of),
        }
    }

    /// The original name of the tool of `member` with this tag, as long as any view shows it.
    pub(crate) fn find(
        &self,
        catalog: &Arc<Catalog>,
        member: &Member,
        tag: Tag,
    ) -> Option<Arc<str>> {
        let known = self.learn(catalog);
        let names = known.names.get(&tag)?;
        let is_there = |name: &&Arc<str>| {
            let mut tables = catalog.tool_tables();
            tables.any(|table| table.of_member(member, name).is_some())
        };
        names.iter().find(is_there).cloned()
    }

    /// Knows this snapshot from now on; sooner than on the first search in it.
    pub(crate) fn learn(&self, catalog: &Arc<Catalog>) -> Arc<Known> {
        let before = self.known.load_full();
        match before {
            Some(known) if std::ptr::eq(known.catalog.as_ptr(), Arc::as_ptr(catalog)) => known,
            before => {
                let known = Arc::new(self.know(catalog, before.as_deref()));
                self.known.store(Some(Arc::clone(&known)));
                known
            }
        }
    }

    fn know(&self, catalog: &Arc<Catalog>, before: Option<&Known>) -> Known {
        let count = catalog.tools.listed().len();
        let mut tags: HashMap<Arc<str>, Vec<Tag>> = HashMap::with_capacity(count);
        let mut names: HashMap<Tag, Vec<Arc<str>>> = HashMap::with_capacity(count);
        for entry in catalog.tool_tables().flat_map(|table| table.everything()) {
            let name = &entry.original;
            if tags.contains_key(name) {
                continue;
            }
            let own = before.and_then(|before| before.tags.get(name).cloned());
            let own = own.unwrap_or_else(|| (self.tags_of)(name));
            for tag in &own {
                names.entry(*tag).or_default().push(Arc::clone(name));
            }
            tags.insert(Arc::clone(name), own);
        }
        Known {
            catalog: Arc::downgrade(catalog),
            tags,
            names,
        }
    }
}

impl fmt::Debug for ToolTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolTags")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use waypost_wire::raw::Raw;

    use super::*;
    use crate::catalog::entry::Entry;
    use crate::error::CallError;
    use crate::keys::Keys;
    use crate::tasks::handle::Seals;
    use crate::upstream::{BoxFuture, CallFuture, Facts, Upstream};

    #[derive(Debug)]
    struct Nobody;

    impl Upstream for Nobody {
        fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
            Box::pin(async { Ok(Facts::default()) })
        }

        fn call(&self, _: crate::call::Call) -> CallFuture<'_> {
            Box::pin(async { Err(CallError::no_end()) })
        }
    }

    fn member(name: &str) -> Arc<Member> {
        let yaml = format!("upstreams: {{ {name}: {{ command: x }} }}");
        let config = waypost_config::parse_str(&yaml).unwrap().config;
        Arc::new(Member::new(config.upstreams[0].clone(), Arc::new(Nobody)))
    }

    fn catalog<'a>(tools: impl IntoIterator<Item = (&'a Arc<Member>, String)>) -> Arc<Catalog> {
        let entries = tools.into_iter().map(|(member, tool)| {
            Arc::new(Entry {
                exposed: format!("{}_{tool}", member.name).into(),
                original: tool.into(),
                member: Arc::clone(member),
                definition: Raw::empty_object(),
                params: [].into(),
                renamed: None,
                arguments: None,
                ui: Vec::new(),
                choice: None,
            })
        });
        Arc::new(Catalog::default().with_tools(&entries.collect::<Vec<_>>()))
    }

    fn seals() -> Seals {
        Seals::new(&Keys::new(vec![vec![1; 32], vec![2; 32]]).unwrap())
    }

    #[test]
    fn a_tag_is_computed_once_for_each_tool_however_often_tasks_are_looked_at() {
        let computed = Arc::new(AtomicUsize::new(0));
        let (seals, count) = (seals(), Arc::clone(&computed));
        let tags = ToolTags::new(move |name| {
            count.fetch_add(1, Ordering::Relaxed);
            seals.tool_tags(name)
        });
        let one = member("one");
        let many = |count: usize| catalog((0..count).map(|n| (&one, format!("tool{n}"))));
        let before = many(20_000);
        let wanted = self::seals().tool_tags("tool19999")[1];
        let absent = self::seals().tool_tags("absent")[0];
        for _ in 0..100 {
            assert_eq!(
                tags.find(&before, &one, wanted).as_deref(),
                Some("tool19999")
            );
            assert_eq!(tags.find(&before, &one, absent), None);
        }
        assert_eq!(computed.load(Ordering::Relaxed), 20_000);
        let after = many(20_001);
        assert!(tags.find(&after, &one, wanted).is_some());
        assert_eq!(computed.load(Ordering::Relaxed), 20_001);
        assert_eq!(tags.find(&many(3), &one, wanted), None);
    }

    #[test]
    fn a_tool_is_found_only_where_its_upstream_has_it() {
        let (one, two) = (member("one"), member("two"));
        let seals = seals();
        let (a, b) = (seals.tool_tags("a")[0], seals.tool_tags("b")[0]);
        let tags = ToolTags::new(move |name| seals.tool_tags(name));
        let tools = [(&one, "a"), (&two, "a"), (&two, "b")];
        let catalog = catalog(tools.map(|(member, tool)| (member, tool.to_owned())));
        assert_eq!(tags.find(&catalog, &one, a).as_deref(), Some("a"));
        assert_eq!(tags.find(&catalog, &two, a).as_deref(), Some("a"));
        assert_eq!(tags.find(&catalog, &two, b).as_deref(), Some("b"));
        assert_eq!(tags.find(&catalog, &one, b), None);
    }
}
