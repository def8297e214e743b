//! Headers that say who or where, read in one way wherever they are looked at.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::uri::Authority;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use waypost_config::KeyHash;

/// The name in `name[:port]`, lower case, without the dot that ends absolute names; `None` for
/// what is no host.
pub fn host_name(host: &[u8]) -> Option<String> {
    let authority = Authority::try_from(host.trim_ascii()).ok()?;
    let name = authority.host();
    // What comes before an `@`, or after the name and is no port, is no part of a host.
    let rest = authority.as_str().strip_prefix(name)?;
    let port = rest.strip_prefix(':').unwrap_or("0");
    let numbered = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if !numbered && rest != ":" || rest.len() > 6 {
        return None;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    (!name.is_empty()).then(|| name.to_ascii_lowercase())
}

/// Whether this [`host_name`] is always this machine.
pub fn is_loopback(name: &str) -> bool {
    name == "localhost" || address(name).is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// The address that a [`host_name`] is.
pub(crate) fn address(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    bare.unwrap_or(name).parse().ok()
}

/// The token of the one `Authorization: Bearer <token>`; the scheme's case does not matter.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let (scheme, token) = line.as_bytes().split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

/// Whether the request bears the key of this hash. The time it takes tells nothing of the key.
pub fn bears(headers: &HeaderMap, key: &KeyHash) -> bool {
    bearer(headers).is_some_and(|token| {
        let hash: [u8; 32] = Sha256::digest(token).into();
        key.bytes().ct_eq(&hash).into()
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_one_key_is_borne() {
        let check = |lines: &[&'static str], expected: bool| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(AUTHORIZATION, HeaderValue::from_static(line));
            }
            assert_eq!(
                bears(&headers, &KeyHash::of("right")),
                expected,
                "{lines:?}"
            );
        };
        check(&["Bearer right"], true);
        check(&["bEARER  right "], true);
        check(&["Bearer wrong"], false);
        check(&["right"], false);
        check(&["Bearer right", "Bearer right"], false);
        check(&[], false);
    }
}
