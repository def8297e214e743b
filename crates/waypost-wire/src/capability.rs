//! What a client said it can do, per request.

use std::sync::Arc;

use crate::object::Object;
use crate::raw::Raw;

/// The Tasks extension (SEP-2663).
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// `_meta["io.modelcontextprotocol/clientCapabilities"]` of one request. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities(Arc<Declared>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Declared {
    object: Object,
    /// The `extensions` member, read once; empty when there is none.
    extensions: Object,
}

impl ClientCapabilities {
    /// Takes the object that the client sent.
    pub fn new(object: Object) -> Self {
        let extensions = object
            .get("extensions")
            .and_then(|raw| raw.as_object().ok());
        Self(Arc::new(Declared {
            extensions: extensions.unwrap_or_default(),
            object,
        }))
    }

    /// Whether a member such as `elicitation`, `sampling` or `roots` is declared.
    pub fn has(&self, member: &str) -> bool {
        self.0.object.get(member).is_some_and(Raw::is_object)
    }

    /// Whether an extension is declared. Any object counts as the declaration.
    pub fn has_extension(&self, name: &str) -> bool {
        self.0.extensions.get(name).is_some_and(Raw::is_object)
    }

    /// Whether the Tasks extension is declared.
    pub fn has_tasks(&self) -> bool {
        self.has_extension(TASKS)
    }

    /// The `extensions` map.
    pub fn extensions(&self) -> &Object {
        &self.0.extensions
    }

    /// The same with the Tasks extension declared.
    #[must_use]
    pub fn with_tasks(&self) -> Self {
        if self.has_tasks() {
            return self.clone();
        }
        let mut extensions = self.0.extensions.clone();
        extensions.set(TASKS, Raw::empty_object());
        self.with_extensions(extensions)
    }

    /// The same without the Tasks extension.
    #[must_use]
    pub fn without_tasks(&self) -> Self {
        if !self.0.extensions.contains(TASKS) {
            return self.clone();
        }
        let mut extensions = self.0.extensions.clone();
        extensions.remove(TASKS);
        self.with_extensions(extensions)
    }

    /// The same with other extensions.
    #[must_use]
    pub fn with_extensions(&self, extensions: Object) -> Self {
        let mut object = self.0.object.clone();
        if extensions.is_empty() {
            object.remove("extensions");
        } else {
            object.set("extensions", Raw::from(&extensions));
        }
        Self(Arc::new(Declared { object, extensions }))
    }

    /// The members as received.
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The capability that a server-to-client request needs: `elicitation`, `sampling` or `roots`.
    pub fn needed_for(method: &str) -> Option<&'static str> {
        match method {
            "elicitation/create" => Some("elicitation"),
            "sampling/createMessage" => Some("sampling"),
            "roots/list" => Some("roots"),
            _ => None,
        }
    }
}
