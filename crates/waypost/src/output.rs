//! What commands print: results on standard output, never logs.

use std::io::{self, Write as _};

use crate::unseen::is_unseen;

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

/// The text with what would steer a terminal, break the row, turn the order of what is read or not
/// be seen spelled out: names, descriptions, versions and errors are the upstreams'.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unseen(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(printable(text), expected);
    }

    #[test]
    fn what_steers_a_terminal_is_spelled_out() {
        check("\u{1b}]0;t\u{7}", r"\u{1b}]0;t\u{7}");
        check("a\nb\r\tc\u{9b}2J\u{7f}", r"a\nb\r\tc\u{9b}2J\u{7f}");
        check("a\u{202e}b\u{2066}c", r"a\u{202e}b\u{2066}c");
        check("\u{200f}\u{61c}\u{2028}", r"\u{200f}\u{61c}\u{2028}");
    }

    #[test]
    fn what_cannot_be_seen_is_spelled_out() {
        check("a\u{200b}b\u{e0041}", r"a\u{200b}b\u{e0041}");
        check("\u{feff}\u{fe0f}\u{e0100}", r"\u{feff}\u{fe0f}\u{e0100}");
    }

    #[test]
    fn text_of_any_language_stays() {
        for text in ["größe", "日本語", "שלום", "a b", r"back\slash", "🦀"] {
            check(text, text);
        }
    }

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
