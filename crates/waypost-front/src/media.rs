//! Media types: lenient in what is accepted, exact in what is sent.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use crate::refusal::Refusal;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const SSE: HeaderValue = HeaderValue::from_static("text/event-stream");

/// What clients are told to send, and nearly all do.
const BOTH: &[u8] = b"application/json, text/event-stream";

/// Which forms of an answer the client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// One JSON answer, buffered.
    Json,
    /// A stream of events.
    Sse,
    /// Whichever fits.
    Either,
}

impl Wants {
    /// Reads `Accept`. A client that sends none, or one that is no text, takes what it gets.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let mut lines = headers.get_all(ACCEPT).iter();
        if lines.next().is_some_and(|line| line == BOTH) && lines.next().is_none() {
            return Ok(Self::Either);
        }
        let mut json = Choice::default();
        let mut sse = Choice::default();
        let mut any = false;
        for line in headers.get_all(ACCEPT) {
            for range in line.to_str().unwrap_or_default().split(',') {
                let (name, quality) = range.split_once(';').unwrap_or((range, ""));
                let name = name.trim();
                if name.is_empty() {
                    continue;
                }
                any = true;
                let wanted = !is_zero(quality);
                json.consider(name, "application/*", "application/json", wanted);
                sse.consider(name, "text/*", "text/event-stream", wanted);
            }
        }
        match (json.wanted, sse.wanted) {
            _ if !any => Ok(Self::Either),
            (true, true) => Ok(Self::Either),
            (true, false) => Ok(Self::Json),
            (false, true) => Ok(Self::Sse),
            (false, false) => Err(Refusal::NotAcceptable),
        }
    }
}

/// Whether one media type is wanted, as the most exact of the ranges that match it says.
#[derive(Default)]
struct Choice {
    exactness: u8,
    wanted: bool,
}

impl Choice {
    fn consider(&mut self, range: &str, group: &str, exact: &str, wanted: bool) {
        let exactness = if range.eq_ignore_ascii_case(exact) {
            3
        } else if range.eq_ignore_ascii_case(group) {
            2
        } else if range == "*/*" {
            1
        } else {
            return;
        };
        if exactness >= self.exactness {
            *self = Self { exactness, wanted };
        }
    }
}

/// Whether the parameters of a range contain a weight of zero, "not acceptable".
fn is_zero(parameters: &str) -> bool {
    parameters
        .split(';')
        .filter_map(|parameter| parameter.split_once('='))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .any(|(_, weight)| weight.trim().parse::<f32>().is_ok_and(|q| q == 0.0))
}

/// Refuses a body that does not say it is JSON in UTF-8.
///
/// This is also what keeps web pages out that send a form across origins: they cannot set this
/// type without asking first.
pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(Refusal::MediaType);
    };
    // What nearly everybody sends.
    if line == JSON {
        return Ok(());
    }
    let mut parts = line.to_str().unwrap_or_default().split(';');
    let name = parts.next().unwrap_or_default().trim();
    let json = name.eq_ignore_ascii_case("application/json");
    let other_charset = parts
        .filter_map(|parameter| parameter.split_once('='))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))
        .any(|(_, value)| {
            let charset = value.trim().trim_matches('"');
            !charset.eq_ignore_ascii_case("utf-8")
        });
    if json && !other_charset {
        Ok(())
    } else {
        Err(Refusal::MediaType)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn accept(lines: &[&str], expected: Option<Wants>) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT, line.parse().unwrap());
        }
        assert_eq!(Wants::of(&headers).ok(), expected, "{lines:?}");
    }

    #[test]
    fn r43_accept_is_read_leniently() {
        accept(&[], Some(Wants::Either));
        accept(&[""], Some(Wants::Either));
        accept(&["*/*"], Some(Wants::Either));
        accept(
            &["application/json, text/event-stream"],
            Some(Wants::Either),
        );
        accept(
            &["text/event-stream", "application/json"],
            Some(Wants::Either),
        );
        accept(&["application/json"], Some(Wants::Json));
        accept(&["Application/JSON;q=0.9"], Some(Wants::Json));
        accept(&["text/event-stream;q=0.5, text/html"], Some(Wants::Sse));
        accept(&["*/*;q=0.1, text/event-stream;q=0"], Some(Wants::Json));
        accept(&["application/*"], Some(Wants::Json));
        accept(&["text/html"], None);
        accept(&["application/json; q=0.0"], None);
    }

    #[track_caller]
    fn content_type(lines: &[&str], fine: bool) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CONTENT_TYPE, line.parse().unwrap());
        }
        assert_eq!(check_content_type(&headers).is_ok(), fine, "{lines:?}");
    }

    #[test]
    fn r43_content_type_is_json_in_utf8_however_it_is_spelled() {
        content_type(&["application/json"], true);
        content_type(&["application/json; charset=utf-8"], true);
        content_type(&["Application/Json;Charset=\"UTF-8\""], true);
        content_type(&["application/json; profile=x"], true);
        content_type(&["application/json; charset=latin1"], false);
        content_type(&["text/plain"], false);
        content_type(&["application/jsonp"], false);
        content_type(&["application/json", "application/json"], false);
        content_type(&[], false);
    }
}
