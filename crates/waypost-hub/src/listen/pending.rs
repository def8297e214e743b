//! What a source has still to tell.

use std::collections::{HashMap, VecDeque};

use waypost_wire::message::Notification;
use waypost_wire::method;

use crate::tasks::passthrough::TASK_ID;

/// With so many the source takes nothing more: what its upstream says waits there, and is the
/// upstream's to hold back.
const MOST: usize = 256;

/// In the order in which they were first said, of each resource and each task only the last.
#[derive(Default)]
pub(super) struct Pending {
    order: VecDeque<About>,
    told: HashMap<About, Notification>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum About {
    /// By its URI, the client's.
    Resource(String),
    /// By its handle.
    Task(String),
}

impl About {
    /// `None` for what is about neither.
    fn of(told: &Notification) -> Option<Self> {
        match told.method.as_str() {
            method::RESOURCE_UPDATED => told.params.string("uri").map(Self::Resource),
            method::TASK_STATUS => told.params.string(TASK_ID).map(Self::Task),
            _ => None,
        }
    }
}

impl Pending {
    pub(super) fn add(&mut self, told: Notification) {
        if let Some(about) = About::of(&told)
            && self.told.insert(about.clone(), told).is_none()
        {
            self.order.push_back(about);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Notification> {
        self.told.remove(&self.order.pop_front()?)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.order.len() >= MOST
    }
}

#[cfg(test)]
mod tests {
    use waypost_wire::object::Object;
    use waypost_wire::raw::Raw;

    use super::*;

    fn said(method: &str, member: &str, name: &str, status: &str) -> Notification {
        let params = [(member, Raw::string(name)), ("status", Raw::string(status))];
        Notification {
            method: method.to_owned(),
            params: Object::from_iter(params),
        }
    }

    #[test]
    fn of_each_the_last_is_kept_where_the_first_was() {
        let mut pending = Pending::default();
        for (name, status) in [("1", "working"), ("2", "working"), ("1", "completed")] {
            pending.add(said(method::TASK_STATUS, TASK_ID, name, status));
            pending.add(said(method::RESOURCE_UPDATED, "uri", name, status));
        }
        let mut told = Vec::new();
        while let Some(one) = pending.pop() {
            told.push(one.params.string("status").unwrap());
        }
        assert_eq!(told, ["completed", "completed", "working", "working"]);
        assert!(pending.is_empty() && pending.told.is_empty());
    }
}
