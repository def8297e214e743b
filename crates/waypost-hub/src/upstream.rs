//! The seam to the servers behind.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::call::Call;
use crate::error::CallError;
use crate::reply::Reply;

/// A future that does not care which upstream made it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a call becomes.
pub type CallFuture<'a> = BoxFuture<'a, Result<Reply, CallError>>;

/// What `server/discover` taught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// The server speaks the stateless protocol.
    Modern(Facts),
    /// The server speaks only the session era, and says so.
    Legacy,
    /// What came, or did not come, is nothing that a server of the stateless protocol does: one
    /// of which nothing is known is taken for one of the session era. It is also what a proxy
    /// without a route does, so a server that is known to be modern has only failed. In our words.
    Unrecognised(String),
}

/// A modern server's own description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `supportedVersions`, as listed.
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
}

/// Something that can answer a [`Call`]: one MCP server, however it is reached.
///
/// `hub` owns this trait and knows no implementation of it.
pub trait Upstream: Send + Sync + fmt::Debug {
    /// Connects where needed and asks the server what it is. Always asks; keeps nothing.
    fn discover(&self) -> BoxFuture<'_, Result<Discovery, CallError>>;

    /// Sends the call as it is: names, ids and `_meta` are already the server's.
    ///
    /// Dropping the future or the reply's stream cancels the call at the server.
    fn call(&self, call: Call) -> CallFuture<'_>;

    /// Which process or session answers now, for servers whose tasks die with it (stdio).
    fn instance(&self) -> Option<Arc<str>> {
        None
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
