//! What the file makes of upstreams' definitions.

use waypost_hub::catalog::entry::{Entry, Kind};
use waypost_hub::hub::Hub;

use super::kind;
use crate::output::{printable, table};

/// Rows of one upstream, kind and reason.
const MOST: usize = 50;

/// Appends a table of what is hidden, called otherwise or held back.
pub(super) fn report(hub: &Hub, text: &mut String) {
    let catalog = hub.catalog();
    let mut rows = Vec::new();
    for member in hub.members() {
        let mut add = |of: Kind, all: Vec<(String, String)>| {
            let more = all.len().saturating_sub(MOST);
            let mut own = all.into_iter().take(MOST).collect::<Vec<_>>();
            if more > 0 {
                own.push(("...".to_owned(), format!("{more} more")));
            }
            rows.extend(own.into_iter().map(|(original, becomes)| {
                [
                    member.name.to_string(),
                    kind(of).to_owned(),
                    original,
                    becomes,
                ]
                .map(|cell| printable(&cell))
            }));
        };
        for of in Kind::ALL {
            let hidden = catalog.hidden(of, &member.name).iter();
            add(
                of,
                hidden
                    .map(|name| (name.to_string(), "hidden".to_owned()))
                    .collect(),
            );
            let shelf = catalog.table(of).whole_shelf(&member.name);
            let entries = shelf
                .map(|shelf| shelf.entries())
                .unwrap_or_default()
                .iter();
            let changed = |entry: &Entry| Some((entry.original.to_string(), changes(entry)?));
            add(of, entries.filter_map(|entry| changed(entry)).collect());
        }
        let pending = catalog.pending(&member.name).iter().map(|pending| {
            let held = if pending.held { ", held back" } else { "" };
            (
                pending.tool.to_string(),
                format!("{}{held}", pending.change()),
            )
        });
        add(Kind::Tool, pending.collect());
    }
    if !rows.is_empty() {
        text.push_str("\n\n");
        text.push_str(&table(["upstream", "kind", "original", "becomes"], &rows));
    }
}

/// Its name and parameters, where the file has a say in them.
fn changes(entry: &Entry) -> Option<String> {
    let renamed = entry.renamed.as_ref();
    let renamed = renamed.map(|name| format!("renamed to `{name}`"));
    let hidden = entry.arguments.as_ref().map(|own| {
        let names: Vec<_> = own
            .hidden()
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        format!("without {}", names.join(", "))
    });
    let all: Vec<String> = renamed.into_iter().chain(hidden).collect();
    (!all.is_empty()).then(|| all.join(", "))
}
