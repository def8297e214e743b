//! Servers of the session era, as servers that answer stateless calls.
//!
//! [`upstream`] is what the rest of the crate holds. [`pool`] keeps the sessions, [`key`] says who
//! shares one, [`session`] and [`handshake`] are one of them, [`telling`] what it says unasked.
//! [`table`] knows whose an answer is, [`exchange`] and [`legs`] are one call, [`drive`] carries it
//! through; [`question`] and [`parked`] are what the server asks meanwhile, [`repeats`] answers
//! that were lost on the way, [`url_mode`] what the server wants done first.
//! [`listen`], [`listeners`] and [`subscribed`] are subscriptions, [`places`] how many of them are
//! open; [`tasks`] the experimental tasks of 2025-11-25; [`translate`] is about words.
//!
//! [`outgrown`] knows servers that have left the era, [`unopened`] those that have come to it.
//! [`link`] is the seam to the transports: [`pipe`] and [`http`].

mod aim;
mod drive;
mod exchange;
mod handshake;
pub(crate) mod http;
mod key;
mod legs;
pub(crate) mod link;
mod listen;
mod listeners;
mod outbox;
mod outgrown;
mod outside;
mod parked;
mod pipe;
mod places;
mod pool;
mod question;
mod repeats;
mod session;
mod subscribed;
mod table;
mod tasks;
mod telling;
mod translate;
pub(crate) mod unopened;
mod upstream;
mod url_mode;

pub use self::http::EndpointFault;
pub(crate) use self::key::Key;
pub(crate) use self::pipe::{HandOver, PipeDial};
pub use self::places::Places;
pub(crate) use self::pool::Settings;
pub(crate) use self::upstream::{Legacy, Unanswered};

#[cfg(test)]
mod tests;
