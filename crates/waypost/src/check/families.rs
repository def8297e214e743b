//! Upstreams of one kind, whose tools are shown as one.

use waypost_hub::call::View;
use waypost_hub::catalog::entry::{Entry, Kind};
use waypost_hub::hub::Hub;

use crate::output::{printable, table};

/// Appends a table of what each upstream of a family is meant by.
pub(super) fn report(hub: &Hub, text: &mut String) {
    let catalog = hub.catalog();
    let members = hub.members();
    let rows = members.iter().filter_map(|member| {
        let family = member.settings.family.as_ref()?;
        let is_one = |entry: &&Entry| {
            let mut all = entry.choice.iter().flat_map(|choice| &choice.instances);
            all.any(|(_, one)| one.member.name == member.name)
        };
        let listed = catalog.list(Kind::Tool, &View::All);
        let shown = listed.entries().map(AsRef::as_ref).filter(is_one).count();
        let row = [
            family.name.clone(),
            family.argument.clone(),
            family.value.clone(),
            member.name.to_string(),
            shown.to_string(),
        ];
        Some(row.map(|cell| printable(&cell)))
    });
    let mut rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }
    rows.sort_by(|a, b| a.first().cmp(&b.first()));
    let headings = ["family", "argument", "value", "upstream", "tools as one"];
    text.push_str("\n\n");
    text.push_str(&table(headings, &rows));
}
