//! Where a connection puts what the server says.

use std::fmt;
use std::sync::Arc;

use waypost_hub::upstream::BoxFuture;
use waypost_wire::message::Message;

use crate::fault::Fault;

/// One message of a server.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) message: Message,
    /// The request, by its number, on whose own stream the message came; `None` where the
    /// transport has one channel for all, or where the server spoke unasked.
    pub(crate) of: Option<u64>,
}

impl Heard {
    /// A message that came on the one channel for all, or unasked.
    pub(crate) fn aloud(message: Message) -> Self {
        Self { message, of: None }
    }
}

/// Takes what a connection hears. Nothing here waits: what a slow reader has no room for is
/// dropped or fails its call, so that it holds up no other.
pub(crate) trait Ear: Send + Sync + fmt::Debug {
    /// A message has come.
    fn hear(&self, heard: Heard);

    /// The answer to request `id` came and cannot be used.
    fn spoiled(&self, id: u64, fault: Fault);

    /// The connection has ended: nothing will come any more, and nothing can be sent.
    fn gone(&self, fault: &Fault);

    /// Request `id` is about to be written; `false` when nobody waits for it any more.
    fn sending(&self, id: u64) -> bool {
        let _ = id;
        true
    }

    /// Resolves when nothing that should be waited for is in flight.
    fn idle(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// An ear that several hold.
pub(crate) type SharedEar = Arc<dyn Ear>;
