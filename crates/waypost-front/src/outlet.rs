//! Where messages to a client go, whatever carries them.

use std::fmt;
use std::sync::Arc;

use waypost_hub::upstream::BoxFuture;

use crate::encode::Pieces;

/// What may become of a message when there is no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A notification: the oldest may be lost where nobody takes them.
    Note,
    /// A request of ours: somebody waits for its answer. With its number.
    Ask(u64),
    /// Takes back the request with this number; where that was not read yet, neither is.
    TakeBack(u64),
    /// An answer of several.
    Answer,
    /// The answer to the client's request; nothing comes after it.
    End,
}

/// A client's end of one exchange. Over HTTP each request has its own; a pipe has one for all.
pub(crate) trait Outlet: Send + Sync + fmt::Debug {
    /// Sends, and waits while the client is too slow.
    fn send(&self, class: Class, message: Pieces) -> BoxFuture<'_, ()>;

    /// Sends without waiting; what finds no room is lost, notifications first.
    fn post(&self, class: Class, message: Pieces);

    /// As [`Outlet::post`]; `false` when nothing is taken there any more.
    fn offer(&self, class: Class, message: Pieces) -> bool {
        self.post(class, message);
        true
    }

    /// Whether anybody reads there now, and more may come.
    fn is_read(&self) -> bool {
        true
    }

    /// What it is a part of and may outlive it, for a message that is none of its own.
    fn whole(&self) -> Option<Arc<dyn Outlet>> {
        None
    }

    /// The exchange is over without an answer.
    fn close(&self);
}

/// Sees to it that a client does not wait for an answer that cannot come any more: whoever holds
/// this is what makes it.
#[derive(Debug)]
pub(crate) struct Closing(pub(crate) Arc<dyn Outlet>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
