//! Which era a request speaks (specification: versioning, and what clients really send).

use waypost_wire::meta::PROTOCOL_VERSION;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::version;

/// The era of one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// Stateless; it is yet to be seen whether everything it must carry is there.
    Modern,
    /// Of the session era. What it asks for: the version of its header or, for `initialize`, of
    /// its body. Inside a session the session knows better.
    Legacy { requested: Option<String> },
}

/// Decides. `meta` is what could be read of `_meta`, `header` is the version header; one that cannot be read still is one.
///
/// `Mcp-Method` and `Mcp-Name` never decide: proxies put them on legacy requests too.
pub(crate) fn of(name: &str, params: &Object, meta: Option<&Object>, header: Option<&str>) -> Era {
    if meta.is_some_and(|meta| meta.contains(PROTOCOL_VERSION)) {
        return Era::Modern;
    }
    let initialize = name == method::INITIALIZE;
    match header {
        Some(said) if !initialize && !version::is_legacy(said) => Era::Modern,
        said => {
            let offered = initialize
                .then(|| params.string("protocolVersion"))
                .flatten();
            Era::Legacy {
                requested: offered.or_else(|| said.map(str::to_owned)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use waypost_wire::meta::META;

    use super::*;

    #[track_caller]
    fn check(method: &str, params: &'static str, header: Option<&str>, legacy: Option<&str>) {
        let params = Object::parse(&Bytes::from_static(params.as_bytes())).unwrap();
        let expected = legacy.map_or(Era::Modern, |requested| Era::Legacy {
            requested: (!requested.is_empty()).then(|| requested.to_owned()),
        });
        let meta = params.get(META).and_then(|raw| raw.as_object().ok());
        assert_eq!(of(method, &params, meta.as_ref(), header), expected);
    }

    #[test]
    fn meta_then_header_then_method_decide() {
        let modern = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        check("tools/list", modern, Some("2026-07-28"), None);
        check("tools/list", modern, Some("2025-11-25"), None);
        check("tools/list", modern, None, None);
        check("initialize", modern, Some("2026-07-28"), None);
        check("tools/list", "{}", Some("2026-07-28"), None);
        check("tools/list", "{}", Some("v999"), None);
        check("tools/list", "{}", Some("2025-06-18"), Some("2025-06-18"));
        check("tools/list", "{}", None, Some(""));
        let offer = r#"{"protocolVersion":"2025-11-25","_meta":{"progressToken":1}}"#;
        check("initialize", offer, Some("2026-07-28"), Some("2025-11-25"));
        check("initialize", "{}", Some("2026-07-28"), Some("2026-07-28"));
    }
}
