//! MCP's HTTP headers and how their values are written (specification: transports, headers).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The protocol version of the request; in the modern era it equals the one in `_meta`.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// Repeats the `method` of the body, so that proxies can route without reading it.
pub const METHOD: &str = "mcp-method";
/// Repeats what the request is about: the member that [`crate::method::name_member`] gives.
pub const NAME: &str = "mcp-name";
/// The session of a legacy client, given by the answer to `initialize` (2025-11-25: transports,
/// session management).
pub const SESSION_ID: &str = "mcp-session-id";
/// Begins the header of an argument that a tool wants mirrored (`x-mcp-header`).
pub const PARAM_PREFIX: &str = "mcp-param-";

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// A header value that says it is Base64 and is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the header value is not valid Base64 of UTF-8 text")]
pub struct BadValue;

/// The header value for `text`: as it is when that is visible ASCII without spaces at its ends,
/// otherwise in the Base64 form.
pub fn encode(text: &str) -> Cow<'_, str> {
    let visible = text.bytes().all(|b| (0x20..0x7f).contains(&b));
    let padded = text.starts_with(' ') || text.ends_with(' ');
    let looks_encoded = text.starts_with(OPEN) && text.ends_with(CLOSE);
    if visible && !padded && !looks_encoded {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{OPEN}{}{CLOSE}", STANDARD.encode(text)))
}

/// The text that a header value stands for. White space around the value is not part of it.
///
/// # Errors
/// [`BadValue`] for the Base64 form with anything but standard Base64 of UTF-8 inside.
pub fn decode(value: &str) -> Result<Cow<'_, str>, BadValue> {
    let value = value.trim_matches([' ', '\t']);
    let Some(inner) = value
        .strip_prefix(OPEN)
        .and_then(|rest| rest.strip_suffix(CLOSE))
    else {
        return Ok(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(inner).map_err(|_| BadValue)?;
    String::from_utf8(bytes)
        .map(Cow::Owned)
        .map_err(|_| BadValue)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(value: &str, expected: Result<&str, BadValue>) {
        assert_eq!(decode(value).as_deref(), expected.as_ref().map(|s| *s));
    }

    #[test]
    fn the_sentinel_is_decoded_and_its_likes_are_not() {
        check("=?base64?SGVsbG8=?=", Ok("Hello"));
        check("=?base64?SGVsbG8?=", Err(BadValue));
        check("=?base64?SGVs!!!bG8=?=", Err(BadValue));
        check("SGVsbG8=", Ok("SGVsbG8="));
        check("=?base64?SGVsbG8=", Ok("=?base64?SGVsbG8="));
        check("  name\t", Ok("name"));
    }

    #[test]
    fn plain_text_stays_plain() {
        assert_eq!(encode("tools/call x"), "tools/call x");
        assert_eq!(encode(""), "");
        assert_eq!(encode(" a"), "=?base64?IGE=?=");
        assert_eq!(encode("é"), "=?base64?w6k=?=");
        assert_eq!(encode("=?base64?x?="), "=?base64?PT9iYXNlNjQ/eD89?=");
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back(text in "\\PC{0,20}[ \n\t]{0,2}") {
            let encoded = encode(&text).into_owned();
            prop_assert!(encoded.bytes().all(|b| (0x20..0x7f).contains(&b)));
            prop_assert_eq!(decode(&encoded).unwrap(), text);
        }
    }
}
