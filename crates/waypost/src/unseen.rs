//! Characters that people do not see, in what others say: names, descriptions and errors are the
//! upstreams', and go to terminals and logs.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Whether a character does something to those around it, or carries something for machines alone,
/// in place of being seen: controls, separators of lines and paragraphs, what Unicode calls format
/// characters (marks of direction, joiners, tags), and selectors of variants.
pub(crate) fn is_unseen(c: char) -> bool {
    // Text is mostly this, and the table is a search.
    if matches!(c, ' '..='~') {
        return false;
    }
    let is_selector = matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}');
    is_selector
        || matches!(
            c.general_category(),
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_turns_or_hides_text_is_unseen() {
        let unseen = "\0\n\t\u{7f}\u{9b}\u{ad}\u{61c}\u{180e}\u{200b}\u{200d}\u{200f}\u{2028}\u{2029}\
                      \u{202e}\u{2064}\u{2066}\u{fe0f}\u{feff}\u{fff9}\u{e0001}\u{e0041}\u{e0100}";
        let seen: Vec<_> = unseen.chars().filter(|c| !is_unseen(*c)).collect();
        assert!(seen.is_empty(), "{seen:?}");
    }

    #[test]
    fn text_of_any_language_is_seen() {
        let text = "a b~größe日本語שלום🦀\u{a0}e\u{301}";
        let unseen: Vec<_> = text.chars().filter(|c| is_unseen(*c)).collect();
        assert!(unseen.is_empty(), "{unseen:?}");
    }
}
