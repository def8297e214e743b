//! What a listener wants to hear.

use std::collections::HashSet;
use std::sync::Arc;

use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::polled::{Polled, TaskWish};
use super::source::{Group, Sight, Source};
use crate::call::Call;
use crate::catalog::entry::Kind;
use crate::hub::Hub;
use crate::member::Member;
use crate::tasks::handle::Opened;
use crate::tasks::passthrough::demand_tasks;

/// More URIs and tasks than this on one stream are refused.
const MOST: usize = 1_000;

/// The `notifications` member of a listen request.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: Vec<String>,
    tasks: Vec<String>,
}

/// What a listener asks of upstreams.
pub(super) struct Wishes {
    /// What each is asked to tell.
    pub(super) groups: Vec<Group>,
    /// The tasks among it, for those that do not.
    pub(super) tasks: Vec<TaskWish>,
}

impl Filter {
    /// Reads it.
    pub(super) fn read(call: &Call) -> Result<Self, ErrorObject> {
        let invalid = |text: &str| ErrorObject::new(code::INVALID_PARAMS, text);
        let wanted = call
            .params
            .get("notifications")
            .and_then(|raw| raw.as_object().ok());
        let wanted = wanted.ok_or_else(|| invalid("`params.notifications` must be an object"))?;
        let flag = |member: &str| {
            wanted
                .get(member)
                .and_then(Raw::as_bool)
                .unwrap_or_default()
        };
        let list = |member: &str| match wanted.get(member) {
            None => Ok(Vec::new()),
            Some(raw) => raw
                .decode::<Vec<String>>()
                .filter(|list| list.len() <= MOST)
                .map(deduplicated)
                .ok_or_else(|| invalid(&format!("`{member}` must be at most {MOST} strings"))),
        };
        let filter = Self {
            tools: flag("toolsListChanged"),
            prompts: flag("promptsListChanged"),
            resources: flag("resourcesListChanged"),
            uris: list("resourceSubscriptions")?,
            tasks: list("taskIds")?,
        };
        if wanted.contains("taskIds") {
            demand_tasks(&call.meta.capabilities)?;
        }
        Ok(filter)
    }

    /// The resources that are wanted.
    pub(super) fn uris(&self) -> &[String] {
        &self.uris
    }

    /// The handles of the tasks that are asked for.
    pub(super) fn tasks(&self) -> &[String] {
        &self.tasks
    }

    /// Whether changes of this list are wanted.
    pub(super) fn wants(&self, kind: Kind) -> bool {
        match kind {
            Kind::Tool => self.tools,
            Kind::Prompt => self.prompts,
            Kind::Resource => self.resources,
            // Announced together with resources; once is enough.
            Kind::Template => self.resources,
        }
    }

    /// Which upstream is asked for which resources and tasks, under its own names. What nobody
    /// has is left out, and so out of the acknowledgement. `open` finds tasks by their handles.
    pub(super) fn wishes(
        &self,
        hub: &Arc<Hub>,
        call: &Call,
        open: impl Fn(&str) -> Option<Opened>,
    ) -> Wishes {
        let catalog = hub.catalog();
        let sight = {
            let (hub, view) = (Arc::downgrade(hub), call.view.clone());
            Sight::new(move |member, original| {
                let catalog = hub.upgrade().map(|hub| hub.catalog());
                catalog.is_some_and(|catalog| catalog.lets_read(&view, member, original))
            })
        };
        let begin = |member: &Arc<Member>| Group::new(member, call, &sight);
        let mut groups: Vec<Group> = Vec::new();
        let mut tasks = Vec::new();
        for uri in &self.uris {
            if let Ok((member, original)) = catalog.resource_owner(&call.view, uri)
                // The catalogue may be of before it was removed.
                && (!member.has_left() || member.successor().is_some())
            {
                add(&mut groups, &member, begin, |group| {
                    group.add_uri(original, uri);
                });
            }
        }
        for handle in &self.tasks {
            if let Some(task) = open(handle) {
                // One that is about to leave is asked, and not listened to any more.
                if !task.member.has_left() {
                    add(&mut groups, &task.member, begin, |group| {
                        group.add_task(task.id.clone(), handle, task.instance.clone());
                    });
                }
                let handle = handle.clone();
                tasks.push(TaskWish { handle, task });
            }
        }
        Wishes { groups, tasks }
    }

    /// The same with those resources and tasks only that these have.
    pub(super) fn honoured(&self, sources: &[Source], polled: &[Polled]) -> Self {
        let uris: HashSet<&str> = sources.iter().flat_map(Source::heard_uris).collect();
        let told = sources.iter().flat_map(Source::heard_tasks);
        let tasks: HashSet<&str> = told.chain(polled.iter().map(Polled::handle)).collect();
        let mut honoured = self.clone();
        honoured.uris.retain(|uri| uris.contains(uri.as_str()));
        honoured.tasks.retain(|task| tasks.contains(task.as_str()));
        honoured
    }

    /// Whether so many resources and tasks are all.
    pub(super) fn has(&self, uris: usize, tasks: usize) -> bool {
        (self.uris.len(), self.tasks.len()) == (uris, tasks)
    }

    /// These are not wanted any more.
    pub(super) fn remove(&mut self, uris: &[String], tasks: &[String]) {
        self.uris.retain(|uri| !uris.contains(uri));
        self.tasks.retain(|task| !tasks.contains(task));
    }

    /// The subset that is honoured.
    pub(super) fn acknowledged(&self, sources: &[Source], polled: &[Polled]) -> Object {
        let mut honoured = Object::new();
        for (member, wanted) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if wanted {
                honoured.set(member, Raw::bool(true));
            }
        }
        let Self { uris, tasks, .. } = self.honoured(sources, polled);
        if !uris.is_empty() {
            honoured.set("resourceSubscriptions", Raw::from_serialize(&uris));
        }
        if !tasks.is_empty() {
            honoured.set("taskIds", Raw::from_serialize(&tasks));
        }
        let mut params = Object::new();
        params.set("notifications", honoured.into());
        params
    }
}

/// Adds to the part of this upstream, which begins with it.
fn add(
    groups: &mut Vec<Group>,
    member: &Arc<Member>,
    begin: impl FnOnce(&Arc<Member>) -> Group,
    wish: impl FnOnce(&mut Group),
) {
    let known = |group: &&mut Group| Arc::ptr_eq(&group.member, member);
    match groups.iter_mut().find(known) {
        Some(group) => wish(group),
        None => {
            let mut group = begin(member);
            wish(&mut group);
            groups.push(group);
        }
    }
}

fn deduplicated(list: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    list.into_iter()
        .filter(|item| seen.insert(item.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use waypost_wire::method;

    use super::*;
    use crate::sample;

    /// Who is gone tells nothing, and would be asked again at once until the next catalogue is there.
    #[tokio::test]
    async fn whoever_is_removed_is_not_listened_to_although_the_catalogue_has_it_still() {
        let hub = sample::hub("upstreams: { a: { url: 'http://127.0.0.1:9' } }");
        let filter = Filter {
            uris: vec!["a+x://y".to_owned()],
            ..Filter::default()
        };
        let call = Call::own(method::LISTEN, Object::new());
        let groups = || filter.wishes(&hub, &call, |_| None).groups.len();
        assert_eq!(groups(), 1);
        hub.members()[0].leave(None, false);
        assert_eq!(groups(), 0);
    }
}
