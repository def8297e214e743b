//! What somebody probably meant.

/// The known word nearest to `text`, if one is near enough to be meant.
pub fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(text);
    let reach = (folded.chars().count() / 3).clamp(1, 3);
    known
        .map(|word| (distance(&folded, &fold(word)), word))
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// An upstream name made from any text.
pub(crate) fn upstream_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    if !name.starts_with(|c: char| c.is_ascii_lowercase())
        || name == "waypost"
        || name == "workflow"
    {
        name.insert_str(0, "my-");
    }
    name.truncate(32);
    name.trim_end_matches('-').to_owned()
}

/// Spelling that people mix up: case, `-` and `_`.
fn fold(text: &str) -> String {
    text.chars()
        .filter(|c| !matches!(c, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// How many characters must be added, removed, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX - 1);
            let mut least = (at(&last, j + 1) + 1)
                .min(at(&row, j) + 1)
                .min(at(&last, j) + usize::from(x != y));
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                least = least.min(at(&before, j - 1) + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["url", "command", "timeout", "startup_timeout", "tools"];
        for (text, expected) in [
            ("ulr", Some("url")),
            ("comand", Some("command")),
            ("startupTimeout", Some("startup_timeout")),
            ("time-out", Some("timeout")),
            ("tool", Some("tools")),
            ("endpoint", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, known.into_iter()), expected, "{text}");
        }
    }

    #[test]
    fn a_name_can_be_made_from_anything() {
        for (text, expected) in [
            ("GitHub MCP", "github-mcp"),
            ("my_server", "my-server"),
            ("1mcp", "my-1mcp"),
            ("waypost", "my-waypost"),
            ("--", "my"),
            ("Ünïcode", "n-code"),
            (
                "a-very-long-name-that-goes-on-and-on-and-on",
                "a-very-long-name-that-goes-on-an",
            ),
        ] {
            assert_eq!(upstream_name(text), expected, "{text}");
        }
    }
}
