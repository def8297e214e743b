//! `docs/compatibility.md`.

use waypost_testkit::peer::Kind;

use crate::cells::{Cell, Feature};
use crate::scene::Server;

/// What one client did with one server.
pub(crate) struct Row {
    pub(crate) client: Kind,
    pub(crate) server: Server,
    pub(crate) cells: Vec<(Feature, Cell)>,
}

impl Row {
    /// Where a cell is, in words.
    pub(crate) fn place(&self, feature: Feature) -> String {
        let (client, server) = (self.client.name(), self.server.name());
        format!("{client} / {server} / {}", feature.name())
    }
}

const HEAD: &str = "\
# Compatibility

Written by the test `every_client_does_everything_with_every_server` from what it saw; every cell is
a run through one Waypost with all six servers behind it at once. To write it again:
`UPDATE_GOLDEN=1 cargo xtask test -- -p waypost-tests --test compatibility`.

It is written three times, each time the same: by clients of `/mcp`; by clients of an endpoint with
filters, where tools have other names; and by clients of an endpoint in search mode, which call every
tool through `call_tool`.

`yes`: it works. `-`: there is nothing to carry; only a sessionless server of the session era has
such cells, because it has no way to ask its client anything and no tasks. Anything else is a failure,
told below its table.

Clients use a server at the same time, except for elicit, sample, log and cancel, which come in this
order: over a shared pipe nothing says whose a question or a log message is, so Waypost passes it on
only while there is one call, and none was given up in the last two minutes.
";

fn about(client: Kind) -> &'static str {
    match client {
        Kind::Modern => "speaks 2026-07-28 over HTTP: every request stands alone.",
        Kind::Http(_) => "opens a session with `initialize`, over Streamable HTTP.",
        Kind::ModernPipe => "starts `waypost stdio` and speaks 2026-07-28 to it.",
        Kind::LegacyPipe(_) => "starts `waypost stdio` and opens a session of 2025-11-25 with it.",
        Kind::Sse(_) => "opens a session over HTTP+SSE.",
    }
}

/// The whole page.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut page = HEAD.to_owned();
    for client in Kind::MATRIX {
        let of_client: Vec<_> = rows.iter().filter(|row| row.client == client).collect();
        table(&mut page, client, &of_client);
    }
    page.push_str("\n## The servers\n\n");
    for server in Server::MATRIX {
        page.push_str(&format!("- {}: {}.\n", server.name(), server.about()));
    }
    page.push_str("\n## What a `yes` takes\n\n");
    for feature in Feature::ALL {
        page.push_str(&format!("- {}: {}.\n", feature.name(), feature.about()));
    }
    page
}

fn table(page: &mut String, client: Kind, rows: &[&Row]) {
    page.push_str(&format!("\n## Client: {}\n\n", client.name()));
    page.push_str(&format!("It {}\n\n", about(client)));
    let features = Feature::ALL.map(Feature::name).join(" | ");
    page.push_str(&format!("| server | {features} |\n"));
    page.push_str(&format!("|---|{}\n", "---|".repeat(Feature::ALL.len())));
    let mut reasons = Vec::new();
    for row in rows {
        let cells = row.cells.iter().map(|(feature, cell)| match cell {
            Cell::Yes => "yes",
            Cell::NotApplicable => "-",
            Cell::No(why) => {
                reasons.push(format!("- {}: {why}", row.place(*feature)));
                "**no**"
            }
        });
        let cells = cells.collect::<Vec<_>>().join(" | ");
        page.push_str(&format!("| {} | {cells} |\n", row.server.name()));
    }
    if !reasons.is_empty() {
        page.push_str(&format!("\n{}\n", reasons.join("\n")));
    }
}
