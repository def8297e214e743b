//! Text that must not be seen: secrets, and addresses that may carry one.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

/// A text that is never printed: `Debug`, `Display` and `Serialize` all give `***`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

/// An `http` or `https` address of an upstream.
///
/// `Display` and `Debug` leave out the query, which often carries a key. An address with user
/// information never becomes one.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(http::Uri);

// === impl Secret ===

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Whoever calls this takes care that it is not printed.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "waypost-secret" })
    }
}

// === impl Url ===

impl Url {
    /// Checks and wraps an address.
    ///
    /// # Errors
    ///
    /// What is wrong with it and what to do, in words that do not repeat the address.
    pub(crate) fn parse(text: &str) -> Result<Self, (&'static str, &'static str)> {
        const SHAPE: &str = "write it like `https://host.example/mcp`";
        if text.contains('#') {
            return Err((
                "the address has a fragment",
                "leave out `#` and what follows",
            ));
        }
        if !text.contains("://") {
            return Err(("the address has no scheme", SHAPE));
        }
        let uri: http::Uri = text.parse().map_err(|_| ("not an address", SHAPE))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(("not an address", SHAPE));
        };
        if scheme != "http" && scheme != "https" {
            return Err(("only `http` and `https` are spoken", SHAPE));
        }
        if authority.as_str().contains('@') {
            let hint = "put it into `headers`: `Authorization: \"Basic ${env:LOGIN}\"`";
            return Err(("the address carries a user name or password", hint));
        }
        let port = authority
            .port_u16()
            .map_or(String::new(), |port| format!(":{port}"));
        if authority.host().is_empty() || authority.as_str() != authority.host().to_owned() + &port
        {
            return Err(("the host or port is malformed", SHAPE));
        }
        Ok(Self(uri))
    }

    /// Checks and wraps an address at the same host, given by its path, or a whole one.
    ///
    /// # Errors
    ///
    /// As [`Url::parse`].
    pub(crate) fn beside(&self, text: &str) -> Result<Self, (&'static str, &'static str)> {
        const WRONG: (&str, &str) = (
            "neither a path nor an address",
            "write it like `/prefix/messages` or `https://host.example/messages`",
        );
        if text.contains("://") {
            return Self::parse(text);
        }
        // Two slashes begin a host's name.
        if !text.starts_with('/') || text.starts_with("//") || text.contains(['#', '\\']) {
            return Err(WRONG);
        }
        let mut parts = self.0.clone().into_parts();
        parts.path_and_query = Some(text.parse().map_err(|_| WRONG)?);
        http::Uri::from_parts(parts).map(Self).map_err(|_| WRONG)
    }

    /// The whole address, query included. For connecting, not for printing.
    #[must_use]
    pub fn uri(&self) -> &http::Uri {
        &self.0
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.0.scheme_str().unwrap_or_default();
        let authority = self
            .0
            .authority()
            .map_or("", |authority| authority.as_str());
        write!(f, "{scheme}://{authority}{}", self.0.path())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r36_a_secret_prints_as_stars_however_it_is_printed() {
        let secret = Secret::new("canary");
        let all = format!(
            "{secret} {secret:?} {}",
            serde_json::to_string(&secret).unwrap()
        );
        assert_eq!(all, "*** *** \"***\"");
        assert_eq!(secret.expose(), "canary");
    }

    #[test]
    fn r36_an_address_prints_without_its_query() {
        let url = Url::parse("https://ci.example:8443/mcp?api_key=canary").unwrap();
        assert_eq!(
            format!("{url} {url:?}"),
            "https://ci.example:8443/mcp https://ci.example:8443/mcp"
        );
        assert_eq!(url.uri().query(), Some("api_key=canary"));
    }

    #[test]
    fn addresses_that_would_not_work_are_refused() {
        for (text, what) in [
            ("ci.example/mcp", "the address has no scheme"),
            ("/mcp", "the address has no scheme"),
            ("https://", "not an address"),
            ("ftp://ci.example", "only `http` and `https` are spoken"),
            (
                "https://a:b@ci.example",
                "the address carries a user name or password",
            ),
            ("https://ci.example/#x", "the address has a fragment"),
            ("https://ci.example:99999/", "the host or port is malformed"),
            ("https://ci example/", "not an address"),
        ] {
            assert_eq!(Url::parse(text).unwrap_err().0, what, "{text}");
        }
    }

    #[test]
    fn an_address_beside_another_is_a_path_at_its_host_or_a_whole_one() {
        let url = Url::parse("https://ci.example:8443/p/sse?api_key=canary").unwrap();
        let beside = |text: &str| url.beside(text).map(|url| url.uri().to_string());
        for (text, expected) in [
            ("/p/messages", "https://ci.example:8443/p/messages"),
            ("/m?k=1", "https://ci.example:8443/m?k=1"),
            ("http://other.example/m", "http://other.example/m"),
        ] {
            assert_eq!(beside(text).unwrap(), expected);
        }
        for text in [
            "",
            "messages",
            "//other.example/m",
            "/\\other/m",
            "/m#x",
            "/a b",
        ] {
            assert_eq!(
                beside(text).unwrap_err().0,
                "neither a path nor an address",
                "{text}"
            );
        }
        assert!(beside("ftp://ci.example/m").is_err());
    }
}
