//! URIs in results: whether they lead back to whom they come from.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::{Catalog, Scope};
use crate::call::View;
use crate::member::Member;
use crate::naming;

/// Who has resources, and in which views they are several.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    able: HashSet<Arc<str>>,
    /// Those of which nothing is known.
    unheard: HashSet<Arc<str>>,
    /// Endpoints.
    mixed: HashSet<Arc<str>>,
}

impl Links {
    pub(super) fn new(members: &[Arc<Member>], endpoints: &[Arc<Endpoint>]) -> Self {
        let (mut able, mut unheard) = (HashSet::new(), HashSet::new());
        for member in members.iter().filter(|m| !m.settings.disabled) {
            match member.learned() {
                Some(learned) if learned.has("resources") => &mut able,
                Some(_) => continue,
                None => &mut unheard,
            }
            .insert(Arc::clone(&member.name));
        }
        let is_mixed = |endpoint: &&Arc<Endpoint>| {
            let all = able.iter().chain(&unheard);
            let shown = all.filter(|name| endpoint.rules.shows(name));
            shown.take(2).count() > 1
        };
        let mixed = endpoints.iter().filter(is_mixed);
        Self {
            mixed: mixed.map(|one| Arc::clone(&one.rules.name)).collect(),
            able,
            unheard,
        }
    }
}

/// So many templates are looked at for the URIs of one answer. How many there are of both is for
/// the upstreams to decide, and all calls of a core wait meanwhile.
const LOOKS: usize = 50_000;

/// Qualifies the URIs of one answer.
pub(crate) struct Qualifier<'c> {
    catalog: &'c Catalog,
    view: &'c View,
    upstream: &'c str,
    known: HashMap<String, Option<String>>,
    looks: usize,
}

impl<'c> Qualifier<'c> {
    pub(crate) fn new(catalog: &'c Catalog, view: &'c View, upstream: &'c str) -> Self {
        Self {
            catalog,
            view,
            upstream,
            known: HashMap::new(),
            looks: LOOKS,
        }
    }

    /// As [`Catalog::qualified`]. Once there were too many to look at, the form that always leads
    /// back.
    pub(crate) fn of(&mut self, uri: &str) -> Option<String> {
        if let Some(known) = self.known.get(uri) {
            return known.clone();
        }
        let cost = match self.looks {
            0 => 1,
            _ => self.catalog.cost(self.view, self.upstream, uri),
        };
        let can_look = cost <= self.looks;
        self.looks = self.looks.saturating_sub(cost);
        let said = if can_look {
            self.catalog.qualified(self.view, self.upstream, uri)
        } else {
            (!is_web(uri)).then(|| naming::qualified_uri(self.upstream, uri))
        };
        self.known.insert(uri.to_owned(), said.clone());
        said
    }
}

impl Catalog {
    /// Whether it has resources, as far as is known.
    fn has_resources(&self, upstream: &str) -> bool {
        self.links.able.contains(upstream)
    }

    /// Whether nothing is known of it yet.
    pub(super) fn is_unheard(&self, upstream: &str) -> bool {
        self.links.unheard.contains(upstream)
    }

    /// Whether it has resources, or it is not known that it has none.
    pub(super) fn may_have_resources(&self, upstream: &str) -> bool {
        self.has_resources(upstream) || self.is_unheard(upstream)
    }

    /// Whether a URI in a result of this upstream may lead to another one in a view. Where not, the
    /// result need not be looked at.
    pub(crate) fn may_mislead(&self, view: &View, upstream: &str) -> bool {
        let Links {
            able,
            unheard,
            mixed,
        } = &self.links;
        let mixed = match self.scope(view) {
            Scope::All => able.len() + unheard.len() > 1,
            Scope::Endpoint(endpoint) => mixed.contains(&endpoint.rules.name),
            Scope::Upstream(_) | Scope::Nothing => false,
        };
        mixed && self.has_resources(upstream)
    }

    /// The qualified form of a URI that an upstream named, where the plain one would not lead back
    /// to it from a view and that does.
    fn qualified(&self, view: &View, upstream: &str, uri: &str) -> Option<String> {
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
