//! What a server tells its subscribers.

use serde_json::Value;
use tokio::sync::broadcast;

/// Something changed.
#[derive(Clone, Debug)]
pub enum Event {
    /// `tools/list` has another answer now.
    Tools,
    /// `prompts/list` has another answer now.
    Prompts,
    /// `resources/list` has another answer now.
    Resources,
    /// The contents of this URI changed.
    Updated(String),
    /// A task changed: its id and all of it.
    Task(String, Value),
}

/// The events of one server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Events {
    send: broadcast::Sender<Event>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            send: broadcast::channel(1024).0,
        }
    }
}

impl Events {
    /// Tells every subscriber; without one nothing happens.
    pub fn publish(&self, event: Event) {
        drop(self.send.send(event));
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.send.subscribe()
    }
}
