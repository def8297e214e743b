//! Where HTTP+SSE wants messages posted (2024-11-05: transports, HTTP with SSE).

use std::time::Duration;

use http::Uri;
use url::Url;

/// Why there is no place to post messages to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointFault {
    /// The stream is silent.
    #[error("opened an event stream but did not name where to post messages within {0:?}")]
    Silent(Duration),
    /// The stream ended before.
    #[error("ended the event stream before it named where to post messages")]
    Ended,
    /// What it named cannot be resolved.
    #[error("named a place to post messages to that is not a URL")]
    NotUrl,
    /// Credentials would go to a server that they are not meant for.
    #[error(
        "speaks HTTP+SSE and wants messages posted to another origin than that of its stream, which is refused\nhint: use the address that the server takes for its own as `url`, or say with `message_url` where to post"
    )]
    OtherOrigin,
}

/// What the data of the `endpoint` event means, seen from the address of the stream.
///
/// # Errors
/// [`EndpointFault`] unless it is a URL of the same origin.
pub(super) fn resolve(stream: &Uri, data: &[u8]) -> Result<Uri, EndpointFault> {
    let (base, url) = read(stream, data)?;
    if url.origin() != base.origin() {
        return Err(EndpointFault::OtherOrigin);
    }
    // Scheme and authority stay as configured, whatever way the server spells them.
    with_path(stream, url.path(), url.query())
}

/// The address from the configuration in place of the one that the `endpoint` event names, whose
/// query stays: there the session is named.
///
/// # Errors
/// [`EndpointFault::NotUrl`] when the event's data is none.
pub(super) fn instead(configured: &Uri, stream: &Uri, data: &[u8]) -> Result<Uri, EndpointFault> {
    let (_, url) = read(stream, data)?;
    let queries = [configured.query(), url.query()];
    let query = queries.into_iter().flatten().collect::<Vec<_>>().join("&");
    let query = (!query.is_empty()).then_some(&*query);
    with_path(configured, configured.path(), query)
}

/// The addresses of the stream and of what its event names.
fn read(stream: &Uri, data: &[u8]) -> Result<(Url, Url), EndpointFault> {
    let text = std::str::from_utf8(data).map_err(|_| EndpointFault::NotUrl)?;
    let base = Url::parse(&stream.to_string()).map_err(|_| EndpointFault::NotUrl)?;
    let url = base.join(text.trim()).map_err(|_| EndpointFault::NotUrl)?;
    Ok((base, url))
}

fn with_path(of: &Uri, path: &str, query: Option<&str>) -> Result<Uri, EndpointFault> {
    let mut parts = of.clone().into_parts();
    let path = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    parts.path_and_query = Some(path.parse().map_err(|_| EndpointFault::NotUrl)?);
    Uri::from_parts(parts).map_err(|_| EndpointFault::NotUrl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: &str, expected: Result<&str, EndpointFault>) {
        let stream = Uri::from_static("http://h.example:80/p/sse?key=k");
        let got = resolve(&stream, data.as_bytes()).map(|uri| uri.to_string());
        assert_eq!(got, expected.map(str::to_owned), "{data}");
    }

    #[test]
    fn r14_the_place_to_post_to_is_resolved_against_the_stream() {
        check("/messages?s=1", Ok("http://h.example:80/messages?s=1"));
        check("messages?x=1", Ok("http://h.example:80/p/messages?x=1"));
        check(
            "../m/./a?x=1&y=%20",
            Ok("http://h.example:80/m/a?x=1&y=%20"),
        );
        check("?s=2", Ok("http://h.example:80/p/sse?s=2"));
        check("http://h.example/a?b", Ok("http://h.example:80/a?b"));
        check("HTTP://H.EXAMPLE:80/a", Ok("http://h.example:80/a"));
        check("//h.example/a", Ok("http://h.example:80/a"));
        check("http://u:p@h.example/a", Ok("http://h.example:80/a"));
        check(" /m \r", Ok("http://h.example:80/m"));
    }

    #[test]
    fn r14_another_origin_is_refused() {
        for other in [
            "http://internal:80/m",
            "https://h.example/m",
            "http://h.example:81/m",
            "//other/m",
            "\\\\other\\m",
            "file:///m",
            "http://h.example.other/m",
            "http://h.example@other/m",
        ] {
            check(other, Err(EndpointFault::OtherOrigin));
        }
        check("http://[", Err(EndpointFault::NotUrl));
    }

    #[test]
    fn r14_where_to_post_can_be_configured_and_the_session_is_still_named() {
        let stream = Uri::from_static("http://h.example/p/sse?key=k");
        for (configured, said, expected) in [
            ("http://h.example/p/m", "/m?s=1", "http://h.example/p/m?s=1"),
            (
                "http://h.example/m?k=1",
                "m?s=1&t",
                "http://h.example/m?k=1&s=1&t",
            ),
            (
                "https://o.example/m",
                "http://internal:8080/x?s=1",
                "https://o.example/m?s=1",
            ),
            ("http://h.example/m", "/x", "http://h.example/m"),
        ] {
            let got = instead(&configured.parse().unwrap(), &stream, said.as_bytes());
            assert_eq!(got.unwrap().to_string(), expected);
        }
        let configured = Uri::from_static("http://h.example/m");
        let got = instead(&configured, &stream, b"http://[");
        assert_eq!(got, Err(EndpointFault::NotUrl));
    }
}
