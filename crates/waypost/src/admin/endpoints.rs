//! `/api/v1/endpoints`: what each named endpoint shows.

use serde_json::{Value, json};
use waypost_hub::call::View;
use waypost_hub::catalog::Catalog;
use waypost_hub::catalog::endpoint::Endpoint;
use waypost_hub::catalog::entry::Kind;

/// `{"endpoints": [...]}` in the file's order.
pub(super) fn list(catalog: &Catalog) -> Value {
    let endpoints = catalog.endpoints().iter();
    let all: Vec<Value> = endpoints.map(|endpoint| one(catalog, endpoint)).collect();
    json!({ "endpoints": all })
}

fn one(catalog: &Catalog, endpoint: &Endpoint) -> Value {
    let name = &*endpoint.rules.name;
    let view = View::Endpoint(name.into());
    let upstreams: Vec<&str> = catalog.shown(&view).map(|member| &*member.name).collect();
    let mut object = json!({
        "name": name,
        "path": format!("/mcp/{name}"),
        "upstreams": upstreams,
        "prefix": endpoint.rules.prefix,
        "pageSize": endpoint.rules.page_size,
        "discovery": endpoint.rules.discovery,
        "warnings": endpoint.warnings,
    });
    for kind in Kind::ALL {
        let (shown, hidden) = catalog.counts(kind, &view);
        let counts = json!({ "shown": shown, "hidden": hidden });
        if let Some(object) = object.as_object_mut() {
            object.insert(kind.list_member().to_owned(), counts);
        }
    }
    object
}
