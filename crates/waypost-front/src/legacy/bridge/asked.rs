//! What the daemon asks the host: questions that are neither answered nor withdrawn yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use waypost_wire::id::Id;
use waypost_wire::message;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::outlet::Class;
use crate::stdio::outbox::Outbox;

/// What the number of a question is that is on its way already, or there.
const SENT: u64 = 0;

/// The questions at the host; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    state: Arc<Mutex<State>>,
    outbox: Arc<Outbox>,
}

#[derive(Debug, Default)]
struct State {
    /// With the stream that each came on.
    open: HashMap<Id, u64>,
    streams: u64,
    /// The host answers no more.
    over: bool,
}

/// A stream that questions come on. Those that are open when it goes are withdrawn: nobody takes
/// their answers any more, and the daemon has no other way to say so.
#[derive(Debug)]
pub(super) struct Stream {
    asked: Asked,
    number: u64,
}

impl Asked {
    pub(super) fn new(outbox: &Arc<Outbox>) -> Self {
        Self {
            state: Arc::default(),
            outbox: Arc::clone(outbox),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more stream.
    pub(super) fn stream(&self) -> Stream {
        let mut state = self.lock();
        state.streams += 1;
        Stream {
            asked: self.clone(),
            number: state.streams,
        }
    }

    /// A question is answered, or the daemon withdrew it.
    pub(super) fn settle(&self, id: &Id) {
        self.lock().open.remove(id);
    }

    /// The host answers no more; gives those that it did not answer.
    pub(super) fn give_up(&self) -> Vec<Id> {
        let mut state = self.lock();
        state.over = true;
        state.open.drain().map(|(id, _)| id).collect()
    }
}

impl Stream {
    /// A question came; `false` when nobody is there to answer it.
    pub(super) fn ask(&self, id: &Id) -> bool {
        let mut state = self.asked.lock();
        if !state.over {
            state.open.insert(id.clone(), self.number);
        }
        !state.over
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.asked.lock();
        let gone = state.open.extract_if(|_, stream| *stream == self.number);
        let gone: Vec<_> = gone.map(|(id, _)| id).collect();
        drop(state);
        for id in gone {
            let params = Object::from_iter([
                ("requestId", id.raw().clone()),
                ("reason", Raw::string("the call is over")),
            ]);
            let message = message::encode_notification(method::CANCELLED, &params);
            // Not one of those that may be lost: the host would show the question for ever.
            self.asked
                .outbox
                .post(Class::TakeBack(SENT), [message].into());
        }
    }
}
