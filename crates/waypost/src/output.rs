//! What commands print: results on standard output, never logs.

use std::io::{self, Write as _};

/// Prints a text and a line break.
///
/// A reader that went away, as in `waypost schema | head`, is no failure of ours.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// Tells whoever waits for the result at a terminal what takes its time.
pub(crate) fn say(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// Rows under headings, each column as wide as its widest cell.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let cells = cells.map(|cell| cell.chars().count());
        let heading = headings.get(column).map_or(0, |text| text.chars().count());
        cells.max().unwrap_or(0).max(heading)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths);
        let padded = padded.map(|(cell, width)| format!("{cell:width$}"));
        let padded: Vec<_> = padded.collect();
        padded.join("  ").trim_end().to_owned()
    };
    let headings = headings.map(str::to_owned);
    let lines = std::iter::once(line(&headings)).chain(rows.iter().map(|row| line(row)));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["ä".to_owned(), "1".to_owned()],
            ["longer".to_owned(), String::new()],
        ];
        let table = table(["name", "count"], &rows);
        assert_eq!(table, "name    count\nä       1\nlonger");
    }
}
