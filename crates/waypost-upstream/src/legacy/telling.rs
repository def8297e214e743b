//! Tells a server what is no request, and sees that it takes it.
//!
//! Over HTTP each message has a request of its own, and one that the server is slow to take holds
//! up only what belongs to the same call. A pipe has one order for all.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{sleep, timeout};
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::exchange::Exchange;
use super::link::Link;
use super::outbox::Word;
use super::table::Table;
use crate::event::{Untold, Waits};
use crate::fault::Fault;

/// How long the server may take to accept what is told to it.
const TOLD_WITHIN: Duration = Duration::from_secs(30);

/// Before a message is sent once more that did not get through: none of them does anything twice.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// Sends what is queued, as much side by side as the link takes; `lost` is called when the server
/// turns out to have forgotten the session. Whoever drops it loses what is on its way.
pub(crate) async fn tell_all(
    table: Arc<Table>,
    link: Arc<dyn Link>,
    lost: impl Fn(),
) -> Infallible {
    let (table, link) = (&*table, &*link);
    let most = link.side_by_side();
    let mut going = FuturesUnordered::new();
    // What is being told of each call; and of none.
    let mut about: Vec<Option<Arc<Exchange>>> = Vec::new();
    loop {
        let word = async {
            if about.len() >= most {
                return pending().await;
            }
            table.outbox.next(|word| may_go(word, &about, most)).await
        };
        tokio::select! {
            word = word => {
                about.push(word.about.clone());
                going.push(tell(link, word));
            }
            Some((word, told)) = going.next(), if !going.is_empty() => {
                let call = word.about.as_ref();
                let same = |other: &Option<Arc<Exchange>>| is_same(other.as_ref(), call);
                if let Some(at) = about.iter().position(same) {
                    about.swap_remove(at);
                }
                match told {
                    Ok(()) => {}
                    // After what waits already, which fails in its turn.
                    Err(Fault::Late(_)) if word.stops && link.knows_what_it_took() => {
                        if !table.outbox.put(word) {
                            table.ignore("outbox_full");
                        }
                    }
                    Err(fault) => {
                        if matches!(fault, Fault::SessionLost) {
                            lost();
                        }
                        table.untold(call, &fault, link.knows_what_it_took());
                    }
                }
            }
        }
    }
}

/// What is said of one call goes in order. What is said of none must leave room for the rest, and
/// is not waited for by what ends work.
fn may_go(word: &Word, about: &[Option<Arc<Exchange>>], most: usize) -> bool {
    match &word.about {
        Some(call) => !about
            .iter()
            .any(|other| is_same(other.as_ref(), Some(call))),
        None if word.stops => true,
        None => about.iter().filter(|other| other.is_none()).count() < most.div_ceil(2),
    }
}

fn is_same(one: Option<&Arc<Exchange>>, other: Option<&Arc<Exchange>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

async fn tell(link: &dyn Link, word: Word) -> (Word, Result<(), Fault>) {
    let told = timeout(TOLD_WITHIN, insist(link, word.message.clone())).await;
    (word, told.unwrap_or(Err(Fault::Late(TOLD_WITHIN))))
}

async fn insist(link: &dyn Link, message: Bytes) -> Result<(), Fault> {
    for pause in PAUSES {
        match link.tell(message.clone()).await {
            Err(fault) if is_passing(&fault) => sleep(pause).await,
            told => return told,
        }
    }
    link.tell(message).await
}

/// Whether the message may get through the next time.
fn is_passing(fault: &Fault) -> bool {
    match fault {
        Fault::Connect(_) | Fault::Closed => true,
        Fault::Status { status, .. } => matches!(status, 408 | 425 | 429 | 502..=504),
        _ => false,
    }
}

impl Table {
    /// Tells the server to stop working on `id`, after what it is told of this call before.
    pub(crate) fn cancel(&self, id: u64, call: Option<&Arc<Exchange>>) {
        let params: Object = [
            ("requestId", Raw::from_serialize(&id)),
            ("reason", Raw::string("the caller has gone")),
        ]
        .into_iter()
        .collect();
        self.stop(
            call.cloned(),
            message::encode_notification(method::CANCELLED, &params),
        );
    }

    /// Queues a message that ends work at the server, after what it is told of this call before.
    pub(super) fn stop(&self, about: Option<Arc<Exchange>>, message: Bytes) {
        let stops = true;
        if !self.outbox.put(Word {
            message,
            about,
            stops,
            untold: None,
        }) {
            self.ignore("outbox_full");
        }
    }

    /// Refuses a question of the server's.
    pub(crate) fn refuse(&self, id: &Id, code: i64, why: &str) {
        let error = ErrorObject::new(code, why);
        self.say(message::encode_error(Some(id), &error));
    }

    /// Refuses a question that was asked in this call, which fails when the server does not hear.
    pub(super) fn refuse_in(&self, call: &Arc<Exchange>, id: &Id, code: i64, why: &str) {
        let error = ErrorObject::new(code, why);
        self.say_of(Some(call), message::encode_error(Some(id), &error));
    }

    /// Queues a message that is no request of ours.
    pub(crate) fn say(&self, message: Bytes) {
        self.say_of(None, message);
    }

    /// The same of a call, which fails when the server does not take it.
    pub(crate) fn say_of(&self, call: Option<&Arc<Exchange>>, message: Bytes) {
        let (about, stops) = (call.cloned(), false);
        let word = Word {
            message,
            about,
            stops,
            untold: None,
        };
        if self.outbox.put(word) {
            return;
        }
        self.ignore("outbox_full");
        if call.is_some() {
            self.untold(call, &Fault::Backlog, true);
        }
    }

    /// The server did not take what it was told. A call that waits for the server to have it
    /// would wait for ever; it may have run, so it is not sent again.
    fn untold(&self, call: Option<&Arc<Exchange>>, fault: &Fault, certain: bool) {
        // Whether a server that was only slow has it, nobody knows, unless the link does.
        let fails = certain || !matches!(fault, Fault::Late(_));
        let id = call
            .filter(|_| fails)
            .and_then(|call| self.withdraw_call(call));
        let waits = match fails {
            true => id.map(|_| Waits::Fails),
            false => call.map(|_| Waits::GoesOn),
        };
        Untold {
            upstream: self.upstream(),
            fault,
            call: waits,
        }
        .emit();
        let (Some(call), Some(id)) = (call, id) else {
            return;
        };
        match fault {
            Fault::SessionLost => call.fail(Fault::Forgotten),
            fault => {
                call.fail(Fault::Untold(fault.to_string().into()));
                self.cancel(id, None);
            }
        }
        self.rehome(call.take_left());
    }
}
