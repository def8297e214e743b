//! From bytes to what an ear takes.

use bytes::Bytes;
use waypost_wire::line;
use waypost_wire::message::{Message, Outcome};
use waypost_wire::raw::Raw;
use waypost_wire::sse::{Event, Item};

use super::place::Place;
use super::wire::Wire;
use crate::ear::{Ear, Heard};
use crate::event::Ignored;
use crate::fault::Fault;
use crate::http::frames::Frames;
use crate::stdio::sniff;

/// The messages in `bytes`: one, or those of a batch, which 2025-03-26 has (transports, sending
/// messages to the server).
pub(super) fn messages(bytes: &Bytes) -> Vec<Bytes> {
    let batch = bytes.trim_ascii_start().starts_with(b"[");
    let items = batch.then(|| Raw::parse(bytes).ok()?.as_array()).flatten();
    match items {
        Some(items) => items.iter().map(|item| item.as_bytes().clone()).collect(),
        None => vec![bytes.clone()],
    }
}

/// What an event carries; nothing for those that only mark a place or are of another kind.
pub(super) fn carried(event: &Event) -> Vec<Bytes> {
    let message = event.kind.as_deref().is_none_or(|kind| kind == "message");
    if event.data.is_empty() || !message {
        return Vec::new();
    }
    messages(&event.data)
}

/// Gives `ear` what comes on a stream that belongs to no request, until it ends; why it did.
pub(super) async fn hear_out(
    ear: &dyn Ear,
    wire: &Wire,
    frames: &mut Frames,
    place: &mut Place,
) -> Fault {
    loop {
        match frames.next_item(|_| true).await {
            Ok(Some(Item::Event(event))) => {
                place.note(&event);
                aloud(ear, &wire.name, &event);
            }
            // Only the call that it answers fails with it.
            Ok(Some(Item::Oversized { event, head, tail })) => {
                place.note(&event);
                let fault = Fault::TooLarge { limit: wire.limit };
                match sniff::id(&head, &tail) {
                    Some(id) => ear.spoiled(id, fault),
                    None => ignored(&wire.name, "too_large"),
                }
            }
            Ok(None) => return Fault::Closed,
            Err(fault) => return fault,
        }
    }
}

fn aloud(ear: &dyn Ear, upstream: &str, event: &Event) {
    for message in carried(event) {
        match Message::parse(&message) {
            Ok(message) => ear.hear(Heard::aloud(message)),
            Err(unreadable) => match sniff::whose(&unreadable, &message) {
                Some(id) => ear.spoiled(id, Fault::Malformed(unreadable.reason)),
                None => ignored(upstream, "not_a_message"),
            },
        }
    }
}

/// Gives `ear` a message that came on the stream of request `id`, unless it is the answer, which
/// is given back.
pub(super) fn of_request(
    ear: &dyn Ear,
    upstream: &str,
    id: u64,
    message: &Bytes,
) -> Result<Option<Outcome>, Fault> {
    match Message::parse(message) {
        Ok(Message::Response(Some(got), outcome)) if got.as_number() == Some(id) => {
            Ok(Some(outcome))
        }
        // An error whose id could not be filled in.
        Ok(Message::Response(None, error @ Outcome::Error(_))) => Ok(Some(error)),
        // The answer to another request, on a stream that was resumed: its number tells whose.
        Ok(message @ Message::Response(..)) => {
            ear.hear(Heard::aloud(message));
            Ok(None)
        }
        Ok(message) => {
            let of = Some(id);
            ear.hear(Heard { message, of });
            Ok(None)
        }
        Err(unreadable) if sniff::whose(&unreadable, message) == Some(id) => {
            Err(Fault::Malformed(unreadable.reason))
        }
        Err(_) => {
            ignored(upstream, "not_a_message");
            Ok(None)
        }
    }
}

/// Whether request `id` can do without a message on its stream that begins so: a notification, or
/// the answer to another. Anything else may be its answer, or a question, which waits for one.
pub(super) fn can_be_missed(head: &[u8], id: u64) -> bool {
    let others = || sniff::id(head, &[]).is_some_and(|of| of != id);
    line::is_notification(head) || (!line::has_method(head) && others())
}

/// A message over the limit that can be missed. Only the call that it answers fails with it.
pub(super) fn missed(ear: &dyn Ear, wire: &Wire, head: &[u8]) {
    let fault = Fault::TooLarge { limit: wire.limit };
    match sniff::id(head, &[]).filter(|_| !line::has_method(head)) {
        Some(of) => ear.spoiled(of, fault),
        None => ignored(&wire.name, "too_large"),
    }
}

fn ignored(upstream: &str, reason: &'static str) {
    Ignored { upstream, reason }.emit();
}
