//! How a client behaves.

use serde_json::{Value, json};

use crate::client::Post;

/// How a client behaves beyond its kind.
#[derive(Clone, Debug)]
pub struct Manners {
    /// What it declares; extensions are added by [`Peer::task`] alone.
    pub capabilities: Value,
    /// Whether it opens the GET stream.
    pub get_stream: bool,
    /// Whether it sends `MCP-Protocol-Version` in the session era, where its revision has it.
    pub version_header: bool,
    /// The `protocolVersion` it offers, in place of its revision's.
    pub offers: Option<String>,
    /// Headers of its own on every request: name and value.
    pub headers: Vec<(String, String)>,
}

impl Default for Manners {
    fn default() -> Self {
        let elicitation = json!({ "form": {}, "url": {} });
        let capabilities = json!({ "elicitation": elicitation, "sampling": {}, "roots": {} });
        Self {
            capabilities,
            get_stream: true,
            version_header: true,
            offers: None,
            headers: Vec::new(),
        }
    }
}

impl Manners {
    /// Puts its headers on a request.
    pub(super) fn dress(headers: &[(String, String)], post: Post) -> Post {
        let dressed = |post: Post, (name, value): &(String, String)| post.header(name, value);
        headers.iter().fold(post, dressed)
    }
}
