//! The seam to the servers behind.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::call::{Call, Principal, Session};
use crate::error::CallError;
use crate::reply::Reply;

/// A future that does not care which upstream made it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a call becomes.
pub type CallFuture<'a> = BoxFuture<'a, Result<Reply, CallError>>;

/// A server's own description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The protocol version that is spoken with it; for the status, and for its connection to
    /// begin with the next time.
    pub protocol: String,
    /// The versions it lists.
    pub versions: Vec<String>,
    /// With `extensions` inside, verbatim.
    pub capabilities: Object,
    /// `name` and `version` of the server, as sent; unverified.
    pub server_info: Option<Raw>,
    /// The server's advice to models on how to use it.
    pub instructions: Option<String>,
}

impl Facts {
    /// Whether the server says that it announces changes of the list of this capability.
    pub fn announces_list(&self, capability: &str) -> bool {
        let capability = self.capabilities.get(capability);
        let capability = capability.and_then(|raw| raw.as_object().ok());
        capability
            .and_then(|c| c.get("listChanged").and_then(Raw::as_bool))
            .unwrap_or_default()
    }

    /// Whether the server says that it tells of changes of single resources.
    pub fn subscribes(&self) -> bool {
        let resources = self.capabilities.get("resources");
        let resources = resources.and_then(|raw| raw.as_object().ok());
        resources
            .and_then(|r| r.get("subscribe").and_then(Raw::as_bool))
            .unwrap_or_default()
    }
}

/// Something that can answer a [`Call`]: one MCP server, however it is reached.
///
/// `hub` owns this trait and knows no implementation of it.
pub trait Upstream: Send + Sync + fmt::Debug {
    /// Connects where needed and asks the server what it is. Always asks. `known` is the protocol
    /// version that was spoken with it when it was last understood, perhaps by another process:
    /// what a server of that version never does says then that it failed, not that it changed.
    fn discover<'a>(&'a self, known: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>>;

    /// Sends the call as it is: names, ids and `_meta` are already the server's. A server whose
    /// tasks die with a process or session notes in [`Call::carrier`] which one gets it, and asks
    /// there before it writes a `tasks/*` or `subscriptions/listen` ([`crate::call::Carrier::admits`]).
    ///
    /// Dropping the future or the reply's stream cancels the call at the server.
    fn call(&self, call: Call) -> CallFuture<'_>;

    /// Which process or session answers calls of this caller now, for servers whose tasks die
    /// with it.
    fn instance(&self, principal: &Principal, session: Option<&Session>) -> Option<Arc<str>> {
        let _ = (principal, session);
        None
    }

    /// How many calls are open at the server while they wait for an answer of their caller.
    fn parked(&self) -> usize {
        0
    }

    /// Whether a call that waits for an answer of its caller has this state here.
    fn awaits(&self, state: &str) -> bool {
        let _ = state;
        false
    }

    /// Resolves when the connection to the server is lost; never for one without connection.
    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Ends what the upstream keeps: the child process, open connections.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
