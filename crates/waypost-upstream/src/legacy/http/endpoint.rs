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
        "speaks HTTP+SSE and wants messages posted to another origin than that of its stream, which is refused\nhint: use the address that the server takes for its own as `url`"
    )]
    OtherOrigin,
}

/// What the data of the `endpoint` event means, seen from the address of the stream.
///
/// # Errors
/// [`EndpointFault`] unless it is a URL of the same origin.
pub(super) fn resolve(stream: &Uri, data: &[u8]) -> Result<Uri, EndpointFault> {
    let text = std::str::from_utf8(data).map_err(|_| EndpointFault::NotUrl)?;
    let base = Url::parse(&stream.to_string()).map_err(|_| EndpointFault::NotUrl)?;
    let url = base.join(text.trim()).map_err(|_| EndpointFault::NotUrl)?;
    if url.origin() != base.origin() {
        return Err(EndpointFault::OtherOrigin);
    }
    // Scheme and authority stay as configured, whatever way the server spells them.
    let mut parts = stream.clone().into_parts();
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
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
}
