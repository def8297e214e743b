//! Members that left and at which something still goes on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::call::View;
use crate::catalog::Catalog;
use crate::catalog::entry::Kind;
use crate::member::Member;
use crate::tasks::handle::Tag;

/// All of them; they are kept by what goes on at them.
#[derive(Debug, Default)]
pub(crate) struct Leavers(Mutex<Vec<Leaver>>);

#[derive(Debug)]
struct Leaver {
    member: Weak<Member>,
    shown: Arc<Shown>,
}

/// Original names of the tools that each view showed of one that was removed, by the tags of task
/// handles.
#[derive(Debug, Default)]
pub(crate) struct Shown(Vec<(View, HashMap<Tag, Arc<str>>)>);

impl Leavers {
    /// This one leaves; `shown` is for who is removed.
    pub(crate) fn add(&self, member: &Arc<Member>, shown: Shown) {
        let mut all = self.all();
        all.retain(|leaver| leaver.member().is_some());
        all.push(Leaver {
            member: Arc::downgrade(member),
            shown: Arc::new(shown),
        });
    }

    /// Those at which something may still go on, the latest first.
    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        self.all().iter().rev().filter_map(Leaver::member).collect()
    }

    /// Those of them that were removed, with what was shown of them.
    pub(crate) fn removed(&self) -> Vec<(Arc<Member>, Arc<Shown>)> {
        let all = self.all();
        let removed = all.iter().rev().filter_map(|leaver| {
            let member = leaver.member().filter(|member| member.is_removed())?;
            Some((member, Arc::clone(&leaver.shown)))
        });
        removed.collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Leaver>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leaver {
    fn member(&self) -> Option<Arc<Member>> {
        self.member.upgrade().filter(|member| !member.has_ended())
    }
}

impl Shown {
    /// What `catalog` shows of a member. `tags` gives those of a tool.
    pub(crate) fn of(catalog: &Catalog, member: &Member, tags: impl Fn(&str) -> Vec<Tag>) -> Self {
        let name = &member.name;
        let endpoints = catalog.endpoints().iter();
        let endpoints = endpoints.map(|own| {
            let view = View::Endpoint(Arc::clone(&own.rules.name));
            (view, own.table(Kind::Tool))
        });
        let views = [View::All, View::Upstream(Arc::clone(name))];
        let views = views.map(|view| (view, Some(&catalog.tools)));
        let views = views.into_iter().chain(endpoints);
        let shown = views.filter_map(|(view, table)| {
            let shelf = table?.whole_shelf(name)?;
            let tools = shelf.entries().iter().flat_map(|entry| {
                let tags = tags(&entry.original).into_iter();
                tags.map(|tag| (tag, Arc::clone(&entry.original)))
            });
            Some((view, tools.collect()))
        });
        Self(shown.collect())
    }

    /// Whether a view showed the tool of this tag, and `catalog` has no rule against it now.
    pub(crate) fn has(&self, catalog: &Catalog, view: &View, tag: Tag) -> bool {
        let known = self.0.iter().find(|(known, _)| known == view);
        let Some(tool) = known.and_then(|(_, tools)| tools.get(&tag)) else {
            return false;
        };
        match view {
            View::All | View::Upstream(_) => true,
            View::Endpoint(name) => {
                let endpoint = catalog.endpoint(name);
                endpoint.is_some_and(|own| own.rules.allows(Kind::Tool, tool))
            }
        }
    }
}
