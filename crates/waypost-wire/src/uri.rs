//! Which resource a URI is a part of.

/// Whether `uri` names the resource `whole` or a part of it: what follows begins a segment, a
/// query or a fragment of its own (specification: resources, subscriptions). `file:///a/b` is a
/// part of `file:///a`, `file:///ab` is another resource.
pub fn is_part(uri: &str, whole: &str) -> bool {
    let Some(rest) = uri.strip_prefix(whole) else {
        return false;
    };
    // What ends with a mark has begun the next segment already.
    let begun = !whole.is_empty() && whole.ends_with(MARKS);
    rest.is_empty() || begun || rest.starts_with(MARKS)
}

const MARKS: [char; 3] = ['/', '?', '#'];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uri: &str, whole: &str, expected: bool) {
        assert_eq!(is_part(uri, whole), expected, "{uri} of {whole}");
    }

    #[test]
    fn a_part_begins_where_a_name_ends() {
        for part in ["file:///a", "file:///a/b", "file:///a?q", "file:///a#f"] {
            check(part, "file:///a", true);
        }
        check("file:///a/b", "file:///a/", true);
        for other in ["file:///ab", "file:///", "file:///b", "http://a"] {
            check(other, "file:///a", false);
        }
        check("file:///a", "", false);
        check("", "", true);
    }
}
