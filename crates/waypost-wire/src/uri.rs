//! Which resource a URI is a part of, and which other spellings it has.

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

/// The URI with its scheme in lower case and without percent encoding, as whoever resolves it may
/// read it. What is no text then becomes replacement characters.
pub fn decoded(uri: &str) -> String {
    let mut bytes = Vec::with_capacity(uri.len());
    let mut rest = uri.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| {
            after
                .get(at)
                .and_then(|digit| char::from(*digit).to_digit(16))
        };
        let byte = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        bytes.push(byte.unwrap_or(*first));
        rest = after
            .get(if byte.is_some() { 2 } else { 0 }..)
            .unwrap_or_default();
    }
    let text = String::from_utf8_lossy(&bytes);
    match text.split_once(':') {
        Some((scheme, rest)) => format!("{}:{rest}", scheme.to_ascii_lowercase()),
        None => text.into_owned(),
    }
}

/// Whether a [`decoded`] URI is spelled so that whoever resolves it may take it for another: with
/// characters that parsers drop or take for a slash, or with segments that lead nowhere or out of
/// the one before.
pub fn is_evasive(decoded: &str) -> bool {
    let odd = |c: char| c.is_control() || c == '\\';
    let end = |c: char| matches!(c, '?' | '#');
    let address = decoded.split(end).next().unwrap_or_default();
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    // What stands before the first slash may be empty, and so may what stands behind the last.
    let inner = rest.trim_end_matches('/').split('/').skip(1);
    let empty = inner.clone().any(str::is_empty) || rest.ends_with("//");
    let dots = |segment: &str| matches!(segment, "." | "..");
    decoded.contains(odd) || empty || decoded.split(['/', '?', '#']).any(dots)
}

/// The address alone of a [`decoded`] URI, as most servers take it to find what is meant: without
/// query, fragment, user, the dot that ends a host and the slashes that end a path; the host in
/// lower case.
pub fn bare(decoded: &str) -> String {
    let address = decoded.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = address.split_once("://") else {
        return address.trim_end_matches('/').to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let (host, port) = host.split_at(host.rfind(':').unwrap_or(host.len()));
    let host = host.trim_end_matches('.').to_lowercase();
    let path = path.trim_end_matches('/');
    format!("{scheme}://{host}{port}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r30_the_address_alone_is_what_servers_look_for() {
        for (uri, expected) in [
            ("file:///a/.env?x#y", "file:///a/.env"),
            ("file:///a/.env#", "file:///a/.env"),
            ("mail://u:p@SECRET.:80/A/", "mail://secret:80/A"),
            ("http://secret", "http://secret"),
            ("http://[::1]/a", "http://[::1]/a"),
            ("memo:note?x", "memo:note"),
            ("file:///", "file://"),
            ("", ""),
        ] {
            assert_eq!(bare(uri), expected, "{uri}");
        }
    }

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

    #[test]
    fn r30_another_spelling_is_the_same_address() {
        for (uri, expected, out) in [
            ("file:///a b", "file:///a b", false),
            ("FILE:///A%20b%2", "file:///A b%2", false),
            ("file:///docs/%2e%2E/etc", "file:///docs/../etc", true),
            ("file:///docs/..", "file:///docs/..", true),
            ("file:///docs/./x", "file:///docs/./x", true),
            ("file:////etc/x", "file:////etc/x", true),
            ("file:///docs//x", "file:///docs//x", true),
            ("file:///docs/", "file:///docs/", false),
            ("file:///", "file:///", false),
            ("file:///docs//", "file:///docs//", true),
            ("file:///a%09b", "file:///a\tb", true),
            ("db://host/a?x=//y", "db://host/a?x=//y", false),
            ("memo:note", "memo:note", false),
            ("c:\\docs\\..\\x", "c:\\docs\\..\\x", true),
            ("git://a..b/...", "git://a..b/...", false),
            ("x%c3%a4%ff%zz", "x\u{e4}\u{fffd}%zz", false),
            ("%", "%", false),
        ] {
            let text = decoded(uri);
            assert_eq!((text.as_str(), is_evasive(&text)), (expected, out), "{uri}");
        }
    }
}
