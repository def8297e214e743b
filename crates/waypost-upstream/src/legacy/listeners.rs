//! Who wants to hear of changes at one server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};
use waypost_wire::message::Notification;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::uri;

use crate::fault::Fault;

/// Notifications that wait for one listener; one that is slower loses its subscription.
const QUEUE: usize = 256;

/// What a listener wants to hear of (specification: subscriptions).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) tools: bool,
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
    pub(crate) uris: Vec<String>,
    pub(crate) tasks: Vec<String>,
}

/// The listeners of one session.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    all: Mutex<All>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct All {
    listening: HashMap<u64, Listener>,
    /// Why nothing will come any more.
    gone: Option<Fault>,
}

#[derive(Debug)]
struct Listener {
    filter: Filter,
    events: mpsc::Sender<Notification>,
    end: oneshot::Sender<Fault>,
}

/// Where what one listener hears comes out.
#[derive(Debug)]
pub(crate) struct Ears {
    pub(crate) number: u64,
    pub(crate) events: mpsc::Receiver<Notification>,
    pub(crate) end: oneshot::Receiver<Fault>,
}

impl Filter {
    /// Reads the `notifications` of a listen request.
    pub(crate) fn read(wanted: &Object) -> Self {
        let flag = |name| wanted.get(name).and_then(Raw::as_bool).unwrap_or_default();
        let list = |name| wanted.get(name).and_then(Raw::decode).unwrap_or_default();
        Self {
            tools: flag("toolsListChanged"),
            prompts: flag("promptsListChanged"),
            resources: flag("resourcesListChanged"),
            uris: list("resourceSubscriptions"),
            tasks: list("taskIds"),
        }
    }

    /// The same as the acknowledgement says it.
    pub(crate) fn object(&self) -> Object {
        let mut object = Object::new();
        for (name, wanted) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if wanted {
                object.set(name, Raw::bool(true));
            }
        }
        for (name, list) in [
            ("resourceSubscriptions", &self.uris),
            ("taskIds", &self.tasks),
        ] {
            if !list.is_empty() {
                object.set(name, Raw::from_serialize(list));
            }
        }
        object
    }

    fn wants(&self, notification: &Notification) -> bool {
        match &*notification.method {
            method::TOOLS_CHANGED => self.tools,
            method::PROMPTS_CHANGED => self.prompts,
            method::RESOURCES_CHANGED => self.resources,
            method::RESOURCE_UPDATED => {
                let uri = notification.params.string("uri").unwrap_or_default();
                // A server may report a part of what was subscribed to.
                self.uris.iter().any(|wanted| uri::is_part(&uri, wanted))
            }
            method::TASK_STATUS => {
                let task = notification.params.string("taskId").unwrap_or_default();
                self.tasks.contains(&task)
            }
            _ => false,
        }
    }
}

impl Listeners {
    /// Somebody listens; where nothing will come any more, that is what is heard.
    pub(crate) fn add(&self, filter: Filter) -> Ears {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (events_in, events) = mpsc::channel(QUEUE);
        let (end_in, end) = oneshot::channel();
        let listener = Listener {
            filter,
            events: events_in,
            end: end_in,
        };
        let mut all = self.all();
        match &all.gone {
            Some(fault) => drop(listener.end.send(fault.clone())),
            None => drop(all.listening.insert(number, listener)),
        }
        drop(all);
        Ears {
            number,
            events,
            end,
        }
    }

    /// Whether there is one.
    pub(crate) fn any(&self) -> bool {
        !self.all().listening.is_empty()
    }

    pub(crate) fn remove(&self, number: u64) {
        self.all().listening.remove(&number);
    }

    /// A change has come; `false` when nobody wants to hear of it.
    pub(crate) fn tell(&self, notification: &Notification) -> bool {
        let mut all = self.all();
        let (mut wanted, mut slow) = (false, Vec::new());
        for (number, listener) in &all.listening {
            if listener.filter.wants(notification) {
                wanted = true;
                if listener.events.try_send(notification.clone()).is_err() {
                    slow.push(*number);
                }
            }
        }
        for number in slow {
            if let Some(listener) = all.listening.remove(&number) {
                drop(listener.end.send(Fault::Overflow));
            }
        }
        wanted
    }

    /// Nothing will come any more.
    pub(crate) fn end(&self, fault: &Fault) {
        let mut all = self.all();
        all.gone.get_or_insert_with(|| fault.clone());
        for (_, listener) in std::mem::take(&mut all.listening) {
            drop(listener.end.send(fault.clone()));
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_to_listen_after_the_end_is_told_so() {
        let listeners = Listeners::default();
        listeners.end(&Fault::Forgotten);
        let mut ears = listeners.add(Filter::default());
        assert!(matches!(ears.end.try_recv(), Ok(Fault::Forgotten)));
    }

    #[test]
    fn only_a_resource_s_own_parts_are_heard_with_it() {
        let listeners = Listeners::default();
        let _ears = listeners.add(Filter {
            uris: vec!["file:///home/ann".to_owned()],
            ..Filter::default()
        });
        for (uri, heard) in [
            ("file:///home/ann", true),
            ("file:///home/ann/notes", true),
            ("file:///home/anna", false),
        ] {
            let told = Notification {
                method: method::RESOURCE_UPDATED.to_owned(),
                params: [("uri", Raw::string(uri))].into_iter().collect(),
            };
            assert_eq!(listeners.tell(&told), heard, "{uri}");
        }
    }
}
