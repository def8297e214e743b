//! What a server refuses at its door: for how a request was sent, which is this hop's affair, and
//! before it does anything.
//!
//! The codes for that are any server's to use, so the code alone says nothing: a tool may fail with
//! one of its own that is the same. What may have run is not sent again.

use http::StatusCode;
use waypost_hub::reply::End;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::raw::Raw;

/// How an answer came.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Came<'a> {
    /// Over HTTP, with this status.
    Http(StatusCode),
    /// In a line of its own, to a request of this version.
    Line { version: &'a str },
}

impl Came<'_> {
    /// Whether an error refuses how the request was sent.
    pub(crate) fn refuses_the_hop(self, error: &ErrorObject) -> bool {
        match (self, error.code()) {
            (Self::Http(status), code) => is_about_a_hop(code) && status_is_of_the_door(status),
            // There are no headers.
            (Self::Line { version }, code::UNSUPPORTED_VERSION) => lacks(error, version),
            (Self::Line { .. }, _) => false,
        }
    }

    /// The same end, where an error is not about the hop under a code that does not say so either.
    /// It keeps the server's own for clients of the session era, to whom that is a code like others.
    pub(crate) fn own_words(self, end: End) -> End {
        match end {
            End::Error(error) if is_about_a_hop(error.code()) && !self.refuses_the_hop(&error) => {
                End::Error(error.meaning(code::INTERNAL_ERROR))
            }
            end => end,
        }
    }
}

/// Codes that are about headers and versions, where they are said at the door.
pub(crate) fn is_about_a_hop(code: i64) -> bool {
    matches!(code, code::UNSUPPORTED_VERSION | code::HEADER_MISMATCH)
}

/// Whether an answer with this status says that nothing ran.
pub(crate) fn status_is_of_the_door(status: StatusCode) -> bool {
    status == StatusCode::BAD_REQUEST
}

/// Whether a refusal lists versions, and not this one.
fn lacks(error: &ErrorObject, version: &str) -> bool {
    let data = error.data().and_then(|data| data.as_object().ok());
    let listed = data.and_then(|data| data.get("supported").and_then(Raw::decode::<Vec<String>>));
    listed.is_some_and(|versions| !versions.iter().any(|listed| listed == version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn codes_of_a_hop_are_about_it_only_at_the_door() {
        let line = Came::Line {
            version: "2026-07-28",
        };
        let http = |status| Came::Http(StatusCode::from_u16(status).unwrap());
        let error = |code, data| ErrorObject::with_data(code, "own", &data);
        for code in [-32020, -32022] {
            let plain = error(code, json!({ "x": 1 }));
            assert!(http(400).refuses_the_hop(&plain));
            for came in [http(200), http(404), line] {
                assert!(!came.refuses_the_hop(&plain), "{came:?}");
            }
        }
        let versions = |supported| error(-32022, json!({ "supported": supported }));
        assert!(line.refuses_the_hop(&versions(json!(["2027-01-01"]))));
        for other in [
            json!(["2026-07-28", "2027-01-01"]),
            json!("2027-01-01"),
            json!([1]),
            json!(null),
        ] {
            assert!(!line.refuses_the_hop(&versions(other.clone())), "{other}");
        }
        assert!(!line.refuses_the_hop(&error(-32020, json!({ "supported": ["2027-01-01"] }))));
        assert!(!http(400).refuses_the_hop(&error(-32021, json!(null))));
    }

    #[test]
    fn what_is_not_about_a_hop_says_so_and_keeps_its_words() {
        let line = Came::Line {
            version: "2026-07-28",
        };
        let own = ErrorObject::with_data(-32020, "own", &json!({ "n": 1 }));
        let End::Error(error) = line.own_words(End::Error(own)) else {
            panic!("no error")
        };
        assert_eq!((error.code(), error.said()), (-32603, Some(-32020)));
        assert_eq!(error.message(), "own");
        assert_eq!(error.data().unwrap().text(), r#"{"n":1}"#);
        let other = End::Error(ErrorObject::new(-32021, "own"));
        assert_eq!(line.own_words(other.clone()), other);
    }
}
