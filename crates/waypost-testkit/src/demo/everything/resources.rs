//! The resources of *demo-everything*.

use serde_json::{Value, json};

use super::mrtr;
use super::samples::PNG;
use crate::kit::dispatch::cacheable;
use crate::kit::fail::Fail;
use crate::kit::request::Request;

/// The one whose contents change.
pub(crate) const WATCHED: &str = "test://watched-resource";
/// Listed after every other `test_trigger_resource_change`.
const DYNAMIC: &str = "test://dynamic-resource";
/// Asks before it can be read.
const ASKING: &str = "test://input-required";

/// Texts: URI, media type, contents.
const TEXTS: &[(&str, &str, &str)] = &[
    (
        "test://static-text",
        "text/plain",
        "This is the content of the static text resource.",
    ),
    (
        "test://embedded-resource",
        "text/plain",
        "This is an embedded resource content.",
    ),
    (
        "test://mixed-content-resource",
        "application/json",
        r#"{"test":"data","value":123}"#,
    ),
    (
        "test://example-resource",
        "text/plain",
        "Embedded resource content for testing.",
    ),
];

/// What of the resources changes with time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Whether the dynamic one is there.
    pub(crate) dynamic: bool,
    /// How often the watched one was changed.
    pub(crate) updates: u64,
}

pub(crate) fn list(now: Now) -> Vec<Value> {
    let item = |uri: &str, kind: &str| {
        let name = uri.trim_start_matches("test://");
        json!({ "uri": uri, "name": name, "mimeType": kind })
    };
    let mut all: Vec<Value> = TEXTS.iter().map(|(uri, kind, _)| item(uri, kind)).collect();
    all.push(item("test://static-binary", "image/png"));
    all.push(item(WATCHED, "text/plain"));
    all.push(item(ASKING, "text/plain"));
    if now.dynamic {
        all.push(item(DYNAMIC, "text/plain"));
    }
    all
}

pub(crate) fn templates() -> Value {
    json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "One JSON document for every id.",
        "mimeType": "application/json",
    }])
}

pub(crate) fn read(request: &Request, now: Now) -> Result<Value, Fail> {
    let uri = request.string("uri")?;
    if uri == ASKING {
        return ask(request, uri);
    }
    let known = TEXTS.iter().find(|(known, ..)| *known == uri);
    let contents = if let Some((_, kind, text)) = known {
        json!({ "uri": uri, "mimeType": kind, "text": text })
    } else if uri == "test://static-binary" {
        json!({ "uri": uri, "mimeType": "image/png", "blob": PNG })
    } else if uri == WATCHED {
        json!({ "uri": uri, "mimeType": "text/plain", "text": format!("update {}", now.updates) })
    } else if uri == DYNAMIC && now.dynamic {
        json!({ "uri": uri, "mimeType": "text/plain", "text": "This resource comes and goes." })
    } else if let Some(id) = template_id(uri) {
        let document =
            json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
        json!({ "uri": uri, "mimeType": "application/json", "text": document.to_string() })
    } else {
        let fail = Fail::invalid_params("resource not found");
        return Err(fail.with_data(json!({ "uri": uri })));
    };
    Ok(cacheable(json!({ "contents": [contents] })))
}

/// Two rounds; the second is this caller's alone and must not be cached.
fn ask(request: &Request, uri: &str) -> Result<Value, Fail> {
    let question = "Whom is the resource for?";
    Ok(match mrtr::ask_text(request, "reader", question, "name")? {
        Err(question) => question,
        Ok(name) => json!({
            "contents": [{ "uri": uri, "mimeType": "text/plain", "text": format!("For {name}.") }],
            "ttlMs": 0,
            "cacheScope": "private",
        }),
    })
}

fn template_id(uri: &str) -> Option<&str> {
    let id = uri
        .strip_prefix("test://template/")?
        .strip_suffix("/data")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}
