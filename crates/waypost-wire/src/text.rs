//! Somebody else's text in our lines and messages.

use std::borrow::Cow;

/// Characters of a name that are shown: a longer one says no more than its beginning.
pub const NAME: usize = 128;

/// Characters of a sentence that are shown.
pub const SENTENCE: usize = 512;

/// The first `most` characters, with `…` for those left out: how long a line of ours is must
/// not be for others to decide.
pub fn clip(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_marked_and_no_character_is_cut() {
        assert_eq!(clip("añb", 3), "añb");
        assert_eq!(clip("añb", 2), "añ…");
        assert_eq!(clip("añb", 0), "…");
        assert_eq!(clip("", 0), "");
    }
}
