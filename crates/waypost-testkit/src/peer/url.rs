//! Just enough of URL resolution for the `endpoint` event.

/// `reference` as seen from `base`.
pub(super) fn resolve(base: &str, reference: &str) -> String {
    if reference.contains("://") {
        return reference.to_owned();
    }
    let path_at = base.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = base.split_at(path_at);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if reference.starts_with('/') {
        return format!("{scheme}{host}{reference}");
    }
    let path = path.split('?').next().unwrap_or_default();
    let folder = path
        .rsplit_once('/')
        .map_or(String::new(), |(folder, _)| format!("{folder}/"));
    format!("{scheme}{host}/{folder}{reference}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reference: &str, expected: &str) {
        assert_eq!(resolve("http://h:1/p/sse", reference), expected);
    }

    #[test]
    fn references_are_resolved_against_the_stream() {
        check("/messages?a=b", "http://h:1/messages?a=b");
        check("messages?a=b", "http://h:1/p/messages?a=b");
        check("http://x/m", "http://x/m");
        assert_eq!(resolve("http://h", "m"), "http://h/m");
    }
}
