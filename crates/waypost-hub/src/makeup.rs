//! What the file says of a hub: its members in their order, and the settings that are for all.
//!
//! A [`Makeup`] is a snapshot, replaced as one when the file becomes another.

use std::sync::Arc;
use std::time::Duration;

use waypost_config::config::{Config, Discovery, Endpoint, ExposedExtension, Naming};

use crate::catalog::Catalog;
use crate::catalog::rules::Rules;
use crate::member::Member;

/// Members and settings, ready for use.
#[derive(Debug)]
pub(crate) struct Makeup {
    /// In the file's order.
    pub(crate) seats: Vec<Seat>,
    /// Who sits there.
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) naming: Naming,
    /// Of the named endpoints, in the file's order.
    pub(crate) rules: Vec<Arc<Rules>>,
    endpoints: Vec<Endpoint>,
    page_size: usize,
    discovery: Discovery,
    pub(crate) instructions: bool,
    pub(crate) expose: Vec<ExposedExtension>,
    /// Whether somebody's `/mcp` is not everybody's.
    pub(crate) by_caller: bool,
    /// Longest life of a list towards clients, in milliseconds.
    pub(crate) list_ttl: u64,
    /// How long calls may go on at an upstream that is left.
    pub(crate) grace: Duration,
}

/// The place of one upstream in the file.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) member: Arc<Member>,
    /// Who takes it once it is known what that one has, or that it cannot be had.
    pub(crate) next: Option<Arc<Member>>,
}

impl Seat {
    /// A seat whose member nobody waits to replace.
    pub(crate) fn of(member: Arc<Member>) -> Self {
        Self { member, next: None }
    }
}

impl Makeup {
    /// What the file says, with these seats. Endpoints of which it says what `before` has are the
    /// same ones.
    pub(crate) fn new(config: &Config, seats: Vec<Seat>, before: Option<&Self>) -> Self {
        let known = |endpoint: &Endpoint| {
            let before = before?;
            let at = before
                .endpoints
                .iter()
                .position(|known| known == endpoint)?;
            before.rules.get(at).cloned()
        };
        let rules = config
            .endpoints
            .iter()
            .map(|endpoint| known(endpoint).unwrap_or_else(|| Arc::new(Rules::new(endpoint))));
        Self {
            members: seats.iter().map(|seat| Arc::clone(&seat.member)).collect(),
            seats,
            naming: config.naming.clone(),
            rules: rules.collect(),
            endpoints: config.endpoints.clone(),
            page_size: config.page_size,
            discovery: config.discovery,
            instructions: config.instructions,
            expose: config.extensions_expose.clone(),
            by_caller: config.auth.keys.iter().any(|key| key.endpoint.is_some()),
            list_ttl: u64::try_from(config.cache.list_ttl.as_millis()).unwrap_or(u64::MAX),
            grace: config.drain_grace,
        }
    }

    /// The same in which `next` sits in its seat, and who sat there; `None` if it has none.
    pub(crate) fn with_seated(&self, next: &Arc<Member>) -> Option<(Self, Arc<Member>)> {
        let waits = |seat: &Seat| seat.next.as_ref().is_some_and(|own| Arc::ptr_eq(own, next));
        let at = self.seats.iter().position(waits)?;
        let mut seats = self.seats.clone();
        let seat = seats.get_mut(at)?;
        let old = std::mem::replace(seat, Seat::of(Arc::clone(next)));
        let seated = Self {
            members: seats.iter().map(|seat| Arc::clone(&seat.member)).collect(),
            seats,
            naming: self.naming.clone(),
            rules: self.rules.clone(),
            endpoints: self.endpoints.clone(),
            expose: self.expose.clone(),
            ..*self
        };
        Some((seated, old.member))
    }

    /// The catalogue in which nothing is known of the members yet.
    pub(crate) fn empty_catalog(&self) -> Catalog {
        Catalog::of(self.members.clone(), self.page_size)
            .with_discovery(self.discovery)
            .with_endpoints(&self.rules)
    }

    /// Puts what is not about names into a catalogue.
    pub(crate) fn apply_to(&self, catalog: &mut Catalog) {
        catalog.page_size = self.page_size;
        catalog.discovery = self.discovery;
    }
}
