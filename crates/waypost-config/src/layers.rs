//! Lays the sources over each other: figment decides which one wins each key.
//!
//! figment gets trees whose leaves are only the number of their layer, so positions, quoting and
//! the order of keys stay in ours.

use figment::value::{Dict, Map, Value};
use figment::{Error, Figment, Metadata, Profile, Provider};

use crate::node::{Entry, Kind, Node};

/// The trees as one, later ones winning; maps are merged, everything else is replaced.
///
/// Keys stand in the order in which they first appear.
pub(crate) fn merge(layers: &[Node]) -> Option<Node> {
    let mut figment = Figment::new();
    for (number, node) in layers.iter().enumerate() {
        figment = figment.merge(Layer { number, node });
    }
    // Only a provider's own failure makes this fail, and `Layer` has none.
    let winners: Dict = figment.extract().ok()?;
    let all: Vec<_> = layers.iter().collect();
    let root = layers.first()?;
    Some(Node::new(root.place.clone(), map(&winners, layers, &all)))
}

struct Layer<'a> {
    number: usize,
    node: &'a Node,
}

impl Provider for Layer<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named("a layer")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        let Value::Dict(_, dict) = self.value(self.node) else {
            return Ok(Map::new());
        };
        Ok(Profile::Default.collect(dict))
    }
}

impl Layer<'_> {
    fn value(&self, node: &Node) -> Value {
        match &node.kind {
            Kind::Map(entries) => {
                // An empty value does not take away what another layer has.
                let given = entries
                    .iter()
                    .filter(|entry| !matches!(entry.value.kind, Kind::Null));
                let pairs = given.map(|entry| (entry.key.clone(), self.value(&entry.value)));
                Value::from(pairs.collect::<Dict>())
            }
            Kind::Null | Kind::Scalar(_) | Kind::List(_) | Kind::Refused => {
                Value::from(self.number)
            }
        }
    }
}

/// Takes each key from the layer that won it. `nodes` are what the layers have here.
fn map(winners: &Dict, layers: &[Node], nodes: &[&Node]) -> Kind {
    let mut entries: Vec<Entry> = Vec::new();
    for entry in nodes.iter().flat_map(|node| node.entries()) {
        if entries.iter().any(|taken| taken.key == entry.key) {
            continue;
        }
        let Some(winner) = winners.get(&entry.key) else {
            // Kept all the same: the key may be unknown.
            entries.extend(matches!(entry.value.kind, Kind::Null).then(|| entry.clone()));
            continue;
        };
        let here: Vec<_> = nodes.iter().map(|node| node.get(&entry.key)).collect();
        let found: Option<Entry> = match winner {
            Value::Dict(_, inner) => merged(entry, inner, layers, &here),
            number => {
                let number = number
                    .to_u128()
                    .and_then(|number| usize::try_from(number).ok());
                number
                    .and_then(|number| here.get(number).copied().flatten())
                    .cloned()
            }
        };
        entries.extend(found);
    }
    Kind::Map(entries)
}

fn merged(
    first: &Entry,
    winners: &Dict,
    layers: &[Node],
    here: &[Option<&Entry>],
) -> Option<Entry> {
    // Keeps one node for each layer, so that a layer's number stays its position.
    let nothing = Node::new(first.place.clone(), Kind::Null);
    let nodes: Vec<_> = here
        .iter()
        .map(|entry| entry.map_or(&nothing, |entry| &entry.value))
        .collect();
    let origin = here
        .iter()
        .flatten()
        .find(|entry| matches!(entry.value.kind, Kind::Map(_)))?;
    let kind = map(winners, layers, &nodes);
    let value = Node::new(origin.value.place.clone(), kind);
    Some(Entry {
        key: first.key.clone(),
        place: origin.place.clone(),
        value,
    })
}
