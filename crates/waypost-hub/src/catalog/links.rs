//! URIs in results: whether they lead back to whom they come from.

use std::collections::HashSet;
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::{Catalog, Scope};
use crate::call::View;
use crate::member::Member;
use crate::naming;

/// Who has resources, and in which views they are several.
#[derive(Debug, Default)]
pub(super) struct Links {
    able: HashSet<Arc<str>>,
    /// Endpoints.
    mixed: HashSet<Arc<str>>,
}

impl Links {
    pub(super) fn new(members: &[Arc<Member>], endpoints: &[Arc<Endpoint>]) -> Self {
        let has = |m: &&Arc<Member>| {
            !m.settings.disabled && m.learned().is_some_and(|l| l.has("resources"))
        };
        let able = members.iter().filter(has).map(|m| Arc::clone(&m.name));
        let able: HashSet<Arc<str>> = able.collect();
        let is_mixed = |endpoint: &&Arc<Endpoint>| {
            let shown = able.iter().filter(|name| endpoint.rules.shows(name));
            shown.take(2).count() > 1
        };
        let mixed = endpoints.iter().filter(is_mixed);
        Self {
            mixed: mixed.map(|one| Arc::clone(&one.rules.name)).collect(),
            able,
        }
    }
}

impl Catalog {
    /// Whether it has resources, as far as is known.
    pub(super) fn has_resources(&self, upstream: &str) -> bool {
        self.links.able.contains(upstream)
    }

    /// Whether a URI in a result of this upstream may lead to another one in a view. Where not, the
    /// result need not be looked at.
    pub(crate) fn may_mislead(&self, view: &View, upstream: &str) -> bool {
        let mixed = match self.scope(view) {
            Scope::All => self.links.able.len() > 1,
            Scope::Endpoint(endpoint) => self.links.mixed.contains(&endpoint.rules.name),
            Scope::Upstream(_) | Scope::Nothing => false,
        };
        mixed && self.has_resources(upstream)
    }

    /// The qualified form of a URI that an upstream named, where the plain one would not lead back
    /// to it from a view and that does.
    pub(crate) fn qualified(&self, view: &View, upstream: &str, uri: &str) -> Option<String> {
        let leads_back = |said: &str| {
            let owner = self.resource_owner(view, said);
            owner.map(|(member, original)| *member.name == *upstream && original == uri)
        };
        match leads_back(uri) {
            Ok(true) => return None,
            // Whoever has a page of the web is known to every client, and loads it from there.
            Err(_) if is_web(uri) && self.template_owners(view, uri).is_empty() => return None,
            Ok(false) | Err(_) => {}
        }
        let qualified = naming::qualified_uri(upstream, uri);
        let leads_back = leads_back(&qualified).is_ok_and(|leads| leads);
        leads_back.then_some(qualified)
    }
}

fn is_web(uri: &str) -> bool {
    let scheme = uri.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|s| s.eq_ignore_ascii_case("https") || s.eq_ignore_ascii_case("http"))
}
