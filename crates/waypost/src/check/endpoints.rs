//! What the named endpoints show.

use std::sync::Arc;

use waypost_config::config::Discovery;
use waypost_hub::call::View;
use waypost_hub::catalog::Catalog;
use waypost_hub::catalog::endpoint::Endpoint;
use waypost_hub::catalog::entry::{Entry, Kind};
use waypost_hub::member::Member;

use super::kind;
use crate::output::{printable, table};

/// Appends a table of the endpoints, if there is more than the usual one, the names that are others there than at `/mcp`, and what is
/// wrong with them.
pub(super) fn report(catalog: &Catalog, text: &mut String) {
    let endpoints = catalog.endpoints();
    if endpoints.is_empty() && catalog.discovery == Discovery::Direct {
        return;
    }
    let headings = [
        "endpoint",
        "upstreams",
        "tools",
        "prompts",
        "resources",
        "templates",
        "discovery",
    ];
    let own = endpoints.iter().map(|own| {
        let count = |kind| catalog.counts(kind, &view(own));
        row(catalog, (&own.rules.name, &view(own)), count)
    });
    let rows: Vec<_> = std::iter::once(whole(catalog)).chain(own).collect();
    text.push_str("\n\n");
    text.push_str(&table(headings, &rows));
    let names = endpoints.iter().flat_map(|own| own_names(catalog, own));
    let names: Vec<_> = names.collect();
    if !names.is_empty() {
        let headings = [
            "endpoint", "kind", "exposed", "length", "upstream", "original",
        ];
        text.push_str("\n\n");
        text.push_str(&table(headings, &names));
    }
    for endpoint in endpoints {
        for warning in &endpoint.warnings {
            let line = format!("warning: endpoint `{}`: {warning}", endpoint.rules.name);
            text.push_str("\n\n");
            text.push_str(&printable(&line));
        }
    }
}

/// Of everything, what the upstreams' own filters hide is not there.
fn whole(catalog: &Catalog) -> [String; 7] {
    let hidden = |kind| {
        let of = |member: &Arc<Member>| catalog.hidden(kind, &member.name).len();
        catalog.shown(&View::All).map(of).sum()
    };
    let count = |kind| (catalog.list(kind, &View::All).len(), hidden(kind));
    let mut row = row(catalog, ("/mcp", &View::All), count);
    let [_, upstreams, ..] = &mut row;
    "all".clone_into(upstreams);
    row
}

fn row(
    catalog: &Catalog,
    (name, view): (&str, &View),
    counts: impl Fn(Kind) -> (usize, usize),
) -> [String; 7] {
    let upstreams: Vec<&str> = catalog.shown(view).map(|member| &*member.name).collect();
    let [tools, prompts, resources, templates] = Kind::ALL.map(|kind| match counts(kind) {
        (shown, 0) => shown.to_string(),
        (shown, hidden) => format!("{shown} ({hidden} hidden)"),
    });
    let discovery = if catalog.searches(view) {
        "search"
    } else {
        "direct"
    };
    [
        name.to_owned(),
        upstreams.join(", "),
        tools,
        prompts,
        resources,
        templates,
        discovery.to_owned(),
    ]
}

/// One row for each name that `/mcp` does not have for the same thing.
fn own_names(catalog: &Catalog, endpoint: &Endpoint) -> Vec<[String; 6]> {
    let view = view(endpoint);
    let mut rows = Vec::new();
    for of in Kind::ALL {
        let differs = |entry: &&Entry| {
            let table = catalog.table(of);
            let whole = match entry.choice {
                Some(_) => table.get(&entry.exposed),
                None => table.of_member(&entry.member, &entry.original),
            };
            whole.is_none_or(|whole| whole.exposed != entry.exposed)
        };
        let entries = catalog.list(of, &view).entries().map(AsRef::as_ref);
        rows.extend(entries.filter(differs).map(|entry| {
            [
                endpoint.rules.name.to_string(),
                kind(of).to_owned(),
                entry.exposed.to_string(),
                entry.exposed.chars().count().to_string(),
                entry.member.name.to_string(),
                entry.original.to_string(),
            ]
            .map(|cell| printable(&cell))
        }));
    }
    rows
}

fn view(endpoint: &Endpoint) -> View {
    View::Endpoint(Arc::clone(&endpoint.rules.name))
}
