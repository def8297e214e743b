//! Refusals before the body is looked at: foreign hosts and origins, wrong media types.

use std::net::IpAddr;

use http::header::{ACCEPT, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, StatusCode};

/// A page of a foreign site must not reach a server on loopback (DNS rebinding).
pub(crate) fn check_origin(headers: &HeaderMap, on_loopback: bool) -> Result<(), StatusCode> {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    if on_loopback && !is_loopback(host) {
        return Err(StatusCode::FORBIDDEN);
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().unwrap_or_default();
    let site = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    match site {
        Some(site) if site == host || is_loopback(site) => Ok(()),
        _ => Err(StatusCode::FORBIDDEN),
    }
}

/// JSON in; JSON or an event stream out.
pub(crate) fn check_media(headers: &HeaderMap) -> Result<(), StatusCode> {
    let content = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let content = content
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if !content.eq_ignore_ascii_case("application/json") {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let accepts = |wanted: &str| {
        headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| {
                let kinds = value
                    .split(',')
                    .map(|kind| kind.split(';').next().unwrap_or("").trim());
                kinds
                    .into_iter()
                    .any(|kind| kind == "*/*" || kind.eq_ignore_ascii_case(wanted))
            })
    };
    if accepts("application/json") && accepts("text/event-stream") {
        Ok(())
    } else {
        Err(StatusCode::NOT_ACCEPTABLE)
    }
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, origin: Option<&str>, ok: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().expect("a header value"));
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().expect("a header value"));
        }
        assert_eq!(
            check_origin(&headers, true).is_ok(),
            ok,
            "{host} {origin:?}"
        );
    }

    #[test]
    fn only_loopback_names_reach_a_loopback_server() {
        check("127.0.0.1:80", None, true);
        check("localhost:80", Some("http://localhost:80"), true);
        check("[::1]:80", Some("http://[::1]:80"), true);
        check("evil.example.com", None, false);
        check("localhost.evil.example.com", None, false);
        check("127.0.0.1:80", Some("http://evil.example.com"), false);
        check("127.0.0.1:80", Some("null"), false);
    }
}
