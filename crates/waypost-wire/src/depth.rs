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
    fn siblings_do_not_add_up() {
        assert_eq!(check(br"[[],[],[],{}]", 2), Ok(()));
    }
}
