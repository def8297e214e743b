//! What a server asks outside of any call: a request on the client's standing stream, or on that of
//! whatever call is open.

use std::fmt;
use std::sync::{Arc, Weak};

use waypost_hub::call::Asks;
use waypost_hub::upstream::BoxFuture;
use waypost_wire::message::Outcome;
use waypost_wire::object::Object;

use crate::legacy::ask::Pending;
use crate::legacy::session::Session;

/// The client of a session, while there is one.
pub(crate) struct Client(pub(crate) Weak<Session>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Asks for Client {
    fn ask(&self, method: &str, params: &Object) -> Option<BoxFuture<'static, Option<Outcome>>> {
        let session = self.0.upgrade()?;
        let outlet = session.reachable()?;
        let to = Arc::clone(&outlet);
        let (mut pending, message) = Pending::new(&session, outlet, "", method, params.clone());
        // It may have ended this moment.
        if !to.offer(pending.class(), [message].into()) {
            return None;
        }
        pending.is_out();
        Some(Box::pin(pending.answer()))
    }
}
