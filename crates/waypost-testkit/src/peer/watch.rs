//! What a server tells without being asked.

use std::io;

use serde_json::{Value, json};

use super::Peer;
use super::link::Link;
use crate::kit::spawn::spawn;

impl Peer {
    /// Wants to be told of changed lists and of updates to these resources: opens a listen
    /// stream, or subscribes.
    ///
    /// # Errors
    ///
    /// When the server does not take it.
    pub async fn watch(&self, uris: &[&str]) -> io::Result<()> {
        if self.kind.revision().is_some() {
            for uri in uris {
                let params = json!({ "uri": uri });
                self.ask("resources/subscribe", params).await?;
            }
            return Ok(());
        }
        let wanted = json!({
            "toolsListChanged": true,
            "promptsListChanged": true,
            "resourcesListChanged": true,
            "resourceSubscriptions": uris,
        });
        let params = json!({ "notifications": wanted });
        let mut begun = self.send("subscriptions/listen", params).await?;
        let first = begun.notification().await?.unwrap_or_default();
        let method = first.get("method").and_then(Value::as_str);
        if method != Some("notifications/subscriptions/acknowledged") {
            return Err(io::Error::other(format!("not acknowledged: {first}")));
        }
        let (router, mut queue) = (self.link.router().clone(), begun.into_queue());
        spawn(async move {
            while let Some(message) = queue.messages.recv().await {
                router.keep(message);
            }
        });
        Ok(())
    }

    /// Takes the first message with this method that belongs to no call, waiting for it; `None`
    /// when none comes within ten seconds.
    pub async fn told(&self, method: &str) -> Option<Value> {
        self.link.router().take(method).await
    }

    /// Every message so far that belongs to no call and was not taken.
    pub fn inbox(&self) -> Vec<Value> {
        self.link.router().inbox()
    }

    /// Opens one more GET stream for what belongs to no call: its status; `None` where this kind
    /// of client has none.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached.
    pub async fn open_stream(&self) -> io::Result<Option<http::StatusCode>> {
        match &self.link {
            Link::Session(session) => session.listen().await.map(Some),
            Link::Modern(_) | Link::Pipe(_) => Ok(None),
        }
    }

    /// Drops every GET stream, as a client does that loses its connection.
    pub fn close_streams(&self) {
        if let Link::Session(session) = &self.link {
            session.hang_up();
        }
    }

    /// The status of a DELETE of its session, which it goes on using; `None` without one.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached.
    pub async fn delete(&self) -> io::Result<Option<http::StatusCode>> {
        match &self.link {
            Link::Session(session) => session.delete().await.map(Some),
            Link::Modern(_) | Link::Pipe(_) => Ok(None),
        }
    }
}
