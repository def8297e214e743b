//! What the named endpoints show.

use std::sync::Arc;

use waypost_hub::call::View;
use waypost_hub::catalog::Catalog;
use waypost_hub::catalog::endpoint::Endpoint;
use waypost_hub::catalog::entry::{Entry, Kind};

use super::kind;
use crate::output::{printable, table};

/// Appends a table of the endpoints, the names that are others there than at `/mcp`, and what is
/// wrong with them.
pub(super) fn report(catalog: &Catalog, text: &mut String) {
    let endpoints = catalog.endpoints();
    if endpoints.is_empty() {
        return;
    }
    let headings = [
        "endpoint",
        "upstreams",
        "tools",
        "prompts",
        "resources",
        "templates",
    ];
    let rows: Vec<_> = endpoints.iter().map(|own| row(catalog, own)).collect();
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

fn row(catalog: &Catalog, endpoint: &Endpoint) -> [String; 6] {
    let view = view(endpoint);
    let upstreams: Vec<&str> = catalog.shown(&view).map(|member| &*member.name).collect();
    let count = |kind| match catalog.counts(kind, &view) {
        (shown, 0) => shown.to_string(),
        (shown, hidden) => format!("{shown} ({hidden} hidden)"),
    };
    let [tools, prompts, resources, templates] = Kind::ALL.map(count);
    let name = endpoint.rules.name.to_string();
    [
        name,
        upstreams.join(", "),
        tools,
        prompts,
        resources,
        templates,
    ]
}

/// One row for each name that `/mcp` does not have for the same thing.
fn own_names(catalog: &Catalog, endpoint: &Endpoint) -> Vec<[String; 6]> {
    let view = view(endpoint);
    let mut rows = Vec::new();
    for of in Kind::ALL {
        let differs = |entry: &&Entry| {
            let whole = catalog.table(of).of_member(&entry.member, &entry.original);
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
