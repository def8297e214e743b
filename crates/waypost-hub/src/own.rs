//! What Waypost says of itself.

use waypost_wire::capability::ClientCapabilities;
use waypost_wire::meta::RequestMeta;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::version;

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
        protocol_version: version::MODERN.to_owned(),
        client_info: Some(info()),
        capabilities: ClientCapabilities::default(),
        log_level: None,
        progress_token: None,
        rest: Object::new(),
    }
}
