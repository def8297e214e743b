//! What Waypost says of itself.

use waypost_wire::capability::ClientCapabilities;
use waypost_wire::meta::{META, RequestMeta, SERVER_INFO, SUBSCRIPTION_ID, UPSTREAM};
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::version;

use crate::member::Member;

/// `name` and `version`, as client towards servers and as server towards clients.
pub fn info() -> Raw {
    Raw::from_serialize(&serde_json::json!({
        "name": "waypost",
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// `_meta` of a call that Waypost makes for itself; it declares nothing.
pub fn meta() -> RequestMeta {
    RequestMeta {
        protocol_version: version::MODERN.into(),
        client_info: Some(info()),
        capabilities: ClientCapabilities::default(),
        log_level: None,
        progress_token: None,
        rest: Object::new(),
    }
}

/// [`info`], made once: it goes into every result.
static INFO: std::sync::LazyLock<Raw> = std::sync::LazyLock::new(info);

/// Waypost's own `clientInfo`, for callers that gave none.
pub(crate) fn client_info() -> Raw {
    INFO.clone()
}

/// `_meta` of a result that came from `upstream` without one.
pub(crate) fn signature(upstream: &str) -> Raw {
    let mut meta = Object::new();
    set(&mut meta, Some(upstream));
    meta.into()
}

/// As [`sign`] for what came from `member`.
pub(crate) fn sign_of(result: &mut Object, member: &Member) {
    if result.contains(META) {
        sign(result, Some(&member.name));
    } else {
        result.set(META, member.signature().clone());
    }
}

/// Rebuilds the parts of a result's `_meta` that belong to this hop: clients see Waypost's
/// `serverInfo`, and which upstream answered.
pub fn sign(result: &mut Object, upstream: Option<&str>) {
    // A `_meta` that cannot be read, one with a repeated key among them, is not passed on.
    let meta = result.get(META).and_then(|raw| raw.as_object().ok());
    let mut meta = meta.unwrap_or_default();
    // No answer to a call belongs to a listen stream of the caller's.
    meta.remove(SUBSCRIPTION_ID);
    set(&mut meta, upstream);
    result.set(META, meta.into());
}

/// Takes out of a notification what its `_meta` says of the hop that it came by.
pub(crate) fn unsign(params: &mut Object) {
    let Some(raw) = params.get(META) else { return };
    let mut meta = raw.as_object().unwrap_or_default();
    let own = [SUBSCRIPTION_ID, SERVER_INFO].map(|key| meta.remove(key));
    if meta.is_empty() {
        params.remove(META);
    } else if own.iter().any(Option::is_some) {
        params.set(META, meta.into());
    }
}

fn set(meta: &mut Object, upstream: Option<&str>) {
    meta.set(SERVER_INFO, INFO.clone());
    if let Some(upstream) = upstream {
        meta.set(UPSTREAM, Raw::string(upstream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(params: &'static str, expected: &str) {
        let bytes = bytes::Bytes::from_static(params.as_bytes());
        let mut params = Object::parse(&bytes).unwrap();
        unsign(&mut params);
        assert_eq!(Raw::from(params).text(), expected);
    }

    #[test]
    fn a_notification_says_nothing_of_the_hop_that_it_came_by() {
        check(
            r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":1,"io.modelcontextprotocol/serverInfo":{}},"a":1.0}"#,
            r#"{"a":1.0}"#,
        );
        check(
            r#"{"_meta":{"x":[ ],"io.modelcontextprotocol/serverInfo":{}}}"#,
            r#"{"_meta":{"x":[ ]}}"#,
        );
        check(r#"{"_meta":{"x": 1}}"#, r#"{"_meta":{"x": 1}}"#);
        check(r#"{"_meta":{"x":1,"x":2}}"#, "{}");
    }

    #[test]
    fn what_is_made_once_is_what_signing_makes() {
        let mut result = Object::new();
        sign(&mut result, Some("a"));
        assert_eq!(result.get(META), Some(&signature("a")));
    }
}
