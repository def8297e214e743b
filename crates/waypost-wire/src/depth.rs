//! How deep JSON is nested.

use crate::error::Malformed;

/// Refuses text nested deeper than `limit` arrays and objects.
///
/// Runs before anything is parsed: values that are never decoded here are decoded by somebody
/// behind, and a reader that recurses dies on them.
///
/// # Errors
/// [`Malformed::Depth`].
pub fn check(json: &[u8], limit: usize) -> Result<(), Malformed> {
    // Most messages have fewer brackets than levels are allowed, whatever is in their strings.
    if opening(json) <= limit {
        return Ok(());
    }
    let mut depth = 0_usize;
    let mut rest = json;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return Err(Malformed::Depth { limit });
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => rest = after_string(rest),
            _ => {}
        }
    }
    Ok(())
}

/// How many brackets open, those in strings included. Counted in bytes of short stretches, many
/// of which a processor adds at once.
fn opening(json: &[u8]) -> usize {
    // `{` and `[` differ in this bit alone.
    let opens = |byte: &u8| u8::from(byte | 0x20 == b'{');
    let stretches = json.chunks(usize::from(u8::MAX));
    stretches
        .map(|stretch| usize::from(stretch.iter().map(opens).sum::<u8>()))
        .sum()
}

/// What follows the string whose opening quote was just read.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let quote = rest.get(at) == Some(&b'"');
        rest = rest
            .get(at + if quote { 1 } else { 2 }..)
            .unwrap_or_default();
        if quote {
            return rest;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_count() {
        assert_eq!(check(br#"{"a":"[[[[\"[[[","b":[[1]]}"#, 3), Ok(()));
        assert_eq!(
            check(br#"{"a":[[[1]]]}"#, 3),
            Err(Malformed::Depth { limit: 3 })
        );
    }

    #[test]
    fn every_opening_bracket_counts_towards_the_short_way() {
        for length in [0, 1, 254, 255, 256, 1000] {
            assert_eq!(opening(&b"[{".repeat(length)), 2 * length);
        }
        let others: Vec<u8> = (0..=u8::MAX).filter(|b| !b"[{".contains(b)).collect();
        assert_eq!(opening(&others), 0);
    }

    #[test]
    fn siblings_do_not_add_up() {
        assert_eq!(check(br"[[],[],[],{}]", 2), Ok(()));
    }
}
